package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// callers are the access rules of the tests: of the servers one and two.
var callers = map[string]filter.Grant{
	"both":  {},
	"one":   {Servers: []string{"one"}},
	"some":  {Servers: []string{"o*", "two"}, Allow: []string{"read_*", "shown"}, Deny: []string{"read_secret"}},
	"other": {Servers: []string{"other"}},
}

// ruled runs f in a bubble with a bridge to the servers one and two, of which
// only callers may use something.
func ruled(t *testing.T, f func(t *testing.T, g *gateway)) {
	t.Helper()
	lists := func(more ...string) map[string]string {
		return map[string]string{
			"tools/list":     toolList(append([]string{"read_all", "read_secret", "write"}, more...)...),
			"prompts/list":   `{"prompts":[{"name":"greet"}]}`,
			"resources/list": `{"resources":[{"uri":"x:` + more[0] + `","name":"x"}]}`,
		}
	}
	one, two := shop("one", lists("read_one")), shop("two", lists("hidden", "hideous"))
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(Options{Log: slog.New(slog.DiscardHandler), Grants: callers, Servers: []ServerOptions{
			{Name: "one", ServerSettings: ServerSettings{Prefix: "one__"}, Adapter: one},
			{Name: "two", ServerSettings: ServerSettings{Prefix: "two__", Lists: filter.Lists{Tools: filter.Rules{Rename: map[string]string{"hidden": "shown", "read_all": "all"}, Deny: []string{"hideous"}}}}, Adapter: two},
		}})
		f(t, g)
		g.Close(context.Background())
	})
}

// asks returns what makes requests to a server on behalf of a principal, in
// either era.
func asks(t *testing.T, g *gateway, principal, server string, modern bool) (ask func(method, params string) string, err error) {
	t.Helper()
	if modern {
		return func(method, params string) string {
			if params != "" {
				params += ","
			}
			m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+statelessMeta+`}}`)
			s, no := NewStateless(server, principal, m)
			if no != nil {
				t.Fatalf("%s: %s", method, bridgetest.Text(no))
			}
			s.Back = &stream{}
			a, _ := g.Call(t.Context(), m, *s) // the answer says what went wrong
			return bridgetest.Text(a)
		}, nil
	}
	s, a, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{Server: server, ID: "of " + principal + " at " + server, Principal: principal})
	if err != nil {
		return func(string, string) string { return bridgetest.Text(a) }, err
	}
	if s.Principal() != principal {
		t.Errorf("the session of %s is %s's", principal, s.Principal())
	}
	return func(method, params string) string {
		m, _ := s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+`}}`), nil, &stream{})
		return bridgetest.Text(m)
	}, nil
}

