package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/eventstream"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// exchange is the POST of one call and what comes back: a message, or a stream
// of events that may break and be resumed.
type exchange struct {
	w      *wire
	call   int64
	id     []byte // the call's, raw
	method string
	header http.Header
	line   *jsonrpc.Buffer
	ctx    context.Context
	stop   context.CancelFunc

	// Used by run only.
	answered bool
	last     string        // the id of the last event
	retry    time.Duration // what the server wants us to wait before we resume
	lingers  *time.Timer

	trace  httptrace.ClientTrace
	writes atomic.Int32 // begun and not ended: the transport reads line

	mu      sync.Mutex // guards the rest
	written bool
	over    bool
	waiter  chan struct{} // closed when written or over becomes true; nil while nobody waits
}

func newExchange(w *wire, m bridge.Outgoing) *exchange {
	e := &exchange{w: w, call: m.Call, id: strconv.AppendInt(nil, m.Call, 10), method: m.Method, header: m.Header, line: m.Line, retry: defaultRetry}
	e.ctx, e.stop = context.WithCancel(w.ctx)
	e.trace.GotConn = func(httptrace.GotConnInfo) { e.writes.Add(1) }
	e.trace.WroteRequest = e.wrote
	return e
}

// wrote notes that the request is on its way.
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
	if e.waiter != nil {
		close(e.waiter)
		e.waiter = nil
	}
}

