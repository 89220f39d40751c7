package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
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

// A call through call_tool needs the scopes of the tool that it names, however the model wrote the call. A search needs
// those of a list (C-003).
func TestScopesThrough(t *testing.T) {
	identified(t, scoped, func(t *testing.T, r *rig, i *authtest.Issuer) {
		for _, tc := range []struct{ where, tool, arguments, missing string }{
			{"/one/mcp", "call_tool", `{"name":"echo","arguments":{}}`, "one:echo"},
			{"/one/mcp", "read_tool", `{"name":"echo","arguments":{}}`, "one:echo"},
			{"/one/mcp", "call_tool", `"{\"name\":\"echo\"}"`, "one:echo"},
			{"/one/mcp", "call_tool", `{"name":"call_tool","arguments":{"name":"echo"}}`, "one:echo"},
			{"/one/mcp", "call_tool", `{"arguments":{"name":"echo","arguments":{}}}`, "one:echo"},
			{"/one/mcp", "call_tool", `{"name":"log"}`, ""},
			{"/one/mcp", "call_tool", `{"name":"echo","name":"log"}`, ""}, // refused
			{"/one/mcp", "search_tools", `{"query":"echo"}`, ""},
			{"/mcp", "call_tool", `{"name":"one__echo"}`, "one:echo"},
			{"/mcp", "call_tool", `{"name":"two__log"}`, "two:log two:use"},
			{"/mcp", "search_tools", `{"query":"log"}`, ""},
		} {
			body, head := modernCall("tools/call", fmt.Sprintf(`"name":%q,"arguments":%s,`, tc.tool, tc.arguments))
			head = append(append(head, "Mcp-Name", tc.tool), with(i, "ann", "")...)
			before := len(r.f.Got())
			a := r.Do("POST", tc.where+"?tools=search", body, head...).Wait()
			if missing := a.Header("WWW-Authenticate"); tc.missing == "" && a.Status() != 200 || tc.missing != "" && !strings.Contains(missing, `scope="`+tc.missing+`"`) {
				t.Errorf("%s of %s at %s: %d, %s", tc.tool, tc.arguments, tc.where, a.Status(), missing)
			}
			if tc.missing != "" && len(r.f.Got()) > before {
				t.Errorf("%s of %s at %s: %v was sent", tc.tool, tc.arguments, tc.where, r.f.Got()[before:])
			}
		}
		// Where the address has no such tool, a call of that name is one of the server's own.
		body, head := modernCall("tools/call", `"name":"call_tool","arguments":{"name":"echo"},`)
		if a := r.Do("POST", "/one/mcp", body, append(append(head, "Mcp-Name", "call_tool"), with(i, "ann", "")...)...).Wait(); a.Status() != 200 {
			t.Errorf("a tool of the server's own: %d %s", a.Status(), a.Body())
		}
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

// A call whose token lacks a scope is not made; the client is told all that it needs. What
// a rule hides stays hidden, and what only a scope is missing for is listed (I-052 to I-054).
func TestScopes(t *testing.T) {
	identified(t, scoped, func(t *testing.T, r *rig, i *authtest.Issuer) {
		for _, tc := range []struct{ name, scopes, tool, missing, wanted string }{
			{"none", "", "echo", "one:echo", "one:echo"},
			{"others", "two:use other", "echo", "one:echo", "one:echo"},
			{"it", "one:echo", "echo", "", ""},
			{"two patterns", "", "steps", "one:s one:steps", "one:s one:steps"},
			{"one of two", "one:s", "steps", "one:steps", "one:s one:steps"},
			{"both", "one:steps one:s", "steps", "", ""},
			{"nothing is needed", "", "log", "", ""},
			{"nearly", "one:ech one:echo2 ONE:ECHO", "echo", "one:echo", "one:echo"},
		} {
			body, head := modernCall("tools/call", fmt.Sprintf(`"name":%q,`, tc.tool))
			head = append(head, "Mcp-Name", tc.tool)
			before := len(r.f.Got())
			a := r.Do("POST", "/one/mcp", body, append(head, with(i, "ann", tc.scopes)...)...).Wait()
			if tc.missing == "" {
				if a.Status() != 200 || !strings.Contains(a.Body(), `"result"`) {
					t.Errorf("%s: %d %s", tc.name, a.Status(), a.Body())
				}
				continue
			}
			lacks(t, tc.name, a, "/one/mcp", "7", tc.missing, tc.wanted)
			if len(r.f.Got()) > before {
				t.Errorf("%s: %v was sent", tc.name, r.f.Got()[before:])
			}
		}
		// With a session, what the token has is asked for again: older clients give it up.
		id := r.Do("POST", "/one/mcp", initialize, with(i, "ann", "")...).Wait().Header("Mcp-Session-Id")
		in := func(who []string) []string { return append(who, "Mcp-Session-Id", id) }
		a := r.Do("POST", "/one/mcp", call("4", "echo"), in(with(i, "ann", "mcp:use two:use unheard"))...).Wait()
		lacks(t, "with a session", a, "/one/mcp", "4", "one:echo", "mcp:use one:echo two:use")
		if a := r.Do("POST", "/one/mcp", call("5", "echo"), in(with(i, "ann", "one:echo"))...).Wait(); a.Status() != 200 || !strings.Contains(a.Body(), "echo") {
			t.Errorf("after that: %d %s", a.Status(), a.Body())
		}
		// A broader scope, at the server that needs one for everything.
		for _, tc := range []struct{ scopes, body, missing, wanted string }{
			{"", initialize, "two:use", "two:use"}, {"admin", initialize, "", ""}, {"two:use", initialize, "", ""},
		} {
			a := r.Do("POST", "/two/mcp", tc.body, with(i, "ann", tc.scopes)...).Wait()
			if tc.missing != "" {
				lacks(t, "at two", a, "/two/mcp", "0", tc.missing, tc.wanted)
			} else if a.Status() != 200 {
				t.Errorf("at two with %q: %d %s", tc.scopes, a.Status(), a.Body())
			}
		}
		lacks(t, "a stream of two", r.Do("GET", "/two/mcp", "", append(with(i, "ann", ""), "Accept", "text/event-stream")...).Wait(), "/two/mcp", "", "two:use", "two:use")
		// Its metadata, and what is asked for without a token, have that one.
		if got := r.Do("GET", "/.well-known/oauth-protected-resource/two/mcp", "").Wait().Body(); gjson.Get(got, "scopes_supported").Raw != `["mcp:use","two:use"]` {
			t.Errorf("the metadata of two: %s", got)
		}
		if got := r.Do("POST", "/two/mcp", initialize).Wait().Header("WWW-Authenticate"); !strings.HasSuffix(got, `scope="mcp:use two:use"`) {
			t.Errorf("the challenge of two: %s", got)
		}
		if got := r.Do("POST", "/one/mcp", initialize).Wait().Header("WWW-Authenticate"); !strings.HasSuffix(got, `scope="mcp:use"`) {
			t.Errorf("the challenge of one: %s", got)
		}
		// N-53: a guest may not use echo, and does not learn which scope that needs.
		guest := as(i.Token(here, authtest.Claims{"sub": "guest-1"}))
		id = r.Do("POST", "/one/mcp", initialize, guest...).Wait().Header("Mcp-Session-Id")
		if a := r.Do("POST", "/one/mcp", call("6", "echo"), append(guest, "Mcp-Session-Id", id)...).Wait(); a.Status() != 200 || !strings.Contains(a.Body(), "Unknown tool") || a.Header("WWW-Authenticate") != "" {
			t.Errorf("hidden: %d %s", a.Status(), a.Body())
		}
		lacks(t, "a guest", r.Do("POST", "/one/mcp", call("6", "steps"), append(guest, "Mcp-Session-Id", id)...).Wait(), "/one/mcp", "6", "one:s one:steps", "one:s one:steps")
		// Keys need no scopes.
		if a := r.Do("POST", "/two/mcp", initialize, as(aliceKey)...).Wait(); a.Status() != 200 {
			t.Errorf("with a key: %d", a.Status())
		}
		if got := r.Do("GET", "/metrics", "", as(aliceKey)...).Wait().Body(); !strings.Contains(got, `mcp_bridge_auth_total{result="scope"} 9`) {
			t.Errorf("/metrics: %s", got)
		}
	})
}

// Where all servers are one, a call needs the scopes of the server that it goes to, and
// lists need none (I-055, N-56). A batch needs those of all its calls (N-54).
func TestScopesOfAll(t *testing.T) {
	identified(t, scoped, func(t *testing.T, r *rig, i *authtest.Issuer) {
		old := strings.Replace(initialize, "2025-11-25", "2025-03-26", 1)
		a := r.Do("POST", "/mcp", old, with(i, "ann", "")...).Wait()
		id := a.Header("Mcp-Session-Id")
		if a.Status() != 200 {
			t.Fatalf("%d %s", a.Status(), a.Body())
		}
		ask := func(body, scopes string) *wiretest.Reply {
			return r.Do("POST", "/mcp", body, append(with(i, "ann", scopes), "Mcp-Session-Id", id)...).Wait()
		}
		if r := ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, ""); r.Status() != 200 {
			t.Errorf("the list: %d %s", r.Status(), r.Body())
		}
		lacks(t, "one__echo", ask(call("2", "one__echo"), "two:use"), "/mcp", "2", "one:echo", "one:echo two:use")
		lacks(t, "N-56", ask(call("2", "two__echo"), "one:echo"), "/mcp", "2", "two:use", "one:echo two:use")
		lacks(t, "two__log", ask(call("2", "two__log"), "two:use"), "/mcp", "2", "two:log", "two:log two:use")
		for tool, scopes := range map[string]string{"one__echo": "one:echo", "two__echo": "two:use", "two__log": "admin"} {
			if r := ask(call("3", tool), scopes); r.Status() != 200 || !strings.Contains(r.Body(), "result") {
				t.Errorf("%s with %q: %d %s", tool, scopes, r.Status(), r.Body())
			}
		}
		before := len(r.f.Got())
		batch := ask("["+call("4", "one__log")+","+call(`"five"`, "one__echo")+`,{"jsonrpc":"2.0","method":"notifications/x"},`+call("6", "two__log")+"]", "two:use")
		if got := batch.Header("WWW-Authenticate"); batch.Status() != 403 || !strings.Contains(got, `description="this needs the scope one:echo two:log"`) || !strings.HasSuffix(got, `scope="one:echo two:log two:use"`) {
			t.Errorf("N-54: %d %s", batch.Status(), got)
		}
		if ids := gjson.Get(batch.Body(), "#.id").Raw; ids != `[4,"five",6]` || gjson.Get(batch.Body(), "1.error.data.bridge").Str != "insufficient_scope" {
			t.Errorf("N-54: %s", batch.Body())
		}
		if len(r.f.Got()) > before {
			t.Errorf("N-54: %v was sent", r.f.Got()[before:])
		}
		if r := ask("["+call("4", "one__echo")+","+call("5", "one__echo")+"]", "one:echo"); r.Status() != 200 || strings.Count(r.Body(), `"result"`) != 2 {
			t.Errorf("a good batch: %d %s", r.Status(), r.Body())
		}
		many := "[" + strings.Repeat(call("1", "two__log")+",", gateway.MaxBatch) + call("1", "two__log") + "]" // which is not looked through
		for _, body := range []string{many, "[", "[]", "[1]", "{", "", `{"jsonrpc":"2.0","id":1}`} {            // what is no message is for others to say
			if r := ask(body, ""); r.Status() == 403 || r.Header("WWW-Authenticate") != "" {
				t.Errorf("%q: %d %s", body, r.Status(), r.Body())
			}
		}
	})
}

// Over HTTP+SSE the POST is answered, and nothing comes on the stream (I-055).
func TestScopesElsewhere(t *testing.T) {
	identified(t, scoped, func(t *testing.T, r *rig, i *authtest.Issuer) {
		lacks(t, "the stream of two", r.Do("GET", "/two/sse", "", with(i, "ann", "")...).Wait(), "/two/sse", "", "two:use", "two:use")
		stream := r.Do("GET", "/one/sse", "", with(i, "ann", "")...)
		synctest.Wait()
		endpoint := stream.Events()[0].Data
		r.Do("POST", endpoint, strings.Replace(initialize, "2025-11-25", "2024-11-05", 1), with(i, "ann", "")...).Wait()
		synctest.Wait()
		stream.Take()
		lacks(t, "a call", r.Do("POST", endpoint, call("7", "echo"), with(i, "ann", "")...).Wait(), "/one/sse", "7", "one:echo", "one:echo")
		synctest.Wait()
		if got := stream.Take(); got != "" || len(r.f.Got()) > 0 {
			t.Errorf("the stream has %q, and %v was sent", got, r.f.Got())
		}
		if a := r.Do("POST", endpoint, call("8", "echo"), with(i, "ann", "one:echo")...).Wait(); a.Status() != 202 {
			t.Errorf("with its scope: %d %s", a.Status(), a.Body())
		}
		synctest.Wait()
		if got := stream.Take(); !strings.Contains(got, `"id":8,"result"`) {
			t.Errorf("the stream has %q", got)
		}
		stream.Leave()
	})
}

// A server that is the only one is served as it is, also where all are one; a session that
// began with it goes on with its names when there are more.
func TestScopesOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := authtest.New(t, "https://idp.example.com")
		one := config.Scopes{All: config.Words{"one:use"}, Tools: map[string]config.Words{"echo": {"one:echo"}}}
		r := newRig(t, func(c *config.Config) {
			users(i)(c)
			c.Servers[0].Stdio = &config.Stdio{Command: "true"}
			c.Servers[0].Scopes = one
		}, "one")
		lacks(t, "the only one", r.Do("POST", "/mcp", initialize, with(i, "ann", "")...).Wait(), "/mcp", "0", "one:use", "one:use")
		lacks(t, "its stream", r.Do("GET", "/mcp", "", append(with(i, "ann", ""), "Accept", "text/event-stream")...).Wait(), "/mcp", "", "one:use", "one:use")
		if got := r.Do("POST", "/mcp", initialize).Wait().Header("WWW-Authenticate"); !strings.HasSuffix(got, `scope="mcp:use one:use"`) {
			t.Errorf("the challenge: %s", got)
		}
		id := r.Do("POST", "/mcp", initialize, with(i, "ann", "one:use")...).Wait().Header("Mcp-Session-Id")
		ask := func(scopes string) *wiretest.Reply {
			return r.Do("POST", "/mcp", call("1", "echo"), append(with(i, "ann", scopes), "Mcp-Session-Id", id)...).Wait()
		}
		lacks(t, "a call", ask("one:use"), "/mcp", "1", "one:echo", "one:echo one:use")
		if r := ask("one:use one:echo"); r.Status() != 200 || !strings.Contains(r.Body(), "result") {
			t.Errorf("a call with its scope: %d %s", r.Status(), r.Body())
		}
		c := *r.s.Config()
		c.Servers = append(slices.Clone(c.Servers), config.DefaultServer("two", ""))
		c.Servers[1].Stdio = &config.Stdio{Command: "true"}
		if _, err := r.s.Apply(&c); err != nil {
			t.Fatal(err)
		}
		lacks(t, "a call when there are two", ask("one:use"), "/mcp", "1", "one:echo", "one:echo one:use")
		if r := ask("one:use one:echo"); r.Status() != 200 || !strings.Contains(r.Body(), "result") {
			t.Errorf("a call with its scope, when there are two: %d %s", r.Status(), r.Body())
		}
	})
}

