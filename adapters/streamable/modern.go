package streamable

import (
	"bytes"
	"errors"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// isModern reports whether a POST of one message is of the stateless era. The body decides, or if
// the body names no era, the header (protocol.md C3). initialize is never stateless.
func isModern(m *jsonrpc.Message, h http.Header) bool {
	return gateway.IsStateless(m) || m.Method != "initialize" && namesModern(h)
}

// namesModern reports whether the headers name a revision of the stateless era.
func namesModern(h http.Header) bool {
	v := h[versionHeader]
	return len(v) > 0 && era.IsModern(v[0])
}

// modern handles a POST of one message of the stateless era. body is freed when the message is no
// longer used.
func (d *Downstream) modern(server string, w http.ResponseWriter, r *http.Request, m *jsonrpc.Message, body *httpio.Body, as forms) {
	if !m.IsRequest() {
		defer body.Free()
		if m.IsResponse() {
			refuse(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "clients of revision "+era.FirstModern+" and later get no requests: there is nothing to answer")
			return
		}
		// The revision defines no notifications from clients. Some clients send
		// notifications/cancelled when they leave, with ids that other clients may use as well. So
		// the bridge ignores notifications.
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if name := tooLong(r.Header); name != "" {
		refuse(w, http.StatusRequestHeaderFieldsTooLarge, m.ID, jsonrpc.CodeInvalidRequest, "the header "+name+" is too long")
		body.Free()
		return
	}
	if m.Method == listen && !as.events {
		refuse(w, http.StatusNotAcceptable, m.ID, jsonrpc.CodeInvalidRequest, "Accept must list text/event-stream: the answer to "+listen+" is a stream")
		body.Free()
		return
	}
	s, no := admit(server, auth.Principal(r.Context()), r.Header, m)
	if no != nil {
		status := http.StatusBadRequest // protocol.md B6
		if code(no) == jsonrpc.CodeMethodNotFound {
			status = http.StatusNotFound
		}
		writeAnswer(w, status, answered{no, nil})
		body.Free()
		return
	}
	e := gateway.EnvelopeOf(r)
	s.Header, s.Identity, s.Tools, s.Remote = e.Header, e.Identity, e.Tools, e.Remote
	newStatelessCall(d, m, *s, body, as).reply(w, r)
}

// maxHeader bounds the value of one header of the protocol, in bytes (protocol.md F).
const maxHeader = 8 << 10

// tooLong returns the name of a header of the protocol with a value above maxHeader, or "".
func tooLong(h http.Header) string {
	for name, values := range h {
		if !strings.HasPrefix(name, "Mcp-") {
			continue
		}
		for _, v := range values {
			if len(v) > maxHeader {
				return name
			}
		}
	}
	return ""
}

// admit returns the caller of the request m, or for an invalid request, the error that answers it.
// The error names the first fault, in the order of protocol.md B7.
func admit(server, principal string, h http.Header, m *jsonrpc.Message) (*gateway.Stateless, *jsonrpc.Message) {
	if what := badVersion(h, m); what != "" {
		return nil, mismatch(m, what)
	}
	s, no := gateway.NewStateless(server, principal, m)
	if no != nil {
		return nil, no
	}
	if what := badNames(h, m); what != "" {
		return nil, mismatch(m, what)
	}
	return s, nil
}

func mismatch(m *jsonrpc.Message, what string) *jsonrpc.Message {
	return jsonrpc.NewError(bytes.Clone(m.ID), jsonrpc.CodeHeaderMismatch, what, nil)
}

// badVersion says how the revision in the headers differs from that in the body, or returns "". It
// ignores faults of the body itself.
func badVersion(h http.Header, m *jsonrpc.Message) string {
	v := gjson.GetBytes(m.Meta(), gjson.Escape(era.KeyVersion))
	if v.Type != gjson.String || v.Str == "" {
		return ""
	}
	values := h[versionHeader]
	if len(values) == 0 {
		return "the header MCP-Protocol-Version is missing"
	}
	for _, value := range values {
		if value != v.Str {
			return "the header MCP-Protocol-Version and params._meta name different revisions"
		}
	}
	return ""
}

// badNames says which part of the body the headers do not repeat as they must, or returns "" (R-072 to
//
func badNames(h http.Header, m *jsonrpc.Message) string {
	if what := repeats("Mcp-Method", h[era.HeaderMethod], "method of the body", m.Method); what != "" {
		return what
	}
	values := h[era.HeaderName]
	name, ok := era.NameOf(m.Method, m.Params)
	if !ok {
		// A body without the name that the method needs is refused later. But if there is a header,
		// which a proxy may have trusted, the body is refused here.
		if _, has := era.NameOf(m.Method, anyName); has && len(values) > 0 {
			return "the header Mcp-Name repeats nothing of the body"
		}
		return ""
	}
	return repeats("Mcp-Name", values, "name in the body", name)
}

// anyName are params with a name for every method whose params can have one.
var anyName = []byte(`{"name":"","uri":"","taskId":""}`)

// repeats says why a header does not repeat a value of the body, or returns "" if it does.
func repeats(header string, values []string, what, want string) string {
	if len(values) == 0 {
		return "the header " + header + " is missing"
	}
	for _, v := range values {
		if !era.EqualHeader(v, want) {
			return "the header " + header + " and the " + what + " are different"
		}
	}
	return ""
}

// answerStatus returns the HTTP status of an answer that is the whole response (protocol.md B6,
// B15). An error of the server is an answer, mostly with 200. A refusal of the bridge has the
// status of its reason. If the bridge itself answers server/discover with an error, the status is
// never 200, which would suggest a server of the other era (R-188, C4).
func answerStatus(method string, a answered) int {
	switch status := refusedStatus(a.err); {
	case a.err == nil:
	case method == discover && (status == http.StatusTooManyRequests || bridge.RetryAfter(a.err) > 0):
		return http.StatusServiceUnavailable
	case status != http.StatusOK:
		return status
	case method != discover:
	case errors.Is(a.err, bridge.ErrTimeout):
		return http.StatusGatewayTimeout
	default:
		return http.StatusBadGateway
	}
	switch code(a.m) {
	case jsonrpc.CodeMethodNotFound:
		return http.StatusNotFound
	case jsonrpc.CodeHeaderMismatch, jsonrpc.CodeMissingCapability, jsonrpc.CodeUnsupportedVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// code returns the code of an error, or 0 for a result.
func code(m *jsonrpc.Message) int {
	if m.Error == nil {
		return 0
	}
	return int(gjson.GetBytes(m.Error, "code").Int())
}
