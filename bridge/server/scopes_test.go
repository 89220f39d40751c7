package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// scoped are the servers one and two, of which calls need scopes.
func scoped(c *config.Config) {
	c.OAuth[0].Implies = map[string]config.Words{"admin": {"two:use", "two:log"}}
	c.Servers[0].Scopes = config.Scopes{Tools: map[string]config.Words{"echo": {"one:echo"}, "s*": {"one:s"}, "steps": {"one:steps", "one:s"}}}
	c.Servers[1].Scopes = config.Scopes{All: config.Words{"two:use"}, Tools: map[string]config.Words{"log": {"two:log"}}, Prompts: map[string]config.Words{"*": {"two:prompts"}}, Resources: map[string]config.Words{"file:///secret/*": {"two:secret"}}}
}

// with makes a token of a member of eng with those scopes.
func with(i *authtest.Issuer, sub, scopes string) []string {
	return as(i.Token(here, authtest.Claims{"sub": sub, "groups": "eng", "scope": scopes}))
}

// A request of a token that lacks a scope is refused at each endpoint, with what is asked for, and nothing is sent; with
// the scope it is served. A call through call_tool needs the scopes of the tool that it names (C-003, I-052 to I-055).
func TestScopesServed(t *testing.T) {
	paged := func(c *config.Config) {
		scoped(c)
		c.Console = config.ConsoleOn
	}
	identified(t, paged, func(t *testing.T, r *rig, i *authtest.Issuer) {
		old := strings.NewReplacer("2025-11-25", "2025-03-26") // with batches
		var in [2]string
		for n, path := range []string{"/one/mcp", "/mcp"} {
			in[n] = r.Do("POST", path, old.Replace(initialize), with(i, "ann", "")...).Wait().Header("Mcp-Session-Id")
		}
		stream := r.Do("GET", "/one/sse", "", with(i, "ann", "")...)
		synctest.Wait()
		messages := stream.Events()[0].Data
		r.Do("POST", messages, old.Replace(initialize), with(i, "ann", "")...).Wait()
		synctest.Wait()
		stream.Take()
		for _, tc := range []struct{ method, path, where, session, tool, arguments, scope string }{
			{"POST", "/one/mcp", "/one/mcp", "", "echo", "{}", "one:echo"},
			{"POST", "/one/mcp", "/one/mcp", in[0], "echo", "{}", "one:echo"},
			{"POST", "/two/mcp", "/two/mcp", "", "echo", "{}", "two:use"},
			{"GET", "/two/mcp", "/two/mcp", "", "", "", "two:use"},
			{"GET", "/two/sse", "/two/sse", "", "", "", "two:use"},
			{"POST", messages, "/one/sse", "", "echo", "{}", "one:echo"},
			{"POST", "/mcp", "/mcp", "", "one__echo", "{}", "one:echo"},
			{"POST", "/mcp", "/mcp", in[1], "two__echo", "{}", "two:use"},
			{"POST", "/ui/mcp/one", "/one/mcp", "", "echo", "{}", "one:echo"},
			{"POST", "/ui/mcp/two", "/two/mcp", "", "echo", "{}", "two:use"},
			{"GET", "/ui/mcp/two", "/two/mcp", "", "", "", "two:use"},
			{"POST", "/ui/mcp", "/mcp", "", "one__echo", "{}", "one:echo"},
			{"POST", "/one/mcp?tools=search", "/one/mcp", "", "call_tool", `{"name":"echo","arguments":{}}`, "one:echo"},
			{"POST", "/one/mcp?tools=search", "/one/mcp", "", "read_tool", `{"name":"echo","arguments":{}}`, "one:echo"},
			{"POST", "/one/mcp?tools=search", "/one/mcp", "", "call_tool", `"{\"name\":\"echo\"}"`, "one:echo"},
			{"POST", "/one/mcp?tools=search", "/one/mcp", "", "call_tool", `{"name":"call_tool","arguments":{"name":"echo"}}`, "one:echo"},
			{"POST", "/one/mcp?tools=search", "/one/mcp", "", "call_tool", `{"arguments":{"name":"echo","arguments":{}}}`, "one:echo"},
			{"POST", "/one/mcp?tools=search", "/one/mcp", "", "call_tool", `{"name":"log"}`, ""},
			{"POST", "/one/mcp?tools=search", "/one/mcp", "", "call_tool", `{"name":"echo","name":"log"}`, ""}, // refused
			{"POST", "/one/mcp?tools=search", "/one/mcp", "", "search_tools", `{"query":"echo"}`, ""},
			{"POST", "/mcp?tools=search", "/mcp", "", "call_tool", `{"name":"one__echo"}`, "one:echo"},
			{"POST", "/mcp?tools=search", "/mcp", "", "call_tool", `{"name":"two__log"}`, "two:log two:use"},
			{"POST", "/mcp?tools=search", "/mcp", "", "search_tools", `{"query":"log"}`, ""},
			{"POST", "/one/mcp", "/one/mcp", "", "call_tool", `{"name":"echo"}`, ""}, // a tool of the server's own
		} {
			ask := func(scopes string) *wiretest.Reply {
				if tc.method == "GET" {
					return r.Do("GET", tc.path, "", append(with(i, "ann", scopes), "Accept", "text/event-stream")...)
				}
				body, head := modernCall("tools/call", fmt.Sprintf(`"name":%q,"arguments":%s,`, tc.tool, tc.arguments))
				head = append(head, "Mcp-Name", tc.tool)
				if tc.session != "" || tc.path == messages {
					body, head = call("7", tc.tool), []string{"Mcp-Session-Id", tc.session}
				}
				return r.Do(tc.method, tc.path, body, append(head, with(i, "ann", scopes)...)...)
			}
			name := tc.method + " " + tc.path + " " + tc.tool + tc.arguments
			r.f.Got()
			if tc.scope != "" {
				id := map[bool]string{true: "7"}[tc.method == "POST"]
				lacks(t, name, ask("").Wait(), tc.where, id, tc.scope, tc.scope)
				if got := strings.Join(r.f.Got(), "\n"); strings.Contains(got, "tools/call") || stream.Take() != "" {
					t.Errorf("%s: %s was sent", name, got)
				}
			}
			a := ask(tc.scope)
			synctest.Wait()
			if got := stream.Take(); strings.Contains(got, `"id":7,"result"`) != (tc.path == messages) {
				t.Errorf("%s with its scopes: the stream of HTTP+SSE has %q", name, got)
			}
			if a.Status() != 200 && a.Status() != 202 && tc.method == "POST" || tc.method == "GET" && a.Status() == 403 {
				t.Errorf("%s with its scopes: %d %s", name, a.Status(), a.Body())
			}
			a.Leave()
		}
		stream.Leave()
	})
}

