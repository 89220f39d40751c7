package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/guard/approve"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/results"
	"github.com/mcp-bridge/bridge/internal/script"
)

// lookAndDrop is a list with a tool that reads and one that writes.
const lookAndDrop = `{"tools":[{"name":"look","description":"Looks at a thing.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},` +
	`{"name":"drop","description":"Deletes a thing.","inputSchema":{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}}]}`

// stores are two servers, and a third that has tools of the names of meta tools.
func stores() []stock {
	return []stock{
		{name: "one", prefix: "one__", f: shop("one", map[string]string{"tools/list": lookAndDrop})},
		{name: "two", prefix: "two__", f: modernShop("two", map[string]string{"tools/list": `{"resultType":"complete",` + lookAndDrop[1:len(lookAndDrop)-1] + `,"ttlMs":0,"cacheScope":"private"}`})},
		{name: "own", prefix: "own__", f: shop("own", map[string]string{"tools/list": toolList("call_tool", "search_tools")})},
	}
}

// sessionAt starts a session at an address, with the mode of its URL.
func sessionAt(t testing.TB, g *gateway, server, principal string, mode ToolsMode) *sitting {
	t.Helper()
	s, m, err := join(t, g, SessionOptions{Server: server, ID: fmt.Sprint("id", sessions.Add(1)), Principal: principal, Envelope: &Envelope{Tools: mode}})
	if err != nil {
		t.Fatalf("Initialize: %s, %v", m, err)
	}
	return s
}

// through makes a request in a session, and the same as a stateless client, and returns both answers.
func through(t *testing.T, g *gateway, s *sitting, mode ToolsMode, method, params string) [2]string {
	t.Helper()
	m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":`+params+`}`)
	a, _ := s.Call(m, &Envelope{Tools: mode}, nil)
	inSession := bridgetest.Text(a)
	meta := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}}`
	if params != "{}" {
		meta += ","
	}
	m = bridgetest.Parse(t, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":`+meta+params[1:]+`}`)
	v, no := NewStateless(s.Server(), s.Principal(), m)
	if no != nil {
		t.Fatal(bridgetest.Text(no))
	}
	v.Tools, v.Back = mode, &stream{}
	a, _ = g.Call(context.Background(), m, *v)
	return [2]string{inSession, bridgetest.Text(a)}
}

