package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/bridge/bridge"

	"github.com/mcp-bridge/bridge/bridge/guard/limits"
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

// Session is one client's stay.
type Session struct {
	b      *Gateway
	id     string
	server string // its name; empty means all as one
	log    *slog.Logger
	caller *bridge.Caller
	ways   bindings[*server] // the servers are nil where several are as one
	ctx    context.Context   // of the session's life
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // calls and other goroutines of the session
	seen   atomic.Int64   // last use, Unix nanoseconds
	left   atomic.Bool    // the client has closed its last stream, and sent nothing since
	began  time.Time

	greeted atomic.Bool // initialize was answered

	changes *subscribe.Changes // that the client is told of

	mu        sync.Mutex // guards the rest
	ready     bool       // the client has finished the handshake
	used      bool       // a request came after it
	ending    bool
	ended     chan struct{} // closed when nothing of the session is left
	calls     *Call         // the newest of the calls under way
	callCount int
	questions map[string]*question // by the id that we gave them, raw
	asked     int64
	streams   []*attachment // open for what belongs to no call; the newest is used
	pending   *replay.Log   // what waits for such a stream
	onEnd     []func()
	held      session.Held // what is kept of it, and the right to change that
}

// Call is one request of the client, entered among those under way or refused. It
// is the Client that its progress goes to.
type Call struct {
	s          *Session
	way        *binding[*server]
	m          *jsonrpc.Message
	with       Envelope
	id         []byte // the client's own, raw
	back       bridge.Stream
	ctx        context.Context
	cancel     context.CancelCauseFunc
	span       trace.Span // nil without tracing
	prev, next *Call      // in the session's list
	arrival    report.Arrival
	answer     *jsonrpc.Message // of what was refused, or is not for the server
	err        error            // why it was refused
}

// question is a request of the server that waits for the client's answer.
type question struct {
	token []byte // the server's own progress token, raw
	reply func(*jsonrpc.Message)
	to    bridge.Stream // nil while it waits for one
	place int64         // among what is pending, meanwhile
	timer *time.Timer
}

// How long a question waits.
const (
	questionTTL = 10 * time.Minute // for the client's answer
	streamTTL   = 30 * time.Second // for a stream to put it on (D3)
)

// Envelope holds what comes with a client's message over HTTP. What no server's allow-list
// names is not looked at.
type Envelope struct {
	// Header has the headers of the request; nil for a wire without headers.
	Header http.Header
	// Identity is what the bridge knows of the caller by its token; nil without one.
	Identity *identity.Identity
}

// EnvelopeOf returns what came with the message of a request that was let in.
func EnvelopeOf(r *http.Request) Envelope {
	return Envelope{r.Header, auth.IdentityOf(r.Context())}
}

func (e *Envelope) open() Envelope {
	if e == nil {
		return Envelope{}
	}
	return *e
}

// Initialize starts a session for a client that sent the initialize request m
// to the server of that name, and returns it with the result for the client.
// The empty name means all servers as one; if there is only one, that one.
// id is the session's; it must not be guessable. The session ends by itself
// when the handshake fails: the answer is then the error for the client. e is what came with the client's request; it may be nil, for Call
// and Notify too.
//
// The session ends with this process, whatever its store is: see InitializePortable.
func (b *Gateway) Initialize(ctx context.Context, server, id, principal string, e *Envelope, m *jsonrpc.Message) (*Session, *jsonrpc.Message, error) {
	return b.begin(ctx, server, id, principal, e, m, true)
}

// InitializePortable is Initialize for a session that another instance may go on
// with, by Adopt: its client does not depend on a stream of this one's.
func (b *Gateway) InitializePortable(ctx context.Context, server, id, principal string, e *Envelope, m *jsonrpc.Message) (*Session, *jsonrpc.Message, error) {
	return b.begin(ctx, server, id, principal, e, m, false)
}

