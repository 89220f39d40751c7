package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// legacyCall is one call of a session: a POST, and its response. The response is a message, or a
// stream of events that may break and be resumed.
type legacyCall struct {
	exchange
	w *wire

	// Only run uses these.
	last  string        // the id of the last event; empty if the stream cannot be resumed
	retry time.Duration // how long the server wants a client to wait before it resumes the stream
}

// run sends the call and handles the response.
func (l *legacyCall) run() {
	defer l.end()
	w := l.w
	res, err := l.send(w.a.do, func(ctx context.Context) *http.Request {
		r := w.request(ctx, http.MethodPost, l.header, l.identity, l.line.B)
		l.traced.Put(r.Header)
		return r
	})
	l.free()
	switch {
	case errors.Is(err, errNobodyWaits):
	case err != nil:
		w.Abort(l.call, remote.Failure(w.a.name, err))
	default:
		l.response(res)
	}
}

func (l *legacyCall) response(res *http.Response) {
	w := l.w
	if l.method == "initialize" && res.StatusCode/100 == 2 && !w.admit(res.Header.Get("Mcp-Session-Id")) {
		abort(res)
		w.Abort(l.call, w.a.name.Unavailable("it gave a session id that is too long or has characters that an id cannot have", nil))
		return
	}
	switch kind := remote.Kind(res); {
	case res.StatusCode/100 != 2:
		l.refused(w.a.readRefusal(res))
	case kind == httpio.Events:
		l.follow(res)
	case kind == httpio.JSON:
		l.whole(res)
	case l.method == "initialize":
		abort(res)
		w.Abort(l.call, w.a.name.Unavailable("it answered initialize with neither JSON nor events", otherTransport(res.StatusCode)))
	case res.StatusCode == http.StatusAccepted || res.StatusCode == http.StatusNoContent:
		discard(res)
		l.awaitElsewhere()
	default:
		l.unexpectedType(res)
	}
}

// whole handles a response that is one JSON body.
func (l *legacyCall) whole(res *http.Response) {
	l.lose(l.single(res))
}

// awaitElsewhere waits for the answer to a call that the server accepted with 202 or 204. Against the
// specification, some servers then answer on the standalone stream.
func (l *legacyCall) awaitElsewhere() {
	if !l.w.Waits(l.call) { // the answer came before
		return
	}
	select {
	case <-l.ctx.Done():
	case <-l.w.listening.Done():
		l.w.Abort(l.call, l.w.a.name.Invalid("it accepted the request and gave no answer", nil))
	}
}

// take handles a message from the response of the call, and releases or passes on the message.
func (l *legacyCall) take(m *jsonrpc.Message) {
	w := l.w
	if !m.IsResponse() {
		w.receive(l.call, m)
		return
	}
	if !l.isAnswer(m) {
		return
	}
	l.answered = true
	if l.method == "initialize" {
		w.agree(gjson.GetBytes(m.Result, "protocolVersion").String())
	}
	if session, _ := w.identity(); m.Error != nil && session != "" && forgets(m.Error) {
		if idempotent(l.method) {
			m.Release()
			w.Abort(l.call, w.forget("answered with an error"))
			return
		}
		// The error may be that of a tool with sessions of its own, which has acted already. So the
		// bridge does not repeat the call (D0.8); a ping shows whether the server's session is lost.
		w.wg.Go(w.checkSession)
	}
	w.Deliver(m)
}

// idempotent reports whether a request of that method may be sent twice.
func idempotent(method string) bool {
	switch method {
	case "ping", "resources/read", "resources/subscribe", "resources/unsubscribe", "logging/setLevel":
		return true
	}
	return era.IsList(method)
}

// checkSession sends a ping. If the server has lost the session, the answer ends the connection.
func (w *wire) checkSession() {
	ctx, cancel := context.WithTimeout(w.ctx, noteLimit)
	defer cancel()
	m, _ := w.Call(ctx, &bridge.Request{Message: &jsonrpc.Message{ID: []byte("0"), Method: "ping"}})
	m.Release()
}