// Open sessions have the former names of what patterns name anew; and while settings are
// about to be exchanged, what either of them asks for is needed.
func TestScopesOfFormer(t *testing.T) {
	identified(t, func(c *config.Config) {
		for i := range c.Servers {
			c.Servers[i].Stdio = &config.Stdio{Command: "true"}
		}
		c.Servers[0].Tools.Rename = map[string]string{"echo": "say"}
		c.Servers[0].Scopes.Tools = map[string]config.Words{"say": {"say"}}
	}, func(t *testing.T, r *rig, i *authtest.Issuer) {
		check := func(name, want string) {
			t.Helper()
			got, _ := r.s.access.Needs("one", "staff/x#ann", []*jsonrpc.Message{bridgetest.Parse(t, call("1", name))})
			if slices.Sort(got); strings.Join(got, " ") != want {
				t.Errorf("%s needs %v, want %s", name, got, want)
			}
		}
		check("say", "say")
		c := *r.s.Config()
		c.Servers = slices.Clone(c.Servers)
		c.Servers[0].Tools.Rename = map[string]string{"echo": "tell"}
		c.Servers[0].Scopes.Tools = map[string]config.Words{"tell": {"tell"}}
		done := r.s.access.Prepare(&c)
		check("say", "say tell")
		check("tell", "say tell")
		done()
		check("tell", "say")
		if _, err := r.s.Apply(&c); err != nil {
			t.Fatal(err)
		}
		check("say", "tell")
		check("tell", "tell")
		check("other", "")
	})
}

