package param_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// TestTaken: members of an exploded object stand for no other parameter, no fixed part of the query,
// no part of the server's own query and no credential.
func TestTaken(t *testing.T) {
	taken := param.Options{Taken: func(in openapi.Place, name string) bool {
		return in == openapi.InQuery && name == "api_key" || in == openapi.InCookie && name == "session"
	}, Query: "code=K&own%2Dtenant=7"}
	inQuery := tool("GET", "/x?action=list%20all&v=1", parameter("query", "form", true))
	inQuery.Arguments = append(inQuery.Arguments, openapi.Argument{Name: "added", Parameter: &openapi.Parameter{Name: "tenant", In: openapi.InQuery}})
	whole := tool("GET", "/x", &openapi.Parameter{Name: "c", In: "querystring", ContentType: httpio.Form})
	inCookie := tool("GET", "/x", parameter("cookie", "form", true))
	for _, test := range []struct {
		tool *openapi.Tool
		args string
		want string // in the refusal; empty if there is none
	}{
		{inQuery, `{"c":{"free":1}}`, ""},
		{inQuery, `{"c":{"action":1}}`, "c: must not have a member called action"},
		{inQuery, `{"c":{"v":1}}`, "c: must not have a member called v"},
		{inQuery, `{"c":{"tenant":1}}`, "c: must not have a member called tenant"},
		{inQuery, `{"c":{"api_key":1}}`, "c: must not have a member called api_key"},
		{inQuery, `{"c":{"code":1}}`, "c: must not have a member called code"},
		{inQuery, `{"c":{"own-tenant":8}}`, "c: must not have a member called own-tenant"},
		{inQuery, `{"c":{"session":1}}`, ""},
		{inQuery, `{"c":{"":1}}`, ""},
		{whole, `{"c":{"api_key":1}}`, "c: must not have a member called api_key"},
		{whole, `{"c":{"code":1}}`, "c: must not have a member called code"},
		{whole, `{"c":{"a":1}}`, ""},
		{inCookie, `{"c":{"session":1}}`, "c: must not have a member called session"},
		{inCookie, `{"c":{"api_key":1,"code":1}}`, ""},
	} {
		if _, err := param.Assemble(test.tool, []byte(test.args), taken); test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s %s: %v, want %q", test.tool.Operation.Path, test.args, err, test.want)
		}
	}
}

// TestFetch reads files that arguments give by their addresses.
func TestFetch(t *testing.T) {
	errGone := errors.New("gone")
	fetch := func(uri string) (*param.File, error) {
		switch uri {
		case "rest://pets/none":
			return nil, param.Refuse("there is no such resource")
		case "rest://pets/gone":
			return nil, errGone
		}
		return &param.File{Data: []byte("[" + uri + "]"), Name: "one.txt", Type: "text/plain"}, nil
	}
	one := with(tool("POST", "/x"), &openapi.MediaType{Type: "*/*", File: true})
	many := with(tool("POST", "/x"), &openapi.MediaType{Type: "multipart/form-data", Fields: []*openapi.Field{{Name: "f", File: true, Array: true}}})
	list := func(n int) string { return `{"body":{"f":["rest://a/b"` + strings.Repeat(`,"rest://a/b"`, n-1) + `]}}` }
	for _, test := range []struct {
		name  string
		tool  *openapi.Tool
		args  string
		fetch func(string) (*param.File, error)
		want  string // the body, or a part of the error
	}{
		{"a resource", one, `{"body":"rest://pets/7"}`, fetch, "[rest://pets/7]"},
		{"no resources", one, `{"body":"rest://pets/7"}`, nil, `body: the bridge fetches no files from addresses such as "rest://pets/7"`},
		{"another address", one, `{"body":"https://example.com/x"}`, fetch, "body: the bridge fetches no files from addresses"},
		{"an address as text", one, `{"body":{"text":"https://example.com/x"}}`, fetch, "https://example.com/x"},
		{"text with an address", one, `{"body":"see rest://pets/7"}`, fetch, "see rest://pets/7"},
		{"refused", one, `{"body":"rest://pets/none"}`, fetch, `body: "rest://pets/none" cannot be read: there is no such resource`},
		{"failed", one, `{"body":"rest://pets/gone"}`, fetch, "gone"},
		{"eight", many, list(8), func(string) (*param.File, error) { return &param.File{}, nil }, ""},
		{"nine", many, list(9), func(string) (*param.File, error) { return &param.File{}, nil }, "body.f: more than 8 files"},
		{"too much together", many, list(2), func(string) (*param.File, error) { return &param.File{Data: make([]byte, 60)}, nil }, "more than 100 bytes together"},
	} {
		r, err := param.Assemble(test.tool, []byte(test.args), param.Options{MaxFile: 100, Fetch: test.fetch})
		switch {
		case err != nil && (test.want == "" || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		case err == nil && test.tool == one && string(r.Body) != test.want:
			t.Errorf("%s: the body is %q, want %q", test.name, r.Body, test.want)
		case test.name == "failed" && !errors.Is(err, errGone):
			t.Errorf("failed: %v is not the error of Fetch", err)
		}
	}
}

// TestPlainForm sends a form without parts unless a file is given.
func TestPlainForm(t *testing.T) {
	x := with(tool("POST", "/x"), &openapi.MediaType{Type: "multipart/form-data", Fields: []*openapi.Field{{Name: "f", File: true}, {Name: "a"}}})
	x.Plain = &openapi.MediaType{Type: httpio.Form}
	for args, want := range map[string]string{
		`{"a":1}`:                "application/x-www-form-urlencoded",
		`{"a":1,"f":null}`:       "application/x-www-form-urlencoded",
		`{"a":1,"f":[]}`:         "application/x-www-form-urlencoded",
		`{"a":1,"f":"contents"}`: "multipart/form-data",
	} {
		r, err := param.Assemble(x, []byte(`{"body":`+args+`}`), options)
		if err != nil {
			t.Errorf("%s: %v", args, err)
		} else if got, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); got != want {
			t.Errorf("%s: the type is %s, want %s", args, got, want)
		}
	}
}