// These bound the attempts to resume a stream that breaks before the answer.
const (
	defaultRetry = time.Second           // legacyCall.retry unless the server sends one
	minRetry     = 10 * time.Millisecond // the shortest pause
	maxRetries   = 10                    // attempts in a row without a new event
	maxPause     = 30 * time.Second      // between attempts, unless the server wants more
	maxEventID   = 4 << 10               // bytes of an event id in a header
)

// follow reads the stream of the call until the answer. If the stream breaks, follow resumes it.
func (l *legacyCall) follow(res *http.Response) {
	w := l.w
	retries := 0
	for {
		news := false
		err := l.read(res, func(ev httpio.Received) { news = l.note(ev) || news })
		if l.answered || !w.Waits(l.call) {
			return
		}
		if l.last == "" {
			l.lose(remote.Broken(w.a.name, "the stream of its answer broke", broken(err)))
			return
		}
		_, revision := w.identity()
		polled := errors.Is(err, io.EOF) && revision >= era.Rev20251125 // the server wants the client to poll (A8)
		wait := max(l.retry, minRetry)
		switch {
		case news:
			retries = 0
		case polled:
			wait = max(wait, defaultRetry)
		default:
			retries++
			wait = max(wait, backOff(retries))
		}
		if res = l.resume(wait, &retries); res == nil {
			return
		}
	}
}

// broken returns the cause of a stream's end, or nil if the stream ended regularly.
func broken(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// backOff returns how long to wait after n failed attempts.
func backOff(n int) time.Duration { return backoff.Grown(defaultRetry, maxPause, n) }

// resume opens the stream again after its last event. It returns nil if the caller no longer waits, or
// if resume has settled the call.
func (l *legacyCall) resume(wait time.Duration, retries *int) *http.Response {
	w := l.w
	for {
		if *retries >= maxRetries {
			w.Abort(l.call, w.a.name.Lost("the stream of its answer broke and could not be resumed", nil))
			return nil
		}
		if backoff.For(l.ctx, wait) != nil || !w.Waits(l.call) {
			return nil
		}
		r := w.request(l.ctx, http.MethodGet, l.header, l.identity, nil)
		r.Header["Last-Event-Id"] = []string{l.last}
		res, err := w.a.do(r)
		if err == nil && res.StatusCode == http.StatusOK && httpio.Kind(res.Header) == httpio.Events {
			return res
		}
		if err == nil && res.StatusCode == http.StatusOK && httpio.Kind(res.Header) == httpio.JSON {
			l.whole(res)
			return nil
		}
		if err == nil {
			refusal := w.a.readRefusal(res)
			if !refusal.temporary() {
				how := fmt.Sprintf("the stream of its answer broke and is not resumed (HTTP %d)", res.StatusCode)
				if session, _ := w.identity(); session != "" && refusal.forgets() {
					w.forget(refusal.String())
				}
				w.Abort(l.call, w.a.name.Lost(how, nil)) // lost, not unsent: the server has the request
				return nil
			}
		}
		*retries++
		wait = max(l.retry, backOff(*retries))
	}
}

// note records the id and the retry of an event. It reports whether the event has a new id.
func (l *legacyCall) note(ev httpio.Received) (news bool) {
	if ev.HasRetry {
		l.retry = ev.Retry
	}
	if ev.HasID {
		news = ev.ID != l.last
		l.last = eventID(ev.ID)
	}
	return news
}

// eventID returns id, or "" if the id cannot be sent in a header.
func eventID(id string) string {
	if len(id) > maxEventID || !httpguts.ValidHeaderFieldValue(id) {
		return ""
	}
	return id
}

// refused settles a call whose response is no success.
func (l *legacyCall) refused(r *refusal) {
	w := l.w
	session, _ := w.identity()
	if l.method == "initialize" && r.status == http.StatusNotFound && r.unknownMethod(l.id) {
		w.unknownInitialize.Store(true)
	}
	switch {
	case session != "" && r.forgets() && !r.unknownMethod(l.id):
		w.Abort(l.call, w.forget(r.String()))
	case !r.credentials() && r.answers(l.id):
		w.Deliver(r.message)
		r.message = nil
	case l.method == "initialize" && r.otherTransport():
		w.Abort(l.call, w.a.name.Rejected(r.describe("it refused to initialize"), otherTransport(r.status)))
	default:
		w.Abort(l.call, w.verdict(r))
	}
}
