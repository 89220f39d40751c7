package streamable

import (
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
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/httpio"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/backoff"
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

	// Used by the call's goroutine only.
	deliver     func(*jsonrpc.Message) // takes the messages of the response
	answered    bool
	adopted     bool // the answer had no id
	lingerTimer *time.Timer

	trace  httptrace.ClientTrace
	writes atomic.Int32 // writes in progress: the HTTP client reads line

	mu      sync.Mutex // guards the rest
	written bool
	over    bool
	marked  conn.Signal
}

func (p *exchange) init(l *link, m conn.Outgoing, deliver func(*jsonrpc.Message)) {
	p.l, p.call, p.id, p.method, p.header, p.identity, p.traced, p.line = l, m.Call, strconv.AppendInt(nil, m.Call, 10), m.Method, m.Header, m.Identity, m.Trace, m.Line
	p.deliver = deliver
	p.ctx, p.stop = context.WithCancel(l.ctx)
	p.trace.GotConn = func(httptrace.GotConnInfo) { p.writes.Add(1) }
	p.trace.WroteRequest = p.wrote
}

// wrote records that the request was written.
func (p *exchange) wrote(i httptrace.WroteRequestInfo) {
	p.writes.Add(-1)
	if i.Err != nil {
		return
	}
	p.mark(&p.written)
}

func (p *exchange) mark(what *bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*what = true
	p.marked.Wake()
}

// awaitSent waits until the request was written or never will be, and reports which. Only one goroutine
// may call it.
func (p *exchange) awaitSent(ctx context.Context) bool {
	p.mu.Lock()
	if !p.written && !p.over {
		_ = p.marked.Await(ctx, &p.mu)
		p.mu.Lock()
	}
	defer p.mu.Unlock()
	return p.written
}

// send sends the request. It never repeats a request of which a byte may have reached the server
// (protocol.md D0.8).
func (p *exchange) send(by func(*http.Request) (*http.Response, error), request func(context.Context) *http.Request) (*http.Response, error) {
	ctx := httptrace.WithClientTrace(p.ctx, &p.trace)
	return p.l.a.reach(p.ctx, by,
		func() *http.Request { return request(ctx) },
		func() bool { return p.l.Waits(p.call) })
}

// free frees the memory of the request, which is not sent again.
func (p *exchange) free() {
	if p.writes.Load() == 0 {
		p.line.Free()
	} // otherwise the server answered before it read the whole request: the memory is in use
	p.line = nil
}

// end ends the exchange, and settles the call if it is not settled.
func (p *exchange) end() {
	if p.lingerTimer != nil {
		p.lingerTimer.Stop()
	}
	p.stop()
	p.mark(&p.over)
	p.l.Abort(p.call, p.l.a.name.Lost("it did not answer", nil)) // no effect on a settled call
	p.l.ended(p.call)
}

// isAnswer reports whether m answers the call; otherwise it releases m. Ids are the bridge's own, and
// no server has a reason to answer one call in the response to another.
func (p *exchange) isAnswer(m *jsonrpc.Message) bool {
	if string(m.ID) == string(p.id) {
		return true
	}
	p.l.a.o.Log.Debug("dropped an answer to another request")
	m.Release()
	return false
}

// single takes a response that is one JSON body. 2025-03-26 allows other messages before the
// answer, as a batch (A9). The error is for a call that is still without an answer; it is nil if
// single has settled the call.
func (p *exchange) single(res *http.Response) *bridge.Error {
	a := p.l.a
	in := p.l.Intake()
	defer in.Drop()
	buf, err := readBody(res, a.limit, &in)
	switch {
	case errors.Is(err, errNotKept):
		p.l.AnswerNotKept(&in, p.id, a.o.MaxMessage)
		return nil
	case err != nil:
		p.l.Abort(p.call, a.name.Lost("the connection to it broke", err))
		return nil
	}
	batch := jsonrpc.IsBatch(buf.B)
	fault := p.l.messages(buf, &in, func(m *jsonrpc.Message) {
		if m.IsResponse() && m.ID == nil && !batch {
			m.ID, p.adopted = p.id, true // an error without id can only be about this request
		}
		p.deliver(m)
	})
	if fault != nil {
		return a.name.Invalid("its answer is "+fault.Error(), nil)
	}
	return a.name.Invalid("its response has no answer to the request", nil)
}