// sent waits until the request is on its way or never will be, and reports
// which. It is for one goroutine.
func (e *exchange) sent(ctx context.Context) bool {
	e.mu.Lock()
	if e.written || e.over {
		defer e.mu.Unlock()
		return e.written
	}
	wait := make(chan struct{})
	e.waiter = wait
	e.mu.Unlock()
	select {
	case <-wait:
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.written
}

// run sends the call and sees to it that it is settled.
func (e *exchange) run() {
	w := e.w
	res, err := e.post()
	switch {
	case errors.Is(err, errUnwanted):
	case err != nil:
		w.Abort(e.call, w.failure(res, err))
	default:
		e.take(res)
	}
	if e.lingers != nil {
		e.lingers.Stop()
	}
	e.stop()
	e.mark(&e.over)
	w.Abort(e.call, w.a.lost("it did not answer", nil)) // unless it is settled, as it should be
	w.ended(e.call)
}

// post sends the request. Nothing is sent twice of which a byte may have
// reached the server (protocol.md D0.8).
func (e *exchange) post() (*http.Response, error) {
	ctx := httptrace.WithClientTrace(e.ctx, &e.trace)
	res, err := e.w.reach(e.ctx,
		func() *http.Request { return e.w.request(ctx, http.MethodPost, e.header, e.line.B) },
		func() bool { return e.w.Waits(e.call) })
	if e.writes.Load() == 0 {
		e.line.Free()
	} // otherwise the server has answered before it has read all: the memory is in use yet
	e.line = nil
	return res, err
}

// take reads the response to the POST.
func (e *exchange) take(res *http.Response) {
	w := e.w
	if e.method == "initialize" && res.StatusCode/100 == 2 && !w.admit(res.Header.Get("Mcp-Session-Id")) {
		abort(res)
		w.Abort(e.call, w.a.unavailable("it gave a session id that is too long or has characters that an id cannot have", nil))
		return
	}
	switch kind := kindOf(res); {
	case res.StatusCode/100 != 2:
		e.refused(readRefusal(res))
	case kind == kindEvents:
		e.follow(res)
	case kind == kindJSON:
		e.single(res)
	case e.method == "initialize":
		abort(res)
		w.Abort(e.call, w.a.unavailable("it answered initialize with neither JSON nor events", otherTransport(res.StatusCode)))
	case res.StatusCode == http.StatusAccepted || res.StatusCode == http.StatusNoContent:
		discard(res)
		e.elsewhere()
	default:
		abort(res)
		w.Abort(e.call, w.a.lost(fmt.Sprintf("it answered with neither JSON nor events (HTTP %d)", res.StatusCode), nil))
	}
}

// elsewhere waits for the answer to a call that the server has only taken. It
// is wrong to do so, but some servers answer on the standing stream, if it is
// open.
func (e *exchange) elsewhere() {
	select {
	case <-e.ctx.Done():
	case <-e.w.heed.Done():
		e.w.Abort(e.call, e.w.a.lost("it took the request and gave no answer", nil))
	}
}

// single takes an answer that is all of the response. 2025-03-26 allows more
// messages before it, as a batch (A9).
func (e *exchange) single(res *http.Response) {
	w := e.w
	buf, err := readBody(res, w.a.limit)
	switch {
	case errors.Is(err, errTooLarge):
		w.Unanswerable(e.id, w.a.tooLarge())
		return
	case err != nil:
		w.Abort(e.call, w.a.lost("the connection to it broke", err))
		return
	}
	batch := jsonrpc.IsBatch(buf.B)
	w.messages(buf, func(m *jsonrpc.Message) {
		if m.IsResponse() && m.ID == nil && !batch {
			m.ID = e.id // an error that names no request: there is only one that it can be about
		}
		e.deliver(m)
	})
	w.Abort(e.call, w.a.lost("what it answered is not an answer to the request", nil)) // unless one was
}

// deliver takes a message from the call's own response. It owns m.
func (e *exchange) deliver(m *jsonrpc.Message) {
	w := e.w
	switch {
	case !m.IsResponse():
		w.hear(m)
		return
	case string(m.ID) != string(e.id):
		// It may be what somebody else asked for: ids are ours, and no server has
		// a reason to answer one call in the response to another.
		w.a.o.Log.Debug("an answer to another request was dropped")
		m.Release()
		return
	}
	e.answered = true
	if e.method == "initialize" {
		w.agree(gjson.GetBytes(m.Result, "protocolVersion").String())
	}
	if session, _ := w.holds(); m.Error != nil && session != "" && forgets(m.Error) {
		if harmless(e.method) {
			m.Release()
			w.Abort(e.call, w.forget("answered with an error"))
			return
		}
		// It may be a tool that has sessions of its own and says so after it has
		// acted. The call is not for us to repeat (D0.8); a ping tells.
		w.wg.Go(w.doubt)
	}
	w.Deliver(m)
}

// harmless reports whether a request of that method may be made twice.
func harmless(method string) bool {
	switch method {
	case "ping", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read",
		"resources/subscribe", "resources/unsubscribe", "logging/setLevel":
		return true
	}
	return false
}

// doubt asks the server for a sign that it still knows the session. If it does
// not, its answer ends the connection.
func (w *wire) doubt() {
	ctx, cancel := context.WithTimeout(w.ctx, noteLimit)
	defer cancel()
	a, _ := w.Call(ctx, &bridge.Request{Message: &jsonrpc.Message{ID: []byte("0"), Method: "ping"}})
	a.Release()
}

// Streams that break before the answer are resumed where they broke.
const (
	defaultRetry = time.Second // unless the server says otherwise
	minRetry     = 10 * time.Millisecond
	maxRetries   = 10 // without an event between them
	maxPause     = 30 * time.Second
	// linger is how long a stream is read after the answer: its end lets the
	// connection be used again.
	linger = time.Second
	// maxEventID bounds what goes into a header.
	maxEventID = 4 << 10
)

// follow reads the stream of the call until its answer, resuming it as often
// as it takes.
func (e *exchange) follow(res *http.Response) {
	w := e.w
	retries := 0
	for {
		news, err := e.read(res)
		if e.answered || !w.Waits(e.call) {
			return
		}
		if e.last == "" {
			w.Abort(e.call, w.a.lost("the stream of its answer broke", broken(err)))
			return
		}
		_, revision := w.holds()
		polled := errors.Is(err, io.EOF) && revision >= era.Rev20251125 // it means us to come back (A8)
		pause := max(e.retry, minRetry)
		switch {
		case news:
			retries = 0
		case polled:
			pause = max(pause, defaultRetry)
		default:
			retries++
			pause = max(pause, backOff(retries))
		}
		if res = e.resume(pause, &retries); res == nil {
			return
		}
	}
}

// broken is the cause of a stream's end that is worth telling.
func broken(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// backOff is how long to wait before the next attempt after so many that were
// of no use.
func backOff(n int) time.Duration { return min(defaultRetry<<min(max(n-1, 0), 10), maxPause) }

// resume opens the stream again behind its last event. It returns nil when
// nobody waits for it, or when it cannot be resumed and the call is settled.
func (e *exchange) resume(pause time.Duration, retries *int) *http.Response {
	w := e.w
	for {
		if *retries >= maxRetries {
			w.Abort(e.call, w.a.lost("the stream of its answer broke and could not be resumed", nil))
			return nil
		}
		if !sleep(e.ctx, pause) || !w.Waits(e.call) {
			return nil
		}
		r := w.request(e.ctx, http.MethodGet, e.header, nil)
		r.Header["Last-Event-Id"] = []string{e.last}
		res, err := w.a.do(r)
		if err == nil && res.StatusCode == http.StatusOK && kindOf(res) == kindEvents {
			return res
		}
		if err == nil && res.StatusCode == http.StatusOK && kindOf(res) == kindJSON {
			e.single(res)
			return nil
		}
		if err == nil {
			refusal := readRefusal(res)
			if !refusal.passing() {
				how := fmt.Sprintf("the stream of its answer broke and is not resumed (HTTP %d)", res.StatusCode)
				if session, _ := w.holds(); session != "" && refusal.forgets() {
					w.forget(refusal.String())
				}
				w.Abort(e.call, w.a.lost(how, nil)) // the server has had the request
				return nil
			}
		}
		*retries++
		pause = max(e.retry, backOff(*retries))
	}
}

// read takes events until the stream ends. It reports whether there were any
// with an id.
func (e *exchange) read(res *http.Response) (news bool, err error) {
	defer res.Body.Close()
	r := eventstream.NewReader(res.Body, e.w.a.limit)
	for {
		ev, err := r.Next()
		if err != nil {
			return news, err
		}
		if ev.HasRetry {
			e.retry = ev.Retry
		}
		if ev.HasID {
			news = news || ev.ID != e.last
			e.last = eventID(ev.ID)
		}
		e.event(ev)
		if e.answered && e.lingers == nil {
			e.lingers = time.AfterFunc(linger, e.stop)
		}
	}
}

// eventID returns id if it can go into a header, otherwise the empty one, which
// means that there is none.
func eventID(id string) string {
	if len(id) > maxEventID || !httpguts.ValidHeaderFieldValue(id) {
		return ""
	}
	return id
}

// event takes the data of an event of the call's stream.
func (e *exchange) event(ev eventstream.Received) {
	switch {
	case ev.Over != nil && string(ev.Over.ID()) == string(e.id):
		e.answered = true
		e.w.Unanswerable(e.id, e.w.a.tooLarge())
	case ev.Over != nil:
		e.w.a.o.Log.Warn("message dropped: larger than the limit", "limit", e.w.a.o.MaxMessage)
	case ev.Data != nil && ev.Type == "message":
		e.w.messages(ev.Data, e.deliver)
	default:
		ev.Data.Free()
	}
}

// refused settles a call whose response is no success.
func (e *exchange) refused(r *refusal) {
	w := e.w
	session, _ := w.holds()
	switch {
	case session != "" && r.forgets() && !r.unknownMethod(e.id):
		w.Abort(e.call, w.forget(r.String()))
	case r.status != http.StatusUnauthorized && r.status != http.StatusForbidden && r.answers(e.id):
		w.Deliver(r.message)
		r.message = nil
	case e.method == "initialize" && r.otherTransport():
		w.Abort(e.call, w.a.unavailable(r.said("it refused to initialize"), otherTransport(r.status)))
	default:
		w.Abort(e.call, w.verdict(r))
	}
}
