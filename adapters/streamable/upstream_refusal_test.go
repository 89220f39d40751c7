package streamable

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// failure is a JSON-RPC error; $id stands for the request's.
func failure(id string, code int, message string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, message)
}

func respond(status int, body string, header ...string) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, _ *http.Request, id string) {
		if strings.HasPrefix(body, "{") {
			w.Header().Set("Content-Type", "application/json")
		}
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		fmt.Fprint(w, strings.ReplaceAll(body, "$id", id))
	}
}

// what servers say when they have forgotten a session,
// and what only looks like it.
func TestUpstreamForgotten(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		lost   bool
	}{
		{"404 (R-050)", 404, "", true},
		{"404 of the Go SDK", 404, "session not found\n", true},
		{"404 of the TypeScript SDK", 404, failure("null", -32001, "Session not found"), true},
		{"404 of the Python SDK", 404, failure(`"server-error"`, -32600, "Session not found"), true},
		{"404 with our id", 404, failure("$id", -32600, "no such session"), true},
		{"410", 410, "Gone", true},
		{"400 of the TypeScript SDK's examples", 400, failure("null", -32000, "Bad Request: No valid session ID provided"), true},
		{"400 of the TypeScript SDK after a restart", 400, failure("null", -32000, "Bad Request: Server not initialized"), true},
		{"400 with our id", 400, failure("$id", -32000, "Bad Request: Mcp-Session-Id header is required"), true},
		{"400 of the older Python SDK", 400, "Bad Request: No valid session ID provided", true},
		{"400 of older mcp-go", 400, "Invalid session ID", true},
		{"400, unknown header", 400, "Bad Request: Unknown Mcp-Session-Id header", true},
		{"400, not quite JSON-RPC", 400, `{"error":{"code":-32001,"message":"Session not found"},"id":"","jsonrpc":"2.0"}`, true},
		{"401 of the older Rust SDK", 401, "Unauthorized: Session not found", true},
		{"200", 200, failure("$id", -32001, "Session not found"), true},
		{"200, other words", 200, failure("$id", -32600, "Invalid session ID: 1"), true},
		{"200, not initialized", 200, failure("$id", -32000, "Bad Request: Server not initialized"), true},

		{"404, unknown method", 404, failure("$id", -32601, "Method not found"), false},
		{"400 about something else", 400, failure("$id", -32602, "invalid cursor"), false},
		{"400 about an argument", 400, failure("$id", -32602, "Invalid params: session_id is required"), false},
		{"400 about nothing", 400, "", false},
		{"401", 401, "session cookie expired", false},
		{"500", 500, "session not found", false},
		{"200, a tool's own session", 200, failure("$id", -32000, "browser session not found"), false},
		{"200, another code", 200, failure("$id", -32603, "Session not found"), false},
		{"200, a longer text", 200, failure("$id", -32000, "session expired while the page was loading"), false},
	} {
		for _, session := range []string{"", "s1"} {
			t.Run(c.name+"/"+session, func(t *testing.T) {
				s := newScript(t, &script{session: session, post: respond(c.status, c.body)})
				up, rest := s.connect(t, conn.Options{})
				o := adaptertest.Call(t.Context(), t, up, nil, ask)
				lost := c.lost && session != ""
				// As an answer it is passed on: who says that the call was not
				// acted on? What the server says to a ping decides.
				if refused := lost && c.status != 200; errors.Is(o.Err, bridge.ErrUnsent) != refused {
					t.Errorf("the call ended with %q, %v; ErrUnsent: want %v", o.Answer, o.Err, refused)
				}
				if o.Err == nil && o.Answer == "" {
					t.Error("neither answer nor error")
				}
				if !lost {
					rest.NoGone(t)
					return
				}
				if err := rest.WaitGone(t); !errors.Is(err, bridge.ErrUnsent) {
					t.Errorf("Gone(%v), want ErrUnsent", err)
				}
				if o := adaptertest.Call(t.Context(), t, up, nil, ask); !errors.Is(o.Err, bridge.ErrUnsent) {
					t.Errorf("a later call: %q, %v, want ErrUnsent", o.Answer, o.Err)
				}
				if err := up.Notify(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, `{"jsonrpc":"2.0","method":"m"}`)}); !errors.Is(err, bridge.ErrUnsent) {
					t.Errorf("a later Notify: %v, want ErrUnsent", err)
				}
				_ = up.Close(t.Context())
				if n := len(s.wait(t, 1, "POST tools/call")); n != 1 {
					t.Errorf("%d POSTs, want 1", n)
				}
				for _, r := range s.requests() {
					if r.http == "DELETE" {
						t.Error("DELETE of a forgotten session")
					}
				}
				if gone := rest.Gones(); len(gone) != 1 {
					t.Errorf("Gone was called %d times", len(gone))
				}
			})
		}
	}
}

