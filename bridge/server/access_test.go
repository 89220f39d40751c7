package server

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

const (
	aliceKey = "alice-0123456789abcdef"
	bobKey   = "bob-0123456789abcdef"
	wrongKey = "guess-0123456789abcdef"
)

// Addresses of the bridge, and of a client elsewhere.
const (
	loopback = "127.0.0.1:8808"
	public   = "192.0.2.1:8808"
	peer     = "198.51.100.7:1234"
	proxy    = "10.0.0.1:1234" // which exposed trusts
)

// exposed are the settings of a bridge that more than this machine reaches.
func exposed(c *config.Config) {
	c.AllowedHosts, c.AllowedOrigins = []string{"mcp.example.com"}, []string{"https://app.example.com"}
	c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
}

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

// On each endpoint, a request without a key is refused before its body is read, and no server is started. Pages of
// other origins are refused before that, whatever they show.
func TestAccessDenied(t *testing.T) {
	r := newRig(t, private, "one", "two")
	for i, e := range endpoints {
		for _, tc := range []struct {
			header []string
			status int
		}{{nil, 401}, {as(wrongKey), 401}, {append(as(aliceKey), "Origin", "https://evil.example.com"), 403}} {
			q := from(peerOf(i), loopback, e.method, e.path, tc.header...)
			q.Body = io.NopCloser(unread{t})
			if a := r.answer(q); a.Code != tc.status {
				t.Errorf("%s %s with %q: %d %s, want %d", e.method, e.path, tc.header, a.Code, a.Body, tc.status)
			}
		}
	}
	if r.f.Opened() > 0 {
		t.Error("a server was started")
	}
}