// linger is how long a stream is read after the answer: if it ends, the HTTP connection can be
// reused.
const linger = time.Second

// read takes events until the stream ends, or until the call has an answer that leaves the stream
// open. If seen is not nil, it is called with each event first.
func (p *exchange) read(res *http.Response, seen func(httpio.Received)) error {
	defer res.Body.Close()
	in := p.l.Intake()
	defer in.Drop()
	r := httpio.NewReader(res.Body, p.l.a.limit)
	r.Room = in.Size
	for ; ; in.Drop() {
		ev, err := r.Next()
		if errors.Is(err, httpio.ErrEndless) && p.method != listen {
			// The event belongs to this call, and nothing can follow it.
			p.answered = true
			p.l.AnswerNotKept(&in, p.id, p.l.a.o.MaxMessage)
		}
		if err != nil {
			return err
		}
		if seen != nil {
			seen(ev)
		}
		p.event(&ev, &in)
		if !p.answered || p.lingerTimer != nil {
			continue
		}
		if p.l.Waits(p.call) {
			return nil
		}
		p.lingerTimer = time.AfterFunc(linger, p.stop)
	}
}

func (p *exchange) event(ev *httpio.Received, in *conn.Intake) {
	switch {
	case ev.Oversized != nil && string(jsonrpc.Unquoted(ev.Oversized.ID())) == string(p.id):
		p.answered = true
		p.l.AnswerNotKept(in, p.id, p.l.a.o.MaxMessage)
	case ev.Oversized != nil:
		p.l.a.o.Log.Warn("message dropped", "why", in.Why(p.l.a.o.MaxMessage))
	case ev.Data != nil && ev.Type == "message":
		p.l.messages(ev.Data, in, p.deliver)
	default:
		ev.Data.Free()
	}
}

// unexpectedType settles a call whose successful response is neither JSON nor events.
func (p *exchange) unexpectedType(res *http.Response) {
	abort(res)
	p.l.Abort(p.call, p.l.a.name.Invalid(fmt.Sprintf("it answered with neither JSON nor events (HTTP %d)", res.StatusCode), nil))
}

// Attempts to reach a server that refuses connections: it may be about to start.
const (
	reachFor   = 4 * time.Second
	reachPause = 100 * time.Millisecond
)

// patience returns for how long connecting is tried again. It ends before the call times out: a
// timeout would mean that the call may have been executed.
func (a *Upstream) patience() time.Duration {
	t := a.o.Timeouts.Now()
	most := reachFor
	for _, limit := range []time.Duration{t.Idle, t.Max} {
		if limit > 0 {
			most = min(most, limit/2)
		}
	}
	return most
}

// reach sends a request. It repeats it while nothing of it was sent and wanted reports true.
func (a *Upstream) reach(ctx context.Context, by func(*http.Request) (*http.Response, error), request func() *http.Request, wanted func() bool) (*http.Response, error) {
	most := a.patience()
	began, wait := time.Now(), min(reachPause, most/2)
	for {
		if !wanted() {
			return nil, errNobodyWaits
		}
		res, err := by(request())
		if err == nil || !remote.Unsent(err) || remote.TLSFault(err) || a.o.FailFast || time.Since(began)+wait > most || backoff.For(ctx, wait) != nil {
			return res, err
		}
		wait = min(2*wait, time.Second)
	}
}

// errNobodyWaits is the error of a request whose answer nobody waits for any more.
var errNobodyWaits = errors.New("nobody waits for the answer any more")