// A tool needs its scopes also under the name with a former prefix.
func TestScopesOfFormerPrefix(t *testing.T) {
	identified(t, func(c *config.Config) {
		for i := range c.Servers {
			c.Servers[i].Stdio = &config.Stdio{Command: "true"}
		}
		c.Servers[0].Prefix = "first."
		c.Servers[0].Scopes.Tools = map[string]config.Words{"delete": {"delete"}}
	}, func(t *testing.T, r *rig, i *authtest.Issuer) {
		check := func(name, want string) {
			t.Helper()
			got, _ := r.s.access.Needs("", "staff/x#ann", []*jsonrpc.Message{bridgetest.Parse(t, call("1", name))})
			if strings.Join(got, " ") != want {
				t.Errorf("%s needs %v, want %s", name, got, want)
			}
		}
		check("first.delete", "delete")
		check("second.delete", "")
		for _, prefix := range []string{"second.", "third."} { // without a request between them
			if _, err := r.s.Apply(r.s.other(func(c *config.Config) { c.Servers[0].Prefix = prefix })); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"first.delete", "second.delete", "third.delete"} {
			check(name, "delete")
		}
		check("fourth.delete", "")
		check("second.read", "")
	})
}

// A former prefix needs scopes for as long as something is found under it, and not those of
// another server that has it now; a server that a caller may not use hides none of them.
func TestScopesOfFormerPrefixes(t *testing.T) {
	identified(t, func(c *config.Config) {
		for i := range c.Servers {
			c.Servers[i].Stdio = &config.Stdio{Command: "true"}
		}
		c.Servers[0].Prefix = "fs."
		c.Servers[0].Scopes = config.Scopes{All: config.Words{"a"}, Tools: map[string]config.Words{"two__push": {"push"}}}
		c.Servers[1].Scopes.All = config.Words{"b"}
	}, func(t *testing.T, r *rig, i *authtest.Issuer) {
		check := func(who, name, want string) { // of staff and guests
			t.Helper()
			got, _ := r.s.access.Needs("", who+"/x#ann", []*jsonrpc.Message{bridgetest.Parse(t, call("1", name))})
			if slices.Sort(got); strings.Join(got, " ") != want {
				t.Errorf("%s of %s needs %v, want %s", name, who, got, want)
			}
		}
		apply := func(one, two string) {
			t.Helper()
			if _, err := r.s.Apply(r.s.other(func(c *config.Config) { c.Servers[0].Prefix, c.Servers[1].Prefix = one, two })); err != nil {
				t.Fatal(err)
			}
			check("staff", one+"x", "a")
		}
		apply("old.", "two__")
		check("staff", "fs.x", "a")
		apply("old.", "fs.")
		check("staff", "fs.x", "b")
		apply("old.", "two__")
		check("staff", "fs.x", "a b")
		time.Sleep(10 * time.Minute)
		check("staff", "fs.x", "a b") // it is nobody's
		check("staff", "old.x", "a")
		apply("", "gh.")
		apply("new.", "gh.")
		check("staff", "two__push", "a b push")
		check("guests", "two__push", "a push")
		check("staff", "gh.x", "b")
		check("guests", "gh.x", "a")
		time.Sleep(10 * time.Minute)
		check("staff", "two__push", "b")
	})
}

