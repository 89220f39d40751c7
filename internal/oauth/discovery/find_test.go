package discovery_test

import (
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
	"github.com/mcp-bridge/bridge/internal/oauth/oauthtest"
)

// I-201: the Bearer challenge is found among others. A malformed header counts as none.
func TestBearer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		header []string
		want   discovery.Challenge
		ok     bool
	}{
		{"none", nil, discovery.Challenge{}, false},
		{"bare", []string{"Bearer"}, discovery.Challenge{}, true},
		{"all", []string{`bearer realm="a, b", Resource_Metadata="https://h/x?a=1,2", scope="a  b", error=insufficient_scope`},
			discovery.Challenge{Metadata: "https://h/x?a=1,2", Scopes: []string{"a", "b"}, Error: "insufficient_scope"}, true},
		{"after others", []string{`Negotiate YII+/=, Basic realm="x", Bearer scope="s"`}, discovery.Challenge{Scopes: []string{"s"}}, true},
		{"in another header", []string{"Negotiate", `DPoP algs="ES256"`, `BEARER scope=s`}, discovery.Challenge{Scopes: []string{"s"}}, true},
		{"quoted pairs", []string{`Bearer error="a\"b\\c"`}, discovery.Challenge{Error: `a"b\c`}, true},
		{"spaces around the equals sign", []string{`Bearer scope = "s" , error = "e"`}, discovery.Challenge{Scopes: []string{"s"}, Error: "e"}, true},
		{"not ended", []string{`Bearer scope="s`}, discovery.Challenge{}, false},
		{"twice", []string{`Bearer resource_metadata="https://a", resource_metadata="https://b"`}, discovery.Challenge{}, false},
		{"broken, and a good one", []string{`Bearer scope="s`, `Bearer scope=t`}, discovery.Challenge{Scopes: []string{"t"}}, true},
		{"no scheme", []string{`realm="x"`}, discovery.Challenge{}, false},
		{"other", []string{`Basic realm="Bearer scope=s"`}, discovery.Challenge{}, false},
	} {
		c, ok := discovery.Bearer(http.Header{"Www-Authenticate": tc.header})
		if ok != tc.ok || !reflect.DeepEqual(c, tc.want) && (len(c.Scopes)+len(tc.want.Scopes) > 0 || c.Metadata != tc.want.Metadata || c.Error != tc.want.Error) {
			t.Errorf("%s: Bearer = %+v, %t, want %+v, %t", tc.name, c, ok, tc.want, tc.ok)
		}
	}
}

func FuzzBearer(f *testing.F) {
	f.Add(`Negotiate a==, Bearer a="b\"", c = d`)
	f.Fuzz(func(_ *testing.T, s string) { discovery.Bearer(http.Header{"Www-Authenticate": {s}}) })
}

const wk = "/.well-known/oauth-protected-resource"

func finder(t *testing.T, server string, net *oauthtest.Net) *discovery.Finder {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	return discovery.NewFinder(u, net)
}

// as answers with raw text, as JSON.
func as(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}
}

func resourceMetadata(resource string) map[string]any {
	return map[string]any{"resource": resource, "authorization_servers": []string{"https://idp.example.com"}, "scopes_supported": []string{"a"}}
}

