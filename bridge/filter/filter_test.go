package filter_test

import (
	"context"
	"errors"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
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
