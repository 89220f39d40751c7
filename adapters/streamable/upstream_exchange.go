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

// exchange is the POST of one call, in either era: how far it has got, and the
// messages of its response.
type exchange struct {
	l        *link
	call     int64
	id       []byte // the call's, raw
	method   string
	header   http.Header
	identity *identity.Identity
	traced   bridge.Trace
	line     *jsonrpc.Buffer
	ctx      context.Context
	stop     context.CancelFunc

	// Used by the call's goroutine only.
	deliver  func(*jsonrpc.Message) // takes the messages of the response
	answered bool
	adopted  bool // the answer had no id
	lingers  *time.Timer

	trace  httptrace.ClientTrace
	writes atomic.Int32 // begun and not ended: the transport reads line

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

// wrote notes that the request is on its way.
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

// sent waits until the request is on its way or never will be, and reports
// which. It is for one goroutine.
func (p *exchange) sent(ctx context.Context) bool {
	p.mu.Lock()
	if !p.written && !p.over {
		_ = p.marked.Await(ctx, &p.mu)
		p.mu.Lock()
	}
	defer p.mu.Unlock()
	return p.written
}

// send sends the request. Nothing is sent twice of which a byte may have
// reached the server (protocol.md D0.8).
func (p *exchange) send(by func(*http.Request) (*http.Response, error), request func(context.Context) *http.Request) (*http.Response, error) {
	ctx := httptrace.WithClientTrace(p.ctx, &p.trace)
	return p.l.a.reach(p.ctx, by,
		func() *http.Request { return request(ctx) },
		func() bool { return p.l.Waits(p.call) })
}

// free gives back the memory of the request, which is not sent again.
func (p *exchange) free() {
	if p.writes.Load() == 0 {
		p.line.Free()
	} // otherwise the server has answered before it has read all: the memory is in use yet
	p.line = nil
}

// end is the last that is done for the call. It sees to it that it is settled.
func (p *exchange) end() {
	if p.lingers != nil {
		p.lingers.Stop()
	}
	p.stop()
	p.mark(&p.over)
	p.l.Abort(p.call, p.l.a.name.Lost("it did not answer", nil)) // unless it is settled, as it should be
	p.l.ended(p.call)
}

// mine reports whether an answer is that to the call. If not it takes it. It may
// be what somebody else asked for: ids are ours, and no server has a reason to
// answer one call in the response to another.
func (p *exchange) mine(m *jsonrpc.Message) bool {
	if string(m.ID) == string(p.id) {
		return true
	}
	p.l.a.o.Log.Debug("an answer to another request was dropped")
	m.Release()
	return false
}

// single takes an answer that is all of the response. 2025-03-26 allows more
// messages before it, as a batch (A9). The error is that of a call which has had no
// answer then; it is nil where the call has been settled.
func (p *exchange) single(res *http.Response) *bridge.Error {
	a := p.l.a
	in := p.l.Intake()
	defer in.Drop()
	buf, err := readBody(res, a.limit, &in)
	switch {
	case errors.Is(err, errUnkept):
		p.l.Unkept(&in, p.id, a.o.MaxMessage)
		return nil
	case err != nil:
		p.l.Abort(p.call, a.name.Lost("the connection to it broke", err))
		return nil
	}
	batch := jsonrpc.IsBatch(buf.B)
	fault := p.l.messages(buf, &in, func(m *jsonrpc.Message) {
		if m.IsResponse() && m.ID == nil && !batch {
			m.ID, p.adopted = p.id, true // an error that names no request: there is only one that it can be about
		}
		p.deliver(m)
	})
	if fault != nil {
		return a.name.Invalid("its answer is "+fault.Error(), nil)
	}
	return a.name.Invalid("what it answered is not an answer to the request", nil)
}

// linger is how long a stream is read after the answer: its end lets the
// connection be used again.
const linger = time.Second

// read takes events until the stream ends, or the call has had an answer that
// leaves it open. seen, if not nil, is shown each of them first.
func (p *exchange) read(res *http.Response, seen func(httpio.Received)) error {
	defer res.Body.Close()
	in := p.l.Intake()
	defer in.Drop()
	r := httpio.NewReader(res.Body, p.l.a.limit)
	r.Room = in.Size
	for ; ; in.Drop() {
		ev, err := r.Next()
		if errors.Is(err, httpio.ErrEndless) && p.method != listen {
			// Whatever it is, it is about this call, and nothing can come after it.
			p.answered = true
			p.l.Unkept(&in, p.id, p.l.a.o.MaxMessage)
		}
		if err != nil {
			return err
		}
		if seen != nil {
			seen(ev)
		}
		p.event(&ev, &in)
		if !p.answered || p.lingers != nil {
			continue
		}
		if p.l.Waits(p.call) {
			return nil
		}
		p.lingers = time.AfterFunc(linger, p.stop)
	}
}

func (p *exchange) event(ev *httpio.Received, in *conn.Intake) {
	switch {
	case ev.Over != nil && string(jsonrpc.Unquoted(ev.Over.ID())) == string(p.id):
		p.answered = true
		p.l.Unkept(in, p.id, p.l.a.o.MaxMessage)
	case ev.Over != nil:
		p.l.a.o.Log.Warn("message dropped", "why", in.Why(p.l.a.o.MaxMessage))
	case ev.Data != nil && ev.Type == "message":
		p.l.messages(ev.Data, in, p.deliver)
	default:
		ev.Data.Free()
	}
}

// otherwise settles a call whose response is a success and neither JSON nor
// events.
func (p *exchange) otherwise(res *http.Response) {
	abort(res)
	p.l.Abort(p.call, p.l.a.name.Invalid(fmt.Sprintf("it answered with neither JSON nor events (HTTP %d)", res.StatusCode), nil))
}

// Attempts to reach a server that cannot be connected to: it may be about to
// start.
const (
	reachFor   = 4 * time.Second
	reachPause = 100 * time.Millisecond
)

// patience returns for how long a server is tried that cannot be connected to:
// not until the call times out, which would say that it may have been made.
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

// reach sends a request, again and again while it is certain that nothing of it
// was sent, and somebody wants it.
func (a *Upstream) reach(ctx context.Context, by func(*http.Request) (*http.Response, error), request func() *http.Request, wanted func() bool) (*http.Response, error) {
	most := a.patience()
	began, wait := time.Now(), min(reachPause, most/2)
	for {
		if !wanted() {
			return nil, errUnwanted
		}
		res, err := by(request())
		if err == nil || !remote.Unsent(err) || remote.TLSFault(err) || a.o.Hasty || time.Since(began)+wait > most || backoff.For(ctx, wait) != nil {
			return res, err
		}
		wait = min(2*wait, time.Second)
	}
}

// errUnwanted says that nobody waits for the answer any more.
var errUnwanted = errors.New("not wanted any more")

// failure is the error of a request that had no response. res is that of a
// redirect that was not followed, or nil.
func (a *Upstream) failure(res *http.Response, err error) *bridge.Error {
	if none := remote.NoToken(a.name, err); none != nil {
		return none
	}
	if coding, ok := errors.AsType[remote.CodingError](err); ok {
		return a.name.Invalid(coding.Error(), nil)
	}
	switch {
	case res != nil:
		return a.name.Unavailable(err.Error(), nil)
	case remote.Unsent(err):
		return a.name.Unavailable("it cannot be reached", err)
	}
	return a.name.Lost("the connection to it broke", err)
}