// What each principal may use, at a server's own address and at that of all, in
// both eras.
func TestGrants(t *testing.T) {
	ruled(t, func(t *testing.T, g *gateway) {
		for _, tc := range []struct {
			principal, server string
			tools             string // as they are listed; empty means that nothing may be used
			unknown           string // tools that are answered as if they did not exist
			good              string // tools that can be called
		}{
			{"both", "one", "read_all read_secret write read_one", "", "write read_secret unlisted"},
			{"both", "", "one__read_all one__read_secret one__write one__read_one two__all two__read_secret two__write two__shown", "two__hidden two__hideous", "one__write two__shown"},
			{"one", "one", "read_all read_secret write read_one", "", "write"},
			{"one", "", "one__read_all one__read_secret one__write one__read_one", "two__write two__shown two__all", "one__write"},
			{"one", "two", "", "", ""},
			{"some", "one", "read_all read_one", "write read_secret", "read_all read_one read_unlisted"},
			{"some", "two", "shown", "all hidden read_all write read_secret", "shown"}, // its names are those that clients see
			{"some", "", "one__read_all one__read_one two__shown", "one__write one__read_secret two__all two__hidden two__write", "one__read_one two__shown"},
			{"other", "one", "", "", ""},
			{"other", "", "", "", ""},
			{"stranger", "one", "", "", ""},
			{"stranger", "", "", "", ""},
			{"", "one", "", "", ""},
			{"", "", "", "", ""},
		} {
			for _, modern := range []bool{false, true} {
				where := tc.principal + " at " + tc.server + map[bool]string{false: ", legacy", true: ", modern"}[modern]
				ask, err := asks(t, g, tc.principal, tc.server, modern)
				if tc.tools == "" {
					no := ask("tools/list", "")
					if !strings.Contains(no, `"code":-32600`) || !strings.Contains(no, "may") || !strings.Contains(no, `"bridge":"denied"`) {
						t.Errorf("%s: %s, want a refusal", where, no)
					}
					if !modern && !errors.Is(err, bridge.ErrDenied) {
						t.Errorf("%s: %v, want ErrDenied", where, err)
					}
					continue
				}
				list := ask("tools/list", "")
				same(t, where, names(t, list), strings.Fields(tc.tools))
				for _, tool := range strings.Fields(tc.unknown) {
					got := ask("tools/call", `"name":"`+tool+`"`)
					if want := `"error":{"code":-32602,"message":"Unknown tool: ` + tool + `"}`; !strings.Contains(got, want) {
						t.Errorf("%s: call of %s: %s, want %s", where, tool, got, want)
					}
				}
				for _, tool := range strings.Fields(tc.good) {
					if got := ask("tools/call", `"name":"`+tool+`"`); gjson.Get(got, "result.by").Str == "" {
						t.Errorf("%s: call of %s: %s", where, tool, got)
					}
				}
			}
		}
	})
}

// A server that the principal may not use is in nothing that it is told.
func TestGrantsNothingElse(t *testing.T) {
	ruled(t, func(t *testing.T, g *gateway) {
		full, _ := asks(t, g, "both", "", false) // somebody else has been there before
		for _, method := range []string{"tools/list", "prompts/list", "resources/list"} {
			if got := full(method, ""); !strings.Contains(got, "two__") && !strings.Contains(got, "x:hidden") {
				t.Fatalf("%s of both: %s", method, got)
			}
		}
		for _, modern := range []bool{false, true} {
			ask, err := asks(t, g, "one", "", modern)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range [][2]string{
				{"prompts/list", ""}, {"resources/list", ""}, {"resources/templates/list", ""},
				{"prompts/get", `"name":"two__greet"`},
				{"resources/read", `"uri":"x:hidden"`},
				{"completion/complete", `"ref":{"type":"ref/prompt","name":"two__greet"},"argument":{"name":"a","value":""}`},
			} {
				got := ask(q[0], q[1])
				if strings.Contains(got, `"by":"two"`) || strings.Contains(strings.ReplaceAll(got, "Unknown prompt: two__greet", ""), "two") || q[0] == "resources/list" && strings.Contains(got, "hidden") {
					t.Errorf("%s %s (modern: %t) reaches the other server: %s", q[0], q[1], modern, got)
				}
			}
			if modern {
				if got := ask("server/discover", ""); strings.Contains(got, "two") || !strings.Contains(got, "ask one") {
					t.Errorf("server/discover: %s", got)
				}
			}
		}
		s, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{ID: "greeted", Principal: "one"})
		if err != nil || strings.Contains(bridgetest.Text(m), "two") {
			t.Errorf("initialize: %s, %v", bridgetest.Text(m), err)
		}
		s.End(bridge.ErrEnded)
	})
}

