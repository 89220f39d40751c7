// Package report reports the outcome of each request of a client. It makes one [Report] for each
// server that got the request. If no server got it, there is one report from the gateway. The
// package also counts each answer among the bytes in flight, so that a report has the outcome that
// the client gets.
//
// The receiver of the reports writes logs and metrics. The bridge's own requests are not
// reported.
package report

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Report is the outcome of one request of a client at one server. A request to several servers, such as a list of all
// of them, has a report for each. A request that reached no server has one report without a server. If the merged
// answer had no room, there is one more report without a server.
type Report struct {
	Server string // empty if the request reached no server
	// Own means that the report is about a list of tools that the bridge itself requested, for a search. Such a report
	// has only Server, Request and Answer, and the request is no call of the client.
	Own       bool
	Part      int32  // number of this report among those of a request to several servers, from 1; 0 for other requests
	Session   string // the beginning of the session's key, not of its id; empty for a stateless client
	Front     string // the tag of the instance that forwarded the request; empty for a direct request
	Principal string
	Revision  string // of the client; empty if unknown
	Speaks    string // the revision of the server; empty if unknown
	Began     time.Time
	Took      time.Duration
	Outcome   bridge.Outcome
	Code      int64 // of an error answer
	Err       error // why there was no answer; may name programs and files
	// Call is the bridge.Request.Call of the request.
	Call bridge.Call
	// From is the caller; nil if it is unknown. It must not be changed.
	From *bridge.Caller
	// Client is the address of the client; not valid on a wire without addresses, or if another instance forwarded the
	// request.
	Client netip.Addr
	// Network is the network of the client's wire: bridge.TCP or bridge.Pipe; empty if it is unknown.
	Network string
	// Address is the server's address; it is set only in reports of Sent.
	Address bridge.Address
	// Trace is the id of the request's trace; not valid without traces.
	Trace trace.TraceID
	// Request and Answer are the messages. Answer is nil when there was none. Both are valid only during the report,
	// and must not be changed.
	Request, Answer *jsonrpc.Message
}

// Reporter makes reports.
type Reporter struct {
	report func(Report) // nil without a receiver of the reports
	weigh  Weigh
	front  func(http.Header) string // nil when there is one instance
	client func(remote string, h http.Header) netip.Addr

	round atomic.Pointer[round] // of the calls that begin now

	mu    sync.Mutex // guards ended
	ended []*round   // rounds that still have calls, the oldest first
}

// Weigh counts an answer among the bytes in flight until it is released. It releases an answer without room, and
// returns an error for the client.
type Weigh func(server string, from *bridge.Caller, answer *jsonrpc.Message) error

// New makes a Reporter. report gets the reports, from several goroutines at once, and must not block; nil means that
// there is no receiver. front returns, from the headers of a request, the instance that forwarded it; nil means that
// there is one instance. client returns the address of the client of a request; nil means that there is none.
func New(report func(Report), weigh Weigh, front func(http.Header) string, client func(remote string, h http.Header) netip.Addr) *Reporter {
	r := &Reporter{
		report: report,
		weigh:  weigh,
		front:  front,
		client: client,
	}
	r.round.Store(newRound())
	return r
}

// Arrival is a request of a client on its way to its servers.
type Arrival struct {
	// Cancel cancels the request, and the client gets the cause. It is set before the request goes on; nil if only
	// the end of its context cancels the request.
	Cancel context.CancelCauseFunc

	address string // the server or group that the request's address names; empty for the address of all servers
	wire    string
	session string
	front   string
	client  netip.Addr
	network string
	trace   trace.TraceID
	began   time.Time
	by      atomic.Int32           // who reports the request: byNobody, byServers or byGateway
	meant   atomic.Pointer[string] // the server among several that should get the request; nil if unknown
	weighed atomic.Bool            // the answer is among the bytes in flight
	parts   atomic.Int32           // reports so far, of a request to several servers
	looks   atomic.Pointer[round]  // nil unless the request is a call that looks for its server
}

var _ bridge.Call = (*Arrival)(nil)

func (a *Arrival) At(server string) { a.meant.Store(&server) }

// Address returns the server or group that the address of the request names; empty for the address of all servers.
func (a *Arrival) Address() string { return a.address }

// Wire returns the transport of the client; empty for a request that was refused at once.
func (a *Arrival) Wire() string { return a.wire }

