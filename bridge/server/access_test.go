package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

const (
	aliceKey = "alice-0123456789abcdef"
	bobKey   = "bob-0123456789abcdef"
)

// private are access rules for two: alice may use everything, bob the server one
// without its tool echo.
func private(c *config.Config) {
	c.Access = []config.Access{
		{Name: "alice", Token: aliceKey},
		{Name: "bob", Token: bobKey, Servers: []string{"one"}, Tools: config.Choice{Deny: []string{"echo"}}},
	}
}

func as(key string) []string { return []string{"Authorization", "Bearer " + key} }

// modernCall is a request of a client without a session, with its headers.
func modernCall(method, params string) (body string, header []string) {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, method, params),
		[]string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method}
}

// endpoints are the paths that take a key, with a method that each has.
var endpoints = []struct{ method, path string }{
	{"POST", "/mcp"}, {"GET", "/mcp"}, {"DELETE", "/mcp"}, {"PUT", "/mcp"}, {"POST", "/one/mcp"}, {"GET", "/two/mcp"},
	{"GET", "/sse"}, {"POST", "/sse"}, {"GET", "/one/sse"}, {"POST", "/messages"}, {"POST", "/messages?sessionId=1"}, {"POST", "/two/messages"},
	{"GET", "/metrics"},
}

// unread is a body that must not be looked at.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body of a request without a key was read")
	return 0, io.EOF
}

// Whoever shows no key, or no good one, is told the same wherever it knocks, and
// its body is not looked at. Pages of other origins are refused before that, and
// those that may call can read the answer.
func TestAccessDenied(t *testing.T) {
	r := newRig(t, func(c *config.Config) { private(c); c.AllowedOrigins = []string{"http://localhost:1"} }, "one", "two")
	for i, e := range endpoints {
		for _, tc := range []struct {
			name   string
			header []string
			path   string
			status int
			wrong  bool
		}{
			{"no key", nil, "", 401, false},
			{"a wrong key", as("guess-0123456789abcdef"), "", 401, true},
			{"a wrong API key", []string{"X-API-Key", "guess"}, "", 401, true},
			{"the name of a principal", as("alice"), "", 401, true},
			{"two keys", append(as(aliceKey), "X-API-Key", bobKey), "", 401, true},
			{"another scheme", []string{"Authorization", "Basic " + aliceKey}, "", 401, true},
			{"a key in the query", nil, "access_token=" + aliceKey + "&token=" + aliceKey + "&key=" + aliceKey, 401, false},
			{"a session in place of a key", []string{"Mcp-Session-Id", "x"}, "", 401, false},
			{"a page of another origin", append(as(aliceKey), "Origin", "https://evil.example.com"), "", 403, false},
			{"a page that may call", []string{"Origin", "http://localhost:1"}, "", 401, false},
		} {
			path := e.path
			if tc.path != "" {
				path += map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + tc.path
			}
			q := from(peerOf(i), loopback, e.method, path, tc.header...)
			q.Body = io.NopCloser(unread{t})
			a := r.answer(q)
			if a.Code != tc.status {
				t.Errorf("%s %s with %s: status %d, want %d", e.method, e.path, tc.name, a.Code, tc.status)
			}
			if tc.status != 401 {
				continue
			}
			challenge, key := `Bearer realm="mcp-bridge"`, "missing"
			if tc.wrong {
				key = "wrong"
				challenge += `, error="invalid_token"`
			}
			body := `{"jsonrpc":"2.0","error":{"code":-32600,"message":"` + key + ` key: send the header Authorization: Bearer KEY or X-API-Key: KEY","data":{"bridge":"unauthorized"}}}`
			if got := a.Header().Get("WWW-Authenticate"); got != challenge || a.Body.String() != body {
				t.Errorf("%s %s with %s: WWW-Authenticate %q, want %q; body %s", e.method, e.path, tc.name, got, challenge, a.Body)
			}
			if open := tc.header != nil && tc.header[0] == "Origin"; open != (a.Header().Get("Access-Control-Allow-Origin") == "http://localhost:1") ||
				open != strings.Contains(a.Header().Get("Access-Control-Expose-Headers"), "WWW-Authenticate, Retry-After") {
				t.Errorf("%s %s with %s: a page could not read the answer: %v", e.method, e.path, tc.name, a.Header())
			}
		}
	}
	if r.f.Opened() > 0 {
		t.Error("a server was started")
	}
}