// Tools are found, and called by the door, for sessions and for stateless clients, at a server's own address and at that
// of all servers. Everything behind the door sees the tool itself (C-001, C-003).
func TestSearchMode(t *testing.T) {
	all(t, stores(), func(t *testing.T, g *gateway) {
		for _, tc := range []struct {
			server         string
			method, params string
			want           string // a part of both answers
			lack           string
		}{
			{"", "tools/list", `{}`, `"name":"search_tools"`, "one__"},
			{"", "tools/call", `{"name":"search_tools","arguments":{}}`, `one: 2\ntwo: 2\nown: 2`, ""},
			{"", "tools/call", `{"name":"search_tools","arguments":{"query":"delete"}}`, `one__drop\",\"call_with\":\"call_tool`, ""},
			{"", "tools/call", `{"name":"search_tools","arguments":{"names":["two__look"]}}`, `two__look`, "one__"},
			{"", "tools/call", `{"name":"call_tool","arguments":{"name":"one__drop","arguments":{"id":"1"}}}`, `"by":"one"`, "call_tool"},
			{"", "tools/call", `{"name":"call_tool","arguments":{"name":"two__drop","arguments":"{\"id\":\"1\"}"}}`, `"by":"two"`, ""},
			{"", "tools/call", `{"name":"read_tool","arguments":{"name":"two__look"}}`, `"by":"two"`, ""},
			{"", "tools/call", `{"name":"read_tool","arguments":{"name":"one__drop","arguments":{"id":"1"}}}`, "may change something", `"by"`},
			{"", "tools/call", `{"name":"read_tool","arguments":{"name":"none__look"}}`, "There is no tool", `"by"`},
			{"", "tools/call", `{"name":"one__look"}`, `"by":"one"`, ""}, // by its own name
			{"", "tools/call", `{"name":"call_tool","arguments":{"name":"search_tools","arguments":{}}}`, `one: 2\ntwo: 2\nown: 2`, ""},
			{"", "tools/call", `{"name":"call_tool","arguments":{"name":"a","name":"b"}}`, "must be there once", `"by"`},
			{"", "tools/call", `{"name":"call_tool","arguments":{"name":"own__call_tool","arguments":{"name":"x"}}}`, `"by":"own"`, ""},
			{"one", "tools/list", `{}`, `"name":"call_tool"`, `"name":"look"`},
			{"one", "tools/call", `{"name":"search_tools","arguments":{"query":"look"}}`, `look\",\"call_with\":\"read_tool`, "two"},
			{"one", "tools/call", `{"name":"call_tool","arguments":{"name":"drop","arguments":{"id":"1"}}}`, `"by":"one"`, ""},
			{"two", "tools/call", `{"name":"read_tool","arguments":{"name":"drop"}}`, "may change something", `"by"`},
			{"own", "tools/call", `{"name":"call_tool","arguments":{"name":"call_tool","arguments":{"name":"x"}}}`, `"name":"x"`, ""},
		} {
			s := sessionAt(t, g, tc.server, "", ToolsSearch)
			for i, got := range through(t, g, s, ToolsSearch, tc.method, tc.params) {
				if !strings.Contains(got, tc.want) || tc.lack != "" && strings.Contains(got, tc.lack) {
					t.Errorf("%d: %q: %s %s: %s, want %s", i, tc.server, tc.method, tc.params, got, tc.want)
				}
			}
		}
		// Without the mode, these names are those of the servers.
		s := sessionAt(t, g, "own", "", "")
		for _, got := range through(t, g, s, "", "tools/call", `{"name":"call_tool","arguments":{"name":"x"}}`) {
			bridgetest.Contains(t, got, `"by":"own"`, `"name":"call_tool"`)
		}
	})
}