// TestAccept asks for the types that the document declares for success.
func TestAccept(t *testing.T) {
	response := func(status string, types ...string) openapi.Response {
		r := openapi.Response{Status: status}
		for _, one := range types {
			r.Content = append(r.Content, &openapi.MediaType{Type: one})
		}
		return r
	}
	for _, test := range []struct {
		responses []openapi.Response
		want      string
	}{
		{nil, "application/json, */*;q=0.8"},
		{[]openapi.Response{response("404", "text/html"), response("200", "*/*", "a\nb")}, "application/json, */*;q=0.8"},
		{[]openapi.Response{response("200", "text/csv; charset=utf-8", "image/png"), response("2XX", "text/csv")}, "text/csv, image/png, */*;q=0.1"},
	} {
		x := tool("GET", "/x")
		x.Operation.Responses = test.responses
		if r, err := param.Assemble(x, nil, options); err != nil || r.Header.Get("Accept") != test.want {
			t.Errorf("Accept of %v = %q, %v, want %q", test.responses, r.Header.Get("Accept"), err, test.want)
		}
	}
}

// TestByShownNames: arguments may have the document's names, which clients see changed.
func TestByShownNames(t *testing.T) {
	x := tool("GET", "/x", &openapi.Parameter{Name: "page size", In: openapi.InQuery}, &openapi.Parameter{Name: "q", In: openapi.InQuery})
	x.Arguments[0].Name = "page_size"
	x.Keys = map[string]string{"a_b": "a b"}
	twice := tool("GET", "/x", &openapi.Parameter{Name: "id", In: openapi.InQuery}, &openapi.Parameter{Name: "id", In: openapi.InHeader})
	twice.Arguments[0].Name, twice.Arguments[1].Name = "id_query", "id_header"
	for _, test := range []struct {
		name       string
		tool       *openapi.Tool
		args, want string // empty: not possible
	}{
		{"a parameter", x, `{"page size":1,"q":"x"}`, `{"page_size":1,"q":"x"}`},
		{"within", x, `{"q":[{"a b":1.50}]}`, `{"q":[{"a_b":1.50}]}`},
		{"shown names stay", x, `{"page_size":1}`, `{"page_size":1}`},
		{"both names", x, `{"page size":1,"page_size":2}`, ""},
		{"both names within", x, `{"q":{"a b":1,"a_b":2}}`, ""},
		{"one name of two parameters", twice, `{"id":1}`, ""},
		{"no changed names", tool("GET", "/x", &openapi.Parameter{Name: "q", In: openapi.InQuery}), `{"q":1}`, ""},
	} {
		got, ok := param.ByShownNames(test.tool, []byte(test.args))
		if ok != (test.want != "") || ok && string(got) != test.want {
			t.Errorf("%s: ByShownNames(%s) = %s, %t, want %s", test.name, test.args, got, ok, test.want)
		}
	}
}

// TestPlain writes numbers without an exponent and with all their digits.
func TestPlain(t *testing.T) {
	for raw, want := range map[string]string{"1.50": "1.50", "12e2": "1200", "-1.25E+1": "-12.5", "1e-3": "0.001", "1e500": "1e500", "12345678901234567890": "12345678901234567890"} {
		if got := param.Plain(raw); got != want {
			t.Errorf("Plain(%s) = %s, want %s", raw, got, want)
		}
	}
}

// TestEscape encodes all bytes but those of a set.
func TestEscape(t *testing.T) {
	for _, test := range []struct {
		text string
		keep *param.Set
		want string
	}{
		{"plain-._~", param.Unreserved, "plain-._~"},
		{"a b/é%41", param.Unreserved, "a%20b%2F%C3%A9%2541"},
		{"a;b,c\"d", param.CookieOctets, "a%3Bb%2Cc%22d"},
		{"a=b!", param.CookieNames, "a%3Db!"},
	} {
		if got := param.Escape(test.text, test.keep); got != test.want {
			t.Errorf("Escape(%q) = %s, want %s", test.text, got, test.want)
		}
	}
}

// TestJoin puts a path and a query behind the address of a server.
func TestJoin(t *testing.T) {
	for _, test := range []struct{ base, path, query, want string }{
		{"http://h", "/x", "", "http://h/x"},
		{"http://h/v1/", "/x/", "a=1", "http://h/v1/x/?a=1"},
		{"http://h/a%2Fb?key=k", "x%2Fy", "a=1", "http://h/a%2Fb/x%2Fy?key=k&a=1"},
		{"http://h?key=k", "/x", "", "http://h/x?key=k"},
		{"http://h/v1/", "//x", "", "http://h/v1//x"},
		{"http://h", "/%zz", "", ""},
		{"http://h", "/a b", "", ""},
	} {
		base, err := url.Parse(test.base)
		if err != nil {
			t.Fatal(err)
		}
		u, err := param.Join(base, test.path, test.query)
		if _, refused := errors.AsType[param.Refusal](err); refused != (test.want == "") || !refused && u.String() != test.want {
			t.Errorf("Join(%s, %s, %s) = %v, %v, want %s", test.base, test.path, test.query, u, err, test.want)
		}
	}
}