// What needs no key: signs of life, and what browsers ask before they call.
func TestAccessOpen(t *testing.T) {
	r := newRig(t, func(c *config.Config) { private(c); c.AllowedOrigins = []string{"http://localhost:1"} }, "one", "two")
	if a := r.answer(from(peer, loopback, "GET", "/healthz")); a.Code != 200 || a.Body.String() != "ok\n" {
		t.Errorf("/healthz: %d %s", a.Code, a.Body)
	}
	a := r.answer(from(peer, loopback, "OPTIONS", "/one/mcp", "Origin", "http://localhost:1", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization"))
	if a.Code != 204 || !strings.Contains(a.Header().Get("Access-Control-Allow-Headers"), "Authorization, X-API-Key") {
		t.Errorf("a preflight: %d %v", a.Code, a.Header())
	}
	// Clients that know OAuth look for this after a 401: there is none.
	for _, path := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/one/mcp", "/one/mcp/.well-known/openid-configuration"} {
		if a := r.answer(from(peer, loopback, "GET", path)); a.Code != 404 || strings.Contains(a.Body.String(), "mcp") {
			t.Errorf("OAuth: %d %s", a.Code, a.Body)
		}
	}
	if a := r.answer(from(peer, loopback, "PUT", "/healthz")); a.Code != 405 || a.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("PUT /healthz: %d %v", a.Code, a.Header())
	}
}

// Which servers there are cannot be told without a key, nor with one that may not
// use them: what is there and what is not is answered alike.
func TestHiddenNames(t *testing.T) {
	for _, base := range []string{"", "/tools"} {
		hidden := func(c *config.Config) {
			private(c)
			c.BasePath = base
		}
		r := newRig(t, hidden, "one", "two")
		r.s.table.Load().backends["two"].hook = newHook(hookSecret, nil)
		r.s.http.Handler = r.s.Handler()
		asked := 0
		for _, who := range []struct {
			header []string
			status int
		}{{nil, 401}, {as("guess-0123456789abcdef"), 401}, {as(bobKey), 404}} {
			for _, method := range []string{"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "FOO"} {
				for _, path := range []string{"/%s", "/%s/", "/%s/mcp", "/%s/sse", "/%s/messages", "/%s/messages/", "/%s/other", "/hooks/%s"} {
					ask := func(name string) string {
						asked++
						a := r.answer(from(peerOf(asked), loopback, method, base+fmt.Sprintf(path, name), who.header...))
						return fmt.Sprint(a.Code, " ", a.Header(), " ", a.Body)
					}
					there, not := ask("two"), ask("nope")
					want := who.status
					if method == "POST" && strings.HasPrefix(path, "/hooks") {
						want = 401 // it takes the secret
					}
					if there != not || !strings.HasPrefix(there, fmt.Sprint(want)) {
						t.Errorf("%s %s%s, %v:\n%s\nan unknown one:\n%s", method, base, path, who.header, there, not)
					}
				}
			}
		}
		if a := r.answer(from(peer, loopback, "PUT", base+"/one/messages", as(bobKey)...)); a.Code != 405 || !strings.Contains(a.Header().Get("Allow"), "POST") {
			t.Errorf("a method that one's own server does not have: %d %v", a.Code, a.Header())
		}
		if a := r.answer(from(peer, loopback, "GET", base+"/nowhere", as(bobKey)...)); a.Code != 404 || !strings.Contains(a.Body.String(), base+"/one/mcp") || strings.Contains(a.Body.String(), "two") {
			t.Errorf("what bob is told that there is: %d %s", a.Code, a.Body)
		}
	}
}

