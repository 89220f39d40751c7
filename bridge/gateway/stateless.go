package gateway

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/tracing"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Stateless describes one request of a stateless client (2026-07-28 and later).
type Stateless struct {
	// Server is the name of the server; empty means the aggregate, or the only server.
	Server string
	// From is the caller, read from the request's _meta.
	From *bridge.Caller
	// Header holds the headers of the client's request; nil on stdio. The bridge compares the headers that repeat
	// arguments with the arguments. It reads other headers only if a server gets them.
	Header http.Header
	// Remote is the address of the peer that sent the request; empty on stdio.
	Remote string
	// Identity is the identity from the caller's token. It is nil without a token.
	Identity *identity.Identity
	// Tools is the mode that the client's URL requests. Empty means the mode of the address.
	Tools ToolsMode
	// Back takes the server's messages before the answer.
	Back bridge.Stream
	// Keep makes the message valid beyond the call, until free is called. If Keep is nil, a call that outlives its
	// request copies the message.
	Keep func() (free func())
}

// IsStateless reports whether _meta of m names a revision. If it does, m is a stateless request, whatever its session
// id and headers say (protocol.md C3).
func IsStateless(m *jsonrpc.Message) bool { return era.SaysVersion(m.Meta()) }

// NewStateless reads the caller from a stateless request. If the request is malformed, NewStateless returns the error
// message for the client instead (protocol.md B7.7, B7.8, B7.9). server and principal are as in SessionOptions.
func NewStateless(server, principal string, m *jsonrpc.Message) (*Stateless, *jsonrpc.Message) {
	from, no := statelessCaller(principal, m)
	if no != nil {
		return nil, no
	}
	return &Stateless{Server: server, From: from}, nil
}

// maxListenSize limits a subscriptions/listen request to 1 MiB, since the request stays in memory as long as the
// subscription.
const maxListenSize = 1 << 20

func (g *gateway) Call(ctx context.Context, m *jsonrpc.Message, stateless Stateless) (*jsonrpc.Message, error) {
	id := bytes.Clone(m.ID) // the answer may outlive m
	s := &statelessCall{StatelessClient: StatelessClient{Back: stateless.Back}}
	if m.Method != era.Listen { // a subscription is not awaited: it ends with its server
		g.reports.Look(&s.arrival)
		defer s.arrival.Found()
	}
	at := g.table.Load().at(stateless.Server)
	if err := g.allowed(at, stateless.Server, stateless.From.Principal); err != nil {
		return g.reject("", stateless.From, m, err), err
	}
	if m.Method == era.Listen && m.Len() > maxListenSize {
		a := jsonrpc.NewError(id, jsonrpc.CodeInvalidParams, bridge.OverLimit("the subscriptions/listen request has too many bytes", maxListenSize), nil)
		g.reports.Reject("", stateless.From, m, a, nil)
		return a, nil
	}
	s.where = address{
		name:      stateless.Server,
		at:        at,
		mode:      stateless.Tools,
		principal: stateless.From.Principal,
	}
	var no *jsonrpc.Message
	if m, s.through, no = g.unwrapped(m, stateless.From, s.where); no != nil {
		g.reports.Reject("", stateless.From, m, no, nil)
		return no, nil
	}
	ctx, span := g.tracing.Received(ctx, m, stateless.Header, stateless.Server, stateless.From, "", stateless.Remote)
	a, err := g.admitted(ctx, m, stateless, s, id, span)
	tracing.End(span, m.Method, a, err)
	return a, err
}

