package wire

import (
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
)

// TestRewrite rewrites arguments after the check and before they are put in place.
func TestRewrite(t *testing.T) {
	s := newSource(t, Options{BaseURL: "http://api.example.com"})
	x := tool("GET", "/p/{c}", parameter("path", "simple", false), &openapi.Parameter{Name: "q", In: "query", Style: "form"})
	x.InputSchema = []byte(`{"type":"object","properties":{"query":{"type":"integer"}},"required":["query"]}`)
	c := &Call{Tool: x, Args: []byte(`{"query":"7"}`), Rewrite: func(args []byte) ([]byte, error) {
		if string(args) != `{"query":7}` {
			t.Errorf("the arguments are %s", args)
		}
		return []byte(`{"c":"acme","q":7}`), nil
	}}
	if p, err := s.Plan(c); err != nil || p.URL.String() != "http://api.example.com/p/acme?q=7" {
		t.Errorf("%v, %v", p, err)
	}
	c.Rewrite = func([]byte) ([]byte, error) { return nil, param.Refusal("not so") }
	if got := said(call(t, s, c)); got != "not so" {
		t.Errorf("refused with %q", got)
	}
	c.Args = []byte(`{"c":"mine"}`)
	if got := said(call(t, s, c)); !contains(got, "query: is missing") || !contains(got, "c: there is no such argument") {
		t.Errorf("hidden arguments: %q", got)
	}
}

// TestCheckRefuses: arguments that fail the check send nothing.
func TestCheckRefuses(t *testing.T) {
	srv := newRecorder(t, nil)
	s := newSource(t, Options{BaseURL: srv.URL})
	x := tool("GET", "/x", parameter("query", "form", true), &openapi.Parameter{Name: "limit", In: "query", Style: "form"})
	for args, want := range map[string]string{`{"limit":1,"limit":2}`: "limit: is given twice", `[1]`: "must be an object"} {
		if r := call(t, s, &Call{Tool: x, Args: []byte(args)}); !r.Get("isError").Bool() || !contains(said(r), want) {
			t.Errorf("%s: %q, want %s", args, said(r), want)
		}
	}
	if n := len(srv.requests()); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}