// I-202, I-203 and N-57: the server's metadata is read from its addresses in order, and must be about this
// server.
func TestResource(t *testing.T) {
	const server = "https://tools.example.com/t/mcp"
	redirect := func(to string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }
	}
	fails := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusInternalServerError) }
	for _, tc := range []struct {
		name, named string
		pages       oauthtest.Pages
		want, err   string // resource, or part of the error
		asked       int
	}{
		{"by its path", "", oauthtest.Pages{wk + "/t/mcp": resourceMetadata(server)}, server, "", 1},
		{"root", "", oauthtest.Pages{wk: resourceMetadata("https://tools.example.com")}, "https://tools.example.com", "", 2},
		{"named", "https://tools.example.com/m", oauthtest.Pages{"/m": resourceMetadata(server), wk: resourceMetadata("https://evil.example.com")}, server, "", 1},
		{"named elsewhere", "https://meta.example.com/m", nil, server, "", 1},
		{"named but not there", "https://tools.example.com/x", oauthtest.Pages{wk + "/t/mcp": resourceMetadata(server)}, server, "", 2},
		{"named without an origin", "/m", oauthtest.Pages{"/m": resourceMetadata(server), wk + "/t/mcp": resourceMetadata(server)}, server, "", 1},
		{"beginning of the path", "", oauthtest.Pages{wk: resourceMetadata("https://tools.example.com/t")}, "https://tools.example.com/t", "", 2},
		{"one more slash", "", oauthtest.Pages{wk + "/t/mcp": resourceMetadata(server + "/")}, server + "/", "", 1},
		{"page for every address", "", oauthtest.Pages{wk + "/t/mcp": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
		}}, "", "", 2},
		{"none", "", nil, "", "", 2},
		{"redirect within", "", oauthtest.Pages{wk + "/t/mcp": redirect("/m"), "/m": resourceMetadata(server)}, server, "", 2},

		{"N-57: other origin", "", oauthtest.Pages{wk + "/t/mcp": resourceMetadata("https://other.example.com/t/mcp"), wk: resourceMetadata(server)}, "", "which is not this server", 1},
		{"other port", "", oauthtest.Pages{wk + "/t/mcp": resourceMetadata("https://tools.example.com:444/t/mcp")}, "", "which is not this server", 1},
		{"http", "", oauthtest.Pages{wk + "/t/mcp": resourceMetadata("http://tools.example.com/t/mcp")}, "", "which is not this server", 1},
		{"sibling", "", oauthtest.Pages{wk + "/t/mcp": resourceMetadata("https://tools.example.com/u/mcp")}, "", "which is not this server", 1},
		{"half a segment", "", oauthtest.Pages{wk + "/t/mcp": resourceMetadata("https://tools.example.com/t/m")}, "", "which is not this server", 1},
		{"two more slashes", "", oauthtest.Pages{wk + "/t/mcp": resourceMetadata(server + "//")}, "", "which is not this server", 1},
		{"sibling with a slash", "", oauthtest.Pages{wk + "/t/mcp": resourceMetadata("https://tools.example.com/u/mcp/")}, "", "If you know that address, use it as the server's", 1},
		{"longer", "", oauthtest.Pages{wk + "/t/mcp": resourceMetadata(server + "/x")}, "", "which is not this server", 1},
		{"user", "", oauthtest.Pages{wk + "/t/mcp": resourceMetadata("https://a@tools.example.com/t/mcp")}, "", "which is not this server", 1},
		{"fragment", "", oauthtest.Pages{wk + "/t/mcp": resourceMetadata(server + "#x")}, "", "which is not this server", 1},
		{"missing", "", oauthtest.Pages{wk + "/t/mcp": map[string]any{"authorization_servers": []string{"https://idp.example.com"}}}, "", "which is not this server", 1},
		{"no issuer", "", oauthtest.Pages{wk + "/t/mcp": map[string]any{"resource": server}}, "", "must name at least one", 1},
		{"no JSON", "", oauthtest.Pages{wk + "/t/mcp": as(`{"resource":`)}, "", "must be a JSON object", 1},
		{"nested without an end", "", oauthtest.Pages{wk + "/t/mcp": as(strings.Repeat("[", 1<<20))}, "", "nested deeper than 100 levels", 1},
		{"nested too deeply", "", oauthtest.Pages{wk + "/t/mcp": as(`{"resource":"` + server + `","authorization_servers":["https://idp.example.com"],"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}")}, "", "nested deeper", 1},
		{"list", "", oauthtest.Pages{wk + "/t/mcp": []any{resourceMetadata(server)}}, "", "must be a JSON object", 1},
		{"too large", "", oauthtest.Pages{wk + "/t/mcp": as(`"` + strings.Repeat("x", 1<<20) + `"`)}, "", "larger than 1 MiB", 1},
		{"down", "", oauthtest.Pages{wk + "/t/mcp": fails, wk: resourceMetadata(server)}, "", "HTTP 500", 1},
		{"redirect away", "", oauthtest.Pages{wk + "/t/mcp": redirect("https://evil.example.com/m")}, "", "another origin", 1},
		{"endless redirects", "", oauthtest.Pages{wk + "/t/mcp": redirect(wk + "/t/mcp")}, "", "another origin", 4},
		{"named, not encrypted", "http://tools.example.com/m", nil, "", "must be https", 0},
		{"named, on this machine", "http://127.0.0.1/m", nil, "", "must be https", 0},
		{"named, a file", "file:///etc/passwd", nil, "", "must be a URL", 0},
	} {
		n := &oauthtest.Net{}
		n.Put("tools.example.com", tc.pages)
		n.Put("meta.example.com", oauthtest.Pages{"/m": resourceMetadata(server)})
		r, err := finder(t, server, n).Resource(t.Context(), tc.named)
		switch {
		case tc.err != "":
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v, want %q", tc.name, err, tc.err)
			}
		case err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case (r == nil) != (tc.want == "") || r != nil && (r.Name != tc.want || r.Issuers[0] != "https://idp.example.com" || len(r.Scopes) != 1):
			t.Errorf("%s: %+v, want %q", tc.name, r, tc.want)
		}
		if got := n.Sent(""); len(got) != tc.asked {
			t.Errorf("%s: %d requests, want %d: %v", tc.name, len(got), tc.asked, got)
		}
		if got := n.Sent("https://evil"); len(got) != 0 {
			t.Errorf("%s: asked %v", tc.name, got)
		}
	}
}

// The text of a resource is not changed, since it is sent later.
func TestResourceText(t *testing.T) {
	for server, resource := range map[string]string{
		"https://tools.example.com":          "https://tools.example.com/",
		"https://tools.example.com/":         "https://tools.example.com",
		"https://TOOLS.example.com/a%2Fb":    "https://tools.example.com/a%2Fb",
		"https://tools.example.com/mcp?t=1":  "https://tools.example.com/mcp?t=1",
		"https://tools.example.com/mcp?t=2":  "https://tools.example.com/mcp",
		"https://tools.example.com/mcp/more": "https://tools.example.com/mcp/",
	} {
		n := &oauthtest.Net{}
		n.Put("tools.example.com", oauthtest.Pages{wk: resourceMetadata(resource)})
		if r, err := finder(t, server, n).Resource(t.Context(), "https://tools.example.com"+wk); err != nil || r == nil || r.Name != resource {
			t.Errorf("%s: %+v, %v, want %s", server, r, err, resource)
		}
	}
}

func metadata(issuer string, change ...string) map[string]any {
	m := map[string]any{"issuer": issuer, "authorization_endpoint": "https://login.example.com/authorize", "token_endpoint": "https://login.example.com/token"}
	for i := 0; i < len(change); i += 2 {
		m[change[i]] = change[i+1]
	}
	return m
}

// I-205, I-206, N-58 and N-61: the metadata of an authorization server is read from its addresses in order. It
// must be that server's own, and name addresses that secrets may go to.
func TestIssuer(t *testing.T) {
	const own, open = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	const idp = "https://idp.example.com"
	for _, tc := range []struct {
		name, issuer string
		pages        oauthtest.Pages
		want, err    string
		asked        int
	}{
		{"RFC 8414", idp, oauthtest.Pages{own: metadata(idp)}, idp, "", 1},
		{"OpenID", idp, oauthtest.Pages{open: metadata(idp)}, idp, "", 2},
		{"RFC 8414, path", idp + "/a", oauthtest.Pages{own + "/a": metadata(idp + "/a"), own: metadata(idp)}, idp + "/a", "", 1},
		{"OpenID, path inserted", idp + "/a", oauthtest.Pages{open + "/a": metadata(idp + "/a")}, idp + "/a", "", 2},
		{"OpenID, path in front", idp + "/a/", oauthtest.Pages{"/a" + open: metadata(idp + "/a/")}, idp + "/a/", "", 3},
		{"never the root", idp + "/a", oauthtest.Pages{own: metadata(idp + "/a"), open: metadata(idp + "/a")}, "", "", 3},
		{"a slash more", idp, oauthtest.Pages{own: metadata(idp + "/")}, idp + "/", "", 1},
		{"none", idp, nil, "", "", 2},

		{"N-58: other issuer", idp, oauthtest.Pages{own: metadata("https://evil.example.com"), open: metadata(idp)}, "", "another one", 1},
		{"N-58: other path", idp + "/a", oauthtest.Pages{own + "/a": metadata(idp + "/b")}, "", "another one", 1},
		{"N-58: missing", idp, oauthtest.Pages{own: map[string]any{"token_endpoint": idp}}, "", "another one", 1},
		{"no token endpoint", idp, oauthtest.Pages{own: map[string]any{"issuer": idp}}, "", "token_endpoint", 1},
		{"N-61: script", idp, oauthtest.Pages{own: metadata(idp, "authorization_endpoint", "javascript:alert(1)")}, "", "authorization_endpoint", 1},
		{"N-61: file", idp, oauthtest.Pages{own: metadata(idp, "authorization_endpoint", "file:///etc/passwd")}, "", "authorization_endpoint", 1},
		{"N-61: flag", idp, oauthtest.Pages{own: metadata(idp, "authorization_endpoint", "-x")}, "", "authorization_endpoint", 1},
		{"N-61: credentials of a cloud", idp, oauthtest.Pages{own: metadata(idp, "authorization_endpoint", "http://169.254.169.254/latest")}, "", "must be https", 1},
		{"not encrypted", idp, oauthtest.Pages{own: metadata(idp, "token_endpoint", "http://idp.example.com/token")}, "", "must be https", 1},
		{"this machine", idp, oauthtest.Pages{own: metadata(idp, "token_endpoint", "http://127.0.0.1/token")}, "", "must be https", 1},
		{"user", idp, oauthtest.Pages{own: metadata(idp, "registration_endpoint", "https://a:b@idp.example.com/r")}, "", "registration_endpoint", 1},
		{"issuer not encrypted", "http://idp.example.com", nil, "", "must be https", 0},
		{"issuer with a query", idp + "?a", nil, "", "query", 0},
		{"no URL", "idp", nil, "", "must be a URL", 0},
	} {
		n := &oauthtest.Net{}
		n.Put("idp.example.com", tc.pages)
		i, err := finder(t, "https://tools.example.com/mcp", n).Issuer(t.Context(), tc.issuer)
		switch {
		case tc.err != "":
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v, want %q", tc.name, err, tc.err)
			}
		case err != nil || (i == nil) != (tc.want == "") || i != nil && i.Name != tc.want:
			t.Errorf("%s: %+v, %v, want %q", tc.name, i, err, tc.want)
		}
		if got := n.Sent(""); len(got) != tc.asked {
			t.Errorf("%s: %d requests, want %d: %v", tc.name, len(got), tc.asked, got)
		}
	}
}

// I-214: http is for this machine, and only if the server is there too or the operator has named the address.
func TestAddress(t *testing.T) {
	at := func(server string, trusted ...string) *discovery.Finder {
		u, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		return discovery.NewFinder(u, &oauthtest.Net{}, trusted...)
	}
	for _, tc := range []struct {
		f       *discovery.Finder
		address string
		ok      bool
	}{
		{at("http://127.0.0.1:1/mcp"), "http://localhost:2/token", true},
		{at("http://127.0.0.1:1/mcp"), "http://10.0.0.1/token", false},
		{at("https://tools.example.com/mcp"), "http://localhost:2/token", false},
		{at("https://tools.example.com/mcp", "http://localhost:2"), "http://localhost:2/token", true},
		{at("https://tools.example.com/mcp", "http://localhost:2"), "http://localhost:3/token", false},
		{at("https://tools.example.com/mcp", "http://idp.example.com"), "http://idp.example.com/token", false},
	} {
		if _, err := tc.f.Address(tc.address); (err == nil) != tc.ok {
			t.Errorf("%s: %v, want good: %t", tc.address, err, tc.ok)
		}
	}
}

// I-213 and N-59: iss is compared exactly.
func TestAnswered(t *testing.T) {
	for _, tc := range []struct {
		says bool
		iss  string
		has  bool
		ok   bool
	}{
		{true, "https://idp.example.com", true, true},
		{true, "", false, false},
		{true, "https://evil.example.com", true, false},
		{true, "https://idp.example.com/", true, false},
		{true, "https://IDP.example.com", true, false},
		{true, "", true, false},
		{false, "", false, true},
		{false, "https://idp.example.com", true, true},
		{false, "https://evil.example.com", true, false},
	} {
		i := &discovery.Issuer{Name: "https://idp.example.com", NamesItself: tc.says}
		if err := i.Answered(tc.iss, tc.has); (err == nil) != tc.ok {
			t.Errorf("advertised %t, iss %q (there: %t): %v, want good: %t", tc.says, tc.iss, tc.has, err, tc.ok)
		}
	}
}