func (b *Gateway) begin(ctx context.Context, server, id, principal string, e *Envelope, m *jsonrpc.Message, bound bool) (*Session, *jsonrpc.Message, error) {
	mid := bytes.Clone(m.ID) // the answer outlives the request
	key := session.Key(id)
	if err := b.Allowed(server, principal); err != nil {
		return nil, b.reject(shown(key), &bridge.Caller{Principal: principal}, m, err), err
	}
	caller, fault := newCaller(principal, m)
	if fault != "" {
		a := jsonrpc.NewError(mid, jsonrpc.CodeInvalidParams, fault, nil)
		b.reports.Reject(shown(key), &bridge.Caller{Principal: principal}, m, a, nil)
		return nil, a, errors.New(fault)
	}
	with := e.open()
	caller.Header, caller.Identity, caller.Params = b.forwarded(with.Header), with.Identity, b.tracing.Untraced(caller.Params)
	if err := b.enter(caller, m); err != nil {
		return nil, b.reject(shown(key), caller, m, err), err
	}
	defer b.leave(caller)
	s := b.newSession(key, server, caller)
	s.held.Bound = bound
	if err := b.add(s); err != nil {
		s.cancel(err)
		return nil, b.reject(shown(key), caller, m, err), err
	}
	came := b.reports.Arrive(new(report.Arrival), shown(key), with.Header)
	life, span := b.tracing.Received(s.ctx, m, with.Header, server, caller, s.shown())
	a, err := s.initialize(ctx, life, m, came)
	tracing.End(span, m.Method, a, err)
	b.reports.Depart(came, caller, m, a, err)
	if err != nil {
		s.End(err)
		return nil, Refusal(mid, err), err
	}
	a.ID = mid
	s.greeted.Store(true)
	s.log.Info("session began", append(s.who(), "revision", caller.Revision)...)
	return s, a, nil
}

// who says for the log whose session it is: what the client calls itself, and its
// principal.
func (s *Session) who() []any {
	who := []any{"client", health.Client(s.caller)}
	if s.caller.Principal != "" {
		who = append(who, "principal", s.caller.Principal)
	}
	return who
}

// newSession makes a session that nobody knows yet.
func (b *Gateway) newSession(key, server string, caller *bridge.Caller) *Session {
	s := &Session{b: b, id: key, server: server, log: b.log, caller: caller, ended: make(chan struct{}), began: time.Now()}
	s.held.Record = session.Record{Key: key, Server: server, Principal: caller.Principal, Revision: caller.Revision, Params: caller.Params, Header: identity.Pack(caller.Header, identity.WithoutToken(caller.Identity))} // each request shows its token anew
	if lease, ok := b.store.(session.Leased); ok {
		caller.Stay = newStay(lease, key, s.keep, s.moves)
	}
	s.changes = subscribe.NewChanges(s.tell)
	s.ways.Begin(nil, s.way, s.End, func(shut func(context.Context)) { b.goes(func() { shut(b.force) }) })
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.Seen()
	return s
}

// forwarded returns what may be forwarded of h to one server or another, as a copy. It is nil
// when there is no h, or servers get nothing of clients.
func (b *Gateway) forwarded(h http.Header) http.Header {
	t := b.table.Load()
	if h == nil || !t.forwarding {
		return nil
	}
	return pickedHeaders(h, t.forwards)
}

// add enters the session among those that live.
func (b *Gateway) add(s *Session) error {
	if err := b.quota.Stay(s.caller); err != nil {
		return err
	}
	if err := b.enroll(s); err != nil {
		b.quota.Depart(s.caller)
		return err
	}
	return nil
}

// enroll is add, of a session that its principal may have.
func (b *Gateway) enroll(s *Session) error {
	if s.held.Owner == "" { // otherwise it was taken over
		held, err := b.store.Put(s.ctx, s.held)
		if errors.Is(err, session.ErrFull) {
			return &bridge.Error{Kind: bridge.ErrOverloaded, Public: "the bridge has as many sessions as it may have (max_sessions); try again later"}
		}
		if err != nil {
			return err
		}
		s.held = held
	}
	b.mu.Lock()
	at := b.table.Load().at(s.server)
	no := b.allowed(at, s.server, s.caller.Principal) // it may have left meanwhile
	if b.closed {
		no = bridge.ErrShutdown
	}
	if at != nil { // before others see the session
		s.ways.Now().At, s.log = at, at.log
	}
	if no == nil {
		b.sessions[s] = struct{}{}
	}
	b.mu.Unlock()
	if no != nil {
		_ = b.store.Delete(context.Background(), s.held)
		return no
	}
	if err := b.revoked.Check(s.caller.Principal); err != nil {
		s.End(err) // who puts it out may have looked at the sessions before
	}
	return nil
}

// initialize opens the connection to the server and makes the client's answer
// of the server's. ctx is the client's request's, life the session's.
func (s *Session) initialize(ctx, life context.Context, m *jsonrpc.Message, came *report.Arrival) (*jsonrpc.Message, error) {
	if err := s.ways.Reach(ctx, s.ctx); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })
	w := s.ways.Enter()
	defer w.Leave()
	a, err := w.Up.Call(life, &bridge.Request{Message: m, From: s.caller, Call: came.Call()})
	if !stop() { // the client has gone; with it, so has the session's context
		return nil, context.Cause(ctx)
	}
	if cause := context.Cause(s.ctx); cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	// A server that speaks another revision is no reason for the client to
	// leave: it is answered its own (D3). All else is relayed as it is.
	result := a.Result
	s.keep(func(r *session.Record) { r.Greeting = greetingOf(result) })
	if v := gjson.GetBytes(result, "protocolVersion"); v.Str != s.caller.Revision && v.Index > 0 {
		spliced := append(slices.Clone(result[:v.Index]), rawjson.Quote(s.caller.Revision)...)
		result = append(spliced, result[v.Index+len(v.Raw):]...)
	}
	return jsonrpc.NewResult(nil, result), nil
}

