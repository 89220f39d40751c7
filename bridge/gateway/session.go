package gateway

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/tracing"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// sitting is a Session: one client at one server, or at the aggregate.
type sitting struct {
	g        *gateway
	id       string
	server   string // name of the server; empty means the aggregate, or the only server
	log      *slog.Logger
	caller   *bridge.Caller
	bindings bindings
	ctx      context.Context // ends with the session
	cancel   context.CancelCauseFunc
	wg       sync.WaitGroup // calls and other goroutines of the session
	seen     atomic.Int64   // last use in Unix nanoseconds
	left     atomic.Bool    // the client closed its last stream, and sent nothing since
	began    time.Time
	wire     string // transport of the client, as in SessionStatus

	tools   atomic.Pointer[ToolsMode] // Envelope.Tools of the newest request
	greeted atomic.Bool               // initialize was answered

	changes *subscribe.Changes // collects notifications of changes for the client

	mu        sync.Mutex // guards the rest
	ready     bool       // the client finished the handshake
	used      bool       // the client sent a message after initialize
	ending    bool
	ended     chan struct{} // closed when the session is released
	calls     *call         // the newest call in flight
	callCount int
	callTotal uint64               // calls so far
	questions map[string]*question // by the bridge's raw id
	asked     int64
	streams   []*attachment // open standing streams; put tries the newest first
	pending   *replay.Log   // events that wait for a standing stream
	onEnd     []func()
	held      session.Held // the session's record in the store, and this instance's claim on it
	unsaved   bool         // the record changed since the last save
	saving    bool         // save runs
}

// Envelope holds what comes with a client's message outside the message. The bridge reads only the headers that a
// server forwards.
type Envelope struct {
	// Header holds the headers of the request. It is nil for a transport without headers.
	Header http.Header
	// Identity is the identity from the caller's token. It is nil without a token.
	Identity *identity.Identity
	// Tools is the mode that the client's URL requests. Empty means the mode of the address.
	Tools ToolsMode
	// Remote is the address of the peer that sent the request. It is empty for a transport without addresses.
	Remote string
}

// EnvelopeOf returns the envelope of a request that package auth has admitted.
func EnvelopeOf(r *http.Request) Envelope {
	mode, _ := ToolsModeOf(r.URL.Query()) // the server refuses other modes
	return Envelope{r.Header, auth.IdentityOf(r.Context()), mode, r.RemoteAddr}
}

func (e *Envelope) open() Envelope {
	if e == nil {
		return Envelope{}
	}
	return *e
}

func (g *gateway) initialize(ctx context.Context, m *jsonrpc.Message, o SessionOptions) (*sitting, *jsonrpc.Message, error) {
	mid := bytes.Clone(m.ID) // the answer may outlive m
	key := session.Key(o.ID)
	if err := g.Allowed(o.Server, o.Principal); err != nil {
		return nil, g.reject(shortID(key), &bridge.Caller{Principal: o.Principal}, m, err), err
	}
	caller, fault := newCaller(o.Principal, m)
	if fault != "" {
		a := jsonrpc.NewError(mid, jsonrpc.CodeInvalidParams, fault, nil)
		g.reports.Reject(shortID(key), &bridge.Caller{Principal: o.Principal}, m, a, nil)
		return nil, a, errors.New(fault)
	}
	with := o.Envelope.open()
	caller.Header, caller.Identity, caller.Params = g.forwarded(with.Header), with.Identity, g.tracing.Untraced(caller.Params)
	if err := g.enter(caller, m); err != nil {
		return nil, g.reject(shortID(key), caller, m, err), err
	}
	defer g.leave(caller)
	s := g.newSession(key, o.Server, caller)
	s.held.Bound = !o.Portable
	s.tools.Store(&with.Tools)
	switch {
	case o.Envelope == nil:
		s.wire = WireStdio
	case !o.Portable:
		s.wire = WireSSE
	}
	if err := g.add(s); err != nil {
		s.cancel(err)
		return nil, g.reject(shortID(key), caller, m, err), err
	}
	arrival := new(report.Arrival)
	if s.bindings.Current().Server == nil { // the binding counts the calls of a single server
		g.reports.Look(arrival)
		defer arrival.Found()
	}
	life, span := g.tracing.Received(s.ctx, m, with.Header, o.Server, caller, s.shortID(), with.Remote)
	came := g.reports.Arrive(arrival, s.wire, o.Server, shortID(key), with.Header, with.Remote, span)
	a, err := s.initialize(ctx, life, m, came)
	tracing.End(span, m.Method, a, err)
	g.reports.Depart(came, caller, m, a, err)
	if err != nil {
		s.End(err)
		return nil, Refusal(mid, err), err
	}
	a.ID = mid
	s.greeted.Store(true)
	s.log.Info("session began", append(s.who(), "revision", caller.Revision)...)
	return s, a, nil
}