// Without rules everybody may use everything, whoever that is, and nothing is in
// the way of a call: a new wrapper that is always on, too. The message names the
// outermost one, and what is in the way may stand below that.
func TestGrantsNone(t *testing.T) {
	one := shop("one", map[string]string{"tools/list": toolList("a")})
	all(t, []stock{{name: "one", f: one}}, func(t *testing.T, g *gateway) {
		for _, principal := range []string{"", "anybody"} {
			if err := g.Allowed("one", principal); err != nil {
				t.Errorf("%q: %v", principal, err)
			}
		}
		if err := g.Allowed("two", ""); !errors.Is(err, bridge.ErrUnknownServer) {
			t.Errorf("an unknown server: %v", err)
		}
		s := g.table.Load().at("one")
		up := s.statelessCalls
		for _, on := range []bridge.Upstream{s.check.Wrap(nil), s.filter.Wrap(nil), s.results.Wrap(nil)} { // they can be switched on while the bridge runs
			if reflect.TypeOf(up) != reflect.TypeOf(on) {
				t.Fatalf("nothing is switched on, and calls pass a %T: a wrapper that is off returns what it was given", up)
			}
			up = reflect.ValueOf(up).Elem().FieldByName("Upstream").Interface().(bridge.Upstream)
		}
		if up != bridge.Upstream(s.pool) {
			t.Errorf("nothing is switched on, and calls pass a %T: a wrapper that is off returns what it was given", up)
		}
	})
}

// What a server says of itself to one principal is told to nobody else, also
// where several servers are one and are asked only once: it may depend on who
// asks (D0.7, D1.3).
func TestGreetingOfOthers(t *testing.T) {
	personal := func(name string) *fake {
		f := shop(name, map[string]string{"tools/list": toolList("a")})
		serve := f.serve
		f.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
			if m.Method != "initialize" {
				return serve(w, m)
			}
			w.answer(m, strings.Replace(f.result, `"ask `+name+`"`, `"the secrets of [`+w.from.Principal+`]"`, 1))
			return true
		}
		return f
	}
	for _, share := range []Share{ShareSession, SharePrincipal, ShareCall, ShareAll} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(Options{Log: slog.New(slog.DiscardHandler), Grants: map[string]filter.Grant{"alice": {}, "bob": {}}, Servers: []ServerOptions{
				{Name: "one", ServerSettings: ServerSettings{Prefix: "one__", Share: share}, Adapter: personal("one")},
				{Name: "two", ServerSettings: ServerSettings{Prefix: "two__", Share: share}, Adapter: personal("two")},
			}})
			defer g.Close(context.Background())
			for _, principal := range []string{"alice", "bob", "alice"} {
				whose := "[" + principal + "]"
				if share == ShareAll { // its operator says that it is the same for all
					whose = "[]"
				}
				s, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{ID: string(share) + rand.Text(), Principal: principal})
				if err != nil {
					t.Fatal(err)
				}
				discover, err := asks(t, g, principal, "", true)
				if err != nil {
					t.Fatal(err)
				}
				for wire, got := range map[string]string{"initialize": bridgetest.Text(m), "server/discover": discover("server/discover", "")} {
					if n := strings.Count(got, "the secrets of "); n != 2 || strings.Count(got, "the secrets of "+whose) != n {
						t.Errorf("share %s: %s of %s says %s", share, wire, principal, gjson.Get(got, "result.instructions"))
					}
				}
				s.End(bridge.ErrEnded)
			}
		})
	}
}