// way makes what calls go to.
func (s *Session) way(w *binding[*server]) (bridge.Upstream, error) {
	if w.At == nil {
		return s.b.aggregate.Session(s.caller, receiver{s, w}), nil
	}
	return w.At.session(s.caller, receiver{s, w})
}

// Server returns the name of the session's server; empty means all as one.
func (s *Session) Server() string { return s.server }

// Principal returns whose session it is: nobody else may use it, or learn that it
// exists.
func (s *Session) Principal() string { return s.caller.Principal }

// Revision returns the revision agreed with the client.
func (s *Session) Revision() string { return s.caller.Revision }

// Call enters the client's request and makes it.
func (s *Session) Call(m *jsonrpc.Message, e *Envelope, back bridge.Stream) (*jsonrpc.Message, error) {
	return s.Enter(m, e, back).Do()
}

// Enter enters the client's request m among those under way, so that a cancellation
// that follows finds it. e is what came with it, or nil; back takes what the server has
// to say meanwhile. Either Do or Go is to be called, once.
func (s *Session) Enter(m *jsonrpc.Message, e *Envelope, back bridge.Stream) *Call {
	s.Seen()
	c := &Call{s: s, m: m, with: e.open(), id: bytes.Clone(m.ID), back: back} // the answer outlives the request
	switch m.Method {
	case "ping":
		c.answer = jsonrpc.NewResult(c.id, []byte("{}"))
		return c
	case "initialize":
		c.answer = jsonrpc.NewError(c.id, jsonrpc.CodeInvalidRequest, "this session is initialized already", nil)
		s.b.reports.Reject(s.shown(), s.caller, m, c.answer, nil)
		return c
	}
	c.ctx, c.span = s.b.tracing.Received(s.ctx, m, c.with.Header, s.server, s.caller, s.shown())
	if err := s.b.enter(s.caller, m); err != nil {
		return c.reject(err)
	}
	c.ctx, c.cancel = context.WithCancelCause(c.ctx)
	c.way = s.ways.Enter()
	if err := s.enter(c); err != nil {
		c.end()
		return c.reject(err)
	}
	return c
}

// reject refuses the call.
func (c *Call) reject(err error) *Call {
	c.answer, c.err = c.s.b.reject(c.s.shown(), c.s.caller, c.m, err), err
	tracing.End(c.span, c.m.Method, nil, err)
	return c
}

// end ends what Enter began.
func (c *Call) end() {
	c.way.Leave()
	c.cancel(nil)
	c.s.b.leave(c.s.caller)
}

// Go has the call made in a goroutine of the session's, which gives done what Do
// returns. When the session has ended it reports false, and Do says why.
func (c *Call) Go(done func(*jsonrpc.Message, error)) bool {
	ok := c.s.Go(func() { done(c.Do()) })
	if !ok && c.answer == nil {
		c.s.leave(c)
		c.end()
		c.reject(cmp.Or(context.Cause(c.s.ctx), bridge.ErrEnded))
	}
	return ok
}

// Do makes the call and returns the answer, which carries the client's id: an error
// message when the call failed, and the error then says why. There is none only of a
// call that the client itself has cancelled.
func (c *Call) Do() (a *jsonrpc.Message, err error) {
	if c.answer != nil {
		return c.answer, c.err
	}
	defer c.end()
	defer func() { tracing.End(c.span, c.m.Method, a, err) }()
	s := c.s
	came := s.b.reports.Arrive(&c.arrival, s.shown(), c.with.Header)
	for err = s.resume(c.ctx, c.way, c.m); err != nil && !c.way.Counts() && c.ctx.Err() == nil; err = s.resume(c.ctx, c.way, c.m) {
		c.way.Leave() // nothing was sent: it goes where calls go now
		c.way = s.ways.Enter()
	}
	if err == nil {
		a, err = c.way.Up.Call(c.ctx, &bridge.Request{Message: c.m, From: s.caller, Back: c, Header: s.b.forwarded(c.with.Header), Identity: c.with.Identity, Call: came.Call()})
	}
	if err == nil && a.Error == nil {
		if change := recordOf(c.m); change != nil {
			if s.keep(change); !c.way.Counts() {
				s.repeat(c.ctx, c.m)
			}
		}
	}
	s.leave(c)
	err = s.b.reports.Conclude(came, s.server, s.caller, c.m, a, err)
	switch {
	case err == nil:
		a.ID = c.id
		return a, nil
	case errors.Is(context.Cause(c.ctx), bridge.ErrCancelled):
		return nil, bridge.ErrCancelled
	}
	if cause := context.Cause(s.ctx); cause != nil {
		if errors.Is(cause, bridge.ErrShutdown) && errors.Is(err, bridge.ErrLost) { // to say only that it is stopping would be to ask for another try
			cause = &bridge.Error{Server: s.server, Kind: bridge.ErrLost, Public: bridge.Stopped}
		}
		err = cause
	}
	s.b.callFailed(s.log, c.m.Method, err, c.span)
	return Refusal(c.id, err), err
}

