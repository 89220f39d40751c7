package param_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
)

// options are those of most tests.
var options = param.Options{MaxFile: 1 << 20}

// golden is a call and the request that it must become, or a part of its refusal.
type golden struct {
	name    string
	tool    *openapi.Tool
	args    string
	want    string
	refused string
}

func runGolden(t *testing.T, cases []golden) {
	t.Helper()
	for _, tc := range cases {
		r, err := param.Assemble(tc.tool, []byte(tc.args), options)
		if tc.refused != "" {
			if _, ok := err.(param.Refusal); !ok || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s: %s\nrefused with %v\nwant %q", tc.name, tc.args, err, tc.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %s: %v", tc.name, tc.args, err)
			continue
		}
		if got := lines(t, tc.tool, r); got != tc.want {
			t.Errorf("%s: %s\ngot  %s\nwant %s", tc.name, tc.args, got, tc.want)
		}
	}
}

// lines writes a request: the first line, the headers except Accept, and the body.
func lines(t *testing.T, tool *openapi.Tool, r *param.Request) string {
	t.Helper()
	u, err := param.Join(&url.URL{Scheme: "http", Host: "api.example.com"}, r.Path, r.Query)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(tool.Operation.Method + " " + u.RequestURI())
	var names []string
	for name := range r.Header {
		if name != "Accept" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		b.WriteString("\n" + name + ": " + strings.Join(r.Header[name], " & "))
	}
	if len(r.Body) > 0 {
		b.WriteString("\n\n" + string(r.Body))
	}
	return b.String()
}

// tool makes a tool of an operation: each of its parameters is an argument of the same name.
func tool(method, path string, ps ...*openapi.Parameter) *openapi.Tool {
	t := &openapi.Tool{Name: "tool", Operation: &openapi.Operation{Method: method, Path: path, Parameters: ps}}
	for _, p := range ps {
		t.Arguments = append(t.Arguments, openapi.Argument{Name: p.Name, Place: p.In, Parameter: p})
	}
	return t
}

// with gives a tool a body.
func with(t *openapi.Tool, m *openapi.MediaType) *openapi.Tool {
	t.Body = m
	t.Arguments = append(t.Arguments, openapi.Argument{Name: "body", Place: openapi.InBody})
	return t
}

// parameter makes a parameter called c.
func parameter(in openapi.Place, style string, explode bool) *openapi.Parameter {
	return &openapi.Parameter{Name: "c", In: in, Style: style, Explode: explode}
}
