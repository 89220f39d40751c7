// Package report tells what becomes of each request of a client: a [Report] from
// every server that got it, or one from the gateway when none did. It also has
// each answer counted among the bytes under way, so that a report says what the
// client gets.
//
// It does not write logs and metrics, which is for who takes the reports, and does
// not report the bridge's own requests.
package report

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Report says what became of one request of a client at one server. A request
// that several servers got, such as one for the lists of all of them, is
// reported for each; one that none got, once, without a server, and so is one
// whose answers have no room together.
type Report struct {
	Server    string // empty if none got it
	Session   string // the beginning of the session's key, not of its id; empty for a client without sessions
	Front     string // the tag of the instance that has sent the request on to this one; empty if it came by itself
	Principal string
	Revision  string // of the client; empty if it is not known
	Speaks    string // the revision of the server; empty if it is not known
	Began     time.Time
	Took      time.Duration
	Outcome   bridge.Outcome
	Code      int64 // of the error, if that is the outcome
	Err       error // why there was no answer; it may name programs and files
	// Call is what the request had as bridge.Request.Call.
	Call bridge.Call
	// Request is what was asked, and Answer what the server said: nil when there
	// was no answer. Both are valid during the report only, and not to be changed.
	Request, Answer *jsonrpc.Message
}

// Reporter makes the reports.
type Reporter struct {
	tell  func(Report) // nil when nobody wants to know
	weigh Weigh
	front func(http.Header) string // nil when there is one instance

	round atomic.Pointer[round] // of the calls that begin now

	mu    sync.Mutex // guards ended
	ended []*round   // that have calls yet, the oldest first
}

// Weigh counts an answer among the bytes under way until it is released. An answer
// that has no room is released, and the error says so to the client.
type Weigh func(server string, from *bridge.Caller, answer *jsonrpc.Message) error

// New makes a reporter. tell gets the reports, at once and from several goroutines:
// it must not block. nil means that nobody wants to know. front tells from the headers of a
// request which instance has sent it on; nil means that there is one instance.
func New(tell func(Report), weigh Weigh, front func(http.Header) string) *Reporter {
	r := &Reporter{tell: tell, weigh: weigh, front: front}
	r.round.Store(newRound())
	return r
}

// Arrival is a request of a client, from the door to the servers that get it.
type Arrival struct {
	session string
	front   string
	began   time.Time
	by      atomic.Int32           // who reports it: one of those below
	meant   atomic.Pointer[string] // the server of several that was to get it; nil if none was
	weighed atomic.Bool            // the answer is among the bytes under way
	looks   atomic.Pointer[round]  // nil unless it is a call that looks for its server
}

var _ bridge.Call = (*Arrival)(nil)

// At implements bridge.Call.
func (a *Arrival) At(server string) { a.meant.Store(&server) }

// Session returns what tells its session from others, or nothing.
func (a *Arrival) Session() string { return a.session }

// Call returns a as requests have it: nil if there is none.
func (a *Arrival) Call() bridge.Call {
	if a == nil {
		return nil
	}
	return a
}

// Who reports a request: nobody yet, the servers that got it, or the gateway,
// since none did in time.
const (
	byNobody int32 = iota
	byServers
	byGateway
)

// Arrive notes in a that a request with headers h has come. session is what tells its
// session from others, or empty. It returns nil when nobody wants to know what becomes
// of requests.
func (r *Reporter) Arrive(a *Arrival, session string, h http.Header) *Arrival {
	if r.tell == nil {
		return nil
	}
	a.session, a.began = session, time.Now()
	if r.front != nil {
		a.front = r.front(h)
	}
	return a
}

// Depart reports a request that no server got.
func (r *Reporter) Depart(a *Arrival, from *bridge.Caller, request, answer *jsonrpc.Message, err error) {
	if a == nil || !a.by.CompareAndSwap(byNobody, byGateway) {
		return
	}
	p := Report{Session: a.session, Front: a.front, Began: a.began, Request: request, Call: a}
	if name := a.meant.Load(); name != nil {
		p.Server = *name
	}
	r.end(&p, from, answer, err)
}

// Conclude counts the answer of a request among the bytes under way, and reports
// what no server's report says: also that there is no room for what was made of
// several servers' answers. It returns why the client gets no answer.
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