// A file without a mode at the address of all servers lists the tools of the servers that do not want a search. A client
// decides for itself. A change of the mode counts at once, and clients learn of it.
func TestSearchModes(t *testing.T) {
	stock := stores()[:2]
	stock[1].o.Listing = Listing{ToolsMode: ToolsSearch, Always: []string{"look"}}
	all(t, stock, func(t *testing.T, g *gateway) {
		listed := func(server string, mode ToolsMode) string {
			t.Helper()
			s := sessionAt(t, g, server, "", mode)
			both := through(t, g, s, mode, "tools/list", `{}`)
			a, b := strings.Join(names(t, both[0]), " "), strings.Join(names(t, both[1]), " ")
			if a != b {
				t.Errorf("a session sees %s, a stateless client %s", a, b)
			}
			return a
		}
		const meta = "search_tools read_tool call_tool"
		for _, tc := range []struct {
			server string
			mode   ToolsMode
			want   string
		}{
			{"", "", meta + " one__look one__drop"},
			{"", ToolsAll, "one__look one__drop two__look two__drop"},
			{"", ToolsSearch, meta},
			{"one", "", "look drop"},
			{"two", "", meta + " look"},
			{"two", ToolsAll, "look drop"},
		} {
			if got := listed(tc.server, tc.mode); got != tc.want {
				t.Errorf("%q, tools=%s: %s, want %s", tc.server, tc.mode, got, tc.want)
			}
		}
		s := sessionAt(t, g, "", "", "")
		st := &stream{}
		s.Attach(st)
		time.Sleep(time.Second)
		st.take()
		o := Settings{Common: Common{SessionIdle: time.Hour, SessionLeft: time.Hour, ListWait: time.Hour, Listing: Listing{ToolsMode: ToolsSearch}}}
		if err := g.Apply(Change{Names: []string{"one", "two"}, Settings: &o}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if told := strings.Join(st.take(), " "); !strings.Contains(told, "list_changed") && listed("", "") != meta {
			t.Errorf("after the change: %s, the client was told %q", listed("", ""), told)
		}
		// The list is constant now: servers may come and go.
		if err := g.Apply(Change{Names: []string{"one"}, Gone: func(string) {}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if told := strings.Join(st.take(), " "); strings.Contains(told, "tools/list_changed") {
			t.Errorf("a client whose list stayed the same was told %s", told)
		}
	})
}

// A group is some of the servers, with names as at the address of all servers, for both kinds of clients.
func TestGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{
			Log: slog.New(slog.DiscardHandler),
			Groups: []Group{
				{Name: "dev", Servers: []string{"one", "two"}, Deny: []string{"two__dr*"}},
				{Name: "some", Servers: []string{"own"}, Listing: Listing{ToolsMode: ToolsSearch}},
			},
			Grants: map[string]filter.Grant{"ann": {}, "bob": {Servers: []string{"dev", "one"}}, "eve": {Servers: []string{"one", "two"}}, "dan": {Servers: []string{"dev"}}},
		}
		for _, s := range stores() {
			s.o.Name, s.o.Prefix, s.o.Adapter = s.name, s.prefix, s.f
			o.Servers = append(o.Servers, s.o)
		}
		g := newGateway(o)
		defer g.Close(context.Background())
		for _, tc := range []struct {
			server, principal, want string
			kind                    error
		}{
			{"dev", "ann", "one__look one__drop two__look", nil},
			{"some", "ann", "search_tools read_tool call_tool", nil},
			{"dev", "bob", "one__look one__drop", nil},
			{"dev", "eve", "", bridge.ErrDenied}, // not by the group's name
			{"dev", "dan", "", bridge.ErrDenied}, // none of its servers
			{"some", "bob", "", bridge.ErrDenied},
			{"none", "ann", "", bridge.ErrUnknownServer},
		} {
			err := g.Allowed(tc.server, tc.principal)
			if tc.kind != nil {
				if !errors.Is(err, tc.kind) {
					t.Errorf("%s at %s: %v, want %v", tc.principal, tc.server, err, tc.kind)
				}
				continue
			}
			for _, got := range through(t, g, sessionAt(t, g, tc.server, tc.principal, ""), "", "tools/list", `{}`) {
				if list := strings.Join(names(t, got), " "); list != tc.want {
					t.Errorf("%s at %s: %s, want %s", tc.principal, tc.server, list, tc.want)
				}
			}
		}
		s := sessionAt(t, g, "dev", "ann", "")
		for params, want := range map[string]string{
			`{"name":"one__drop"}`: `"by":"one"`, `{"name":"two__drop"}`: "Unknown tool", `{"name":"own__call_tool"}`: "Unknown tool",
		} {
			for _, got := range through(t, g, s, "", "tools/call", params) {
				bridgetest.Contains(t, got, want)
			}
		}
		for _, got := range through(t, g, s, ToolsSearch, "tools/call", `{"name":"search_tools","arguments":{}}`) {
			bridgetest.Contains(t, got, `one: 2\ntwo: 1`)
		}
		for _, got := range through(t, g, s, ToolsSearch, "tools/call", `{"name":"call_tool","arguments":{"name":"two__drop"}}`) {
			bridgetest.Contains(t, got, "There is no tool")
		}
		if rows := g.Sessions(func(p string) bool { return p == "ann" }); len(rows) == 0 || rows[0].Server == "" {
			t.Errorf("sessions %+v", rows)
		}
	})
}

