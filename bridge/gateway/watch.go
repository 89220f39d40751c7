package gateway

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// Report says what became of one request of a client at one server. A request
// that several servers got, such as one for the lists of all of them, is
// reported for each; one that none got, once, without a server, and so is one
// whose answers have no room together. The bridge's own requests are not
// reported.
type Report struct {
	Server    string // empty if none got it
	Place     int    // of the server in Options.Servers; -1 if none got it
	Session   string // the beginning of the session's key, not of its id; empty for a client without sessions
	Principal string
	Revision  string // of the client; empty if it is not known
	Speaks    string // the revision of the server; empty if it is not known
	Began     time.Time
	Took      time.Duration
	Outcome   bridge.Outcome
	Code      int64 // of the error, if that is the outcome
	// Request is what was asked, and Answer what the server said: nil when there
	// was no answer. Both are valid during the report only, and not to be changed.
	Request, Answer *jsonrpc.Message
}

// arrival is a request of a client, from the door to the servers that get it.
type arrival struct {
	session string
	began   time.Time
	report  atomic.Int32           // who reports it: one of those below
	meant   atomic.Pointer[string] // the server of several that was to get it; nil if none was
	weighed atomic.Bool            // the answer is among the bytes under way
}

// At implements bridge.Call.
func (a *arrival) At(server string) { a.meant.Store(&server) }

// call returns a as requests have it: nil if there is none.
func (a *arrival) call() bridge.Call {
	if a == nil {
		return nil
	}
	return a
}

// Who reports a request: nobody yet, the servers that got it, or the bridge,
// since none did in time.
const (
	byNobody int32 = iota
	byServers
	byBridge
)

// arrive notes that a request has come, in a. It returns nil when nobody wants
// to know what becomes of requests.
func (b *Gateway) arrive(a *arrival, session string) *arrival {
	if b.watch == nil {
		return nil
	}
	a.session, a.began = session[:min(len(session), shownKey)], time.Now()
	return a
}

// shownKey is how much of a session's key tells it from others in a log.
const shownKey = 8

// depart reports a request that no server got.
func (b *Gateway) depart(a *arrival, from *bridge.Caller, request, answer *jsonrpc.Message, err error) {
	if a == nil || !a.report.CompareAndSwap(byNobody, byBridge) {
		return
	}
	p := Report{Place: -1, Session: a.session, Began: a.began, Request: request}
	if name := a.meant.Load(); name != nil {
		p.Server, p.Place = *name, b.route(*name).place
	}
	p.ended(b, from, answer, err)
}

// conclude counts the answer of a request among the bytes under way, and reports
// what no server's report says: also that there is no room for what was made of
// several servers' answers. It returns why the client gets no answer.
func (b *Gateway) conclude(a *arrival, server string, from *bridge.Caller, request, answer *jsonrpc.Message, err error) error {
	if err == nil && (a == nil || !a.weighed.Load()) {
		if err = b.weigh(server, from, answer); err != nil && a != nil {
			a.meant.Store(nil)
			a.report.Store(byNobody)
		}
	}
	b.depart(a, from, request, answer, err)
	return err
}

// part reports whether the answer of one server is only a part of what the
// client gets.
func (a *arrival) part(method string) bool {
	_, list := list.Of(method)
	return list && a.meant.Load() != nil
}

// refused reports a request that was refused at the door.
func (b *Gateway) refused(session string, from *bridge.Caller, request, answer *jsonrpc.Message, err error) {
	if b.watch != nil {
		b.depart(b.arrive(new(arrival), session), from, request, answer, err)
	}
}

// ended completes the report and gives it to who wants it.
func (p *Report) ended(b *Gateway, from *bridge.Caller, answer *jsonrpc.Message, err error) {
	p.Took = time.Since(p.Began)
	if from != nil {
		p.Principal, p.Revision = from.Principal, from.Revision
	}
	switch {
	case err != nil:
		p.Outcome = bridge.OutcomeOf(err)
		if p.Request.Method == era.Listen && (p.Outcome == bridge.Cancelled || errors.Is(err, bridge.ErrShutdown)) {
			p.Outcome = bridge.Answered // that is how it ends
		}
	case answer.Error != nil:
		p.Outcome, p.Code, p.Answer = bridge.ErrorAnswer, gjson.GetBytes(answer.Error, "code").Int(), answer
	default:
		p.Answer = answer
	}
	b.watch(*p)
}

// watched is an Upstream that reports what becomes of clients' requests.
type watched struct {
	bridge.Upstream
	r *route
}

// watched returns what a session, or all clients without one, see of the
// server, with reports.
func (r *route) watched(up bridge.Upstream) bridge.Upstream {
	if r.b.watch == nil {
		return up
	}
	return &watched{up, r}
}

// Call makes a call. What has no room among the bytes under way is no answer: the
// report says what the client gets.
func (w *watched) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	came, _ := r.Call.(*arrival)
	if came == nil || !came.report.CompareAndSwap(byNobody, byServers) && came.report.Load() == byBridge {
		return w.Upstream.Call(ctx, r) // in the second case its client has gone meanwhile
	}
	w.r.calls.Add(1)
	defer w.r.calls.Add(-1)
	p := Report{Server: w.r.o.Name, Place: w.r.place, Session: came.session, Began: time.Now(), Request: r.Message}
	a, err := w.Upstream.Call(ctx, r)
	if err == nil && !came.part(r.Method) {
		came.weighed.Store(true)
		if err = w.r.b.weigh(w.r.o.Name, r.From, a); err != nil {
			a = nil
		}
	}
	if s := w.Upstream.Server(); s != nil {
		p.Speaks = s.Revision
	} else {
		p.Speaks = w.r.speaks()
	}
	why := err
	if err != nil && ctx.Err() != nil {
		why = context.Cause(ctx) // whatever else has come of that
	}
	p.ended(w.r.b, r.From, a, why)
	return a, err
}
