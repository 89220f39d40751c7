package streamable

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// refusal is a response whose status is not a success.
type refusal struct {
	status  int
	shown   string           // the header with the credentials of the request; empty without one
	after   time.Duration    // Retry-After
	asked   bool             // the response has Retry-After
	message *jsonrpc.Message // the JSON-RPC error in the body, or nil
	text    string           // the message of that error, or the beginning of another body
	words   string           // the server's words that a client may get
}

// maxRefusal bounds the bytes of a refusal's body that are read.
const maxRefusal = 64 << 10

func (u *Upstream) readRefusal(res *http.Response) *refusal {
	defer res.Body.Close()
	r := &refusal{status: res.StatusCode, shown: remote.Credentials(res.Request)}
	r.after, r.asked = remote.RetryAfter(res.Header)
	body, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	if err != nil {
		return r
	}
	if m, err := u.o.Read(body); err == nil && m.Error != nil {
		r.message, r.text = m, gjson.GetBytes(m.Error, "message").Str
		r.words = remote.Printable(r.text)
		return r
	}
	r.words = remote.Words(res, body)
	if m := gjson.GetBytes(body, "error.message"); gjson.ValidBytes(body) && m.Type == gjson.String {
		r.text = m.Str // an invalid JSON-RPC error, such as one without a version
	} else {
		r.text = string(body[:min(len(body), 1<<10)])
	}
	return r
}

// String returns the status, for logs.
func (r *refusal) String() string { return fmt.Sprintf("HTTP %d", r.status) }

// temporary reports whether the same request may succeed later.
func (r *refusal) temporary() bool {
	switch r.status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented:
		return false
	}
	return r.status >= 500
}

// answers reports whether the refusal's body is the answer to the request with that id.
func (r *refusal) answers(id []byte) bool {
	return r.message != nil && string(r.message.ID) == string(id)
}

// unknownMethod reports whether the refusal answers the request with that id by "method not found".
// Some servers do that with the status 404.
func (r *refusal) unknownMethod(id []byte) bool {
	return r.answers(id) && gjson.GetBytes(r.message.Error, "code").Int() == jsonrpc.CodeMethodNotFound
}

// forgets reports whether the refusal means that the server has lost the session: a 404 (A7), or a
// refusal that some servers send in place of a 404.
func (r *refusal) forgets() bool {
	text := strings.ToLower(r.text)
	switch r.status {
	case http.StatusNotFound, http.StatusGone:
		return true
	case http.StatusUnauthorized: // older versions of the Rust SDK
		return remote.SessionNotFound(text)
	case http.StatusBadRequest:
		if strings.Contains(text, "not initialized") { // the TypeScript SDK after a restart
			return true
		}
		if !strings.Contains(text, "session") || r.message != nil && !sessionCode(r.message.Error) {
			return false // "session_id is required" may be about the arguments of a tool
		}
		for _, word := range []string{"not found", "no valid", "invalid", "unknown", "expired", "terminated", "missing", "required", "not exist", "no session", "closed"} {
			if strings.Contains(text, word) {
				return true
			}
		}
	}
	return false
}

// sessionCode reports whether servers report lost sessions with the code of that JSON-RPC error.
func sessionCode(raw []byte) bool {
	switch gjson.GetBytes(raw, "code").Int() {
	case jsonrpc.CodeInvalidRequest, -32000, -32001:
		return true
	}
	return false
}

// forgets reports whether a JSON-RPC error in an answer means that the server has lost the session.
// It accepts only known wordings, since a tool may have sessions of its own.
func forgets(raw []byte) bool {
	if !sessionCode(raw) {
		return false
	}
	text := strings.ToLower(strings.TrimSpace(gjson.GetBytes(raw, "message").Str))
	for _, kind := range []string{"bad request: ", "not found: "} {
		text = strings.TrimPrefix(text, kind)
	}
	for _, form := range []string{
		"session not found", "session expired", "session has expired", "session terminated", "session has been terminated",
		"invalid session", "invalid session id", "unknown session", "unknown session id", "no valid session id provided",
		"session not initialized", "server not initialized", "not initialized",
	} {
		if rest, ok := strings.CutPrefix(text, form); ok && (rest == "" || rest == "." || rest[0] == ':') {
			return true
		}
	}
	return false
}

// otherTransport reports whether a server that refuses initialize in this way may speak HTTP+SSE
// (protocol.md C2.6, C2.7).
func (r *refusal) otherTransport() bool {
	switch r.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return r.status/100 == 4
}

func otherTransport(status int) error {
	return fmt.Errorf("HTTP %d: %w", status, remote.ErrOtherTransport)
}

// describe returns a text with the status and the server's words added.
func (r *refusal) describe(what string) string { return conn.Said(what, r.status, r.words) }

// verdict returns the error of a message that the server refused. If the server has lost the session,
// verdict ends the connection.
func (w *wire) verdict(r *refusal) *bridge.Error {
	if session, _ := w.identity(); session != "" && r.forgets() {
		return w.forget(r.String())
	}
	return w.a.refused(r)
}

// credentials reports whether the server has refused the credentials, and not the request.
func (r *refusal) credentials() bool {
	return r.status == http.StatusUnauthorized || r.status == http.StatusForbidden
}

// refused returns the error of a request that the server refused without a JSON-RPC answer.
func (u *Upstream) refused(r *refusal) *bridge.Error {
	return u.name.Refused(r.status, r.shown, r.after, r.asked, false, r.words)
}