// Session returns the beginning of the session's key; empty for a request without a session.
func (a *Arrival) Session() string { return a.session }

// Call returns the arrival as a bridge.Call, or a nil interface for a nil Arrival.
func (a *Arrival) Call() bridge.Call {
	if a == nil {
		return nil
	}
	return a
}

// These are the values of Arrival.by: no report yet; servers report the request; or the gateway reports it, since no
// server got it in time.
const (
	byNobody int32 = iota
	byServers
	byGateway
)

// Arrive records in a that a request with headers h arrived on a wire, which Arrival.Wire returns. address is as in
// Arrival.Address. session is the beginning of the session's key, or empty. remote is the address of the peer that
// sent the request, and span the span of the request; both may be empty. If the reports have no receiver, Arrive
// returns nil.
func (r *Reporter) Arrive(a *Arrival, wire, address, session string, h http.Header, remote string, span trace.Span) *Arrival {
	if r.report == nil {
		return nil
	}
	a.wire, a.address, a.session, a.began, a.network = wire, address, session, time.Now(), bridge.TCP
	if h == nil {
		a.network = bridge.Pipe
	}
	if r.front != nil {
		a.front = r.front(h)
	}
	if r.client != nil && remote != "" && a.front == "" {
		a.client = r.client(remote, h)
	}
	if span != nil {
		a.trace = span.SpanContext().TraceID()
	}
	return a
}

// Depart reports a request that reached no server. Depart does nothing if a is nil, or if the request has a report.
func (r *Reporter) Depart(a *Arrival, from *bridge.Caller, request, answer *jsonrpc.Message, err error) {
	if a == nil || !a.by.CompareAndSwap(byNobody, byGateway) {
		return
	}
	p := Report{
		Session: a.session,
		Front:   a.front,
		Client:  a.client,
		Network: a.network,
		Trace:   a.trace,
		Began:   a.began,
		Request: request,
		Call:    a,
	}
	if name := a.meant.Load(); name != nil {
		p.Server = *name
	}
	r.end(&p, from, answer, err)
}

// Conclude counts the answer of a request among the bytes in flight. If no server made a report, or the merged answer
// has no room, Conclude makes one. Conclude returns why the client gets no answer, or nil.
func (r *Reporter) Conclude(a *Arrival, server string, from *bridge.Caller, request, answer *jsonrpc.Message, err error) error {
	if err == nil && (a == nil || !a.weighed.Load()) {
		if err = r.weigh(server, from, answer); err != nil && a != nil {
			a.meant.Store(nil)
			a.by.Store(byNobody)
		}
	}
	r.Depart(a, from, request, answer, err)
	return err
}

// Reject reports a request that was refused before any server.
func (r *Reporter) Reject(session string, from *bridge.Caller, request, answer *jsonrpc.Message, err error) {
	if r.report != nil {
		a := r.Arrive(new(Arrival), "", "", session, nil, "", nil)
		a.network = "" // the request's headers are not known here
		r.Depart(a, from, request, answer, err)
	}
}

// Session is a session of a client, or with a server, that ended. Clients and servers of revision 2026-07-28 have no
// sessions.
type Session struct {
	Server   string // empty for the address of all servers
	Revision string
	Address  bridge.Address // of the server; for a client's session, only the network
	Took     time.Duration
	Err      error // the reason, if it ended early
}

// Sent returns the report of a request that the bridge sent over up, at began, to the server at the address at. why
// is the reason that there is no answer, or nil.
func Sent(server string, at bridge.Address, up bridge.Upstream, began time.Time, request, answer *jsonrpc.Message, why error) Report {
	r := Report{
		Server:  server,
		Address: at,
		Began:   began,
		Request: request,
	}
	if greeting := up.Server(); greeting != nil {
		r.Speaks = greeting.Revision
	}
	r.finish(nil, answer, why)
	return r
}

// end completes a report and delivers it.
func (r *Reporter) end(p *Report, from *bridge.Caller, answer *jsonrpc.Message, err error) {
	p.finish(from, answer, err)
	r.report(*p)
}

