package streamable

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"unicode"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// modernCall is one call to a modern server: a POST, and its response. The response is an answer,
// or a stream of events that ends with the answer. A stream that breaks is not resumed, and the
// call is not repeated.
type modernCall struct {
	exchange
	w     *stateless
	out   conn.Outgoing // without Line and Header
	early bool          // the server was not known to be modern when the call was made

	// Used by run only.
	status int  // of the response
	bare   bool // Mcp-Name is sent unencoded
	again  bool // the call is to be sent again with bare set
}

func newModernCall(w *stateless, m conn.Outgoing) *modernCall {
	q := &modernCall{w: w, out: m}
	q.out.Line, q.out.Header = nil, nil
	q.init(&w.link, m, q.take)
	w.mu.Lock()
	q.early = !w.open
	w.mu.Unlock()
	return q
}

// run sends the call and takes its response.
func (q *modernCall) run() {
	defer q.end()
	if q.method == discover {
		q.w.setFault(0, nil)
	}
	q.post()
	if q.again { // the server refused the call before it acted on it
		q.again, q.answered, q.bare = false, false, true
		q.post()
	}
	q.free()
}

// post sends the request once and takes the response.
func (q *modernCall) post() {
	w := q.w
	res, err := q.dispatch()
	if !q.repeatable() {
		q.free()
	}
	switch {
	case errors.Is(err, errNobodyWaits):
	case err != nil:
		w.Abort(q.call, remote.Failure(w.a.name, err))
	default:
		q.status = res.StatusCode
		q.response(res)
	}
}

// dispatch sends the request. A subscription gets an HTTP connection of its own, and is sent in
// another goroutine: connecting takes a deep stack, which the goroutine that waits for events would
// keep.
func (q *modernCall) dispatch() (res *http.Response, err error) {
	if q.method != listen {
		return q.send(q.w.a.do, q.request)
	}
	done := make(chan struct{})
	q.w.wg.Go(func() {
		defer close(done)
		res, err = q.send(q.w.a.stream, q.request)
	})
	<-done
	return res, err
}

// request returns the request. The bridge itself sets the headers that repeat the body (2026-07-28,
// B7), whatever is configured or forwarded. It removes those of sessions and resumption, which a
// modern server does not have.
func (q *modernCall) request(ctx context.Context) *http.Request {
	header := q.header
	if header == nil {
		header = q.w.from.Header
	}
	r := q.w.link.request(ctx, http.MethodPost, header, q.identity, q.line.B)
	h := r.Header
	for _, name := range []string{"Mcp-Session-Id", "Last-Event-Id", era.HeaderName} {
		delete(h, name)
	}
	h["Accept"] = []string{acceptBoth}
	h["Content-Type"] = []string{httpio.JSON}
	h[era.HeaderVersion] = []string{era.LatestModern}
	h[era.HeaderMethod] = []string{era.EncodeHeader(q.method)}
	switch {
	case q.out.About && q.bare:
		h[era.HeaderName] = []string{q.out.Name}
	case q.out.About:
		h[era.HeaderName] = []string{era.EncodeHeader(q.out.Name)}
	}
	maps.Copy(h, q.out.Mirror)
	q.traced.Put(h)
	return r
}

// repeatable reports whether the request can be sent again with the unencoded name: some servers
// compare it undecoded (2026-07-28, B7). A name that HTTP changes, or that looks encoded, must not
// be sent so.
func (q *modernCall) repeatable() bool {
	name := q.out.Name
	if !q.out.About || q.bare || era.EncodeHeader(name) == name {
		return false
	}
	same, ok := era.DecodeHeader(name)
	return ok && same == name && !strings.ContainsFunc(name, unicode.IsControl)
}

