package access

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
)

// scoped are the scopes of the servers one and two.
func scoped(c *config.Config) {
	c.OAuth[0].Implies = map[string]config.Words{"admin": {"two:use", "two:log"}}
	c.Servers[0].Scopes = config.Scopes{Tools: map[string]config.Words{"echo": {"one:echo"}, "s*": {"one:s"}, "steps": {"one:steps", "one:s"}}}
	c.Servers[1].Scopes = config.Scopes{All: config.Words{"two:use"}, Tools: map[string]config.Words{"log": {"two:log"}}, Prompts: map[string]config.Words{"*": {"two:prompts"}}, Resources: map[string]config.Words{"file:///secret/*": {"two:secret"}}}
}

func call(id, tool string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":{}}}`
}

// What messages need, by what they are about. Where that cannot be told, they need all
// that it could be (I-053, I-055).
func TestNeeds(t *testing.T) {
	a := ruled(t, func(c *config.Config) {
		scoped(c)
		for _, name := range []string{"bare", "bare-two"} {
			one := config.DefaultServer(name, "")
			one.Prefix = ""
			one.Scopes.Tools = map[string]config.Words{"t*": {name}}
			c.Servers = append(c.Servers, one)
		}
	})
	const staff, guests = "staff/x#ann", "guests/x#guest-1"
	for _, tc := range []struct{ server, who, method, params, want string }{
		{"one", staff, "tools/call", `{"name":"echo"}`, "one:echo"},
		{"one", staff, "tools/call", `{"name":"echo","Name":"log"}`, "one:echo one:s one:steps"},
		{"one", staff, "tools/call", `{"name":["echo"]}`, "one:echo one:s one:steps"},
		{"one", staff, "tools/call", `{}`, "one:echo one:s one:steps"},
		{"one", staff, "tools/list", `{}`, ""},
		{"one", guests, "tools/call", `{"name":"echo"}`, ""},
		{"two", staff, "tools/list", `{}`, "two:use"},
		{"two", staff, "notifications/cancelled", `{}`, "two:use"},
		{"two", staff, "prompts/get", `{"name":"x"}`, "two:prompts two:use"},
		{"two", staff, "completion/complete", `{"ref":{"type":"ref/prompt","name":"x"}}`, "two:prompts two:use"},
		{"two", staff, "completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///secret/x"}}`, "two:secret two:use"},
		{"two", staff, "completion/complete", `{"ref":{"name":"x","uri":"file:///public/x"}}`, "two:prompts two:secret two:use"},
		{"two", staff, "resources/read", `{"uri":"file:///public/x"}`, "two:use"},
		{"two", staff, "resources/read", `{"uri":"file:///secret/x"}`, "two:secret two:use"},
		{"two", staff, "resources/read", `{"uri":"FILE:///public/../secret/x"}`, "two:secret two:use"},
		{"two", staff, "resources/read", `{"uri":"file:///%73ecret/x"}`, "two:secret two:use"},
		{"two", staff, "resources/read", `{"uri":"file:///a","URI":"file:///b"}`, "two:secret two:use"},
		{"two", staff, "resources/subscribe", `{"uri":"file:///secret/x"}`, "two:secret two:use"},
		{"two", staff, "subscriptions/listen", `{"notifications":{"resourceSubscriptions":["file:///a","file:///secret/b"]}}`, "two:secret two:use"},
		{"two", staff, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`, "two:use"},
		{"", staff, "tools/list", `{}`, ""},
		{"", staff, "tools/call", `{"name":"one__echo"}`, "one:echo"},
		{"", staff, "tools/call", `{"name":"two__x"}`, "bare bare-two two:use"}, // those without a prefix may have a tool of that name
		{"", staff, "tools/call", `{"name":"nobody"}`, ""},                      // it begins with the prefix of those that have none
		{"", staff, "tools/call", `{"name":"two"}`, "bare bare-two"},
		{"", staff, "tools/call", `{"name":"bare__two"}`, "bare"}, // of two of that name, one has its server's before it
		{"", staff, "tools/call", `{"name":"one__very_long_0123abcd"}`, "bare bare-two one:echo one:s one:steps"},
		{"", staff, "tools/call", `{"name":["x"]}`, "bare bare-two one:echo one:s one:steps two:log two:use"},
		{"", staff, "prompts/get", `{"name":"two__x"}`, "two:prompts two:use"},
		{"", staff, "resources/read", `{"uri":"file:///secret/x"}`, "two:secret two:use"},
		{"", guests, "resources/read", `{"uri":"file:///secret/x"}`, ""},
		{"", guests, "tools/call", `{"name":"two__log"}`, ""},
		{"", staff, "tasks/result", `{"taskId":"two:7"}`, "two:use"},
		{"", staff, "tasks/result", `{"taskId":"one:7"}`, ""},
		{"", staff, "tasks/result", `{"taskId":"7"}`, "two:use"}, // of a session that began when there was one server
		{"", staff, "subscriptions/listen", `{"notifications":{"taskIds":["one:7","two:7"]}}`, "two:use"},
		{"", staff, "subscriptions/listen", `{"notifications":{"taskIds":["one:7"]}}`, ""},
		{"none", staff, "tools/call", `{"name":"echo"}`, ""},
	} {
		m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+tc.method+`","params":`+tc.params+`}`)
		got, _ := a.Needs(tc.server, tc.who, []*jsonrpc.Message{m})
		slices.Sort(got)
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%q: %s %s of %s needs %v, want %s", tc.server, tc.method, tc.params, tc.who, got, tc.want)
		}
	}
}