// Which servers there are cannot be told without a key, nor with one that may not
// use them: what is there and what is not is answered alike. A webhook has a secret of its own, and a caller's key is
// none.
func TestHiddenNames(t *testing.T) {
	for _, base := range []string{"", "/tools"} {
		hidden := func(c *config.Config) {
			private(c)
			c.BasePath = base
		}
		r := newRig(t, hidden, "one", "two")
		r.s.table.Load().backends["two"].hook = newHook(hookSecret, func(context.Context, []byte) (int, error) { return 3, nil })
		r.s.http.Handler = r.s.Handler()
		asked := 0
		for _, who := range []struct {
			header []string
			status int
		}{{nil, 401}, {as(wrongKey), 401}, {as(bobKey), 404}} {
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
		if a := r.answer(from(peer, loopback, "POST", base+"/hooks/two", as(hookSecret)...)); a.Code != 200 {
			t.Errorf("the secret of a webhook: %d %s", a.Code, a.Body)
		}
		if a := r.answer(from(peer, loopback, "PUT", base+"/one/messages", as(bobKey)...)); a.Code != 405 || !strings.Contains(a.Header().Get("Allow"), "POST") {
			t.Errorf("a method that one's own server does not have: %d %v", a.Code, a.Header())
		}
		if a := r.answer(from(peer, loopback, "GET", base+"/nowhere", as(bobKey)...)); a.Code != 404 || !strings.Contains(a.Body.String(), base+"/one/mcp") || strings.Contains(a.Body.String(), "two") {
			t.Errorf("what bob is told that there is: %d %s", a.Code, a.Body)
		}
	}
}

// The status of /readyz is for everybody. A key shows the state of the servers that it may use, and the metrics of
// these; an operator's key, and one for all servers, the whole bridge.
func TestAccessStatus(t *testing.T) {
	const carolKey = "carol-0123456789abcdef"
	rules := func(c *config.Config) {
		private(c)
		c.Access = append(c.Access, config.Access{Name: "carol", Token: carolKey, Servers: []string{"one"}, Operator: true})
	}
	open := func(c *config.Config) {
		rules(c)
		c.PublicStatus = true
	}
	const none, some, all = 0, 1, 2 // what a caller sees
	for _, tc := range []struct {
		name   string
		change func(*config.Config)
		only   string // the only server; empty for both
		header []string
		sees   int
	}{
		{"no key", rules, "", nil, none},
		{"a wrong key", rules, "", as(wrongKey), none},
		{"one that may use all", rules, "", as(aliceKey), all},
		{"one that may use some", rules, "", as(bobKey), some},
		{"an operator", rules, "", as(carolKey), all},
		{"no key, nothing works", rules, "broken", nil, none},
		{"a key, nothing works", rules, "broken", as(aliceKey), all},
		{"public", open, "", nil, all},
		{"public, a wrong key", open, "", as(wrongKey), all},
		{"no rules", nil, "", nil, all},
	} {
		names, ready := []string{"one", "broken"}, 200
		if tc.only != "" {
			names, ready = []string{tc.only}, 503
		}
		r := newRig(t, tc.change, names...)
		for path, whole := range map[string]string{"/metrics": "mcp_bridge_ready ", "/readyz": `"bridge"`, "/readyz?format=text": " subscriptions, "} {
			a := r.answer(from(peer, loopback, "GET", path, tc.header...))
			text, status := a.Body.String(), ready
			if path == "/metrics" {
				status = map[bool]int{true: 401, false: 200}[tc.sees == none]
			}
			broken := "broken"
			if path != "/metrics" {
				broken = "no such program"
			}
			if a.Code != status || strings.Contains(text, broken) != (tc.sees == all) || strings.Contains(text, whole) != (tc.sees == all) || tc.sees == some && !strings.Contains(text, "one") {
				t.Errorf("%s: %s: %d %s", tc.name, path, a.Code, text)
			}
			if only := fmt.Sprintf(`{"ready":%t}`, ready == 200); tc.sees == none && path != "/metrics" && text != only {
				t.Errorf("%s: %s shows more than the status: %s", tc.name, path, text)
			}
		}
	}
}

// What a session has is its principal's: to anybody else it does not exist, in
// any way to ask for it.
func TestAccessSessions(t *testing.T) {
	run(t, private, []string{"one", "two"}, func(t *testing.T, r *rig) {
		mine := r.Do("POST", "/one/mcp", initialize, as(aliceKey)...).Wait().Header("Mcp-Session-Id")
		ask := func(method, path, body string, header ...string) string {
			a := r.Do(method, path, body, header...)
			synctest.Wait()
			text := fmt.Sprint(a.Status(), " ", a.Header("Content-Type"), " ", a.Body())
			a.Leave()
			return text
		}
		// A stream that can be resumed, and one of HTTP+SSE.
		running := r.Do("POST", "/one/mcp", call("5", "wait"), append(as(aliceKey), "Mcp-Session-Id", mine)...)
		stream := r.Do("GET", "/one/sse", "", as(aliceKey)...)
		wiretest.Advance(2 * time.Second)
		events := running.Events()
		if len(events) == 0 || events[0].ID == "" || len(stream.Events()) != 1 {
			t.Fatalf("the streams have %+v and %+v", events, stream.Events())
		}
		messages := stream.Events()[0].Data
		r.Do("POST", messages, initialize, as(aliceKey)...).Wait()
		synctest.Wait()
		stream.Take()
		r.f.Got()
		for _, tc := range []struct{ method, path, body, last string }{
			{"POST", "/one/mcp", call("6", "echo"), ""},
			{"POST", "/one/mcp", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`, ""},
			{"POST", "/one/mcp", `{"jsonrpc":"2.0","id":"b1","result":{}}`, ""},
			{"POST", "/one/mcp", `[{"jsonrpc":"2.0","id":6,"method":"ping"}]`, ""},
			{"POST", "/one/sse", call("6", "echo"), ""},
			{"GET", "/one/mcp", "", ""},
			{"GET", "/one/mcp", "", events[0].ID},
			{"DELETE", "/one/mcp", "", ""},
			{"POST", messages, call("6", "echo"), ""},
			{"POST", messages, initialize, ""},
			{"POST", messages, `[{"jsonrpc":"2.0","id":6,"method":"ping"}]`, ""},
		} {
			with := func(path, session string) string {
				return ask(tc.method, path, tc.body, append(as(bobKey), "Mcp-Session-Id", session, "Last-Event-ID", tc.last)...)
			}
			other := tc.path
			if tc.path == messages {
				other = "/one/messages?sessionId=none"
			}
			foreign, unknown := with(tc.path, mine), with(other, "there-is-none")
			if foreign != unknown || !strings.HasPrefix(foreign, "404 ") {
				t.Errorf("%s %s %s: another's session is answered %s, an unknown one %s", tc.method, tc.path, tc.body, foreign, unknown)
			}
			if got := ask(tc.method, tc.path, tc.body, "Mcp-Session-Id", mine); !strings.HasPrefix(got, "401 ") {
				t.Errorf("%s %s: a session's id lets in: %s", tc.method, tc.path, got)
			}
		}
		if got, said := r.f.Got(), stream.Take(); len(got) > 0 || said != "" {
			t.Errorf("the server got %q, and alice's stream has %q", got, said)
		}
		r.f.Answer(`{"done":true}`)
		if running.Wait(); !strings.Contains(running.Body(), `"done":true`) {
			t.Errorf("alice's call: %s", running.Body())
		}
		if got := ask("POST", "/one/mcp", call("8", "echo"), append(as(aliceKey), "Mcp-Session-Id", mine)...); !strings.HasPrefix(got, "200 ") {
			t.Errorf("alice's session is not what it was: %s", got)
		}
		ask("POST", messages, call("7", "echo"), as(aliceKey)...)
		if got := stream.Take(); !strings.Contains(got, `"id":7,"result"`) {
			t.Errorf("alice's stream has %q", got)
		}
		stream.Leave()
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

// What each may use, over HTTP and in both eras, also by way of the page. What is denied reaches no server.
func TestAccessGrants(t *testing.T) {
	paged := func(c *config.Config) {
		private(c)
		c.Console = config.ConsoleOn
	}
	run(t, paged, []string{"one", "two"}, func(t *testing.T, r *rig) {
		for _, tc := range []struct {
			key, path, page string
			tool            string
			status          int
			answer          string // to the call
		}{
			{aliceKey, "/one/mcp", "/ui/mcp/one", "echo", 200, `"result"`},
			{aliceKey, "/two/mcp", "/ui/mcp/two", "echo", 200, `"result"`},
			{aliceKey, "/mcp", "/ui/mcp", "two__echo", 200, `"result"`},
			{bobKey, "/one/mcp", "/ui/mcp/one", "echo", 200, `"error":{"code":-32602,"message":"Unknown tool: echo"}`},
			{bobKey, "/one/mcp", "/ui/mcp/one", "steps", 200, `"result"`},
			{bobKey, "/two/mcp", "/ui/mcp/two", "steps", 404, `"error":{"code":-32600,"message":"not found; MCP endpoints: /mcp, /one/mcp"}`},
			{bobKey, "/mcp", "/ui/mcp", "one__steps", 200, `"result"`},
			{bobKey, "/mcp", "/ui/mcp", "one__echo", 200, `"error":{"code":-32602,"message":"Unknown tool: one__echo"}`},
			{bobKey, "/mcp", "/ui/mcp", "two__steps", 200, `"error":{"code":-32602,"message":"Unknown tool: two__steps"}`},
		} {
			_, c := r.signIn(tc.key)
			for path, who := range map[string][]string{tc.path: as(tc.key), tc.page: {"Cookie", c.Name + "=" + c.Value, admin.PageHeader, "1"}} {
				r.f.Got()
				a := r.Do("POST", path, initialize, who...).Wait()
				if a.Status() != tc.status {
					t.Errorf("%s: initialize = %d %s, want %d", path, a.Status(), a.Body(), tc.status)
				}
				if tc.status == 200 {
					a = r.Do("POST", path, call("7", tc.tool), append(who, "Mcp-Session-Id", a.Header("Mcp-Session-Id"))...).Wait()
				}
				if !strings.Contains(a.Body(), tc.answer) {
					t.Errorf("%s, legacy: %s = %s, want %s", path, tc.tool, a.Body(), tc.answer)
				}
				body, header := modernCall("tools/call", `"name":"`+tc.tool+`","arguments":{},`)
				a = r.Do("POST", path, body, append(append(header, "Mcp-Name", tc.tool), who...)...).Wait()
				if a.Status() != tc.status || !strings.Contains(a.Body(), tc.answer) || tc.status == 200 && !strings.Contains(a.Body(), `"id":7`) {
					t.Errorf("%s, modern: %s = %d %s, want %d %s", path, tc.tool, a.Status(), a.Body(), tc.status, tc.answer)
				}
				if got := strings.Join(r.f.Got(), "\n"); strings.Contains(got, "tools/call") != (tc.answer == `"result"`) {
					t.Errorf("%s: %s: the server got %s", path, tc.tool, got)
				}
			}
		}
	})
}

// Two principals do not share a connection, one principal's clients do, with sessions and without.
func TestAccessLanes(t *testing.T) {
	shared := func(c *config.Config) {
		private(c)
		c.Servers[0].Share = config.SharePrincipal
	}
	run(t, shared, []string{"one"}, func(t *testing.T, r *rig) {
		body, header := modernCall("tools/call", `"name":"steps","arguments":{},`)
		before := 0
		for _, ask := range []func(key string) *wiretest.Reply{
			func(key string) *wiretest.Reply { return r.Do("POST", "/one/mcp", initialize, as(key)...) },
			func(key string) *wiretest.Reply {
				return r.Do("POST", "/one/mcp", body, append(append(header, "Mcp-Name", "steps"), as(key)...)...)
			},
		} {
			for i, key := range []string{aliceKey, aliceKey, bobKey, bobKey, aliceKey} {
				if a := ask(key).Wait(); a.Status() != 200 {
					t.Fatalf("%d %s", a.Status(), a.Body())
				}
				if got, want := r.f.Opened()-before, min(2, 1+i/2); got != want {
					t.Errorf("client %d: %d connections, want %d", i, got, want)
				}
			}
			before = r.f.Opened()
		}
	})
}