func (q *modernCall) response(res *http.Response) {
	w := q.w
	switch kind := httpio.MediaType(res.Header); {
	case res.StatusCode/100 != 2:
		q.refused(w.a.readRefusal(res))
	case kind == httpio.Events:
		err := broken(q.read(res, nil))
		if q.method == discover && err == nil {
			q.abortDiscover("its answer to server/discover has no answer in it")
		} else if !q.answered {
			w.Abort(q.call, w.a.name.Lost("the stream of its answer broke", err))
		}
	case kind == httpio.JSON:
		fault := q.single(res)
		switch {
		case q.again:
		case q.method == discover:
			q.abortDiscover("its answer to server/discover is no answer to it")
		default:
			w.Abort(q.call, fault) // no effect on a settled call
		}
	case q.method == discover:
		abort(res)
		q.abortDiscover("it answered server/discover with neither JSON nor events")
	default:
		q.unexpectedType(res)
	}
}

// abortDiscover settles server/discover with an error, if it is not settled: no modern server answers so
// (protocol.md C2.5).
func (q *modernCall) abortDiscover(what string) {
	q.w.Abort(q.call, q.w.a.name.Unavailable(what, errNotModern))
}

// take takes a message from the response. It owns m.
func (q *modernCall) take(m *jsonrpc.Message) {
	w := q.w
	switch {
	case m.IsResponse() && !q.isAnswer(m):
		return
	case !m.IsResponse() && (m.ID != nil || q.early):
		w.a.o.Log.Debug("dropped a message that a server must not send", "method", m.Method)
		m.Release()
		return
	case !m.IsResponse():
		w.DeliverOn(q.call, m)
		return
	}
	q.answered = true
	switch code := gjson.GetBytes(m.Error, "code").Int(); {
	case m.Error == nil:
	case q.method == discover && q.adopted:
		w.setFault(q.status, nil)
	case q.method == discover:
		w.setFault(q.status, m.Error)
	case code == jsonrpc.CodeHeaderMismatch && q.repeatable():
		q.again = true
		m.Release()
		return
	case code == jsonrpc.CodeUnsupportedVersion && !q.early && conn.Classify(m.Error) != conn.NoVerdict:
		m.Release()
		w.Abort(q.call, w.changed("it names other revisions"))
		return
	}
	w.DeliverOn(q.call, m)
}

// refused takes a response that is no success. A JSON-RPC error in it is the answer, if a
// modern server certainly made it.
func (q *modernCall) refused(r *refusal) {
	w := q.w
	own := r.answers(q.id)
	answer := own
	if m := r.message; m != nil && m.ID == nil && r.status/100 == 4 {
		answer, q.adopted = true, true // it can only be about this request
		m.ID = q.id
	}
	code := int64(0)
	if answer {
		code = gjson.GetBytes(r.message.Error, "code").Int()
	}
	switch {
	case r.credentials():
		w.Abort(q.call, w.a.refused(r))
	case q.method == discover && code != jsonrpc.CodeUnsupportedVersion && !r.showsEra():
		w.Abort(q.call, w.a.refused(r))
	case q.method == discover && !answer:
		q.abortDiscover(r.describe("it refuses server/discover"))
	case !q.early && q.method != discover && r.untypical(own, code) && !w.stillModern(q.ctx):
		w.Abort(q.call, w.changed(r.String()))
	case answer:
		q.take(r.message)
	default:
		w.Abort(q.call, w.a.refused(r))
	}
}

// showsEra reports whether a refusal shows the era of the server (protocol.md C2.5, C2.7).
func (r *refusal) showsEra() bool {
	switch r.status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return r.status/100 == 4 && !r.credentials()
}

// untypical reports whether a refusal is untypical of a modern server: legacy servers, and proxies before
// them, answer so. own reports whether it carries an error with the id of the request, and code is
// that of the error (2026-07-28, B6).
func (r *refusal) untypical(own bool, code int64) bool {
	switch r.status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
	default:
		return false
	}
	switch code {
	case jsonrpc.CodeHeaderMismatch, jsonrpc.CodeMissingCapability, jsonrpc.CodeUnsupportedVersion:
		return false
	case jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams:
		return !own
	}
	return true
}