// lacks checks that a request was refused for the lack of a scope, and what is asked for.
func lacks(t *testing.T, name string, r *wiretest.Reply, where, id, missing, wanted string) {
	t.Helper()
	challenge := `Bearer realm="mcp-bridge", error="insufficient_scope", error_description="this needs the scope ` + missing + `", resource_metadata="` + here + "/.well-known/oauth-protected-resource" + where + `", scope="` + wanted + `"`
	if got := r.Header("WWW-Authenticate"); r.Status() != 403 || got != challenge {
		t.Errorf("%s: %d %s, want %s", name, r.Status(), got, challenge)
	}
	if got := gjson.Get(r.Body(), "error.data.bridge").Str; got != "insufficient_scope" || gjson.Get(r.Body(), "id").Raw != id {
		t.Errorf("%s: %s", name, r.Body())
	}
}

// An endpoint of a server that needs a scope for everything asks for that one from the beginning. What a rule hides stays
// hidden, and what only a scope is missing for is listed. Keys need no scopes (I-052, N-53).
func TestScopesTold(t *testing.T) {
	identified(t, scoped, func(t *testing.T, r *rig, i *authtest.Issuer) {
		if got := r.Do("GET", "/.well-known/oauth-protected-resource/two/mcp", "").Wait().Body(); gjson.Get(got, "scopes_supported").Raw != `["mcp:use","two:use"]` {
			t.Errorf("the metadata of two: %s", got)
		}
		for path, want := range map[string]string{"/two/mcp": "mcp:use two:use", "/one/mcp": "mcp:use"} {
			if got := r.Do("POST", path, initialize).Wait().Header("WWW-Authenticate"); !strings.HasSuffix(got, `scope="`+want+`"`) {
				t.Errorf("the challenge of %s: %s", path, got)
			}
		}
		guest := as(i.Token(here, authtest.Claims{"sub": "guest-1"}))
		id := r.Do("POST", "/one/mcp", initialize, guest...).Wait().Header("Mcp-Session-Id")
		if a := r.Do("POST", "/one/mcp", call("6", "echo"), append(guest, "Mcp-Session-Id", id)...).Wait(); a.Status() != 200 || !strings.Contains(a.Body(), "Unknown tool") || a.Header("WWW-Authenticate") != "" {
			t.Errorf("hidden: %d %s", a.Status(), a.Body())
		}
		lacks(t, "a guest", r.Do("POST", "/one/mcp", call("6", "steps"), append(guest, "Mcp-Session-Id", id)...).Wait(), "/one/mcp", "6", "one:s one:steps", "one:s one:steps")
		id = r.Do("POST", "/mcp", initialize, with(i, "ann", "")...).Wait().Header("Mcp-Session-Id")
		if a := r.Do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, append(with(i, "ann", ""), "Mcp-Session-Id", id)...).Wait(); a.Status() != 200 {
			t.Errorf("the list: %d %s", a.Status(), a.Body())
		}
		if a := r.Do("POST", "/two/mcp", initialize, as(aliceKey)...).Wait(); a.Status() != 200 {
			t.Errorf("with a key: %d", a.Status())
		}
		if got := r.Do("GET", "/metrics", "", as(aliceKey)...).Wait().Body(); !strings.Contains(got, `mcp_bridge_auth_total{result="scope"} 1`) {
			t.Errorf("/metrics: %s", got)
		}
	})
}