// finish sets the members of the report that are known only when the request ends.
func (r *Report) finish(from *bridge.Caller, answer *jsonrpc.Message, err error) {
	r.Took = time.Since(r.Began)
	if from != nil {
		r.From, r.Principal, r.Revision = from, from.Principal, from.Revision
	}
	switch {
	case err != nil:
		r.Outcome, r.Err = bridge.OutcomeOf(err), err
		if r.Request.Method == era.Listen && (r.Outcome == bridge.Cancelled || errors.Is(err, bridge.ErrShutdown)) {
			r.Outcome = bridge.Answered // the normal end of a subscription
		}
	default:
		r.Outcome, r.Answer = bridge.OutcomeOfAnswer(r.Request.Method, answer), answer
		if answer.Error != nil {
			r.Code = gjson.GetBytes(answer.Error, "code").Int()
		}
	}
}

// Server makes the reports of one server.
type Server struct {
	r      *Reporter
	name   string
	speaks func() string
	calls  atomic.Int64
	others atomic.Int64 // calls of other instances' clients
}

// Server returns the Server of that name. speaks returns its last known revision, or "".
func (r *Reporter) Server(name string, speaks func() string) *Server {
	return &Server{
		r:      r,
		name:   name,
		speaks: speaks,
	}
}

// Calls returns the number of requests of clients in flight at the server. They are counted only if the reports have a
// receiver.
func (s *Server) Calls() int64 { return s.calls.Load() }

// CountOther counts a call of another instance's client, which that instance reports. done ends the call.
func (s *Server) CountOther() (done func()) {
	s.others.Add(1)
	return func() { s.others.Add(-1) }
}

// Drain waits until no call is in flight at the server, for at most the time within, and at most until ctx ends.
// First, Drain waits for the calls in looking, which may still find the server and are not counted yet. begun reports
// whether there are other calls for the server that are not counted; it may be nil.
func (s *Server) Drain(ctx context.Context, within time.Duration, looking Rounds, begun func() bool) {
	ctx, cancel := context.WithTimeout(ctx, max(within, time.Nanosecond))
	defer cancel()
	looking.await(ctx)
	for (s.Calls() > 0 || s.others.Load() > 0 || begun != nil && begun()) && backoff.For(ctx, 20*time.Millisecond) == nil {
	}
}

// Wrap returns an Upstream that reports the requests of clients.
func (s *Server) Wrap(up bridge.Upstream) bridge.Upstream {
	if s.r.report == nil {
		return up
	}
	return &reported{up, s}
}

type reported struct {
	bridge.Upstream
	s *Server
}

// Call makes a call. An answer without room among the bytes in flight becomes an error, in the report as well.
func (r *reported) Call(ctx context.Context, q *bridge.Request) (*jsonrpc.Message, error) {
	came, _ := q.Call.(*Arrival)
	if came == nil && q.Method == list.Tools.Method() {
		m, err := r.Upstream.Call(ctx, q)
		if err == nil {
			r.s.r.report(Report{
				Server:  r.s.name,
				Own:     true,
				Request: q.Message,
				Answer:  m,
			})
		}
		return m, err
	}
	if came == nil || !came.by.CompareAndSwap(byNobody, byServers) && came.by.Load() == byGateway {
		return r.Upstream.Call(ctx, q) // byGateway: the client is gone
	}
	r.s.calls.Add(1)
	defer r.s.calls.Add(-1)
	if !came.Part(q.Method) { // otherwise the request goes to other servers, too
		came.Found()
	}
	p := Report{
		Server:  r.s.name,
		Session: came.session,
		Front:   came.front,
		Client:  came.client,
		Network: came.network,
		Trace:   came.trace,
		Began:   time.Now(),
		Request: q.Message,
		Call:    came,
	}
	if came.Part(q.Method) {
		p.Part = came.parts.Add(1)
	}
	m, err := r.Upstream.Call(ctx, q)
	if err == nil && !came.Part(q.Method) {
		came.weighed.Store(true)
		if err = r.s.r.weigh(r.s.name, q.From, m); err != nil {
			m = nil
		}
	}
	if greeting := r.Upstream.Server(); greeting != nil {
		p.Speaks = greeting.Revision
	} else {
		p.Speaks = r.s.speaks()
	}
	why := err
	if err != nil && ctx.Err() != nil {
		why = context.Cause(ctx) // the end of ctx caused the error
	}
	r.s.r.end(&p, q.From, m, why)
	return m, err
}

// Part reports whether the answer of one server is only a part of the client's answer.
func (a *Arrival) Part(method string) bool {
	_, list := list.Of(method)
	return list && a.meant.Load() != nil
}