// Groups change while the bridge runs. The sessions of a removed group end, those with a call in flight after the drain.
func TestGroupsChange(t *testing.T) {
	one, two := shop("one", map[string]string{"tools/list": toolList("a")}), shop("two", map[string]string{"tools/list": toolList("b")})
	answer := answersLater(one)
	all(t, []stock{{name: "one", prefix: "one__", f: one}, {name: "two", prefix: "two__", f: two}}, func(t *testing.T, g *gateway) {
		apply := func(groups ...Group) {
			t.Helper()
			o := Settings{Common: Common{SessionIdle: time.Hour, SessionLeft: time.Hour, ListWait: time.Hour}, Groups: groups}
			if err := g.Apply(Change{Names: []string{"one", "two"}, Settings: &o, Drain: time.Minute}); err != nil {
				t.Fatal(err)
			}
		}
		apply(Group{Name: "g", Servers: []string{"one"}})
		s, idle := sessionAt(t, g, "g", "", ""), sessionAt(t, g, "g", "", "")
		st := &stream{}
		s.Attach(st)
		same(t, "the first list", names(t, do(t, s, "1", "tools/list", `{}`)), []string{"one__a"})
		time.Sleep(time.Second)
		st.take()
		apply(Group{Name: "g", Servers: []string{"two", "one"}})
		time.Sleep(time.Second)
		if told := strings.Join(st.take(), " "); !strings.Contains(told, "tools/list_changed") {
			t.Errorf("the client was told %q", told)
		}
		same(t, "another list", names(t, do(t, s, "2", "tools/list", `{}`)), []string{"one__a", "two__b"})
		apply(Group{Name: "g", Servers: []string{"two", "one"}, Deny: []string{"one__a"}})
		same(t, "with a filter", names(t, do(t, s, "3", "tools/list", `{}`)), []string{"two__b"})
		under := start(t, s, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"one__hang"}}`)
		synctest.Wait()
		apply()
		synctest.Wait()
		if g.Allowed("g", "") == nil {
			t.Error("the group is still there")
		}
		select {
		case <-idle.Done():
		default:
			t.Error("the session without a call goes on")
		}
		answer(1, `{"content":[]}`)
		synctest.Wait()
		if !under.over() {
			t.Error("the call in flight has no answer")
		}
		time.Sleep(2 * time.Minute)
		select {
		case <-s.Done():
		default:
			t.Error("the session goes on after the drain")
		}
	})
}

// Resolve is what the gateway makes of a message, for the scopes that the message needs.
func TestResolve(t *testing.T) {
	all(t, stores(), func(t *testing.T, g *gateway) {
		for _, tc := range []struct {
			mode         ToolsMode
			params, want string
		}{
			{ToolsSearch, `{"name":"call_tool","arguments":{"name":"one__drop"}}`, "tools/call one__drop"},
			{ToolsSearch, `{"name":"call_tool","arguments":[]}`, "tools/list "},
			{ToolsSearch, `{"name":"search_tools"}`, "tools/list "},
			{ToolsSearch, `{"name":"call_tool","arguments":{"name":"search_tools"}}`, "tools/list "},
			{ToolsSearch, `{"name":"one__drop"}`, "tools/call one__drop"},
			{"", `{"name":"call_tool","arguments":{"name":"one__drop"}}`, "tools/call call_tool"},
			{"", `{"name":"search_tools"}`, "tools/call search_tools"},
		} {
			m := g.Resolve("", "", tc.mode, bridgetest.Parse(t, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":`+tc.params+`}`))
			if got := m.Method + " " + m.Name(); got != tc.want || string(m.ID) != "7" {
				t.Errorf("%s: %s, id %s, want %s", tc.params, got, m.ID, tc.want)
			}
		}
	})
}

// A session at a group ends when its caller may no longer use the group, even if the caller may still use its servers.
func TestGroupRightEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := []Group{{Name: "dev", Servers: []string{"one"}}}
		o := Options{Log: slog.New(slog.DiscardHandler), Groups: dev, Grants: map[string]filter.Grant{"bob": {Servers: []string{"dev", "one"}}, "eve": {Servers: []string{"dev", "one"}}}}
		for _, s := range stores()[:2] {
			s.o.Name, s.o.Prefix, s.o.Adapter = s.name, s.prefix, s.f
			o.Servers = append(o.Servers, s.o)
		}
		g := newGateway(o)
		defer g.Close(context.Background())
		bob, eve := sessionAt(t, g, "dev", "bob", ""), sessionAt(t, g, "dev", "eve", "")
		next := Settings{Common: Common{SessionIdle: time.Hour, SessionLeft: time.Hour, ListWait: time.Hour}, Groups: dev, Grants: map[string]filter.Grant{"bob": {Servers: []string{"one"}}, "eve": {Servers: []string{"dev", "one", "two"}}}}
		if err := g.Apply(Change{Names: []string{"one", "two"}, Settings: &next}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for s, want := range map[*sitting]bool{bob: true, eve: false} {
			if ended := s.ctx.Err() != nil; ended != want {
				t.Errorf("the session of %s ended: %t, want %t", s.Principal(), ended, want)
			}
		}
	})
}