// Scopes count at once when the file is read again, also under the former names of tools, and nothing is begun anew
// for that.
func TestScopesReload(t *testing.T) {
	identified(t, func(c *config.Config) {
		for i := range c.Servers {
			c.Servers[i].Stdio = &config.Stdio{Command: "true"}
		}
	}, func(t *testing.T, r *rig, i *authtest.Issuer) {
		id := r.Do("POST", "/mcp", initialize, with(i, "ann", "")...).Wait().Header("Mcp-Session-Id")
		ask := func() int {
			return r.Do("POST", "/mcp", call("1", "one__echo"), append(with(i, "ann", ""), "Mcp-Session-Id", id)...).Wait().Status()
		}
		if got := ask(); got != 200 {
			t.Fatal(got)
		}
		opened := r.s.table.Load().backends["one"]
		for _, prefix := range []string{"first.", "second."} { // without a request between them
			if _, err := r.s.Apply(r.s.other(func(c *config.Config) {
				c.Servers[0].Prefix = prefix
				c.Servers[0].Tools.Rename = map[string]string{"echo": "say"}
				c.Servers[0].Scopes.Tools = map[string]config.Words{"say": {"one:echo"}}
			})); err != nil {
				t.Fatal(err)
			}
		}
		if got := ask(); got != 403 || r.s.table.Load().backends["one"] != opened {
			t.Errorf("%d; the server is another: %t", got, r.s.table.Load().backends["one"] != opened)
		}
		for _, name := range []string{"first.say", "first.echo", "second.say", "one__say"} {
			if got := r.Do("POST", "/mcp", call("2", name), append(with(i, "ann", ""), "Mcp-Session-Id", id)...).Wait().Status(); got != 403 {
				t.Errorf("%s: %d", name, got)
			}
		}
	})
}

// Headers in which instances write identities for each other; of a client they are any others.
const (
	claimSub   = "X-Bridge-Claim-737562"
	claimEmail = "X-Bridge-Claim-656d61696c"
	claimToken = "X-Bridge-Claim-Token"
)

// reached is a bridge that reaches its servers as those of a file are reached.
func reached(t *testing.T, change func(*config.Config)) *rig {
	t.Helper()
	c := config.Default()
	change(&c)
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, s: build(&c, slog.New(slog.DiscardHandler), (*server).reach)}
	r.Site = wiretest.NewSiteFrom(t, r.s.http)
	t.Cleanup(func() { r.s.Close(context.Background()) })
	return r
}

// issued is a bridge that reaches the server one, and an issuer of tokens for its users.
func issued(t *testing.T, share gateway.Share, change func(*config.Server)) (*rig, *authtest.Issuer) {
	t.Helper()
	i := authtest.New(t, "https://idp.example.com")
	return reached(t, func(c *config.Config) {
		c.Servers = []config.Server{config.DefaultServer("one", share)}
		change(&c.Servers[0])
		users(i)(c)
		c.PublicURL = here
	}), i
}

// A server is told who calls by the token of that very call, and by nothing that a client
// writes; nothing is told without a token (I-057, N-55).
func TestIdentity(t *testing.T) {
	for _, share := range []gateway.Share{config.ShareSession, config.SharePrincipal, config.ShareCall} {
		t.Run(string(share), func(t *testing.T) { identityBy(t, share) })
	}
}