// who returns the attributes of the session in log lines: client and principal.
func (s *sitting) who() []any {
	who := []any{"client", health.Client(s.caller)}
	if s.caller.Principal != "" {
		who = append(who, "principal", s.caller.Principal)
	}
	return who
}

// newSession returns a session that add has not registered yet.
func (g *gateway) newSession(key, server string, caller *bridge.Caller) *sitting {
	s := &sitting{
		g:      g,
		id:     key,
		server: server,
		log:    g.log,
		caller: caller,
		ended:  make(chan struct{}),
		began:  time.Now(),
		wire:   WireStreamable,
	}
	s.tools.Store(new(ToolsMode))
	caller.Session = key
	s.held.Record = session.Record{
		Key:       key,
		Server:    server,
		Principal: caller.Principal,
		Revision:  caller.Revision,
		Params:    caller.Params,
		Header:    identity.Pack(caller.Header, identity.WithoutToken(caller.Identity)),
	} // each request brings its own token
	if lease, ok := g.store.(session.Leased); ok {
		caller.Handover = newStay(lease, key, s)
	}
	s.changes = subscribe.NewChanges(s.tell)
	s.bindings.Init(s)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.Seen()
	return s
}

// forwarded returns a copy of those headers of h that at least one server gets. It is nil if h is nil, or if no server
// gets headers or claims.
func (g *gateway) forwarded(h http.Header) http.Header {
	t := g.table.Load()
	if h == nil || !t.forwarding {
		return nil
	}
	return pickedHeaders(h, t.forwards)
}

// add counts the session for its principal, stores it and registers it.
func (g *gateway) add(s *sitting) error {
	if err := g.quota.AddSession(s.caller); err != nil {
		return err
	}
	if err := g.enroll(s); err != nil {
		g.quota.RemoveSession(s.caller)
		return err
	}
	return nil
}

// enroll stores the session, unless it was adopted, and registers it.
func (g *gateway) enroll(s *sitting) error {
	adopted := s.held.Owner != ""
	if !adopted { // the record of an adopted session is in the store already
		held, err := g.store.Put(s.ctx, s.held)
		if errors.Is(err, session.ErrFull) {
			return &bridge.Error{Kind: bridge.ErrOverloaded, Public: "the bridge is at its limit of sessions (max_sessions); try again later"}
		}
		if err != nil {
			return err
		}
		s.held = held
	}
	g.mu.Lock()
	at := g.table.Load().at(s.server)
	no := g.allowed(at, s.server, s.caller.Principal) // the servers may have changed since the caller checked
	if g.closed {
		no = bridge.ErrShutdown
	}
	if at != nil { // before other goroutines see the session
		s.bindings.Current().Server, s.log = at, at.log
	}
	if no == nil {
		g.sessions[s] = struct{}{}
	}
	g.mu.Unlock()
	if no != nil {
		if !adopted { // another instance may still adopt an adopted session
			_ = g.store.Delete(context.Background(), s.held)
		}
		return no
	}
	if err := g.revoked.Check(s.caller.Principal); err != nil {
		s.End(err) // Revoke may have listed the sessions before this one
	}
	return nil
}