// asks shows a token of ann with those scopes and a body, which legacy clients send unless header says otherwise, and
// returns the answer: 200 if the token has what it needs.
func asks(a *Access, i *authtest.Issuer, endpoint, scopes, body string, header ...string) *httptest.ResponseRecorder {
	w, at := httptest.NewRecorder(), TargetOf("", endpoint)
	server, _, of := strings.Cut(strings.TrimPrefix(endpoint, "/"), "/")
	if !of {
		server = ""
	}
	r := from(peer, loopback, "POST", endpoint, append(header, eng(i, "ann", here, authtest.Claims{"scope": scopes})...)...)
	if r, ok := a.Admit(w, r, endpoint, at); ok {
		a.Screen(w, a.Identify(r, at), server, []byte(body))
	}
	return w
}

// A request whose token lacks a scope is refused; the client is told all that it needs, and older clients what they
// have as well, since they give up what is not asked for (I-053, I-054).
func TestScopes(t *testing.T) {
	modern := []string{"Mcp-Protocol-Version", "2026-07-28"}
	const list = `{"jsonrpc":"2.0","id":0,"method":"tools/list"}`
	batch := "[" + call("4", "one__log") + "," + call(`"five"`, "one__echo") + `,{"jsonrpc":"2.0","method":"notifications/x"},` + call("6", "two__log") + "]"
	many := "[" + strings.Repeat(call("1", "two__log")+",", gateway.MaxBatch) + call("1", "two__log") + "]" // which is not looked through
	identified(t, quiet, scoped, func(t *testing.T, a *Access, i *authtest.Issuer) {
		for _, tc := range []struct {
			endpoint, scopes, body string
			header                 []string
			missing, wanted        string
			ids                    string // of the errors
		}{
			{"/one/mcp", "", call("7", "echo"), modern, "one:echo", "one:echo", "7"},
			{"/one/mcp", "two:use other", call("7", "echo"), modern, "one:echo", "one:echo", "7"},
			{"/one/mcp", "one:echo", call("7", "echo"), modern, "", "", ""},
			{"/one/mcp", "", call("7", "steps"), modern, "one:s one:steps", "one:s one:steps", "7"},
			{"/one/mcp", "one:s", call("7", "steps"), modern, "one:steps", "one:s one:steps", "7"},
			{"/one/mcp", "one:steps one:s", call("7", "steps"), modern, "", "", ""},
			{"/one/mcp", "", call("7", "log"), modern, "", "", ""},
			{"/one/mcp", "one:ech one:echo2 ONE:ECHO", call("7", "echo"), modern, "one:echo", "one:echo", "7"},
			{"/one/mcp", "mcp:use two:use unheard", call("4", "echo"), nil, "one:echo", "mcp:use one:echo two:use", "4"},
			{"/one/messages", "", call("7", "echo"), nil, "one:echo", "one:echo", "7"},
			{"/two/mcp", "", list, nil, "two:use", "two:use", "0"},
			{"/two/mcp", "", "", nil, "two:use", "two:use", ""}, // the GET of a stream
			{"/two/mcp", "admin", list, nil, "", "", ""},
			{"/two/mcp", "two:use", list, nil, "", "", ""},
			{"/mcp", "", list, nil, "", "", ""},
			{"/mcp", "two:use", call("2", "one__echo"), nil, "one:echo", "one:echo two:use", "2"},
			{"/mcp", "one:echo", call("2", "two__echo"), nil, "two:use", "one:echo two:use", "2"}, // N-56
			{"/mcp", "two:use", call("2", "two__log"), nil, "two:log", "two:log two:use", "2"},
			{"/mcp", "one:echo", call("3", "one__echo"), nil, "", "", ""},
			{"/mcp", "two:use", call("3", "two__echo"), nil, "", "", ""},
			{"/mcp", "admin", call("3", "two__log"), nil, "", "", ""},
			{"/mcp", "two:use", batch, nil, "one:echo two:log", "one:echo two:log two:use", `4 "five" 6`}, // N-54
			{"/mcp", "one:echo", "[" + call("4", "one__echo") + "," + call("5", "one__echo") + "]", nil, "", "", ""},
			{"/mcp", "", many, nil, "", "", ""},
			{"/mcp", "", "[", nil, "", "", ""}, // what is no message is for others to say
			{"/mcp", "", "[]", nil, "", "", ""},
			{"/mcp", "", "[1]", nil, "", "", ""},
			{"/mcp", "", "{", nil, "", "", ""},
			{"/mcp", "", `{"jsonrpc":"2.0","id":1}`, nil, "", "", ""},
		} {
			w := asks(a, i, tc.endpoint, tc.scopes, tc.body, tc.header...)
			status, challenge := 200, ""
			if tc.missing != "" {
				status, challenge = 403, `Bearer realm="mcp-bridge", error="insufficient_scope", error_description="this needs the scope `+tc.missing+`", resource_metadata="`+here+"/.well-known/oauth-protected-resource"+strings.ReplaceAll(tc.endpoint, "messages", "sse")+`", scope="`+tc.wanted+`"`
			}
			if got := w.Header().Get("WWW-Authenticate"); w.Code != status || got != challenge {
				t.Errorf("%.80s at %s with %q: %d %s, want %s", tc.body, tc.endpoint, tc.scopes, w.Code, got, challenge)
			}
			var ids []string
			for _, e := range gjson.Parse(w.Body.String()).Array() { // one error counts as a list
				if kind := e.Get("error.data.bridge").Str; kind != "insufficient_scope" {
					t.Errorf("%.80s: %s", tc.body, w.Body)
				}
				if e.Get("id").Raw != "" {
					ids = append(ids, e.Get("id").Raw)
				}
			}
			if strings.Join(ids, " ") != tc.ids {
				t.Errorf("%.80s: %s, want the ids %s", tc.body, w.Body, tc.ids)
			}
		}
		// N-53: what a rule hides needs no scope that a guest could learn of. Keys need none.
		for _, who := range [][]string{as(i.Token(here, authtest.Claims{"sub": "guest-1"})), as(aliceKey)} {
			w, at := httptest.NewRecorder(), TargetOf("", "/one/mcp")
			r, ok := a.Admit(w, from(peer, loopback, "POST", "/one/mcp", who...), "", at)
			if a.Screen(w, a.Identify(r, at), "one", []byte(call("1", "echo"))) || !ok {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
	})
}

// A server that is the only one is served as it is, also where all are one; a session that
// began with it goes on with its names when there are more (I-055).
func TestScopesOfOne(t *testing.T) {
	identified(t, quiet, func(c *config.Config) {
		c.Servers[0].Scopes = config.Scopes{All: config.Words{"one:use"}, Tools: map[string]config.Words{"echo": {"one:echo"}}}
	}, func(t *testing.T, a *Access, i *authtest.Issuer) {
		two := a.c()
		one := *two
		one.Servers = two.Servers[:1]
		for _, c := range []*config.Config{&one, two} {
			a.o.Bridge.(*open).c = c
			if got := asks(a, i, "/mcp", "one:use", call("1", "echo")).Header().Get("WWW-Authenticate"); !strings.HasSuffix(got, `scope="one:echo one:use"`) {
				t.Errorf("a call with %d servers: %q", len(c.Servers), got)
			}
			if w := asks(a, i, "/mcp", "one:use one:echo", call("1", "echo")); w.Code != 200 {
				t.Errorf("a call with its scopes and %d servers: %d %s", len(c.Servers), w.Code, w.Body)
			}
			if got, _ := a.Needs("", "staff/x#ann", nil); len(got) != map[int]int{1: 1, 2: 0}[len(c.Servers)] {
				t.Errorf("a stream with %d servers needs %v", len(c.Servers), got)
			}
			want := map[int]string{1: `scope="mcp:use one:use"`, 2: `scope="mcp:use"`}[len(c.Servers)]
			if got := admit(a, from(peer, loopback, "POST", "/mcp"), "/mcp").Header().Get("WWW-Authenticate"); !strings.HasSuffix(got, want) {
				t.Errorf("the challenge with %d servers: %s", len(c.Servers), got)
			}
		}
	})
}

// Open sessions have the former names and prefixes of what patterns name anew; and while settings are
// about to be exchanged, what either of them asks for is needed (I-055).
func TestScopesOfFormer(t *testing.T) {
	start := func(change func(*config.Config)) (check func(who, server, name, want string), prepare func(func(*config.Config)) (apply func())) {
		a := ruled(t, change)
		check = func(who, server, name, want string) {
			t.Helper()
			got, _ := a.Needs(server, who+"/x#ann", []*jsonrpc.Message{bridgetest.Parse(t, call("1", name))})
			if slices.Sort(got); strings.Join(got, " ") != want {
				t.Errorf("%s of %s needs %v, want %s", name, who, got, want)
			}
		}
		return check, func(change func(*config.Config)) func() {
			c := *a.c()
			c.Servers = slices.Clone(c.Servers)
			change(&c)
			done := a.Prepare(&c)
			return func() {
				a.o.Bridge.(*open).c = &c
				done()
			}
		}
	}
	t.Run("names", func(t *testing.T) {
		called := func(name string) func(*config.Config) {
			return func(c *config.Config) {
				c.Servers[0].Tools.Rename = map[string]string{"echo": name}
				c.Servers[0].Scopes.Tools = map[string]config.Words{name: {name}}
			}
		}
		check, prepare := start(called("say"))
		check("staff", "one", "say", "say")
		apply := prepare(called("tell"))
		check("staff", "one", "say", "say tell")
		check("staff", "one", "tell", "say tell")
		apply()
		check("staff", "one", "say", "tell")
		check("staff", "one", "tell", "tell")
		check("staff", "one", "other", "")
	})
	t.Run("a prefix", func(t *testing.T) {
		prefixed := func(prefix string) func(*config.Config) {
			return func(c *config.Config) { c.Servers[0].Prefix = prefix }
		}
		check, prepare := start(func(c *config.Config) {
			prefixed("first.")(c)
			c.Servers[0].Scopes.Tools = map[string]config.Words{"delete": {"delete"}}
		})
		check("staff", "", "first.delete", "delete")
		check("staff", "", "second.delete", "")
		prepare(prefixed("second."))() // without a request between them
		prepare(prefixed("third."))()
		for _, name := range []string{"first.delete", "second.delete", "third.delete"} {
			check("staff", "", name, "delete")
		}
		check("staff", "", "fourth.delete", "")
		check("staff", "", "second.read", "")
	})
	// A former prefix counts for as long as something is found under it, and not if another server has it now; a server
	// that a caller may not use hides none of them.
	t.Run("prefixes of two", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			check, prepare := start(func(c *config.Config) {
				c.Servers[0].Prefix = "fs."
				c.Servers[0].Scopes = config.Scopes{All: config.Words{"a"}, Tools: map[string]config.Words{"two__push": {"push"}}}
				c.Servers[1].Scopes.All = config.Words{"b"}
			})
			apply := func(one, two string) {
				t.Helper()
				prepare(func(c *config.Config) { c.Servers[0].Prefix, c.Servers[1].Prefix = one, two })()
				check("staff", "", one+"x", "a")
			}
			apply("old.", "two__")
			check("staff", "", "fs.x", "a")
			apply("old.", "fs.")
			check("staff", "", "fs.x", "b")
			apply("old.", "two__")
			check("staff", "", "fs.x", "a b")
			time.Sleep(10 * time.Minute)
			check("staff", "", "fs.x", "a b") // it is nobody's
			check("staff", "", "old.x", "a")
			apply("", "gh.")
			apply("new.", "gh.")
			check("staff", "", "two__push", "a b push")
			check("guests", "", "two__push", "a push")
			check("staff", "", "gh.x", "b")
			check("guests", "", "gh.x", "a")
			time.Sleep(10 * time.Minute)
			check("staff", "", "two__push", "b")
		})
	})
}