func identityBy(t *testing.T, share gateway.Share) {
	var mu sync.Mutex
	var seen []http.Header
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
		s := mcp.NewServer(&mcp.Implementation{Name: "one", Version: "1"}, nil)
		mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello"}}}, nil, nil
		})
		return s
	}, nil)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete { // of a connection of the caller before
			mu.Lock()
			seen = append(seen, r.Header.Clone())
			mu.Unlock()
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(upstream.Close)
	r, i := issued(t, share, func(s *config.Server) {
		s.HTTP = &config.Remote{URL: upstream.URL, Transport: "streamable"}
		s.Era = config.EraLegacy
		s.Identity = map[string]string{"x-user": "sub", "X-Email": "email", "X-Roles": "realm_access.roles"}
		for _, name := range []string{claimSub, claimToken} { // between instances they mean something: here they are a client's
			s.Forward = append(s.Forward, bridge.Forward{From: name, To: name})
		}
	})
	token := func(sub string, claims authtest.Claims) []string {
		return as(i.Token(here, authtest.Claims{"sub": sub, "groups": "eng"}, claims))
	}
	forged := []string{"X-User", "root", "X-Email", "root@example.com", claimSub, "theirs", claimToken, "9999999999 https://idp.example.com theirs staff/x#ann", claimEmail, "root@example.com", "X-Roles", "admin"}
	for _, tc := range []struct {
		name                string
		who                 []string
		user, email, scopes string
	}{
		{"ann", token("ann", authtest.Claims{"email": "ann@example.com", "realm_access": map[string]any{"roles": []string{"a", "b"}}}), "ann", "ann@example.com", "a,b"},
		{"bob", token("bob", nil), "bob", "", ""},
		{"header in a claim", token("eve", authtest.Claims{"email": "eve\r\nX-User: root"}), "eve", "", ""},
		{"key", as(aliceKey), "", "", ""},
	} {
		mu.Lock()
		seen = nil
		mu.Unlock()
		who := append(tc.who[:2:2], forged...)
		id := r.Do("POST", "/one/mcp", initialize, who...).Wait().Header("Mcp-Session-Id")
		for n := range 2 {
			if r := r.Do("POST", "/one/mcp", call(fmt.Sprint(n), "echo"), append(who, "Mcp-Session-Id", id)...).Wait(); !strings.Contains(r.Body(), "hello") {
				t.Fatalf("%s: %d %s", tc.name, r.Status(), r.Body())
			}
		}
		mu.Lock()
		if len(seen) < 3 {
			t.Errorf("%s: the server has seen %d requests", tc.name, len(seen))
		}
		for _, h := range seen {
			text := fmt.Sprint(h)
			if got := h.Values("X-User"); strings.Join(got, "|") != tc.user || h.Get("X-Email") != tc.email || h.Get("X-Roles") != tc.scopes || strings.Contains(text, "root") {
				t.Errorf("%s: %v", tc.name, h)
			}
			if h.Get(claimSub) != "theirs" || !strings.HasSuffix(h.Get(claimToken), " theirs staff/x#ann") {
				t.Errorf("%s: headers of the client's that forward names have not reached the server: %v", tc.name, h)
			}
			if strings.Contains(text, strings.TrimPrefix(tc.who[1], "Bearer ")) {
				t.Errorf("%s: the server has got the token", tc.name)
			}
		}
		mu.Unlock()
	}
}

// A child process is told who it is started for (I-057).
func TestIdentityOfChildren(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no sh")
	}
	r, i := issued(t, config.ShareSession, func(s *config.Server) {
		s.Stdio = &config.Stdio{Command: "sh", Args: []string{"-c", `while read -r l; do case "$l" in *'"initialize"'*)
		id=$(printf %s "$l" | sed 's/.*"id":\([^,}]*\).*/\1/')
		printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"of %s","version":"1"}}}\n' "$id" "$MCP_USER";; esac; done`}}
		s.Era = config.EraLegacy
		s.Identity = map[string]string{"MCP_USER": "sub"}
	})
	for want, who := range map[string][]string{
		"of ann": eng(i, "ann", here, time.Hour), "of $(id)": eng(i, "$(id)", here, time.Hour), "of ": append(as(aliceKey), claimSub, "root"),
	} {
		a := r.Do("POST", "/one/mcp", initialize, who...).Wait()
		if got := gjson.Get(a.Body(), "result.serverInfo.name").Str; got != want {
			t.Errorf("%d %s, want %q", a.Status(), a.Body(), want)
		}
	}
}