// initialize opens the connection and returns the answer for the client. ctx is the context of the request, and life
// that of the session.
func (s *sitting) initialize(ctx, life context.Context, m *jsonrpc.Message, came *report.Arrival) (*jsonrpc.Message, error) {
	if err := s.bindings.Connect(ctx, s.ctx); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })
	b := s.bindings.Enter()
	defer b.Leave()
	a, err := s.g.offered(b.Chain, m, "", s.address(b, *s.tools.Load())).Call(life, &bridge.Request{
		Message: m,
		From:    s.caller,
		Call:    came.Call(),
	})
	if !stop() { // the client cancelled, which ended the session's context
		return nil, context.Cause(ctx)
	}
	if cause := context.Cause(s.ctx); cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	// The client gets the revision that it agreed on with the bridge, whatever the revision of the server is (D3). The
	// rest of the result passes unchanged.
	result := a.Result
	s.keep(func(r *session.Record) { r.Greeting = greetingOf(result) })
	if v := gjson.GetBytes(result, "protocolVersion"); v.Str != s.caller.Revision && v.Index > 0 {
		spliced := append(slices.Clone(result[:v.Index]), rawjson.Quote(s.caller.Revision)...)
		result = append(spliced, result[v.Index+len(v.Raw):]...)
	}
	return jsonrpc.NewResult(nil, result), nil
}

// chain builds the chain of wrappers for a binding.
func (s *sitting) chain(b *binding) (bridge.Upstream, error) {
	if b.Server == nil {
		p := s.g.table.Load().groups[s.server]
		if p == nil {
			return nil, bridge.ErrUnknownServer
		}
		return p.Session(s.caller, receiver{s, b}), nil
	}
	return b.Server.Session(s.caller, receiver{s, b})
}

// address returns where a request of the session uses tools. mode is the mode that the request's URL asks for.
func (s *sitting) address(b *binding, mode ToolsMode) address {
	return address{
		name:      s.server,
		at:        b.Server,
		mode:      mode,
		principal: s.caller.Principal,
	}
}

func (s *sitting) Server() string { return s.server }

func (s *sitting) Principal() string { return s.caller.Principal }

func (s *sitting) Revision() string { return s.caller.Revision }

func (s *sitting) Notify(m *jsonrpc.Message, e *Envelope) {
	s.Seen()
	switch m.Method {
	case "notifications/initialized":
		s.mu.Lock()
		s.used = true
		s.begin()
		s.mu.Unlock()
		return // the bridge sent its own notification when it opened the connection
	case "notifications/cancelled":
		s.cancelCall(m)
		return
	case "notifications/progress":
		s.mu.Lock()
		q := s.questions[string(jsonrpc.Integer(m.Token()))]
		s.mu.Unlock()
		if q == nil || q.token == nil {
			return // it belongs to no open question
		}
		theirs, err := jsonrpc.Parse(m.Append(nil, nil, q.token))
		if err != nil {
			return // impossible: both parts were parsed before
		}
		m = theirs
	}
	b := s.bindings.Current()
	if !b.Handover.Done() {
		return // there is no connection yet that could have sent a question
	}
	with := e.open()
	if err := b.Chain.Notify(s.ctx, &bridge.Request{
		Message:  m,
		From:     s.caller,
		Header:   s.g.forwarded(with.Header),
		Identity: with.Identity,
	}); err != nil {
		s.log.Debug("notification not delivered", "method", m.Method, "err", err)
	}
}

// shortID returns the session's short name for logs and reports. It is not the session id, and gives no access.
func (s *sitting) shortID() string { return shortID(s.id) }

// shortID shortens the key of a session for logs and reports.
func shortID(key string) string { return key[:min(len(key), 8)] }