// admitted answers a request that may use its server. The span is for the whole request.
func (g *gateway) admitted(ctx context.Context, m *jsonrpc.Message, one Stateless, s *statelessCall, id []byte, span trace.Span) (*jsonrpc.Message, error) {
	done, err := g.receive(one.From, m)
	if err != nil {
		return g.reject("", one.From, m, err), err
	}
	defer done()
	var up bridge.Upstream
	listening, at, p := g.listening, s.where.at, g.table.Load().groups[s.where.name]
	switch {
	case at != nil:
		up, listening = at.statelessCalls, at.listening
	case p != nil:
		up = p.stateless
	default:
		return g.reject("", one.From, m, bridge.ErrUnknownServer), bridge.ErrUnknownServer
	}
	up = g.offered(up, m, s.through, s.where)
	if principal := one.From.Principal; m.Method == era.Listen || principal != "" {
		var stop context.CancelCauseFunc
		ctx, stop = context.WithCancelCause(ctx)
		defer stop(nil)
		if m.Method == era.Listen {
			s.Subscription, s.Changes = id, subscribe.NewChanges(func(m *jsonrpc.Message) {
				if m.Method != list.Tools.Changed() || !g.constant(s.where) {
					s.Tell(m)
				}
			})
			defer s.Changes.End(false) // otherwise an error would leave the goroutine running
			defer context.AfterFunc(listening, func() { stop(bridge.ErrShutdown) })()
		}
		if s.Subscription == nil {
			s.arrival.Cancel = stop
		} else {
			wants, _ := subscribe.ReadListen(m.Params)
			s.revocable.Relists = func(server string, kinds ...list.Kind) {
				if g.allowed(at, one.Server, principal) != nil {
					stop(bridge.ErrShutdown)
				} else if server == "" || at == nil && (server == one.Server || p.has(server)) || at != nil && server == at.o.Name {
					subscribe.NotifyChanged(s.Changes, wants.Of(kinds))
				}
			}
		}
		if err := g.revoked.Enter(&s.revocable, principal, stop); err != nil {
			return g.reject("", one.From, m, err), err
		}
		defer g.revoked.Leave(&s.revocable, principal)
	}
	from := *one.From
	from.Header, from.Identity = g.forwarded(one.Header), one.Identity
	came := g.reports.Arrive(&s.arrival, WireStateless, one.Server, "", one.Header, one.Remote, span)
	r := &bridge.Request{
		Message:  m,
		From:     &from,
		Back:     s,
		Header:   from.Header,
		Identity: from.Identity,
		Mirror:   era.Mirrors(one.Header),
		Through:  s.through,
		Keep:     one.Keep,
		Call:     came.Call(),
	}
	if s.through != "" {
		r.Mirror = nil // the client's headers repeat arguments of the meta tool
	}
	a, err := up.Call(ctx, r)
	err = g.reports.Conclude(came, one.Server, &from, m, a, err)
	if s.Changes != nil {
		s.Changes.End(ctx.Err() == nil || errors.Is(context.Cause(ctx), bridge.ErrShutdown))
	}
	switch {
	case s.Subscription != nil && (err == nil && a.Error == nil || errors.Is(context.Cause(ctx), bridge.ErrShutdown)):
		a.Release()
		return jsonrpc.NewResult(id, []byte(`{"resultType":"complete","_meta":{"`+era.KeySubscription+`":`+string(id)+`}}`)), nil
	case err == nil:
		a.ID = id
		return a, nil
	case errors.Is(context.Cause(ctx), bridge.ErrRevoked):
		return Refusal(id, errRevoked), errRevoked
	case ctx.Err() != nil && !byOperator(ctx):
		return nil, bridge.ErrCancelled
	}
	g.callFailed(g.log, true, m.Method, err, span)
	return Refusal(id, err), err
}

// receive admits a call or a subscription of a stateless client, and done ends it. Drain does not wait for
// subscriptions, so they do not count as calls in flight.
func (g *gateway) receive(from *bridge.Caller, m *jsonrpc.Message) (done func(), err error) {
	if m.Method == era.Listen {
		if g.inFlight.Draining() {
			return nil, bridge.ErrShutdown
		}
		if err := g.quota.Listen(from, m); err != nil {
			return nil, err
		}
		return func() { g.quota.Unlisten(from) }, nil
	}
	if err := g.enter(from, m); err != nil {
		return nil, err
	}
	g.statelessInFlight.Add(1)
	return func() {
		g.statelessInFlight.Add(-1)
		g.leave(from)
	}, nil
}

type statelessCall struct {
	StatelessClient
	where     address
	through   string // the bridge.Request.Through
	arrival   report.Arrival
	revocable principalCall
}
