package filter_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// What is hidden stays so however its URI is written: servers that parse it take
// all of these for the same.
func TestFilterSpellings(t *testing.T) {
	for _, test := range []struct {
		allow, deny, uri string
		want             bool
	}{
		{"", "demo://r/static/*", "demo://r/static/a", false},
		{"", "demo://r/static/*", "DEMO://r/static/a", false},
		{"", "demo://r/static/*", " demo://r/static/a", false},
		{"", "demo://r/static/*", "de\tmo://r/sta\ntic/a", false},
		{"", "demo://r/static/*", "demo://r/./static/a", false},
		{"", "demo://r/static/*", "demo://r/x/../static/a", false},
		{"", "demo://r/static/*", "demo://r/x/%2E%2e/static/a", false},
		{"file:///srv/*", "", "file:///srv/a/..;/x", true},
		{"file:///srv/*", "", "file:///srv/..;/x", false},
		{"file:///srv/*", "", "file:///srv/a/..;v=1/.%2e%3b/x", false},
		{"file:///srv/*", "", "file:///srv/%c0%ae%c0%ae/x", false},
		{"file:///srv/*", "", "file:///srv/..%c0%afx", false},
		{"file:///srv/a;b/*", "", "file:///srv/a;b/x", true},
		{"", "file:///srv/secret/*", "file:///srv/secret;a=1/x", false},
		{"", "demo://r/static/*", "demo://r/x/..%2fstatic/a", false},
		{"", "demo://r/static/*", "demo://r/%73tatic/a", false},
		{"", "demo://r/static/*", "demo://r/open/a", true},
		{"", "demo://r/static/*", "demo://r/open/%zz%", true},
		{"", "Demo://r/static/*", "demo://r/static/a", false},
		{"", "file:///etc/*", "file:/etc/passwd", false},
		{"", "file:///etc/*", "file:etc/passwd", false},
		{"", "file:///etc/*", "file://LOCALHOST/etc/passwd", false},
		{"", "file:///etc/*", `file:\\\etc\passwd`, false},
		{"", "https://a.example/x*", "HTTPS://A.Example:443/x", false},
		{"", "https://a.example/x*", "https:/a.example/x", false},
		{"demo://r/blob/*", "", "demo://r/blob/1", true},
		{"demo://r/blob/*", "", "demo://r/blob/a%20b?c=../d#e", true},
		{"demo://r/blob/*", "", "demo://r/blob/../text/1", false},
		{"demo://r/blob/*", "", "demo://r/blob/..", false},
		{"demo://r/blob/*", "", "demo://r/blob/%2e%2e%2ftext/1", false},
		{"Demo://r/a%2Fb/*", "", "Demo://r/a%2Fb/1", true},
		{"Demo://r/a%2Fb/*", "", "demo://r/a%2Fb/1", false},
		{"demo://r/{id}", "", "demo://r/{id}", true},
		{"mailto:*", "", "mailto:a/../b", true},
		{"*", "", "%", true},
	} {
		r := filter.Rules{}
		if test.allow != "" {
			r.Allow = []string{test.allow}
		}
		if test.deny != "" {
			r.Deny = []string{test.deny}
		}
		if got := r.PassesURI(test.uri); got != test.want {
			t.Errorf("allow %q, deny %q: %q passes: %t", test.allow, test.deny, test.uri, got)
		}
	}
}

// echo is an Upstream that lists the tools a and b, and answers calls with their
// params.
type echo struct{ bridge.Upstream }

func (echo) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == "tools/list" {
		return jsonrpc.NewResult(nil, []byte(`{"tools":[{"name":"a"},{"name":"b"}]}`)), nil
	}
	return jsonrpc.NewResult(nil, r.Params), nil
}

func ask(t *testing.T, up bridge.Upstream, principal, method, params string) (string, error) {
	m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
	a, err := up.Call(t.Context(), &bridge.Request{Message: m, From: &bridge.Caller{Principal: principal}, Back: bridge.Nobody{}})
	return bridgetest.Text(a), err
}

