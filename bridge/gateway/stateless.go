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

// Stateless is one request of a client that has no session: 2026-07-28 and later.
type Stateless struct {
	// Server is the name of the server; empty means all as one, or the only one.
	Server string
	// From is who asks, as the request itself says it.
	From *bridge.Caller
	// Header has the headers of the client's request, or is nil when its wire has
	// none. Those that repeat arguments are compared with them; beyond that, what
	// no server's allow-list names is not looked at.
	Header http.Header
	// Identity is what the bridge knows of the caller by its token.
	Identity *identity.Identity
	// Back takes what there is to say before the answer.
	Back bridge.Stream
	// Keep makes the message valid beyond the call, until the function that it
	// returns is called. It may be nil: a call that has to live on without its
	// request works on a copy then.
	Keep func() (free func())
}

// IsStateless reports whether a message says of itself that it is of a stateless
// revision, whatever it is that it says: that decides, before sessions and
// headers (protocol.md C3).
func IsStateless(m *jsonrpc.Message) bool { return era.SaysVersion(m.Meta()) }

// NewStateless reads who asks from a request of a stateless revision. The message,
// if it is not nil, is the error that answers a request which is not one as it
// has to be (protocol.md B7.7, B7.8, B7.9). server and principal are as in
// Bridge.Initialize.
func NewStateless(server, principal string, m *jsonrpc.Message) (*Stateless, *jsonrpc.Message) {
	from, no := callerWithoutSession(principal, m)
	if no != nil {
		return nil, no
	}
	return &Stateless{Server: server, From: from}, nil
}

// maxListenSize bounds a request to listen, which is in memory for as long as it
// lasts.
const maxListenSize = 1 << 20

// Call answers the request m of a client that has no session. It returns when
// there is an answer, which carries the client's id: an error message when the
// call failed, and the error then says why. The end of ctx means that the
// client wants the request cancelled; then there is no answer.
//
// A subscription lasts until ctx ends or the bridge has to end it; its answer
// is the closing one (2026-07-28, subscriptions).
func (b *Gateway) Call(ctx context.Context, m *jsonrpc.Message, g Stateless) (*jsonrpc.Message, error) {
	id := bytes.Clone(m.ID) // the answer outlives the request
	at := b.table.Load().at(g.Server)
	if err := b.allowed(at, g.Server, g.From.Principal); err != nil {
		return b.reject("", g.From, m, err), err
	}
	if m.Method == era.Listen && m.Len() > maxListenSize {
		a := jsonrpc.NewError(id, jsonrpc.CodeInvalidParams, bridge.OverLimit("the request to listen is too large: it has too many bytes", maxListenSize), nil)
		b.reports.Reject("", g.From, m, a, nil)
		return a, nil
	}
	ctx, span := b.tracing.Received(ctx, m, g.Header, g.Server, g.From, "")
	a, err := b.admitted(ctx, m, g, at, id, span)
	tracing.End(span, m.Method, a, err)
	return a, err
}

// admitted answers a request that is in its span.
func (b *Gateway) admitted(ctx context.Context, m *jsonrpc.Message, g Stateless, at *server, id []byte, span trace.Span) (*jsonrpc.Message, error) {
	done, err := b.receive(g.From, m)
	if err != nil {
		return b.reject("", g.From, m, err), err
	}
	defer done()
	c := &statelessCall{StatelessClient: StatelessClient{Back: g.Back}}
	up, listening := b.stateless, b.listening
	if at != nil {
		up, listening = at.statelessCalls, at.listening
	}
	if principal := g.From.Principal; m.Method == era.Listen || principal != "" {
		var stop context.CancelCauseFunc
		ctx, stop = context.WithCancelCause(ctx)
		defer stop(nil)
		if m.Method == era.Listen {
			c.Subscription, c.Changes = id, subscribe.NewChanges(c.Tell)
			defer c.Changes.End(false) // whatever becomes of it
			defer context.AfterFunc(listening, func() { stop(bridge.ErrShutdown) })()
		}
		if c.Subscription != nil {
			wants, _ := subscribe.ReadListen(m.Params)
			c.revocable.Relists = func(server string, kinds ...list.Kind) {
				if b.allowed(at, g.Server, principal) != nil {
					stop(bridge.ErrShutdown)
				} else if at == nil || server == "" || server == at.o.Name {
					subscribe.Tell(c.Changes, wants.Of(kinds))
				}
			}
		}
		if err := b.revoked.Enter(&c.revocable, principal, stop); err != nil {
			return b.reject("", g.From, m, err), err
		}
		defer b.revoked.Leave(&c.revocable, principal)
	}
	from := *g.From
	from.Header, from.Identity = b.forwarded(g.Header), g.Identity
	came := b.reports.Arrive(&c.arrival, "", g.Header)
	r := &bridge.Request{Message: m, From: &from, Back: c, Header: from.Header, Identity: from.Identity, Mirror: era.Mirrors(g.Header), Keep: g.Keep, Call: came.Call()}
	a, err := up.Call(ctx, r)
	err = b.reports.Conclude(came, g.Server, &from, m, a, err)
	if c.Changes != nil {
		c.Changes.End(ctx.Err() == nil || errors.Is(context.Cause(ctx), bridge.ErrShutdown))
	}
	switch {
	case c.Subscription != nil && (err == nil && a.Error == nil || errors.Is(context.Cause(ctx), bridge.ErrShutdown)):
		a.Release()
		return jsonrpc.NewResult(id, []byte(`{"resultType":"complete","_meta":{"`+era.KeySubscription+`":`+string(id)+`}}`)), nil
	case err == nil:
		a.ID = id
		return a, nil
	case errors.Is(context.Cause(ctx), bridge.ErrRevoked):
		return Refusal(id, errRevoked), errRevoked
	case ctx.Err() != nil:
		return nil, bridge.ErrCancelled
	}
	b.callFailed(b.log, m.Method, err, span)
	return Refusal(id, err), err
}

// receive admits a call of a client without a session. done is called when it
// has ended. Subscriptions are not waited for when the bridge stops.
func (b *Gateway) receive(from *bridge.Caller, m *jsonrpc.Message) (done func(), err error) {
	if m.Method == era.Listen {
		if b.flight.Draining() {
			return nil, bridge.ErrShutdown
		}
		if err := b.quota.Listen(from, m); err != nil {
			return nil, err
		}
		return func() { b.quota.Unlisten(from) }, nil
	}
	if err := b.enter(from, m); err != nil {
		return nil, err
	}
	b.statelessInFlight.Add(1)
	return func() {
		b.statelessInFlight.Add(-1)
		b.leave(from)
	}, nil
}

// statelessCall is what there is of a call of a client without a session.
type statelessCall struct {
	StatelessClient
	arrival   report.Arrival
	revocable principalCall
}