// callFailed logs that a call had no answer. A server that is down fails many: a line
// a second is enough, and the others are details.
func (b *Gateway) callFailed(log *slog.Logger, method string, err error, span trace.Span) {
	level := slog.LevelDebug
	b.failures.Do(func() { level = slog.LevelInfo })
	log.Log(context.Background(), level, "call failed", "method", fmt.Sprintf("%.64s", method), "err", bridge.Brief(err), tracing.ID(span))
}

// reject reports a request that was refused at the door, and returns its answer.
func (b *Gateway) reject(session string, from *bridge.Caller, m *jsonrpc.Message, err error) *jsonrpc.Message {
	b.reports.Reject(session, from, m, nil, err)
	return Refusal(bytes.Clone(m.ID), err)
}

func (s *Session) enter(c *Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch at := c.way.At; {
	case s.ending:
		return bridge.ErrEnded
	case at != nil && at.left.Err() != nil:
		return context.Cause(at.left)
	case s.callCount >= s.b.maxCalls:
		return &bridge.Error{Kind: bridge.ErrOverloaded, After: limits.Again, Public: bridge.OverLimit("the session has too many calls under way", s.b.maxCalls)}
	}
	if c.next = s.calls; c.next != nil {
		c.next.prev = c
	}
	s.calls = c
	s.callCount++
	s.used = true
	if !s.ready {
		s.begin() // a client that forgets notifications/initialized is ready all the same
	}
	return nil
}

func (s *Session) leave(c *Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		s.calls = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	s.callCount--
	s.rest()
}

// Notify takes a notification of the client.
func (s *Session) Notify(m *jsonrpc.Message, e *Envelope) {
	s.Seen()
	switch m.Method {
	case "notifications/initialized":
		s.mu.Lock()
		s.used = true
		s.begin()
		s.mu.Unlock()
		return // the server was told when its connection was opened
	case "notifications/cancelled":
		s.cancelCall(m)
		return
	case "notifications/progress":
		s.mu.Lock()
		q := s.questions[string(jsonrpc.Unquoted(m.Token()))]
		s.mu.Unlock()
		if q == nil || q.token == nil {
			return // about nothing that this client was asked
		}
		theirs, err := jsonrpc.Parse(m.Append(nil, nil, q.token))
		if err != nil {
			return // cannot be: both halves were parsed before
		}
		m = theirs
	}
	w := s.ways.Now()
	if !w.Adopted.Done() {
		return // there is no connection yet that it could be about
	}
	with := e.open()
	if err := w.Up.Notify(s.ctx, &bridge.Request{Message: m, From: s.caller, Header: s.b.forwarded(with.Header), Identity: with.Identity}); err != nil {
		s.log.Debug("notification not delivered", "method", m.Method, "err", err)
	}
}

// cancelCall cancels the call that a notification takes back. When several have
// its id, which is against the protocol, it cannot be told which is meant, and
// none is.
func (s *Session) cancelCall(n *jsonrpc.Message) {
	id := n.RequestID()
	s.mu.Lock()
	var found *Call
	for c := s.calls; c != nil; c = c.next {
		if !bytes.Equal(c.id, id) {
			continue
		}
		if found != nil {
			s.mu.Unlock()
			return
		}
		found = c
	}
	s.mu.Unlock()
	if found != nil {
		found.cancel(bridge.TakenBack(n))
	}
}

// Notify passes on what the server says about the call, on the call's stream.
// When that cannot take it, progress and log messages are dropped, and the
// rest goes where goes what belongs to no call.
func (c *Call) Notify(n *jsonrpc.Message) {
	if c.back != nil && c.back.Send(NotificationEvent(n)) {
		return
	}
	if n.Method != "notifications/progress" && n.Method != "notifications/message" {
		receiver{c.s, nil}.Notify(n)
	}
}

// Ask passes a question about this call on to the client.
func (c *Call) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return c.s.ask(q, reply, c)
}

// Gone is of no interest: the call itself fails.
func (c *Call) Gone(error) {}

// shown tells the session from others in a log, and is not its id.
func (s *Session) shown() string { return shown(s.id) }

// shown is what logs and reports have of a session's key.
func shown(key string) string { return key[:min(len(key), 8)] }
