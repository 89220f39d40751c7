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
	early bool          // the call began before the server was known to be modern

	// Only run uses these.
	status int  // of the response
	bare   bool // Mcp-Name is sent unencoded
	again  bool // the call must be sent again with bare set
}

func newModernCall(s *stateless, o conn.Outgoing) *modernCall {
	m := &modernCall{w: s, out: o}
	m.out.Line, m.out.Header = nil, nil
	m.init(&s.link, o, m.take)
	s.mu.Lock()
	m.early = !s.open
	s.mu.Unlock()
	return m
}

// run sends the call and handles the response, a second time if again is set.
func (m *modernCall) run() {
	defer m.end()
	if m.method == discover {
		m.w.setFault(0, nil)
	}
	m.post()
	if m.again { // the server refused the headers, and so did not execute the call
		m.again, m.answered, m.bare, m.fault = false, false, true, nil
		m.post()
	}
	m.free()
}

// post sends the request once and handles the response.
func (m *modernCall) post() {
	s := m.w
	res, err := m.dispatch()
	if !m.repeatable() {
		m.free()
	}
	switch {
	case errors.Is(err, errNobodyWaits):
	case err != nil:
		s.Abort(m.call, remote.Failure(s.a.name, err))
	default:
		m.status = res.StatusCode
		m.response(res)
	}
}

// dispatch sends the request. For a subscription, it uses a separate HTTP connection and sends in
// another goroutine: connecting takes a deep stack, which the goroutine that waits for events would
// keep.
func (m *modernCall) dispatch() (res *http.Response, err error) {
	if m.method != listen {
		return m.send(m.w.a.do, m.request)
	}
	done := make(chan struct{})
	m.w.wg.Go(func() {
		defer close(done)
		res, err = m.send(m.w.a.stream, m.request)
	})
	<-done
	return res, err
}

// request returns the request. The bridge itself sets the headers that repeat the body (2026-07-28,
// B7), whatever is configured or forwarded. request removes the headers of sessions and resumption,
// which a modern server does not have.
func (m *modernCall) request(ctx context.Context) *http.Request {
	header := m.header
	if header == nil {
		header = m.w.from.Header
	}
	r := m.w.link.request(ctx, http.MethodPost, header, m.identity, m.line.B)
	h := r.Header
	for _, name := range []string{"Mcp-Session-Id", "Last-Event-Id", era.HeaderName} {
		delete(h, name)
	}
	h["Accept"] = []string{acceptBoth}
	h["Content-Type"] = []string{httpio.JSON}
	h[era.HeaderVersion] = []string{era.LatestModern}
	h[era.HeaderMethod] = []string{era.EncodeHeader(m.method)}
	switch {
	case m.out.About && m.bare:
		h[era.HeaderName] = []string{m.out.Name}
	case m.out.About:
		h[era.HeaderName] = []string{era.EncodeHeader(m.out.Name)}
	}
	maps.Copy(h, m.out.Mirror)
	m.traced.Put(h)
	return r
}

// repeatable reports whether the request can be sent again with the name unencoded, for servers
// that do not decode it (2026-07-28, B7). It reports false if HTTP would change the name, or if the
// name looks encoded.
func (m *modernCall) repeatable() bool {
	name := m.out.Name
	if !m.out.About || m.bare || era.EncodeHeader(name) == name {
		return false
	}
	same, ok := era.DecodeHeader(name)
	return ok && same == name && !strings.ContainsFunc(name, unicode.IsControl)
}

func (m *modernCall) response(res *http.Response) {
	s := m.w
	switch kind := remote.Kind(res); {
	case res.StatusCode/100 != 2:
		m.refused(s.a.readRefusal(res))
	case kind == httpio.Events:
		err := broken(m.read(res, nil))
		if m.method == discover && err == nil {
			m.abortDiscover("its answer to server/discover has no answer in it")
		} else if !m.answered {
			m.lose(remote.Broken(s.a.name, "the stream of its answer broke", err))
		}
	case kind == httpio.JSON:
		fault := m.single(res)
		switch {
		case m.again:
		case m.method == discover:
			m.abortDiscover("its answer to server/discover is no answer to it")
		default:
			m.lose(fault)
		}
	case m.method == discover:
		abort(res)
		m.abortDiscover("it answered server/discover with neither JSON nor events")
	default:
		m.unexpectedType(res)
	}
}

// abortDiscover settles server/discover, unless it is settled, with an error that wraps
// errNotModern (protocol.md C2.5).
func (m *modernCall) abortDiscover(what string) {
	m.w.Abort(m.call, m.w.a.name.Unavailable(what, errNotModern))
}

// take handles a message from the response, and releases or passes on the message.
func (m *modernCall) take(message *jsonrpc.Message) {
	s := m.w
	switch {
	case message.IsResponse() && !m.isAnswer(message):
		return
	case !message.IsResponse() && (message.ID != nil || m.early):
		s.a.o.Log.Debug("dropped a message that a server must not send", "method", message.Method)
		message.Release()
		return
	case !message.IsResponse():
		s.DeliverOn(m.call, message)
		return
	}
	m.answered = true
	switch code := gjson.GetBytes(message.Error, "code").Int(); {
	case message.Error == nil:
	case m.method == discover && m.adopted:
		s.setFault(m.status, nil)
	case m.method == discover:
		s.setFault(m.status, message.Error)
	case code == jsonrpc.CodeHeaderMismatch && m.repeatable():
		m.again = true
		message.Release()
		return
	case code == jsonrpc.CodeUnsupportedVersion && !m.early && conn.Classify(message.Error) != conn.NoVerdict:
		message.Release()
		s.Abort(m.call, s.changed("it names other revisions"))
		return
	}
	s.DeliverOn(m.call, message)
}

// refused settles a call whose response is no success. A JSON-RPC error in the response is the answer
// if it certainly comes from a modern server.
func (m *modernCall) refused(r *refusal) {
	s := m.w
	own := r.answers(m.id)
	answer := own
	if msg := r.message; msg != nil && msg.ID == nil && r.status/100 == 4 {
		answer, m.adopted = true, true // an error without an id can only be about this request
		msg.ID = m.id
	}
	code := int64(0)
	if answer {
		code = gjson.GetBytes(r.message.Error, "code").Int()
	}
	switch {
	case r.credentials():
		s.Abort(m.call, s.a.refused(r))
	case m.method == discover && code != jsonrpc.CodeUnsupportedVersion && !r.showsEra():
		s.Abort(m.call, s.a.refused(r))
	case m.method == discover && !answer:
		m.abortDiscover(r.describe("it refuses server/discover"))
	case !m.early && m.method != discover && r.untypical(own, code) && !s.stillModern(m.ctx):
		s.Abort(m.call, s.changed(r.String()))
	case answer:
		m.take(r.message)
	default:
		s.Abort(m.call, s.a.refused(r))
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

// untypical reports whether the refusal is one of a legacy server or of a proxy, and not of a
// modern server (2026-07-28, B6). own says that the refusal has an error with the id of the
// request, and code is the code of that error.
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