// A task is its principal's: to others it does not exist, also where the server
// takes all for one. What a session may have of a process of its own is
// passed on as it is.
func TestTasksOfOthers(t *testing.T) {
	server := func() *fake {
		f, made := &fake{}, 0
		var all []string // of the server, whoever the tasks are made for
		f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
			switch m.Method {
			case "tools/call":
				made++
				all = append(all, fmt.Sprintf(`{"taskId":"t%d","status":"working"}`, made))
				f.answer(m, `{"task":`+all[made-1]+`}`)
			case "tasks/list":
				f.answer(m, `{"nextCursor":"2","tasks":[`+strings.Join(all, ",")+`],"x":1}`)
			case "tasks/get", "tasks/result", "tasks/cancel":
				f.answer(m, `{"got":`+string(m.Params)+`}`)
			default:
				return false
			}
			return true
		}
		return f
	}
	for _, share := range []Share{ShareSession, ShareAll} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(Options{Log: slog.New(slog.DiscardHandler), Grants: map[string]filter.Grant{"alice": {}, "bob": {}}, Servers: []ServerOptions{
				{Name: "one", Adapter: server(), ServerSettings: ServerSettings{Share: share}},
			}})
			defer g.Close(context.Background())
			sessions := map[string]func(method, params string) string{}
			for _, principal := range []string{"alice", "bob"} {
				s, _, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{Server: "one", ID: string(share) + rand.Text(), Principal: principal})
				if err != nil {
					t.Fatal(err)
				}
				sessions[principal] = func(method, params string) string {
					m, _ := s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+`}}`), nil, &stream{})
					return bridgetest.Text(m)
				}
			}
			for i, principal := range []string{"alice", "bob"} {
				if got := sessions[principal]("tools/call", `"name":"a","task":{}`); gjson.Get(got, "result.task.taskId").Str != fmt.Sprint("t", i+1) {
					t.Fatalf("%s: a call as a task: %s", principal, got)
				}
			}
			for principal, ids := range map[string][2]string{"alice": {"t1", "t2"}, "bob": {"t2", "t1"}} {
				ask := sessions[principal]
				if got := ask("tasks/list", ""); gjson.Get(got, "result.tasks.#.taskId").String() != `["`+ids[0]+`"]` || gjson.Get(got, "result.nextCursor").Str != "2" {
					t.Errorf("share %s: the tasks of %s are %s", share, principal, got)
				}
				for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
					if got := ask(method, `"taskId":"`+ids[0]+`"`); gjson.Get(got, "result.got.taskId").Str != ids[0] {
						t.Errorf("share %s: %s of %s: %s", share, method, principal, got)
					}
					for _, params := range []string{`"taskId":"` + ids[1] + `"`, `"taskId":"` + ids[0] + `","taskId":"` + ids[1] + `"`, `"TaskId":"` + ids[1] + `"`, ``} {
						if got := ask(method, params); gjson.Get(got, "error.code").Int() != -32602 {
							t.Errorf("share %s: %s of %s with %s: %s", share, method, principal, params, got)
						}
					}
					if got := ask(method, `"TaskId":"`+ids[1]+`","taskId":"`+ids[0]+`"`); strings.Contains(got, ids[1]) {
						t.Errorf("share %s: %s of %s gets by: %s", share, method, principal, got)
					}
				}
			}
		})
	}
	b := newGateway(Options{Log: slog.New(slog.DiscardHandler), Grants: callers, Servers: []ServerOptions{{Name: "one", Adapter: server(), Process: true}}})
	if b.table.Load().at("one").tasks != nil {
		t.Error("tasks of processes that sessions have for themselves are looked at")
	}
	b.Close(context.Background())
}

// A name that is no text is not passed on where some names are denied: there are
// servers that make a text of it.
func TestGrantsNoText(t *testing.T) {
	one := shop("one", map[string]string{"tools/list": toolList("a", "b")})
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(Options{Log: slog.New(slog.DiscardHandler), Grants: map[string]filter.Grant{"some": {Deny: []string{"a"}}}, Servers: []ServerOptions{
			{Name: "one", Adapter: one, ServerSettings: ServerSettings{Lists: filter.Lists{Prompts: filter.Rules{Deny: []string{"a"}}, Resources: filter.Rules{Deny: []string{"x:a"}}}}},
		}})
		defer g.Close(context.Background())
		for _, modern := range []bool{false, true} {
			ask, err := asks(t, g, "some", "one", modern)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range [][2]string{
				{"tools/call", `"name":["a"]`}, {"tools/call", `"name":""`}, {"tools/call", ``}, {"prompts/get", `"name":["a"]`}, {"resources/read", `"uri":["x:a"]`},
			} {
				if got := ask(q[0], q[1]); !gjson.Get(got, "error.code").Exists() {
					t.Errorf("%s with %s (modern: %t) reaches the server: %s", q[0], q[1], modern, got)
				}
			}
			if got := ask("tools/call", `"name":"b"`); gjson.Get(got, "result.by").Str != "one" {
				t.Errorf("a call of b: %s", got)
			}
		}
	})
}