// The error about an unknown name suggests no tool that the group hides.
func TestGroupUnknown(t *testing.T) {
	all(t, stores(), func(t *testing.T, g *gateway) {
		o := Settings{Common: Common{SessionIdle: time.Hour, SessionLeft: time.Hour, ListWait: time.Hour}, Groups: []Group{{Name: "dev", Servers: []string{"one"}, Deny: []string{"one__drop"}}}}
		if err := g.Apply(Change{Names: []string{"one", "two", "own"}, Settings: &o}); err != nil {
			t.Fatal(err)
		}
		s := sessionAt(t, g, "dev", "", "")
		do(t, s, "1", "tools/list", `{}`)
		for name, want := range map[string]bool{"look": true, "drop": false} {
			if got := do(t, s, "2", "tools/call", `{"name":"`+name+`","arguments":{}}`); strings.Contains(got, "one__"+name) != want {
				t.Errorf("%s: %s", name, got)
			}
		}
	})
}

// lines runs scripts whose lines are calls: a name and arguments. The value of a script are the results.
type lines struct{}

func (lines) Run(ctx context.Context, _, code string, to script.Caller) (script.Result, error) {
	var all []string
	for line := range strings.Lines(code) {
		name, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, err := to.Call(ctx, name, []byte(args))
		if err != nil {
			value = []byte(fmt.Sprintf("%q", "Error: "+err.Error()))
		}
		all = append(all, string(value))
	}
	return script.Result{Value: []byte("[" + strings.Join(all, ",") + "]"), Log: "done\n"}, nil
}