// Clients see and use what the filters let through, under the names that they give, and nothing else.
func TestFilter(t *testing.T) {
	lists := map[string]string{
		"tools/list":               `{"tools":[{"name":"get_a","description":"old","annotations":{"readOnlyHint":true,"x":1},"inputSchema":{}},{"name":"get_secret"},{"inputSchema":{},"name":"set_b"},{"name":"get_c"},{"name":"gone"}],"nextCursor":"n","_meta":{"k":1}}`,
		"prompts/list":             `{"prompts":[{"name":"p1"},{"name":"p2"}]}`,
		"resources/list":           `{"resources":[{"uri":"a:1","name":"x"},{"uri":"b:1","name":"y"}]}`,
		"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"a:{x}","name":"x"},{"uriTemplate":"b:{x}","name":"y"}]}`,
	}
	all := filter.Lists{
		Tools: filter.Rules{Allow: []string{"get_*", "set_b"}, Deny: []string{"*secret*"}, Rename: map[string]string{"get_a": "fetch", "set_b": "get_c"},
			Override: map[string]filter.Override{"get_a": {Title: ptr("T"), Description: ptr(`new "d"`), Annotations: map[string]json.RawMessage{"x": json.RawMessage("null"), "destructiveHint": json.RawMessage("false")}}}},
		Prompts:   filter.Rules{Deny: []string{"p2"}, Rename: map[string]string{"p1": "q1"}},
		Resources: filter.Rules{Allow: []string{"a:*"}, Rename: map[string]string{"a:1": "first"}},
	}
	if a := all.Tools.Annotations(); len(a) != 1 || len(a["get_a"]) != 2 || all.Tools.Arguments() != nil {
		t.Errorf("the annotations are %s, the arguments %v", a, all.Tools.Arguments())
	}
	f := filter.New("one", all, nil)
	up := bridgetest.NewUpstream(era.LatestLegacy, "{}")
	up.Serve = func(r *bridge.Request) *jsonrpc.Message {
		if l, ok := lists[r.Method]; ok {
			return bridgetest.Result(t, l)
		}
		if r.Method == era.Listen {
			r.Back.Notify(bridgetest.Notification(t, "notifications/resources/updated", `{"uri":"b:1"}`))
			r.Back.Notify(bridgetest.Notification(t, "notifications/resources/updated", `{"uri":"a:1"}`))
		}
		return bridgetest.Result(t, `{"params":`+string(r.Whole())+`}`)
	}
	for method, want := range map[string]string{
		"tools/list":               `{"tools":[{"title":"T","name":"fetch","description":"new \"d\"","annotations":{"readOnlyHint":true,"destructiveHint":false},"inputSchema":{}},{"inputSchema":{},"name":"get_c"}],"nextCursor":"n","_meta":{"k":1}}`,
		"prompts/list":             `{"prompts":[{"name":"q1"}]}`,
		"resources/list":           `{"resources":[{"uri":"a:1","name":"first"}]}`,
		"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"a:{x}","name":"x"}]}`,
	} {
		if got, _ := ask(t, f.Wrap(up), "", method, `{}`); gjson.Get(got, "result").Raw != want {
			t.Errorf("%s:\n got %s\nwant %s", method, got, want)
		}
	}
	for _, test := range []struct{ method, params, want string }{
		{"tools/call", `{"name":"fetch"}`, `{"name":"get_a"}`},
		{"tools/call", `{"name":"get_c","arguments":{"x":1.0}}`, `{"name":"set_b","arguments":{"x":1.0}}`},
		{"tools/call", `{"name":"get_new"}`, `{"name":"get_new"}`},
		{"tools/call", `{"name":"get_a"}`, "Unknown tool: get_a"},
		{"tools/call", `{"name":"get_secret"}`, "Unknown tool: get_secret"},
		{"tools/call", `{"name":"set_b"}`, "Unknown tool: set_b"},
		{"tools/call", `{"name":"gone"}`, "Unknown tool: gone"},
		{"tools/call", `{"name":"get_c","Name":"get_secret"}`, "in case only"},
		{"prompts/get", `{"name":"q1"}`, `{"name":"p1"}`},
		{"prompts/get", `{"name":"p1"}`, "Unknown prompt: p1"},
		{"prompts/get", `{"name":"p2"}`, "Unknown prompt: p2"},
		{"resources/read", `{"uri":"a:9"}`, `{"uri":"a:9"}`},
		{"resources/read", `{"uri":"b:1"}`, `"code":-32002`},
		{"resources/read", `{"uri":"a:1","URI":"b:1"}`, "in case only"},
		{"resources/read", `{"uri":"a:/x/../1"}`, `{"uri":"a:/x/../1"}`},
		{"resources/subscribe", `{"uri":"b:1"}`, `"code":-32002`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"p2","uri":"a:{x}"}}`, "either name, for a prompt, or uri"},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"b:{x}","uri":"a:{x}"}}`, `{"ref":{"type":"ref/resource","uri":"a:{x}"}}`},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"a:{x}","URI":"b:{x}"}}`, `{"ref":{"type":"ref/resource","uri":"a:{x}"}}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"q1"}}`, `{"ref":{"name":"p1","type":"ref/prompt"}}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"q1","name":"p2"}}`, "Unknown prompt: p2"},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"q1"},"ref":{"name":"p2"}}`, "Unknown prompt: p2"},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"b:{x}"}}`, `"code":-32002`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","Name":"p2","uri":"a:{x}"}}`, `{"ref":{"type":"ref/prompt","uri":"a:{x}"}}`},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"b:{x}","uri":"a:{x}"}}`, `{"ref":{"type":"ref/resource","uri":"a:{x}"}}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"p2"},"Ref":{"uri":"a:{x}"}}`, "Unknown prompt: p2"},
		{"completion/complete", `{"Ref":{"type":"ref/prompt","name":"p2"},"ref":{"name":"q1"}}`, `{"ref":{"name":"p1"}}`},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"a:{x}"}}`, `"result"`},
		{"tools/call", `{"name":["get_a"]}`, `"error"`}, // there are servers that make a text of it
		{"tools/call", `{"name":""}`, `"error"`},
		{"tools/call", `{}`, `"error"`},
		{"prompts/get", `{"name":["p1"]}`, `"error"`},
		{"resources/read", `{"uri":["a:1"]}`, `"error"`},
		{era.Listen, `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["b:1","a:1"]}}`, `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:1"]}}`},
		{era.Listen, `{"notifications":7}`, "-32602"},
	} {
		var client bridgetest.Client
		got := ""
		m, err := f.Wrap(up).Call(t.Context(), bridgetest.Request(t, bridgetest.Caller(era.LatestLegacy, "", "{}"), f.Client(&client), test.method, test.params))
		if got = bridgetest.Text(m); err != nil {
			t.Error(err)
		}
		if !strings.HasPrefix(test.want, "{") {
			bridgetest.Contains(t, got, test.want)
		} else if p := gjson.Get(got, "result.params").Raw; p != test.want {
			t.Errorf("%s %s: the server got %s: %s", test.method, test.params, p, got)
		}
		if told := strings.Join(client.Got(), ""); strings.Contains(told, "b:1") || (test.method == era.Listen && strings.HasPrefix(test.want, "{")) != strings.Contains(told, "a:1") {
			t.Errorf("%s %s: the client was told %q", test.method, test.params, told)
		}
	}
}