// The log says who was asked for more scopes, and who came back with them, once each
// (I-060).
func TestElevations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := authtest.New(t, "https://idp.example.com")
		var log bytes.Buffer
		r := newRigLog(t, slog.New(slog.NewTextHandler(&log, nil)), func(c *config.Config) {
			users(i)(c)
			scoped(c)
		}, "one", "two")
		ask := func(sub, scopes string) {
			r.Do("POST", "/two/mcp", initialize, with(i, sub, scopes)...).Wait()
		}
		for range 3 {
			ask("ann", "")
		}
		ask("bob", "two:use")
		ask("bob", "two:use")
		said := func(what string) int { return strings.Count(log.String(), what) }
		if said(`"caller asked for more scopes" principal=staff/https://idp.example.com#ann server=two missing=two:use asked_for=two:use`) != 1 || said("came back") != 0 || said("asked for more") != 1 {
			t.Errorf("the log:\n%s", &log)
		}
		ask("ann", "two:use")
		ask("ann", "two:use")
		if said(`"caller came back with more scopes" principal=staff/https://idp.example.com#ann scopes=two:use`) != 1 || said("came back") != 1 {
			t.Errorf("the log:\n%s", &log)
		}
		ask("ann", "")
		if said("asked for more") != 2 {
			t.Errorf("asked again, the log:\n%s", &log)
		}
	})
}

