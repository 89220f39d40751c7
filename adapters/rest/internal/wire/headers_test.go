package wire

import (
	"cmp"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/sign"
)

// Results show headers that belong to the answer, and no others.
func TestToldHeaders(t *testing.T) {
	declared := []openapi.Response{
		{Status: "200", Headers: []string{"X-Total-Count", "Etag", "Set-Cookie", "X-Api-Key", "X-Ratelimit-Limit", "Content-Type", "Www-Authenticate"}},
		{Status: "2XX", Headers: []string{"X-Job"}},
		{Status: "default", Headers: []string{"X-Other"}},
	}
	all := http.Header{
		"X-Total-Count": {"120"}, "Etag": {`"v1"`}, "Set-Cookie": {"sid=secret"}, "X-Api-Key": {"secret"}, "X-Ratelimit-Limit": {"60"}, "Www-Authenticate": {"Bearer"},
		"X-Job": {"7", "the-secret-token"}, "X-Other": {"no"}, "X-Undeclared": {"no"}, "Date": {"no"},
	}
	with := func(more ...string) http.Header {
		h := all.Clone()
		for i := 0; i < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return h
	}
	for _, tc := range []struct {
		name      string
		status    int
		header    http.Header
		kind      string
		body      string
		responses []openapi.Response
		want      string
		method    string // GET if empty
	}{
		{"declared", 200, with(), "application/json", `{}`, declared, "{}\n---\nHeaders of the answer:\nEtag: \"v1\"\nX-Total-Count: 120", ""},
		{"of a range", 201, with(), "text/plain", "done", declared, "done\n---\nHeaders of the answer:\nX-Job: 7\nX-Job: ***", ""},
		{"not declared", 200, with(), "application/json", `{}`, nil, "{}", ""},
		{"next page", 200, with("Link", `<https://api/x?page=2>; rel="next"`), "application/json", `[]`, nil, "[]\n---\nHeaders of the answer:\nLink: <https://api/x?page=2>; rel=\"next\"", ""},
		{"no next page", 200, with("Link", `</style.css>; rel=preload`), "application/json", `[]`, nil, "[]", ""},
		{"accepted", 202, http.Header{"Operation-Location": {"https://api/operations/7"}, "Retry-After": {"5"}, "Set-Cookie": {"a=b"}}, "", "", nil, "202 Accepted\nOperation-Location: https://api/operations/7\nRetry-After: 5", ""},
		{"nothing", 204, http.Header{"Location": {"/x"}}, "", "", declared, "204 No Content\nLocation: /x", ""},
		{"HEAD", 200, http.Header{"Content-Length": {"12"}, "Etag": {`"x"`}, "X-Secret": {"no"}}, "text/plain", "", nil, "200 OK from HEAD /x\nContent-Type: text/plain\nContent-Length: 12\nEtag: \"x\"", "HEAD"},
	} {
		tc.header.Set("Content-Type", tc.kind)
		srv := answeringWith(t, tc.status, tc.header, tc.body)
		s := newSource(t, Options{BaseURL: srv.URL, Default: &Credential{Bearer: "the-secret-token"}})
		x := tool(cmp.Or(tc.method, "GET"), "/x")
		x.Operation.Responses = tc.responses
		if got := said(call(t, s, &Call{Tool: x})); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// A secret at the end of a cut text is masked whole.
func TestToldSecretAtCut(t *testing.T) {
	const secret = "the-secret-token"
	at := func(limit int) string {
		return strings.Repeat("x", limit-len(secret)/2) + secret + strings.Repeat("y", limit)
	}
	for _, tc := range []struct {
		name, method string
		status       int
		header       http.Header
		body         string
	}{
		{"with a body", "GET", 200, http.Header{"Location": {at(maxLine)}, "Content-Type": {"application/json"}}, `{}`},
		{"without a body", "GET", 204, http.Header{"Location": {at(maxLine)}}, ""},
		{"HEAD", "HEAD", 200, http.Header{"Etag": {at(maxLine)}}, ""},
		{"elsewhere", "GET", 304, http.Header{"Location": {at(maxLine)}}, ""},
		{"a page", "GET", 500, http.Header{"Content-Type": {"text/html"}}, "<title>" + at(maxLine) + "</title>"},
		{"a type", "GET", 500, http.Header{"Content-Type": {"image/" + at(100-len("image/"))}}, "\x89PNG"},
		{"a text", "GET", 500, http.Header{"Content-Type": {"text/plain"}}, at(maxFault)},
		{"a problem", "GET", 500, http.Header{"Content-Type": {"application/json"}}, `{"title":"` + strings.Replace(at(maxFault), "secret", `s\u0065cret`, 1) + `"}`},
		{"another fault", "GET", 500, http.Header{"Content-Type": {"application/json"}}, `{"x":"` + at(maxFault-len(`{"x":"`)) + `"}`},
	} {
		srv := answeringWith(t, tc.status, tc.header, tc.body)
		s := newSource(t, Options{BaseURL: srv.URL, Default: &Credential{Bearer: secret}})
		got := said(call(t, s, &Call{Tool: tool(tc.method, "/x")}))
		if !strings.Contains(got, "x***") || strings.Contains(got, "the-se") || !strings.Contains(got, "bytes in all") {
			t.Errorf("%s: %s", tc.name, got)
		}
	}
}

// An argument does not send a header beside one of the configuration under a name that a server may
// take for the same.
func TestHeaderSpellings(t *testing.T) {
	srv := newRecorder(t, nil)
	s := newSource(t, Options{
		BaseURL: srv.URL, Headers: map[string]string{"X-Team": "blue"}, Forward: []string{"X-Tenant"}, Withheld: []string{"X-User"},
		Default: &Credential{Key: "the-key", Header: "X-Api-Key"},
	})
	var ps []*openapi.Parameter
	for _, name := range []string{"x_api_key", "X_Team", "x_tenant", "x_user", "x_other"} {
		ps = append(ps, &openapi.Parameter{Name: name, In: openapi.InHeader, Style: "simple"})
	}
	c := &Call{Tool: tool("GET", "/x", ps...), Header: http.Header{"X-Tenant": {"one"}}, Args: []byte(`{"x_api_key":"a","X_Team":"a","x_tenant":"a","x_user":"a","x_other":"a"}`)}
	call(t, s, c)
	if got, want := srv.requests()[0].lines(), "GET /x\nX-Api-Key: the-key\nX-Team: blue\nX-Tenant: one\nX_other: a"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if p, err := s.Plan(c); err != nil || contains(p.String(), "_key") || !contains(p.String(), "X-Api-Key: ***") {
		t.Errorf("plan: %v %v", p, err)
	}
	signed := newSource(t, Options{BaseURL: srv.URL, Default: &Credential{Hook: &sign.Hook{URL: signing(t).URL}}})
	call(t, signed, &Call{Tool: tool("GET", "/x", &openapi.Parameter{Name: "x_signature", In: openapi.InHeader, Style: "simple"}), Args: []byte(`{"x_signature":"a"}`)})
	if got, want := srv.requests()[0].lines(), "GET /x\nX-Signature: sig-1"; got != want {
		t.Errorf("with a hook: %s\nwant %s", got, want)
	}
}