func ptr(s string) *string { return &s }

// Each call is judged by the grant of who makes it, also where several principals
// use one Upstream.
func TestGranted(t *testing.T) {
	f := filter.New("one", filter.Lists{}, filter.NewGrants(map[string]filter.Grant{
		"all": {}, "some": {Servers: []string{"o*"}, Deny: []string{"a"}}, "other": {Servers: []string{"two"}},
	}))
	up := f.Granted(echo{})
	for _, test := range []struct{ principal, method, params, want string }{
		{"all", "tools/list", `{}`, `[{"name":"a"},{"name":"b"}]`},
		{"some", "tools/list", `{}`, `[{"name":"b"}]`},
		{"all", "tools/call", `{"name":"a"}`, `"result"`},
		{"some", "tools/call", `{"name":"b"}`, `"result"`},
		{"some", "tools/call", `{"name":"a"}`, `Unknown tool: a`},
		{"some", "tools/call", `{"name":["a"]}`, `Unknown tool: `},
		{"some", "tools/call", `{"name":"b","Name":"a"}`, bridge.NameDoubtful},
		{"some", "prompts/get", `{"name":"a"}`, `"result"`},
	} {
		got, err := ask(t, up, test.principal, test.method, test.params)
		if err != nil {
			t.Fatal(err)
		}
		bridgetest.Contains(t, got, test.want)
	}
	for _, method := range []string{"tools/list", "tools/call"} {
		if _, err := ask(t, up, "stranger", method, `{"name":"b"}`); !errors.Is(err, bridge.ErrDenied) {
			t.Errorf("%s of somebody without a grant: %v", method, err)
		}
	}
	for principal, want := range map[string][3]bool{"all": {true, true, true}, "some": {true, false, true}, "other": {false, true, true}, "stranger": {}} {
		if got := [3]bool{f.Serves(principal), f.Shows(list.Tools, "a", principal), f.Shows(list.Prompts, "a", principal)}; got != want {
			t.Errorf("%s: serves, shows the tool, shows the prompt: %t, want %t", principal, got, want)
		}
	}
}

// same is an Upstream that is to get a request as it was made.
type same struct {
	bridge.Upstream
	want *bridge.Request
	got  int
}

func (s *same) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r == s.want {
		s.got++
	}
	return jsonrpc.NewResult(nil, []byte(`{"tools":[{"name":"a"}]}`)), nil
}

// What nobody has asked for is not in the way of a call.
func TestNothing(t *testing.T) {
	f := filter.New("one", filter.Lists{}, nil)
	var none *filter.Tasks
	if up := f.Granted(none.Wrap(echo{})); up != bridge.Upstream(echo{}) {
		t.Errorf("%T is in the way", up)
	}
	for _, method := range []string{"tools/list", "tools/call", "prompts/get", "resources/read", "completion/complete", "ping"} {
		up := &same{want: &bridge.Request{Message: jsonrpc.NewRequest(method, []byte(`{"name":"a","uri":"x:a"}`)), From: &bridge.Caller{}}}
		if m, err := f.Wrap(up).Call(t.Context(), up.want); err != nil || string(m.Result) != `{"tools":[{"name":"a"}]}` || up.got != 1 {
			t.Errorf("%s: %v, %v, and the request came as it was %d times", method, m, err, up.got)
		}
	}
	if !f.Serves("anybody") || !f.Shows(list.Tools, "a", "anybody") {
		t.Error("without rules something is hidden")
	}
}