// Scopes count at once when the file is read again, and nothing is begun anew for that.
func TestScopesReload(t *testing.T) {
	identified(t, func(c *config.Config) {
		for i := range c.Servers {
			c.Servers[i].Stdio = &config.Stdio{Command: "true"}
		}
	}, func(t *testing.T, r *rig, i *authtest.Issuer) {
		id := r.Do("POST", "/one/mcp", initialize, with(i, "ann", "")...).Wait().Header("Mcp-Session-Id")
		ask := func() int {
			return r.Do("POST", "/one/mcp", call("1", "echo"), append(with(i, "ann", ""), "Mcp-Session-Id", id)...).Wait().Status()
		}
		if got := ask(); got != 200 {
			t.Fatal(got)
		}
		c := *r.s.Config()
		c.Servers = slices.Clone(c.Servers)
		c.Servers[0].Scopes.Tools = map[string]config.Words{"echo": {"one:echo"}}
		opened := r.s.table.Load().backends["one"]
		if _, err := r.s.Apply(&c); err != nil {
			t.Fatal(err)
		}
		if got := ask(); got != 403 || r.s.table.Load().backends["one"] != opened {
			t.Errorf("%d; the server is another: %t", got, r.s.table.Load().backends["one"] != opened)
		}
	})
}

// Headers in which instances write identities for each other; of a client they are any others.
const (
	claimSub   = "X-Bridge-Claim-737562"
	claimEmail = "X-Bridge-Claim-656d61696c"
	claimToken = "X-Bridge-Claim-Token"
)