// The log says who was asked for more scopes, and who came back with them, once each
// (I-060).
func TestElevations(t *testing.T) {
	var log bytes.Buffer
	identified(t, slog.New(slog.NewTextHandler(&log, nil)), scoped, func(t *testing.T, a *Access, i *authtest.Issuer) {
		said := func(what string, want int, scopes ...string) {
			t.Helper()
			for _, one := range scopes {
				asks(a, i, "/two/mcp", one, `{"jsonrpc":"2.0","id":0,"method":"tools/list"}`)
			}
			if n := strings.Count(log.String(), what); n != want {
				t.Errorf("%d times %q:\n%s", n, what, &log)
			}
		}
		said(`"caller asked for more scopes" principal=staff/https://idp.example.com#ann server=two missing=two:use asked_for=two:use`, 1, "", "", "")
		said("came back", 0)
		said(`"caller came back with more scopes" principal=staff/https://idp.example.com#ann scopes=two:use`, 1, "two:use", "two:use")
		said("asked for more", 2, "")
	})
}

// A rule of a program that has no text for its key is for nobody.
func TestRulesOf(t *testing.T) {
	if n := len(rulesOf(&config.Config{Access: []config.Access{{Name: "ci"}}})); n > 0 {
		t.Errorf("%d rules for users", n)
	}
}

// A reload that is refused leaves the scopes as they were.
func TestScopesOfRefusedReload(t *testing.T) {
	a := ruled(t, scoped)
	c := *a.c()
	c.Servers = slices.Clone(c.Servers)
	c.Servers[0].Scopes.Tools = map[string]config.Words{"echo": {"more"}}
	done := a.Prepare(&c)
	for _, want := range []string{"more one:echo", "one:echo"} {
		got, _ := a.Needs("one", "staff/x#ann", []*jsonrpc.Message{bridgetest.Parse(t, call("1", "echo"))})
		if slices.Sort(got); strings.Join(got, " ") != want {
			t.Errorf("echo needs %v, want %s", got, want)
		}
		done()
	}
}