// Reject reports a request that was refused at the door.
func (r *Reporter) Reject(session string, from *bridge.Caller, request, answer *jsonrpc.Message, err error) {
	if r.tell != nil {
		r.Depart(r.Arrive(new(Arrival), session, nil), from, request, answer, err)
	}
}

// end completes a report and gives it to who wants it.
func (r *Reporter) end(p *Report, from *bridge.Caller, answer *jsonrpc.Message, err error) {
	p.Took = time.Since(p.Began)
	if from != nil {
		p.Principal, p.Revision = from.Principal, from.Revision
	}
	switch {
	case err != nil:
		p.Outcome, p.Err = bridge.OutcomeOf(err), err
		if p.Request.Method == era.Listen && (p.Outcome == bridge.Cancelled || errors.Is(err, bridge.ErrShutdown)) {
			p.Outcome = bridge.Answered // that is how it ends
		}
	default:
		p.Outcome, p.Answer = bridge.OutcomeOfAnswer(p.Request.Method, answer), answer
		if answer.Error != nil {
			p.Code = gjson.GetBytes(answer.Error, "code").Int()
		}
	}
	r.tell(*p)
}

// Server reports for one server.
type Server struct {
	r      *Reporter
	name   string
	speaks func() string
	calls  atomic.Int64
}

// Server makes what reports for the server of that name. speaks returns the
// revision that it was last seen to speak, or nothing.
func (r *Reporter) Server(name string, speaks func() string) *Server {
	return &Server{r: r, name: name, speaks: speaks}
}

// Calls returns how many requests of clients are under way at the server. They are
// counted only if somebody gets the reports.
func (s *Server) Calls() int64 { return s.calls.Load() }

// Drain waits until no call is in flight at the server, for as long as within, and not beyond ctx. It waits
// for looking first: calls that may find the server are not counted yet. begun reports whether there are
// other calls for it that are not counted; it may be nil.
func (s *Server) Drain(ctx context.Context, within time.Duration, looking Rounds, begun func() bool) {
	ctx, cancel := context.WithTimeout(ctx, max(within, time.Nanosecond))
	defer cancel()
	looking.await(ctx)
	for (s.Calls() > 0 || begun != nil && begun()) && backoff.For(ctx, 20*time.Millisecond) == nil {
	}
}

// Wrap returns an Upstream that reports what becomes of the requests of clients
// that pass it.
func (s *Server) Wrap(up bridge.Upstream) bridge.Upstream {
	if s.r.tell == nil {
		return up
	}
	return &reported{up, s}
}

type reported struct {
	bridge.Upstream
	s *Server
}

// Call makes a call. What has no room among the bytes under way is no answer: the
// report says what the client gets.
func (u *reported) Call(ctx context.Context, q *bridge.Request) (*jsonrpc.Message, error) {
	came, _ := q.Call.(*Arrival)
	if came == nil || !came.by.CompareAndSwap(byNobody, byServers) && came.by.Load() == byGateway {
		return u.Upstream.Call(ctx, q) // in the second case its client has gone meanwhile
	}
	u.s.calls.Add(1)
	defer u.s.calls.Add(-1)
	if !came.part(q.Method) { // otherwise it goes to other servers, too
		came.Found()
	}
	p := Report{Server: u.s.name, Session: came.session, Front: came.front, Began: time.Now(), Request: q.Message, Call: came}
	a, err := u.Upstream.Call(ctx, q)
	if err == nil && !came.part(q.Method) {
		came.weighed.Store(true)
		if err = u.s.r.weigh(u.s.name, q.From, a); err != nil {
			a = nil
		}
	}
	if greeting := u.Upstream.Server(); greeting != nil {
		p.Speaks = greeting.Revision
	} else {
		p.Speaks = u.s.speaks()
	}
	why := err
	if err != nil && ctx.Err() != nil {
		why = context.Cause(ctx) // whatever else has come of that
	}
	u.s.r.end(&p, q.From, a, why)
	return a, err
}

// part reports whether the answer of one server is only a part of what the
// client gets.
func (a *Arrival) part(method string) bool {
	_, list := list.Of(method)
	return list && a.meant.Load() != nil
}