// The status of /readyz is for everybody, its details and the metrics are for
// those with a key, unless they are public.
func TestAccessStatus(t *testing.T) {
	public := func(c *config.Config) {
		private(c)
		c.PublicStatus = true
	}
	for _, tc := range []struct {
		name    string
		rig     *rig
		header  []string
		details bool
		status  int // of /readyz
	}{
		{"no key", newRig(t, private, "one", "broken"), nil, false, 200},
		{"a wrong key", newRig(t, private, "one", "broken"), as("wrong"), false, 200},
		{"a key", newRig(t, private, "one", "broken"), as(aliceKey), true, 200},
		{"no key, nothing works", newRig(t, private, "broken"), nil, false, 503},
		{"a key, nothing works", newRig(t, private, "broken"), as(aliceKey), true, 503},
		{"public", newRig(t, public, "one", "broken"), nil, true, 200},
		{"no rules", newRig(t, nil, "one", "broken"), nil, true, 200},
	} {
		a := tc.rig.answer(from(peer, loopback, "GET", "/readyz", tc.header...))
		has := strings.Contains(a.Body.String(), "no such program")
		if a.Code != tc.status || has != tc.details || gjson.Get(a.Body.String(), "ready").Bool() != (tc.status == 200) {
			t.Errorf("%s: /readyz: %d %s", tc.name, a.Code, a.Body)
		}
		if !tc.details && gjson.Get(a.Body.String(), "@keys").Raw != `["ready"]` {
			t.Errorf("%s: /readyz shows more than the status: %s", tc.name, a.Body)
		}
		if a := tc.rig.answer(from(peer, loopback, "GET", "/metrics", tc.header...)); (a.Code == 200) != tc.details {
			t.Errorf("%s: /metrics: %d", tc.name, a.Code)
		}
	}
}