// A server is told who calls by the token of that very call, and by nothing that a client
// writes; nothing is told without a token (I-057, N-55).
func TestIdentity(t *testing.T) {
	for _, share := range []string{config.ShareSession, config.SharePrincipal, config.ShareCall} {
		t.Run(share, func(t *testing.T) { identityBy(t, share) })
	}
}

func identityBy(t *testing.T, share string) {
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
	defer upstream.Close()
	i := authtest.New(t, "https://idp.example.com")
	c := config.Default()
	c.Servers = []config.Server{config.DefaultServer("one", gateway.Share(share))}
	c.Servers[0].HTTP = &config.Remote{URL: upstream.URL, Transport: "streamable"}
	c.Servers[0].Era = config.EraLegacy
	c.Servers[0].Identity = map[string]string{"x-user": "sub", "X-Email": "email", "X-Roles": "realm_access.roles"}
	for _, name := range []string{claimSub, claimToken} { // between instances they mean something: here they are a client's
		c.Servers[0].Forward = append(c.Servers[0].Forward, bridge.Forward{From: name, To: name})
	}
	users(i)(&c)
	c.PublicURL = here
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	s := build(&c, slog.New(slog.DiscardHandler), (*server).reach)
	site := wiretest.NewSiteFrom(t, s.http)
	defer s.Close(context.Background())
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
		r := site.Do("POST", "/one/mcp", initialize, who...).Wait()
		id := r.Header("Mcp-Session-Id")
		for n := range 2 {
			if r := site.Do("POST", "/one/mcp", call(fmt.Sprint(n), "echo"), append(who, "Mcp-Session-Id", id)...).Wait(); !strings.Contains(r.Body(), "hello") {
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
	i := authtest.New(t, "https://idp.example.com")
	c := config.Default()
	c.Servers = []config.Server{config.DefaultServer("one", config.ShareSession)}
	c.Servers[0].Stdio = &config.Stdio{Command: "sh", Args: []string{"-c", `while read -r l; do case "$l" in *'"initialize"'*)
		id=$(printf %s "$l" | sed 's/.*"id":\([^,}]*\).*/\1/')
		printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"of %s","version":"1"}}}\n' "$id" "$MCP_USER";; esac; done`}}
	c.Servers[0].Era = config.EraLegacy
	c.Servers[0].Identity = map[string]string{"MCP_USER": "sub"}
	users(i)(&c)
	c.PublicURL = here
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	s := build(&c, slog.New(slog.DiscardHandler), (*server).reach)
	site := wiretest.NewSiteFrom(t, s.http)
	defer s.Close(context.Background())
	for want, who := range map[string][]string{
		"of ann": eng(i, "ann", here, time.Hour), "of $(id)": eng(i, "$(id)", here, time.Hour), "of ": append(as(aliceKey), claimSub, "root"),
	} {
		r := site.Do("POST", "/one/mcp", initialize, who...).Wait()
		if got := gjson.Get(r.Body(), "result.serverInfo.name").Str; got != want {
			t.Errorf("%d %s, want %q", r.Status(), r.Body(), want)
		}
	}
}
