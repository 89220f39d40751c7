package streamable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// exchange is the POST of one call, in either era, and its response.
type exchange struct {
	l        *link
	call     int64
	id       []byte // of the call, raw
	method   string
	header   http.Header
	identity *identity.Identity
	traced   bridge.Trace
	line     *jsonrpc.Buffer
	ctx      context.Context
	stop     context.CancelFunc

	// Only the call's goroutine uses these.
	deliver     func(*jsonrpc.Message) // gets the messages of the response
	answered    bool
	adopted     bool             // the answer had no id
	whole       bool             // the response is one message, so that nothing follows it
	lingerTimer *time.Timer      // ends the exchange after the answer
	stray       *jsonrpc.Message // the first error without an id, while an answer may follow
	strayTimer  *time.Timer      // ends the wait for that answer
	fault       error            // of the first part of the response that is no message

	trace  httptrace.ClientTrace
	writes atomic.Int32 // writes in progress, during which the HTTP client reads line

	mu        sync.Mutex // guards the fields below
	written   bool       // the request was written
	over      bool       // the exchange has ended
	responded bool       // the head of the response has come
	marked    conn.Signal
}

func (e *exchange) init(l *link, o conn.Outgoing, deliver func(*jsonrpc.Message)) {
	e.l, e.call, e.id, e.method, e.header, e.identity, e.traced, e.line = l, o.Call, strconv.AppendInt(nil, o.Call, 10), o.Method, o.Header, o.Identity, o.Trace, o.Line
	e.deliver = deliver
	e.ctx, e.stop = context.WithCancel(l.ctx)
	e.trace.GotConn = func(httptrace.GotConnInfo) { e.writes.Add(1) }
	e.trace.WroteRequest = e.wrote
}

// wrote records that the request was written.
func (e *exchange) wrote(i httptrace.WroteRequestInfo) {
	e.writes.Add(-1)
	if i.Err != nil {
		return
	}
	e.mark(&e.written)
}

func (e *exchange) mark(what *bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*what = true
	e.marked.Wake()
}

// awaitSent waits until the request is written, or the exchange or ctx ends. It reports whether the
// request is written. Only one goroutine may call it.
func (e *exchange) awaitSent(ctx context.Context) bool {
	e.mu.Lock()
	if !e.written && !e.over {
		_ = e.marked.Await(ctx, &e.mu)
		e.mu.Lock()
	}
	defer e.mu.Unlock()
	return e.written
}

// send sends the request by one of the client's methods. Except for a message of the handshake, it
// never repeats a request if a byte of it may have reached the server (protocol.md D0.8).
func (e *exchange) send(by func(*http.Request) (*http.Response, error), request func(context.Context) *http.Request) (*http.Response, error) {
	ctx := httptrace.WithClientTrace(e.ctx, &e.trace)
	res, err := e.l.a.reach(e.ctx, by, e.method,
		func() *http.Request { return request(ctx) },
		func() bool { return e.l.Waits(e.call) })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.responded = err == nil
	return res, err
}

// answeredElsewhere ends the exchange of a call that got its answer on another stream. If there is
// no response yet, the exchange ends only after linger: net/http may be about to give the HTTP
// connection to the next call, and would close it.
func (e *exchange) answeredElsewhere() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.responded {
		e.stop()
	} else {
		time.AfterFunc(linger, e.stop)
	}
}

// free frees the memory of a request that is not sent again.
func (e *exchange) free() {
	if e.writes.Load() == 0 {
		e.line.Free()
	} // otherwise, the server answered before the whole request was written, and line is in use
	e.line = nil
}

// end ends the exchange. If the call is not settled, end settles it with an error.
func (e *exchange) end() {
	if e.lingerTimer != nil {
		e.lingerTimer.Stop()
	}
	if e.strayTimer != nil {
		e.strayTimer.Stop()
	}
	e.stop()
	e.mark(&e.over)
	e.lose(e.l.a.name.Lost("it did not answer", nil))
	e.stray.Release()
	e.l.ended(e.call)
}

// isAnswer reports whether m answers the call. If not, it releases m or keeps it in e.stray. An
// error without an id can only be about this request, since servers do not answer one call in the
// response to another. In a stream or a batch, an answer with the id may follow, and has
// precedence.
func (e *exchange) isAnswer(m *jsonrpc.Message) bool {
	switch {
	case m.ID == nil && e.whole:
		m.ID, e.adopted = e.id, true
	case m.ID == nil && e.stray == nil:
		m.ID, e.stray = e.id, m
		e.strayTimer = time.AfterFunc(linger, e.stop)
		return false
	}
	if string(m.ID) == string(e.id) {
		if e.strayTimer != nil {
			e.strayTimer.Stop()
		}
		return true
	}
	e.l.a.o.Log.Debug("dropped an answer to another request")
	m.Release()
	return false
}

