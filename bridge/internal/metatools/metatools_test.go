package metatools_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/metatools"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Models write calls in odd ways: three of them are understood, what has a second meaning is refused (C-003).
func TestUnwrap(t *testing.T) {
	for _, tc := range []struct {
		tool, arguments string
		want            string // name and arguments; a part of the reason for a refused call
		through         string // if it is not the tool
	}{
		{"call_tool", `{"name":"a","arguments":{"x":1}}`, `a {"x":1}`, ""},
		{"read_tool", `{"name":"a","arguments":{"x":1.50,"x":12345678901234567890}}`, `a {"x":1.50,"x":12345678901234567890}`, ""},
		{"call_tool", `{"arguments":{"x":1},"name":"a"}`, `a {"x":1}`, ""},
		{"call_tool", `{"name":"a"}`, `a {}`, ""},
		{"call_tool", `{"name":"a","arguments":null}`, `a {}`, ""},
		{"call_tool", `{"name":"a","arguments":""}`, `a {}`, ""},
		{"call_tool", `{"name":"__proto__","arguments":{"__proto__":{}}}`, `__proto__ {"__proto__":{}}`, ""},
		{"call_tool", `{"na\u006de":"a","arguments":{}}`, `a {}`, ""},
		// as text
		{"call_tool", `{"name":"a","arguments":"{\"x\":\n[1]}"}`, `a {"x": [1]}`, ""},
		{"call_tool", `"{\"name\":\"a\",\"arguments\":\"{\\\"x\\\":1}\"}"`, `a {"x":1}`, ""},
		{"call_tool", `{"name":"a","arguments":"x=1"}`, "arguments must be an object", ""},
		{"call_tool", `{"name":"a","arguments":"{\"x\":1} {}"}`, "arguments must be an object", ""},
		{"call_tool", `{"name":"a","arguments":"[1]"}`, "arguments must be an object", ""},
		{"call_tool", `{"name":"a","arguments":"` + strings.Repeat("[", 2000) + `"}`, "arguments must be an object", ""},
		// twice
		{"call_tool", `{"name":"a","arguments":{"name":"a","arguments":{"x":1}}}`, `a {"x":1}`, ""},
		{"call_tool", `{"arguments":{"name":"a","arguments":{"x":1}}}`, `a {"x":1}`, ""},
		{"call_tool", `{"name":"a","arguments":{"name":"b","arguments":{"x":1}}}`, `a {"name":"b","arguments":{"x":1}}`, ""},
		{"call_tool", `{"name":"a","arguments":{"name":"a"}}`, `a {"name":"a"}`, ""},
		{"call_tool", `{"name":"a","arguments":{"name":"a","arguments":{},"more":1}}`, `a {"name":"a","arguments":{},"more":1}`, ""},
		{"call_tool", `{"name":"call_tool","arguments":{"name":"a","arguments":{"x":1}}}`, `a {"x":1}`, ""},
		{"call_tool", `{"name":"read_tool","arguments":{"name":"a"}}`, `a {}`, "read_tool"},
		{"read_tool", `{"name":"call_tool","arguments":{"name":"a"}}`, `a {}`, ""},
		{"call_tool", `{"name":"call_tool","arguments":{"name":"call_tool","arguments":{"name":"a"}}}`, "does not call itself", ""},
		{"call_tool", `{"name":"call_tool"}`, "name is missing", ""},
		// beside the name
		{"call_tool", `{"name":"a","x":1,"y":[2]}`, `a {"x":1,"y":[2]}`, ""},
		{"call_tool", `{"name":"a","arguments":null,"x":1}`, `a {"x":1}`, ""},
		{"call_tool", `{"name":"a","arguments":{"x":1},"y":2}`, "y stands beside arguments", ""},
		// two meanings, or none
		{"call_tool", `{"name":"a","name":"b","arguments":{}}`, "once", ""},
		{"call_tool", `{"name":"a","Name":"b","arguments":{}}`, "once", ""},
		{"call_tool", `{"name":"a","arguments":{},"Arguments":{}}`, "once", ""},
		{"call_tool", `{"name":["a"],"arguments":{}}`, "as text", ""},
		{"call_tool", `{"name":"","arguments":{}}`, "as text", ""},
		{"call_tool", `{"x":1}`, "name is missing", ""},
		{"call_tool", `{}`, "name is missing", ""},
		{"call_tool", `null`, "name is missing", ""},
		{"call_tool", `[1]`, "arguments must be an object", ""},
		{"call_tool", `{"arguments":7}`, "name is missing", ""},
	} {
		m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tc.tool+`","arguments":`+tc.arguments+`,"_meta":{"progressToken":"p"}}}`)
		inner, through, fault := metatools.Unwrap(m)
		if fault != "" {
			if !strings.Contains(fault, tc.want) || strings.HasPrefix(tc.want, "a {") {
				t.Errorf("%s %s: %s, want %s", tc.tool, tc.arguments, fault, tc.want)
			}
			continue
		}
		want := tc.through
		if want == "" {
			want = tc.tool
		}
		got := inner.Name() + " " + gjson.GetBytes(inner.Params, "arguments").Raw
		if got != tc.want || through != want || string(inner.Token()) != `"p"` || inner.Method != "tools/call" || string(inner.ID) != "1" {
			t.Errorf("%s %s: %s of %s %s, want %s", tc.tool, tc.arguments, through, got, inner.Params, tc.want)
		}
	}
	for _, params := range []string{
		`{"name":"call_tool","arguments":{"name":"a"},"arguments":{"name":"b"}}`,
		`{"name":"call_tool","arguments":{"name":"a"},"Arguments":{"name":"b"}}`,
		`{"name":"call_tool","Name":"b","arguments":{"name":"a"}}`,
	} {
		if _, _, fault := metatools.Unwrap(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`)); !strings.Contains(fault, "twice") {
			t.Errorf("%s: %q", params, fault)
		}
	}
}

// shop is an Upstream with tools, which counts the requests for its list and keeps the last call.
type shop struct {
	bridge.Upstream
	pages  []string // of tools/list
	lists  int
	called string
	answer string // to calls; empty means a plain result
	fails  string // the error of tools/list; empty for none
}

func (s *shop) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	switch r.Method {
	case "initialize", "server/discover":
		return jsonrpc.NewResult(nil, []byte(`{"capabilities":{},"instructions":"Be kind."}`)), nil
	case "tools/list":
		if s.lists++; s.fails != "" {
			return &jsonrpc.Message{Error: []byte(s.fails)}, nil
		}
		at := int(gjson.GetBytes(r.Params, "cursor").Int())
		next := ""
		if at+1 < len(s.pages) {
			next = fmt.Sprintf(`,"nextCursor":"%d"`, at+1)
		}
		return jsonrpc.NewResult(nil, []byte(`{"tools":[`+s.pages[at]+`]`+next+`}`)), nil
	}
	s.called = r.Name() + " " + gjson.GetBytes(r.Params, "arguments").Raw
	switch {
	case strings.HasPrefix(s.answer, `{"code"`):
		return &jsonrpc.Message{Error: []byte(s.answer)}, nil
	case s.answer != "":
		return jsonrpc.NewResult(nil, []byte(s.answer)), nil
	}
	return jsonrpc.NewResult(nil, []byte(`{"content":[]}`)), nil
}

const (
	reads  = `{"name":"files__read","description":"Reads a file. All of it.","inputSchema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]},"annotations":{"readOnlyHint":true}}`
	writes = `{"name":"files__write","description":"Writes a file.","inputSchema":{"type":"object"},"_meta":{"a":1}}`
	issues = `{"name":"hub__create_issue","description":"Opens an issue.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"true"}}`
	app    = `{"name":"hub__button","description":"Files a vote.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"_meta":{"ui":{"visibility":["app"]}}}`
	both   = `{"name":"hub__look","description":"Looks.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"_meta":{"ui":{"visibility":["app","model"]}}}`
)

func owner(tool string) string {
	name, _, _ := strings.Cut(tool, "__")
	return name
}

func newShop() *shop {
	return &shop{pages: []string{reads + "," + writes, issues + "," + app, both}}
}

// menu offers the shop's tools.
func menu(change func(*metatools.Menu)) *metatools.Menu {
	m := &metatools.Menu{
		Servers: []string{"files", "hub"},
		Owner:   owner,
		Indexes: metatools.NewIndexes(),
		Info:    []byte(`{"name":"mcp-bridge","version":"1"}`),
	}
	if change != nil {
		change(m)
	}
	return m
}

func ask(t *testing.T, up bridge.Upstream, revision, through, method, params string) gjson.Result {
	t.Helper()
	a, err := up.Call(t.Context(), &bridge.Request{
		Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`),
		From:    &bridge.Caller{Revision: revision},
		Through: through,
	})
	if err != nil {
		t.Fatal(err)
	}
	return gjson.Parse(bridgetest.Text(a))
}

// The list has the meta tools and what is always listed, in the client's revision. Its bytes do not depend on the
// servers' lists (C-001).
func TestMenuList(t *testing.T) {
	for _, tc := range []struct {
		change func(*metatools.Menu)
		want   string
		lists  int
	}{
		{nil, "search_tools read_tool call_tool", 0},
		{func(m *metatools.Menu) { m.Always = []string{"hub__c*", "files__write"} }, "search_tools read_tool call_tool files__write hub__create_issue", 3},
		{func(m *metatools.Menu) { m.Finds = func(server string) bool { return server == "hub" } }, "search_tools read_tool call_tool files__read files__write", 3},
		{func(m *metatools.Menu) { m.Finds = func(string) bool { return false } }, "files__read files__write hub__create_issue hub__button hub__look", 3},
	} {
		s := newShop()
		up := menu(tc.change).Wrap(s)
		for _, revision := range []string{era.LatestModern, era.LatestLegacy, "2024-11-05"} {
			s.lists = 0
			got := ask(t, up, revision, "", "tools/list", "{}").Get("result")
			var names []string
			for _, tool := range got.Get("tools").Array() {
				name := tool.Get("name").Str
				names = append(names, name)
				always := tool.Get(`_meta.anthropic/alwaysLoad`).Bool()
				if meta := !strings.Contains(name, "__"); revision != "2024-11-05" && always != (meta || tc.change != nil && len(menu(tc.change).Always) > 0) {
					t.Errorf("%s: %s has alwaysLoad: %t", tc.want, name, always)
				}
				if name == "files__write" && !tool.Get("_meta.a").Exists() {
					t.Errorf("its own _meta is lost: %s", tool.Raw)
				}
				if revision == "2024-11-05" && !strings.Contains(name, "__") && tool.Get("annotations").Exists() {
					t.Errorf("%s: %s", revision, tool.Raw)
				}
			}
			if strings.Join(names, " ") != tc.want || s.lists != tc.lists {
				t.Errorf("%s: %v, and the servers were asked %d times, want %s, %d", revision, names, s.lists, tc.want, tc.lists)
			}
			if modern := got.Get("resultType").Str == "complete" && got.Get("cacheScope").Str == "private" && got.Get(`_meta.io\.modelcontextprotocol/serverInfo.name`).Str == "mcp-bridge"; modern != era.IsModern(revision) {
				t.Errorf("%s: %s", revision, got.Raw)
			}
		}
		if no := ask(t, up, era.LatestLegacy, "", "tools/list", `{"cursor":"1"}`); no.Get("error.code").Int() != -32602 {
			t.Errorf("a cursor: %s", no.Raw)
		}
	}
	if got := ask(t, menu(nil).Wrap(newShop()), era.LatestLegacy, "", "initialize", "{}").Get("result"); !strings.HasPrefix(got.Get("instructions").Str, "Be kind.\n\nFind tools with search_tools: this list has only a few of those of files and hub.") || !got.Get("capabilities.tools").IsObject() {
		t.Errorf("greeting %s", got.Raw)
	}
	if n := len(ask(t, menu(nil).Wrap(newShop()), era.LatestLegacy, "", "tools/list", "{}").Get("result").Raw); n > 2<<10+300 {
		t.Errorf("the list has %d bytes", n)
	}
}

// A search finds what the caller's list has, and what models may use.
func TestMenuSearch(t *testing.T) {
	for _, tc := range []struct {
		arguments string
		want      []string
		lack      string
	}{
		{`{"query":"read a file"}`, []string{`{"name":"files__read","call_with":"read_tool","description":"Reads a file. All of it.","inputSchema":{`, `"call_with":"call_tool"`}, "hub__"},
		{`{"query":"file","limit":1}`, []string{"files__", "\n1 more"}, ""},
		{`{"query":"file","server":"hub"}`, []string{"No tool fits", "files: 2", "hub: 2"}, "files__"},
		{`{"query":"ishue"}`, []string{"No tool fits", "with the words issu"}, ""},
		{`{"query":"vote"}`, []string{"No tool fits"}, "button"},
		{`{}`, []string{"files: 2\nhub: 2"}, ""},
		{`null`, []string{"files: 2\nhub: 2"}, ""},
		{`"{\"query\":\"issue\"}"`, []string{"hub__create_issue"}, ""},
		{`{"server":"hub"}`, []string{"hub__create_issue", "hub__look"}, "files"},
		{`{"server":"none"}`, []string{`There is no server "none". The servers`}, ""},
		{`{"names":["hub__look","files__write"]}`, []string{`"call_with":"read_tool"`, `"_meta":{"a":1}`}, ""},
		{`{"names":["hub__button"]}`, []string{`There is no tool "hub__button".`}, `"name"`},
		{`{"names":"files__raed"}`, []string{`There is no tool "files__raed". There is files__read`}, ""},
		{`{"query":["read"],"limit":"x","names":[]}`, []string{"files__read"}, ""},
		{`7`, []string{"arguments must be an object"}, ""},
	} {
		for _, revision := range []string{era.LatestModern, era.LatestLegacy} {
			got := ask(t, menu(nil).Wrap(newShop()), revision, "", "tools/call", `{"name":"search_tools","arguments":`+tc.arguments+`}`).Get("result")
			text := got.Get("content.0.text").Str
			for _, want := range tc.want {
				if !strings.Contains(text, want) || tc.lack != "" && strings.Contains(text, tc.lack) {
					t.Errorf("%s: %s, want %s and not %s", tc.arguments, text, want, tc.lack)
				}
			}
			if (got.Get("resultType").Str == "complete") != era.IsModern(revision) {
				t.Errorf("%s: %s", revision, got.Raw)
			}
		}
	}
}

// An answer has at most 16 KiB: later tools lose their schema, then their description.
func TestMenuSearchSize(t *testing.T) {
	var all []string
	for i := range 60 {
		all = append(all, fmt.Sprintf(`{"name":"s__tool_%d","description":"Moves a thing. %s","inputSchema":{"type":"object","properties":{"x":{"description":%q}}}}`, i, strings.Repeat("More. ", 100), strings.Repeat("y", 3000)))
	}
	s := &shop{pages: []string{strings.Join(all, ",")}}
	text := ask(t, menu(func(m *metatools.Menu) { m.Servers = []string{"s"} }).Wrap(s), era.LatestLegacy, "", "tools/call", `{"name":"search_tools","arguments":{"query":"move things","limit":50}}`).Get("result.content.0.text").Str
	lines := strings.Split(text, "\n")
	if len(text) > 16<<10 || len(lines) != 51 || !strings.HasPrefix(lines[50], "10 more") {
		t.Fatalf("%d bytes in %d lines, the last is %s", len(text), len(lines), lines[len(lines)-1])
	}
	for i, line := range lines[:50] {
		d := gjson.Parse(line)
		if !gjson.Valid(line) || !d.Get("name").Exists() || !d.Get("call_with").Exists() || d.Get("inputSchema").Exists() != (i < 2) || !strings.HasPrefix(d.Get("description").Str, "Moves a thing.") {
			t.Errorf("line %d: %.200s", i, line)
		}
	}
}

// The refusal of a call that came through a meta tool has what the model needs for its next try.
func TestMenuExplain(t *testing.T) {
	const unknown = `{"code":-32602,"message":"Unknown tool: files__raed"}`
	for _, tc := range []struct{ through, params, answer, want string }{
		{"call_tool", `{"name":"files__raed","arguments":{}}`, unknown, "Unknown tool: files__raed\nThere is no tool \"files__raed\". There is files__read"},
		{"call_tool", `{"name":"files__read","arguments":{}}`, `{"code":-32602,"message":"path is missing"}`, "path is missing\nThe tool's inputSchema: {\"type\":\"object\",\"properties\":{\"path\""},
		{"call_tool", `{"name":"files__read","arguments":{}}`, `{"content":[{"type":"text","text":"no"}],"isError":true}`, `The tool's inputSchema: {`},
		{"call_tool", `{"name":"files__read","arguments":{"path":"x"}}`, `{"content":[{"type":"text","text":"no"}],"isError":true}`, ""},
		{"call_tool", `{"name":"files__read","arguments":{"path":"x"}}`, `{"code":-32603,"message":"broken"}`, ""},
		{"", `{"name":"files__raed","arguments":{}}`, unknown, ""},
	} {
		s := newShop()
		s.answer = tc.answer
		got := ask(t, menu(nil).Wrap(s), era.LatestLegacy, tc.through, "tools/call", tc.params)
		if tc.want == "" {
			if got.Get("error").Raw != tc.answer && got.Get("result").Raw != tc.answer {
				t.Errorf("%s: %s is changed to %s", tc.params, tc.answer, got.Raw)
			}
			continue
		}
		if text := got.Get("result.content.@reverse.0.text").Str; !strings.Contains(text, tc.want) || !got.Get("result.isError").Bool() {
			t.Errorf("%s: %s, want %s", tc.params, got.Raw, tc.want)
		}
	}
}

// A call through read_tool reaches only tools that the list calls read-only, and none reaches a tool that is not for
// models (C-003).
func TestCheck(t *testing.T) {
	for _, tc := range []struct{ through, tool, want string }{
		{"read_tool", "files__read", ""},
		{"read_tool", "hub__look", ""},
		{"read_tool", "files__write", "may change something"},
		{"read_tool", "hub__create_issue", "may change something"}, // its hint is a text
		{"read_tool", "hub__button", "is not for models"},
		{"read_tool", "unlisted", "Unknown tool"},
		{"call_tool", "files__write", ""},
		{"call_tool", "hub__button", "is not for models"},
		{"call_tool", "unlisted", ""}, // the server decides
		{"", "hub__button", ""},       // the client's own call
	} {
		s := newShop()
		got := ask(t, metatools.NewCheck().Wrap(s), era.LatestLegacy, tc.through, "tools/call", `{"name":"`+tc.tool+`","arguments":{}}`)
		if (s.called != "") != (tc.want == "") || !strings.Contains(got.Raw, tc.want) {
			t.Errorf("%s of %s: called %q, %s, want %s", tc.through, tc.tool, s.called, got.Raw, tc.want)
		}
	}
}

// Without the list, nobody knows whether a tool is for models, or only reads. A server that has no list has no such tools.
func TestCheckWithoutList(t *testing.T) {
	for fails, want := range map[string]bool{`{"code":-32603,"message":"not now"}`: false, `{"code":-32601,"message":"no such method"}`: true} {
		s := newShop()
		s.fails = fails
		got := ask(t, metatools.NewCheck().Wrap(s), era.LatestLegacy, "call_tool", "tools/call", `{"name":"hub__button","arguments":{}}`)
		if (s.called != "") != want || !want && !strings.Contains(got.Raw, "not now") {
			t.Errorf("%s: called %q, %s", fails, s.called, got.Raw)
		}
		s.called = ""
		if ask(t, metatools.NewCheck().Wrap(s), era.LatestLegacy, "read_tool", "tools/call", `{"name":"hub__look","arguments":{}}`); s.called != "" {
			t.Errorf("%s: read_tool calls %s", fails, s.called)
		}
	}
}

// The list of an address of forty servers takes less than 2 KB of the model's context.
func TestListSize(t *testing.T) {
	m := menu(func(m *metatools.Menu) {
		m.Servers = nil
		for i := range 40 {
			m.Servers = append(m.Servers, fmt.Sprintf("server%02d", i))
		}
	})
	if tools := ask(t, m.Wrap(newShop()), era.LatestLegacy, "", "tools/list", "{}").Get("result.tools").Raw; len(tools) > 2000 {
		t.Errorf("the list has %d bytes: %s", len(tools), tools)
	}
}