// The statuses that refuse a call, whether the server is to blame, and what is said of them.
func TestUpstreamStatuses(t *testing.T) {
	const secret = "hunter2"
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request, string)
		kind   error // nil: an answer
		want   string
	}{
		{"401", respond(401, secret), bridge.ErrCredentials, "configure headers for it, such as Authorization"},
		{"401 with our id", respond(401, failure("$id", -32000, "x")), bridge.ErrCredentials, "HTTP 401"},
		{"403", respond(403, secret), bridge.ErrCredentials, "it does not let this caller in (HTTP 403)"},
		{"402, JSON", respond(402, `{"error":"your plan\nhas no calls left"}`), bridge.ErrRejected, "it refused the request (HTTP 402): your plan has no calls left"},
		{"403, JSON", respond(403, `{"error":{"message":"your plan has no calls left"}}`), bridge.ErrCredentials, "(HTTP 403): configure headers for it, such as Authorization; it says: your plan has no calls left"},
		{"403 with our id", respond(403, failure("$id", -32000, "no calls left")), bridge.ErrCredentials, "it says: no calls left"},
		{"402, a key", respond(402, `{"detail":"the key sk-0123456789abcdef is used up"}`), bridge.ErrRejected, "(HTTP 402): the key … is used up"},
		{"401, JSON", respond(401, `{"error":"`+secret+`"}`), bridge.ErrCredentials, "HTTP 401"},
		{"500, JSON", respond(500, `{"error":"`+secret+`"}`), bridge.ErrLost, "it failed (HTTP 500);"},
		{"429", respond(429, secret, "Retry-After", "7"), bridge.ErrRejected, "try again in 7 s"},
		{"503", respond(503, secret, "Retry-After", "120"), bridge.ErrUnavailable, "try again in 120 s"},
		{"503, as if for ever", respond(503, secret, "Retry-After", "99999999"), bridge.ErrUnavailable, "try again in 86400 s"},
		{"503 without a time", respond(503, secret), bridge.ErrUnavailable, "HTTP 503"},
		{"400", respond(400, secret), bridge.ErrRejected, "it refused the request (HTTP 400)"},
		{"400 with a message", respond(400, failure("null", -32600, "no\nway")), bridge.ErrRejected, "(HTTP 400): no way"},
		{"400 with our id (R-184)", respond(400, failure("$id", -32602, "bad arguments")), nil, "bad arguments"},
		{"404 without a session", respond(404, secret), bridge.ErrRejected, "HTTP 404"},
		{"413", respond(413, secret), bridge.ErrRejected, "HTTP 413"},
		{"500", respond(500, secret), bridge.ErrLost, "it failed (HTTP 500)"},
		{"500 with our id (R-184)", respond(500, failure("$id", -32603, "broken")), nil, "broken"},
		{"502", respond(502, secret), bridge.ErrLost, "whether it acted on the request is unknown"},
		{"504", respond(504, secret), bridge.ErrLost, "HTTP 504"},
		{"304", respond(304, ""), bridge.ErrUnavailable, "HTTP 304"},
		{"202", respond(202, ""), bridge.ErrInvalid, "gave no answer"},
		{"204", respond(204, ""), bridge.ErrInvalid, "gave no answer"},
		{"broken", cutOff, bridge.ErrLost, "broke"},
		{"200, a stream without an answer", respond(200, "", "Content-Type", "text/event-stream"), bridge.ErrLost, ""},
		{"200, a page", respond(200, "<html>"+secret, "Content-Type", "text/html"), bridge.ErrInvalid, "neither JSON nor events"},
		{"200, nothing", respond(200, "", "Content-Type", "application/json"), bridge.ErrInvalid, "no answer to the request"},
		{"200, broken", respond(200, `{"jsonrpc":"2.0","id":$id,"result":`), bridge.ErrInvalid, "its answer is not JSON: unexpected end"},
		{"200, a stream that is no gzip", respond(200, "data: {}\n\n", "Content-Type", "text/event-stream", "Content-Encoding", "gzip"), bridge.ErrInvalid, "not gzip, although it says so"},
		{"200, another's id", respond(200, `{"jsonrpc":"2.0","id":77,"result":{}}`), bridge.ErrInvalid, "no answer to the request"},
		{"400, the id as text", respond(400, `{"jsonrpc":"2.0","id":"$id","error":{"code":-32602,"message":"no"}}`), nil, `"code":-32602`},
		{"200, NaN", respond(200, `{"jsonrpc":"2.0","id":$id,"result":{"n":NaN}}`), bridge.ErrInvalid, "its answer is not JSON: NaN at byte"},
		{"200, an error without id", respond(200, failure("null", -32600, "what?")), nil, "what?"},
		{"400, an error that is a text", respond(400, `{"jsonrpc":"2.0","id":$id,"error":"no channel"}`), nil, `{"code":-32603,"message":"no channel"}`},
		{"200, an event with an error without id", respond(200, "data: "+failure("null", -32700, "what?")+"\n\n", "Content-Type", "text/event-stream"), nil, `"code":-32700,"message":"what?"`},
		{"200, invalid", respond(200, `{"jsonrpc":"1.0","id":$id,"result":{}}`), bridge.ErrInvalid, `jsonrpc must be "2.0"`},
		{"200, a batch", respond(200, `[{"jsonrpc":"2.0","method":"m"},{"jsonrpc":"2.0","id":$id,"result":{"b":1}}]`, "Content-Type", "application/json"), nil, `{"b":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, &script{post: c.answer})
			up, rest := s.connect(t, conn.Options{})
			o := adaptertest.Call(t.Context(), t, up, nil, ask)
			text := o.Answer
			if o.Err != nil {
				text = o.Err.Error()
			}
			if (c.kind == nil) != (o.Err == nil) || !errors.Is(o.Err, c.kind) || errors.Is(o.Err, bridge.ErrInvalid) != (c.kind == bridge.ErrInvalid) || errors.Is(o.Err, bridge.ErrRejected) != errors.Is(c.kind, bridge.ErrRejected) || !strings.Contains(text, c.want) {
				t.Errorf("the call ended with %q, %v, want %v with %q", o.Answer, o.Err, c.kind, c.want)
			}
			if strings.Contains(text, secret) {
				t.Errorf("the body of a refusal is passed on: %s", text)
			}
			if _, said, _ := strings.Cut(text, "wait for "); said != "" && said != bridge.RetryAfter(o.Err).String() { // which clients are told
				t.Errorf("After is %v, want %s", bridge.RetryAfter(o.Err), said)
			}
			if n := len(s.wait(t, 1, "POST tools/call")); n != 1 {
				t.Errorf("%d POSTs, want 1", n)
			}
			rest.NoGone(t)
		})
	}
}

// C2.6, C2.7: which answers to initialize let the other transport be tried.
func TestUpstreamOtherTransport(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request, string)
		other  bool
		want   string
	}{
		{"400", respond(400, ""), true, "HTTP 400"},
		{"404", respond(404, "404 page not found"), true, "HTTP 404"},
		{"405", respond(405, ""), true, "HTTP 405"},
		{"406", respond(406, ""), true, ""},
		{"415", respond(415, ""), true, ""},
		{"418", respond(418, failure("null", -32000, "teapot")), true, "teapot"},
		{"a page", respond(200, "<html>", "Content-Type", "text/html"), true, "neither"},
		{"nothing", respond(202, ""), true, "neither"},
		{"401", respond(401, ""), false, "Authorization"},
		{"403", respond(403, ""), false, "Authorization"},
		{"408", respond(408, ""), false, ""},
		{"429", respond(429, "", "Retry-After", "3"), false, "in 3 s"},
		{"500", respond(500, ""), false, "HTTP 500"},
		{"502", respond(502, ""), false, ""},
		{"503", respond(503, ""), false, ""},
		{"an error that answers", respond(400, failure("$id", -32602, "too old")), false, "too old"},
		{"a redirect that loses the message (R-176)", respond(302, "", "Location", "/mcp/"), false, "turns POST into GET"},
		{"a redirect elsewhere (R-176)", respond(307, "", "Location", "http://elsewhere.invalid/mcp/"), false, "it redirects to another origin"},
		{"a broken connection", func(http.ResponseWriter, *http.Request, string) { panic(http.ErrAbortHandler) }, false, "broke"},
		{"a bad session id", respond(200, `{"jsonrpc":"2.0","id":$id,"result":`+fmt.Sprintf(agreed, "2025-11-25")+`}`, "Mcp-Session-Id", "a b"), false, "session id"},
		{"a long session id", respond(200, `{"jsonrpc":"2.0","id":$id,"result":`+fmt.Sprintf(agreed, "2025-11-25")+`}`, "Mcp-Session-Id", strings.Repeat("x", 1025)), false, "session id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, &script{begin: c.answer})
			up, err := adapter(t, s.URL, nil, conn.Options{Era: conn.EraLegacy}).Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{})
			if err == nil {
				_ = up.Close(t.Context())
				t.Fatal("Open succeeded")
			}
			if errors.Is(err, remote.ErrOtherTransport) != c.other || !errors.Is(err, bridge.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open: %v; ErrOtherTransport: want %v, with %q", err, c.other, c.want)
			}
			if n := len(s.requests()); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		s := newScript(t, &script{})
		s.Close()
		_, err := adapter(t, s.URL, nil, conn.Options{}).Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{})
		if errors.Is(err, remote.ErrOtherTransport) || !errors.Is(err, bridge.ErrUnavailable) || !strings.Contains(err.Error(), "cannot be reached") {
			t.Errorf("Open: %v", err)
		}
	})
}