// lose settles a call that gets no answer, unless it is settled: with the error in e.stray, or else with
// the fault of the response, or else with why.
func (e *exchange) lose(why *bridge.Error) {
	if e.fault != nil {
		why = e.l.a.name.Invalid("its answer is "+e.fault.Error(), nil)
	}
	if m := e.stray; m != nil && e.l.Waits(e.call) {
		e.stray, e.adopted = nil, true
		e.deliver(m)
	}
	e.l.Abort(e.call, why) // no effect on a settled call
}

// single reads a response that is one JSON body. 2025-03-26 allows a batch with other messages
// before the answer (A9). If single has settled the call, it returns nil, and otherwise the error
// for the call.
func (e *exchange) single(res *http.Response) *bridge.Error {
	u := e.l.a
	in := e.l.Intake()
	defer in.Drop()
	buf, err := readBody(res, u.limit, &in)
	switch {
	case errors.Is(err, errNotKept):
		e.l.AnswerNotKept(&in, e.id, u.o.MaxMessage)
		return nil
	case err != nil:
		e.l.Abort(e.call, remote.Broken(u.name, "the connection to it broke", err))
		return nil
	}
	e.whole = !jsonrpc.IsBatch(buf.B)
	e.fault = e.l.messages(buf, &in, e.deliver)
	return u.name.Invalid("its response has no answer to the request", nil)
}

// linger is how long a stream is read after the answer. If the stream ends within that time, the HTTP
// connection can be reused.
const linger = time.Second

// read handles the events of a response until the stream ends, or at most linger after the answer.
// Unless seen is nil, read first calls it with each event.
func (e *exchange) read(res *http.Response, seen func(httpio.Received)) error {
	defer res.Body.Close()
	in := e.l.Intake()
	defer in.Drop()
	r := httpio.NewReader(res.Body, e.l.a.limit)
	r.Room = in.Size
	for ; ; in.Drop() {
		ev, err := r.Next()
		if errors.Is(err, httpio.ErrEndless) && e.method != listen {
			// An event without an end can only be the answer to this call.
			e.answered = true
			e.l.AnswerNotKept(&in, e.id, e.l.a.o.MaxMessage)
		}
		if err != nil {
			return err
		}
		if seen != nil {
			seen(ev)
		}
		e.event(&ev, &in)
		if !e.answered || e.lingerTimer != nil {
			continue
		}
		if e.l.Waits(e.call) {
			return nil
		}
		e.lingerTimer = time.AfterFunc(linger, e.stop)
	}
}

func (e *exchange) event(ev *httpio.Received, in *conn.Intake) {
	switch {
	case ev.Oversized != nil && string(jsonrpc.Integer(ev.Oversized.ID())) == string(e.id):
		e.answered = true
		e.l.AnswerNotKept(in, e.id, e.l.a.o.MaxMessage)
	case ev.Oversized != nil:
		e.l.a.o.Log.Warn("message dropped", "why", in.Why(e.l.a.o.MaxMessage))
	case ev.Data != nil && ev.Type == "message":
		e.fault = cmp.Or(e.fault, e.l.messages(ev.Data, in, e.deliver))
	default:
		ev.Data.Free()
	}
}

// unexpectedType settles a call whose successful response is neither JSON nor events.
func (e *exchange) unexpectedType(res *http.Response) {
	abort(res)
	e.l.Abort(e.call, e.l.a.name.Invalid(fmt.Sprintf("it answered with neither JSON nor events (HTTP %d)", res.StatusCode), nil))
}

// reachFor bounds the time of attempts to reach a server that refuses connections, since the server
// may be about to start. reachPause is the first pause between attempts.
const (
	reachFor   = 4 * time.Second
	reachPause = 100 * time.Millisecond
)

// patience returns how long attempts to connect may go on: less than the time-out of a call, which
// would mean that the server may have executed the call.
func (u *Upstream) patience() time.Duration {
	t := u.o.Timeouts.Now()
	most := reachFor
	for _, limit := range []time.Duration{t.Idle, t.Max} {
		if limit > 0 {
			most = min(most, limit/2)
		}
	}
	return most
}

// reach sends a message of that method. While nothing of the message was sent, and wanted reports true,
// reach tries again. A message of the handshake is also sent again if a reused connection ended before
// the response.
func (u *Upstream) reach(ctx context.Context, by func(*http.Request) (*http.Response, error), method string, request func() *http.Request, wanted func() bool) (*http.Response, error) {
	most := u.patience()
	began, wait := time.Now(), min(reachPause, most/2)
	for {
		if !wanted() {
			return nil, errNobodyWaits
		}
		r := request()
		if conn.Repeatable(method) {
			remote.Repeat(r)
		}
		res, err := by(r)
		if err == nil || !remote.Unsent(err) || remote.TLSFault(err) || u.o.FailFast || time.Since(began)+wait > most || backoff.For(ctx, wait) != nil {
			return res, err
		}
		wait = min(2*wait, time.Second)
	}
}

// errNobodyWaits is the error of a request that is not sent, since its caller no longer waits.
var errNobodyWaits = errors.New("nobody waits for the answer any more")