// A script calls tools through everything that calls of its client pass: rights, names, arguments, approvals and the
// rules for meta tools. It serves sessions and stateless clients, at each address (C-020, C-022).
func TestCode(t *testing.T) {
	long := strings.Repeat("x", 3000)
	list := `{"tools":[{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},{"name":"drop","inputSchema":{"type":"object"}},` +
		`{"name":"button","inputSchema":{"type":"object"},"_meta":{"ui":{"visibility":["app"]}}}]}`
	texts := map[string]string{"tools/list": list, "tools/call": `{"content":[{"type":"text","text":"` + long + `"}]}`}
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(Options{
			Servers: []ServerOptions{
				{Name: "one", Adapter: shop("one", map[string]string{"tools/list": list}), ServerSettings: ServerSettings{
					Prefix:  "one__",
					Lists:   filter.Lists{Tools: filter.Rules{Rename: map[string]string{"look": "see"}}},
					Approve: []approve.Rule{{Tools: []string{"drop"}, Ask: []string{approve.AskClient}}},
				}},
				{Name: "two", Adapter: modernShop("two", map[string]string{"tools/list": `{"resultType":"complete",` + list[1:len(list)-1] + `,"ttlMs":0,"cacheScope":"private"}`}), ServerSettings: ServerSettings{Prefix: "two__"}},
				{Name: "text", Adapter: shop("text", texts), ServerSettings: ServerSettings{Prefix: "text__", Results: results.Options{Max: 1024}}},
				{Name: "secret", Adapter: shop("secret", map[string]string{"tools/list": list}), ServerSettings: ServerSettings{Prefix: "secret__"}},
			},
			Grants: map[string]filter.Grant{"p": {Servers: []string{"one", "two", "text"}}, "q": {}},
			Log:    slog.New(slog.DiscardHandler),
		})
		defer g.Close(context.Background())
		g.scripts = lines{}
		for _, tc := range []struct {
			at, line string
			want     string // a part of the value
		}{
			{"", `one__see {}`, `"by":"one"`},
			{"", `two__drop {}`, `"by":"two"`},
			{"one", `see {"a":1}`, `"arguments":{"a":1}`},
			{"", `text__look {}`, long}, // whole, though longer than clients get
			{"", `one__look {}`, `Unknown tool`},
			{"", `secret__look {}`, `Unknown tool`},
			{"", `search_tools {}`, `scripts cannot call search_tools`},
			{"", `call_tool {"name":"one__see"}`, `scripts cannot call call_tool`},
			{"", `run_code {"code":"one__see {}"}`, `scripts cannot call run_code`},
			{"", `read_result {}`, `scripts cannot call read_result`},
			{"one", `button {}`, `not for models`},
		} {
			s := sessionAt(t, g, tc.at, "p", ToolsCode)
			for i, got := range through(t, g, s, ToolsCode, "tools/call", fmt.Sprintf(`{"name":"run_code","arguments":{"code":%q}}`, tc.line)) {
				if value := gjson.Get(got, "result.content.0.text").Str; !strings.Contains(value, tc.want) || gjson.Get(got, "result.content.1.text").Str != "Log:\ndone\n" {
					t.Errorf("%d: %q: %s: %s, want %s", i, tc.at, tc.line, got, tc.want)
				}
			}
		}

		// A person is asked in the middle of a script. A client that cannot be asked there gets an error in the script.
		s := sessionAt(t, g, "one", "p", ToolsCode)
		const dropping = `"name":"run_code","arguments":{"code":"drop {}"}`
		for answer, want := range map[string]string{"Yes, this once": `by`, "No": "did not allow it"} {
			if question, got := asking(t, s, ToolsCode, dropping, chosen(answer)); !strings.Contains(question, `Tool: \"drop\"`) || !strings.Contains(got, want) {
				t.Errorf("%s: %s, after the question %s", answer, got, question)
			}
		}
		v := visitor{server: "one", principal: "p", mode: ToolsCode}
		if got := v.call(t, g, "tools/call", dropping); !strings.Contains(got, "nobody can be asked") {
			t.Errorf("a stateless client: %s", got)
		}

		// The list has two tools, and search answers with signatures.
		for i, got := range through(t, g, sessionAt(t, g, "", "p", ToolsCode), ToolsCode, "tools/list", `{}`) {
			if all := strings.Join(names(t, got), " "); all != "search_tools run_code read_result" {
				t.Errorf("%d: the list is %s", i, all)
			}
		}
		for i, got := range through(t, g, sessionAt(t, g, "two", "p", ToolsCode), ToolsCode, "tools/call", `{"name":"search_tools","arguments":{"names":["drop"]}}`) {
			if text := gjson.Get(got, "result.content.0.text").Str; text != "tools.drop(args: { [name: string]: unknown }): Promise<unknown>" {
				t.Errorf("%d: search: %s", i, got)
			}
		}

		// For scopes, a script stands for a call of any tool.
		m := g.Resolve("one", "p", ToolsCode, bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"see {}"}}}`))
		if m.Method != "tools/call" || m.Name() != "" {
			t.Errorf("a script stands for %s %q", m.Method, m.Name())
		}
		// Without scripts, the mode is that of search.
		g.scripts = nil
		for i, got := range through(t, g, sessionAt(t, g, "", "p", ToolsCode), ToolsCode, "tools/list", `{}`) {
			if all := strings.Join(names(t, got), " "); all != "search_tools read_tool call_tool read_result" {
				t.Errorf("%d: without a program, the list is %s", i, all)
			}
		}
	})
}

// The limits of a principal count each call of a script: a script is no way around them.
func TestCodeQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(Options{
			Servers: []ServerOptions{{Name: "one", Adapter: modernShop("one", map[string]string{"tools/list": `{"resultType":"complete",` + lookAndDrop[1:len(lookAndDrop)-1] + `,"ttlMs":0,"cacheScope":"private"}`})}},
			Grants:  grants("p"),
			Common:  Common{PerPrincipal: limits.PerPrincipal{Rate: limits.Rate{PerSecond: 1, Burst: 3}}},
			Log:     slog.New(slog.DiscardHandler),
		})
		defer g.Close(context.Background())
		g.scripts = lines{}
		v := visitor{server: "one", principal: "p", mode: ToolsCode}
		got := v.call(t, g, "tools/call", `"name":"run_code","arguments":{"code":"look {}\nlook {}\nlook {}"}`)
		value := gjson.Get(got, "result.content.0.text").Str
		if strings.Count(value, `"by":"one"`) != 2 || strings.Count(value, "per_principal: rate") != 1 {
			t.Errorf("two calls beside the script: %s", got)
		}
		if !g.quota.Idle() {
			t.Error("a call of the script still counts")
		}
	})
}