// What a session has is its principal's: to anybody else it does not exist, in
// any way to ask for it.
func TestAccessSessions(t *testing.T) {
	run(t, private, []string{"one", "two"}, func(t *testing.T, r *rig) {
		begin := func(path, key string) string {
			t.Helper()
			a := r.Do("POST", path, initialize, as(key)...).Wait()
			if a.Status() != 200 {
				t.Fatalf("initialize at %s = %d %s", path, a.Status(), a.Body())
			}
			return a.Header("Mcp-Session-Id")
		}
		mine := begin("/one/mcp", aliceKey)
		ask := func(method, path, body string, header ...string) string {
			a := r.Do(method, path, body, header...)
			synctest.Wait()
			text := fmt.Sprint(a.Status(), " ", a.Header("Content-Type"), " ", a.Body())
			a.Leave()
			return text
		}
		// A stream that can be resumed.
		running := r.Do("POST", "/one/mcp", call("5", "wait"), append(as(aliceKey), "Mcp-Session-Id", mine)...)
		wiretest.Advance(2 * time.Second)
		events := running.Events()
		if len(events) == 0 || events[0].ID == "" {
			t.Fatalf("the call has no stream: %+v %s", events, running.Body())
		}
		r.f.Got()
		for _, tc := range []struct{ method, path, body string }{
			{"POST", "/one/mcp", call("6", "echo")},
			{"POST", "/one/mcp", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`},
			{"POST", "/one/mcp", `{"jsonrpc":"2.0","id":"b1","result":{}}`},
			{"POST", "/one/mcp", `[{"jsonrpc":"2.0","id":6,"method":"ping"}]`},
			{"POST", "/one/sse", call("6", "echo")},
			{"GET", "/one/mcp", ""},
			{"DELETE", "/one/mcp", ""},
		} {
			for _, resume := range []string{"", events[0].ID} {
				if resume != "" && tc.method != "GET" {
					continue
				}
				with := func(key, session string) string {
					return ask(tc.method, tc.path, tc.body, append(as(key), "Mcp-Session-Id", session, "Last-Event-ID", resume)...)
				}
				foreign, unknown := with(bobKey, mine), with(bobKey, "there-is-none")
				if foreign != unknown || !strings.HasPrefix(foreign, "404 ") {
					t.Errorf("%s %s %s: another's session is answered %s, an unknown one %s", tc.method, tc.path, tc.body, foreign, unknown)
				}
			}
			if got := ask(tc.method, tc.path, tc.body, "Mcp-Session-Id", mine); !strings.HasPrefix(got, "401 ") {
				t.Errorf("%s %s: a session's id lets in: %s", tc.method, tc.path, got)
			}
		}
		if got := r.f.Got(); len(got) > 0 {
			t.Errorf("the server got %q", got)
		}
		r.f.Answer(`{"done":true}`)
		if running.Wait(); !strings.Contains(running.Body(), `"done":true`) {
			t.Errorf("alice's call: %s", running.Body())
		}
		if got := ask("POST", "/one/mcp", call("8", "echo"), append(as(aliceKey), "Mcp-Session-Id", mine)...); !strings.HasPrefix(got, "200 ") {
			t.Errorf("alice's session is not what it was: %s", got)
		}
	})
}

// The same over HTTP+SSE.
func TestAccessSSE(t *testing.T) {
	run(t, private, []string{"one", "two"}, func(t *testing.T, r *rig) {
		stream := r.Do("GET", "/one/sse", "", as(aliceKey)...)
		synctest.Wait()
		events := stream.Events()
		if stream.Status() != 200 || len(events) != 1 {
			t.Fatalf("the stream: %d %s", stream.Status(), stream.Body())
		}
		endpoint := events[0].Data
		r.Do("POST", endpoint, initialize, as(aliceKey)...).Wait()
		synctest.Wait()
		stream.Take()
		for _, body := range []string{call("6", "echo"), initialize, `[{"jsonrpc":"2.0","id":6,"method":"ping"}]`} {
			foreign := r.Do("POST", endpoint, body, as(bobKey)...).Wait()
			unknown := r.Do("POST", "/one/messages?sessionId=none", body, as(bobKey)...).Wait()
			if foreign.Status() != 404 || foreign.Body() != unknown.Body() {
				t.Errorf("another's stream: %d %s, an unknown one: %s", foreign.Status(), foreign.Body(), unknown.Body())
			}
			if a := r.Do("POST", endpoint, body).Wait(); a.Status() != 401 {
				t.Errorf("without a key: %d", a.Status())
			}
		}
		synctest.Wait()
		if got := stream.Take(); got != "" {
			t.Errorf("alice's stream has %q", got)
		}
		r.Do("POST", endpoint, call("7", "echo"), as(aliceKey)...).Wait()
		synctest.Wait()
		if got := stream.Take(); !strings.Contains(got, `"id":7,"result"`) {
			t.Errorf("alice's stream has %q", got)
		}
		stream.Leave()
		if a := r.Do("GET", "/two/sse", "", as(bobKey)...).Wait(); a.Status() != 404 || strings.Contains(a.Body(), "two") {
			t.Errorf("a stream to a server that bob may not use: %d %s", a.Status(), a.Body())
		}
	})
}

// A principal's streams are as many as its sessions may be, also before they have
// one: nobody takes all the room that there is.
func TestAccessStreams(t *testing.T) {
	few := func(c *config.Config) {
		private(c)
		c.MaxSessions, c.PerPrincipal.Sessions = 3, 2
	}
	run(t, few, []string{"one"}, func(t *testing.T, r *rig) {
		open := func(key string) *wiretest.Reply {
			s := r.Do("GET", "/one/sse", "", as(key)...)
			synctest.Wait()
			return s
		}
		first, second := open(aliceKey), open(aliceKey)
		for range 3 {
			if r := open(aliceKey); r.Status() != 503 || r.Header("Retry-After") == "" || !strings.Contains(r.Body(), "per_principal: sessions") {
				t.Errorf("alice's third stream: %d %s", r.Status(), r.Body())
			}
		}
		bobs := open(bobKey)
		if first.Status() != 200 || second.Status() != 200 || bobs.Status() != 200 {
			t.Errorf("alice's streams: %d and %d, bob's: %d %s", first.Status(), second.Status(), bobs.Status(), bobs.Body())
		}
		first.Leave()
		synctest.Wait()
		again := open(aliceKey)
		if again.Status() != 200 {
			t.Errorf("alice's stream after one has ended: %d %s", again.Status(), again.Body())
		}
		for _, r := range []*wiretest.Reply{second, bobs, again} {
			r.Leave()
		}
	})
}

// What each may use, over HTTP and in both eras.
func TestAccessGrants(t *testing.T) {
	run(t, private, []string{"one", "two"}, func(t *testing.T, r *rig) {
		for _, tc := range []struct {
			key, path string
			tool      string
			status    int
			answer    string // to the call
		}{
			{aliceKey, "/one/mcp", "echo", 200, `"result"`},
			{aliceKey, "/two/mcp", "echo", 200, `"result"`},
			{aliceKey, "/mcp", "two__echo", 200, `"result"`},
			{bobKey, "/one/mcp", "echo", 200, `"error":{"code":-32602,"message":"Unknown tool: echo"}`},
			{bobKey, "/one/mcp", "steps", 200, `"result"`},
			{bobKey, "/two/mcp", "steps", 404, `"error":{"code":-32600,"message":"not found; MCP endpoints: /mcp, /one/mcp"}`},
			{bobKey, "/mcp", "one__steps", 200, `"result"`},
			{bobKey, "/mcp", "one__echo", 200, `"error":{"code":-32602,"message":"Unknown tool: one__echo"}`},
			{bobKey, "/mcp", "two__steps", 200, `"error":{"code":-32602,"message":"Unknown tool: two__steps"}`},
		} {
			a := r.Do("POST", tc.path, initialize, as(tc.key)...).Wait()
			if a.Status() != tc.status {
				t.Errorf("%s: initialize = %d %s, want %d", tc.path, a.Status(), a.Body(), tc.status)
			}
			if tc.status == 200 {
				a = r.Do("POST", tc.path, call("7", tc.tool), append(as(tc.key), "Mcp-Session-Id", a.Header("Mcp-Session-Id"))...).Wait()
			}
			if !strings.Contains(a.Body(), tc.answer) {
				t.Errorf("%s, legacy: %s = %s, want %s", tc.path, tc.tool, a.Body(), tc.answer)
			}
			body, header := modernCall("tools/call", `"name":"`+tc.tool+`","arguments":{},`)
			a = r.Do("POST", tc.path, body, append(append(header, "Mcp-Name", tc.tool), as(tc.key)...)...).Wait()
			if a.Status() != tc.status || !strings.Contains(a.Body(), tc.answer) || tc.status == 200 && !strings.Contains(a.Body(), `"id":7`) {
				t.Errorf("%s, modern: %s = %d %s, want %d %s", tc.path, tc.tool, a.Status(), a.Body(), tc.status, tc.answer)
			}
		}
	})
}

// Two principals do not share a connection, one principal's clients do.
func TestAccessLanes(t *testing.T) {
	shared := func(c *config.Config) {
		private(c)
		c.Servers[0].Share = config.SharePrincipal
	}
	run(t, shared, []string{"one", "two"}, func(t *testing.T, r *rig) {
		for i, tc := range []struct {
			key    string
			opened int
		}{{aliceKey, 1}, {aliceKey, 1}, {bobKey, 2}, {bobKey, 2}, {aliceKey, 2}} {
			if a := r.Do("POST", "/one/mcp", initialize, as(tc.key)...).Wait(); a.Status() != 200 {
				t.Fatalf("initialize = %d %s", a.Status(), a.Body())
			}
			if got := r.f.Opened(); got != tc.opened {
				t.Errorf("session %d: %d connections, want %d", i, got, tc.opened)
			}
		}
	})
	run(t, private, []string{"one", "two"}, func(t *testing.T, r *rig) { // clients without sessions
		for i, tc := range []struct {
			key    string
			opened int
		}{{aliceKey, 1}, {aliceKey, 1}, {bobKey, 2}, {aliceKey, 2}} {
			body, header := modernCall("tools/call", `"name":"steps","arguments":{},`)
			if a := r.Do("POST", "/one/mcp", body, append(append(header, "Mcp-Name", "steps"), as(tc.key)...)...).Wait(); a.Status() != 200 {
				t.Fatalf("a call = %d %s", a.Status(), a.Body())
			}
			if got := r.f.Opened(); got != tc.opened {
				t.Errorf("request %d: %d connections, want %d", i, got, tc.opened)
			}
		}
	})
}

// A key that is taken away lets nobody in any more, not into a session that is
// open either.
func TestAccessRevoked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "carol.key")
	if err := os.WriteFile(path, []byte("carol-0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	carol := func(c *config.Config) { c.Access = []config.Access{{Name: "carol", TokenFile: path}} }
	run(t, carol, []string{"one"}, func(t *testing.T, r *rig) {
		a := r.Do("POST", "/mcp", initialize, as("carol-0123456789abcdef")...).Wait()
		mine := append(as("carol-0123456789abcdef"), "Mcp-Session-Id", a.Header("Mcp-Session-Id"))
		if a = r.Do("POST", "/mcp", call("1", "echo"), mine...).Wait(); a.Status() != 200 {
			t.Fatalf("a call = %d %s", a.Status(), a.Body())
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		wiretest.Advance(3 * time.Second)
		if a = r.Do("POST", "/mcp", call("2", "echo"), mine...).Wait(); a.Status() != 401 {
			t.Errorf("after the key was taken away: %d %s", a.Status(), a.Body())
		}
	})
}

// Who is turned away is in the log, but not each time, and never what was shown.
func TestAccessLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := config.Default()
		c.Servers = []config.Server{config.DefaultServer("one", "")}
		private(&c)
		s := build(&c, slog.New(slog.NewTextHandler(&out, nil)), func(*server, *config.Server) backend {
			return backend{Adapter: &wiretest.Server{}, transport: func() string { return "stdio" }}
		})
		defer s.Close(t.Context())
		knock := func(n int) {
			for i := range n {
				w := httptest.NewRecorder()
				s.http.Handler.ServeHTTP(w, from(peerOf(i), loopback, "POST", "/one/mcp?token=s3cr3t-in-the-query", "X-API-Key", "s3cr3t-that-is-wrong"))
			}
		}
		knock(1000)
		time.Sleep(access.RejectedLogEvery)
		knock(10)
		if n := strings.Count(out.String(), "\n"); n != 2 || !strings.Contains(out.String(), "level=INFO") || !strings.Contains(out.String(), "more=999") ||
			!strings.Contains(out.String(), "path=/one/mcp") || !strings.Contains(out.String(), "from=198.51.100.7") {
			t.Errorf("the log has %d lines: %s", n, &out)
		}
		if strings.Contains(out.String(), "s3cr3t") {
			t.Errorf("the log has what was shown: %s", &out)
		}
	})
}

// A webhook has a secret of its own, and a caller's key is none.
func TestAccessHook(t *testing.T) {
	c := config.Default()
	c.Servers = []config.Server{config.DefaultServer("flows", "")}
	private(&c)
	s := build(&c, slog.New(slog.DiscardHandler), func(*server, *config.Server) backend {
		b := backend{Adapter: &wiretest.Server{}, transport: func() string { return "rest" }}
		b.hook = newHook(hookSecret, func(context.Context, []byte) (int, error) { return 3, nil })
		return b
	})
	defer s.Close(t.Context())
	for key, status := range map[string]int{hookSecret: 200, aliceKey: 401, "": 401} {
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, from(peer, loopback, "POST", "/hooks/flows", as(key)...))
		if w.Code != status {
			t.Errorf("with the key %q: %d, want %d", key, w.Code, status)
		}
	}
}

// bearer adds a key to the requests of the official SDK's client.
type bearer struct{ key string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if b.key != "" {
		r.Header.Set("Authorization", "Bearer "+b.key)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// The official SDK's clients get in with a key, and see what they may use.
func TestAccessSDK(t *testing.T) {
	r := newRig(t, private, "one", "two")
	site := httptest.NewServer(r.s.Handler())
	defer site.Close()
	for _, tc := range []struct {
		key string
		ok  bool
	}{{aliceKey, true}, {bobKey, true}, {"", false}, {"wrong-0123456789abcdef", false}} {
		client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
		for name, transport := range map[string]mcp.Transport{
			"Streamable HTTP": &mcp.StreamableClientTransport{Endpoint: site.URL + "/one/mcp", HTTPClient: &http.Client{Transport: bearer{tc.key}}},
			"HTTP+SSE":        &mcp.SSEClientTransport{Endpoint: site.URL + "/one/sse", HTTPClient: &http.Client{Transport: bearer{tc.key}}},
		} {
			session, err := client.Connect(t.Context(), transport, nil)
			if (err == nil) != tc.ok {
				t.Errorf("%s with the key %q: %v", name, tc.key, err)
			}
			if err != nil {
				continue
			}
			_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{}})
			if unknown := err != nil && strings.Contains(err.Error(), "Unknown tool: echo"); unknown != (tc.key == bobKey) || err != nil && !unknown {
				t.Errorf("%s with the key %q: a call of echo: %v", name, tc.key, err)
			}
			if err := session.Close(); err != nil {
				t.Errorf("%s: Close: %v", name, err)
			}
		}
	}
}

// What a server says on one principal's connection reaches nobody else, in
// either era.
func TestAccessChanges(t *testing.T) {
	run(t, private, []string{"one", "two"}, func(t *testing.T, r *rig) {
		streams := map[string][]*wiretest.Reply{}
		for _, key := range []string{aliceKey, bobKey} {
			a := r.Do("POST", "/one/mcp", initialize, as(key)...).Wait()
			session := append(as(key), "Mcp-Session-Id", a.Header("Mcp-Session-Id"))
			r.Do("POST", "/one/mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, session...).Wait()
			streams[key] = append(streams[key], r.Do("GET", "/one/mcp", "", session...))
			synctest.Wait()
		}
		take := func(key string, i int) string {
			synctest.Wait()
			return streams[key][i].Take()
		}
		const change = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
		r.f.Say(change) // on the newest connection, which is bob's
		if alice, bob := take(aliceKey, 0), take(bobKey, 0); strings.Contains(alice, "list_changed") || !strings.Contains(bob, "list_changed") {
			t.Errorf("alice hears %q, bob %q", alice, bob)
		}
		for _, key := range []string{aliceKey, bobKey} {
			body, header := modernCall("subscriptions/listen", `"notifications":{"toolsListChanged":true},`)
			streams[key] = append(streams[key], r.Do("POST", "/one/mcp", body, append(header, as(key)...)...))
			synctest.Wait()
			if got := streams[key][1].Take(); !strings.Contains(got, "acknowledged") {
				t.Fatalf("a subscription: %s", got)
			}
		}
		r.f.Say(change)
		if alice, bob := take(aliceKey, 1), take(bobKey, 1); strings.Contains(alice, "list_changed") || !strings.Contains(bob, "list_changed") {
			t.Errorf("without sessions, alice hears %q, bob %q", alice, bob)
		}
		for _, all := range streams {
			for _, r := range all {
				r.Leave()
			}
		}
	})
}

// A question of a server's that a client without a session is to answer is for
// the principal that made the call.
func TestAccessQuestions(t *testing.T) {
	run(t, private, []string{"one", "two"}, func(t *testing.T, r *rig) {
		ask := func(key, more string) *wiretest.Reply {
			body, header := modernCall("tools/call", `"name":"ask","arguments":{},`+more)
			body = strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":{"sampling":{}}`, 1)
			return r.Do("POST", "/one/mcp", body, append(append(header, "Mcp-Name", "ask"), as(key)...)...).Wait()
		}
		first := ask(aliceKey, "")
		state, question := gjson.Get(first.Body(), "result.requestState").Raw, gjson.Get(first.Body(), "result.inputRequests.@keys.0").Raw
		if state == "" || question == "" {
			t.Fatalf("a call = %d %s", first.Status(), first.Body())
		}
		answers := `"requestState":` + state + `,"inputResponses":{` + question + `:{"role":"assistant","content":{"type":"text","text":"yes"},"model":"m"}},`
		if r := ask(bobKey, answers); !strings.Contains(r.Body(), `"code":-32602`) || !strings.Contains(r.Body(), "belongs to another request") {
			t.Errorf("bob answers alice's question: %d %s", r.Status(), r.Body())
		}
		if r := ask(aliceKey, answers); !strings.Contains(r.Body(), `"result"`) || !strings.Contains(r.Body(), "yes") {
			t.Errorf("alice answers her own: %d %s", r.Status(), r.Body())
		}
	})
}
