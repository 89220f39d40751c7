package access

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
)

// Who is not let in is told how to get in, with the address of the target's own metadata; what is wrong with a token
// only in few words (I-001, I-007 to I-009, I-050). The body of a refused request is not read.
func TestChallenges(t *testing.T) {
	identified(t, quiet, asIs, func(t *testing.T, tokens *Access, i *authtest.Issuer) {
		other, keys := authtest.New(t, "https://other.example.com"), ruled(t, keyed)
		const invalid = "the token is not valid"
		for n, path := range []string{"/one/mcp", "/two/sse", "/two/messages", "/mcp", ""} {
			where := strings.ReplaceAll(path, "messages", "sse")
			for _, tc := range []struct {
				name   string
				header []string
				why    string // the fault of the token; empty for none, "-" for a user without a rule
				guess  bool   // without an issuer, the key is wrong
			}{
				{"N-01 nothing", nil, "", false},
				{"a session in place of a key", []string{"Mcp-Session-Id", "x"}, "", false},
				{"a wrong key", as(wrongKey), invalid, true},
				{"a wrong API key", []string{"X-API-Key", "guess"}, invalid, true},
				{"the name of a principal", as("alice"), invalid, true},
				{"two keys", append(as(aliceKey), "X-API-Key", bobKey), invalid, true},
				{"another scheme", []string{"Authorization", "Basic " + aliceKey}, invalid, true},
				{"N-02 an empty token", as(""), invalid, true},
				{"N-04 key and token", append(eng(i, "ann", here), "X-API-Key", aliceKey), invalid, true},
				{"too old", eng(i, "ann", here, authtest.Claims{"exp": time.Now().Add(-time.Hour).Unix()}), "the token has expired", true},
				{"N-27 for another server", eng(i, "ann", here+"/three/mcp"), "the token is not for this resource (" + here + where + ")", true},
				{"of another issuer", eng(other, "ann", here), invalid, true},
				{"no rule", as(i.Token(here)), "-", true},
			} {
				ask := func(a *Access) *httptest.ResponseRecorder {
					// N-05: a key or a token in the query is none.
					r := from(fmt.Sprintf("198.51.100.%d:1", n), loopback, "POST", "/any?access_token="+i.Token(here, authtest.Claims{"groups": "eng"})+"&key="+aliceKey, tc.header...)
					r.Body, r.ContentLength = io.NopCloser(unread{t}), 1
					return admit(a, r, path)
				}
				a := ask(tokens)
				status, kind, fault := 401, "unauthorized", ""
				if tc.why != "" {
					fault = `, error="invalid_token", error_description="` + tc.why + `"`
				}
				want := `Bearer realm="mcp-bridge"` + fault + `, resource_metadata="` + here + "/.well-known/oauth-protected-resource" + where + `", scope="mcp:use"`
				if tc.why == "-" {
					status, kind, want = 403, "denied", ""
				}
				if got := a.Header().Get("WWW-Authenticate"); a.Code != status || got != want || gjson.Get(a.Body.String(), "error.data.bridge").Str != kind {
					t.Errorf("%q with %s: %d %s %s, want %s", path, tc.name, a.Code, got, a.Body, want)
				}
				a = ask(keys)
				fault, word := "", "missing"
				if tc.guess {
					fault, word = `, error="invalid_token"`, "wrong"
				}
				body := `{"jsonrpc":"2.0","error":{"code":-32600,"message":"` + word + ` key: send the header Authorization: Bearer KEY or X-API-Key: KEY","data":{"bridge":"unauthorized"}}}`
				if got := a.Header().Get("WWW-Authenticate"); a.Code != 401 || got != `Bearer realm="mcp-bridge"`+fault || a.Body.String() != body {
					t.Errorf("%q with %s, without an issuer: %d %s %s", path, tc.name, a.Code, got, a.Body)
				}
			}
		}
		// A token is good at its endpoint, and one of the bridge as a whole everywhere (I-016).
		for _, tc := range []struct {
			endpoint string
			header   []string
			status   int
		}{
			{"/one/mcp", as(aliceKey), 200},
			{"/one/mcp", []string{"X-API-Key", aliceKey}, 200},
			{"/one/mcp", eng(i, "ann", here+"/one/mcp"), 200},
			{"/one/mcp", eng(i, "ann", here), 200},
			{"/one/mcp", eng(i, "ann", here+"/"), 200},
			{"/one/mcp", eng(i, "ann", here+"/mcp"), 401},
			{"/two/mcp", eng(i, "ann", here+"/one/mcp"), 401},
			{"/mcp", eng(i, "ann", here+"/mcp"), 200},
		} {
			if a := admit(tokens, from(peer, loopback, "POST", "/", tc.header...), tc.endpoint); a.Code != tc.status {
				t.Errorf("at %s with %q: %d %s, want %d", tc.endpoint, tc.header, a.Code, a.Body, tc.status)
			}
		}
	})
}

// Each endpoint says for which address tokens have to be, and who issues them, at the place where the standard has it,
// and below the base (I-001 to I-006).
func TestMetadata(t *testing.T) {
	for _, tc := range []struct{ public, base, endpoint, resource, name string }{
		{"", "", "", here, "mcp-bridge"},
		{"", "", "/mcp", here + "/mcp", "mcp-bridge"},
		{"", "", "/sse", here + "/sse", "mcp-bridge"},
		{"", "", "/one/mcp", here + "/one/mcp", "one"},
		{"", "", "/two/sse", here + "/two/sse", "two"},
		{"", "", "/three/mcp", "", ""},
		{"", "", "/one", "", ""},
		{"", "", "/one/messages", "", ""},
		{"", "", "/healthz", "", ""},
		{"", "", "//mcp", "", ""},
		{"https://mcp.example.com", "", "/one/mcp", "https://mcp.example.com/one/mcp", "one"},
		{"https://mcp.example.com", "/a/b", "/one/mcp", "https://mcp.example.com/a/b/one/mcp", "one"},
		{"https://mcp.example.com", "/a/b", "", "https://mcp.example.com/a/b", "mcp-bridge"},
	} {
		a := ruled(t, func(c *config.Config) { c.PublicURL, c.BasePath = tc.public, tc.base })
		root := cmp.Or(tc.public, here) + tc.base
		if _, ok := (fronted{a: a, root: root}).Resource(root + tc.endpoint); ok != (tc.resource != "") {
			t.Errorf("a front knows %s below %q: %t", tc.endpoint, tc.base, ok)
		}
		if _, ok := (fronted{a: a, root: root}).Resource("https://other.example.com" + tc.endpoint); ok {
			t.Errorf("a front knows %s of another site", tc.endpoint)
		}
		w := httptest.NewRecorder()
		// What proxies say of names is not believed.
		a.Describe(w, from(peer, loopback, "GET", "/", "X-Forwarded-Host", "evil.example.com"), Target{Base: tc.base, Endpoint: tc.endpoint})
		if tc.resource == "" {
			if w.Code != 404 {
				t.Errorf("%s below %q: %d %s", tc.endpoint, tc.base, w.Code, w.Body)
			}
			continue
		}
		want := fmt.Sprintf(`{"resource":%q,"authorization_servers":["https://idp.example.com"],"bearer_methods_supported":["header"],"scopes_supported":["mcp:use"],"resource_name":%q}`, tc.resource, tc.name)
		if w.Code != 200 || w.Body.String() != want || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "max-age=300" {
			t.Errorf("%s below %q: %d %v %s, want %s", tc.endpoint, tc.base, w.Code, w.Header(), w.Body, want)
		}
	}
}

// Without public_url the caller does not choose for which address its token has to be:
// only the bridge's own address on loopback counts (I-002).
func TestOwnHost(t *testing.T) {
	identified(t, quiet, asIs, func(t *testing.T, a *Access, i *authtest.Issuer) {
		for _, tc := range []struct {
			at, host string
			ok       bool
		}{
			{loopback, "127.0.0.1:8808", true},
			{loopback, "localhost:8808", true},
			{loopback, "[::1]:8808", true},
			{loopback, "localhost:9000", false},
			{loopback, "localhost", false},
			{public, "localhost:8808", false},
			{public, "mcp.example.com", false},
			{public, "192.0.2.1:8808", false},
		} {
			w := admit(a, from(peer, tc.at, "GET", "/metrics", append(eng(i, "ann", "http://"+tc.host), "Host", tc.host)...), "")
			if got := w.Header().Get("WWW-Authenticate"); (w.Code == 200) != tc.ok || !tc.ok && (w.Code != 401 || strings.Contains(got, tc.host) || !strings.Contains(got, "public_url")) {
				t.Errorf("at %s for %s: %d %s", tc.at, tc.host, w.Code, got)
			}
			w = httptest.NewRecorder()
			a.Describe(w, from(peer, tc.at, "GET", "/", "Host", tc.host), TargetOf("", "/one/mcp"))
			if (w.Code == 200) != tc.ok {
				t.Errorf("the metadata at %s for %s: %d %s", tc.at, tc.host, w.Code, w.Body)
			}
		}
		r := from(peer, loopback, "GET", "/metrics", eng(i, "ann", here)...)
		if w := admit(a, r.WithContext(t.Context()), ""); w.Code != 401 { // a program that does not say where it came in
			t.Errorf("at an address that is not known: %d", w.Code)
		}
	})
}

// The bridge says what it makes of a key or a token, or why that does not count.
func TestWhoami(t *testing.T) {
	identified(t, quiet, asIs, func(t *testing.T, a *Access, i *authtest.Issuer) {
		guest := as(i.Token(here, authtest.Claims{"sub": "guest-1", "scope": "b a", "exp": time.Now().Add(time.Minute).Unix()}))
		for _, tc := range []struct {
			query  string
			who    []string
			status int
			want   string
		}{
			{"", guest, 200, `{"principal":"guests/https://idp.example.com#guest-1","rule":"guests","issuer":"https://idp.example.com","subject":"guest-1","client":"app","scopes":["a","b"],"until":"2000-01-01T00:01:30Z","servers":["one"]}`},
			{"", as(aliceKey), 200, `{"principal":"alice","rule":"alice","servers":["one","two"]}`},
			{"", eng(i, "ann", here+"/one/mcp"), 401, "not for this resource (" + here + ")"},
			{"?for=/one/mcp", eng(i, "ann", here+"/one/mcp"), 200, `"subject":"ann"`},
			{"?for=/two/mcp", eng(i, "ann", here+"/one/mcp"), 401, "not for this resource (" + here + "/two/mcp)"},
			{"?for=/three/mcp", eng(i, "ann", here+"/one/mcp"), 401, "not for this resource (" + here + ")"},
			{"?for=https://evil.example.com", eng(i, "ann", here+"/one/mcp"), 401, "not for this resource (" + here + ")"},
			{"", eng(i, "ann", here, authtest.Claims{"exp": time.Now().Add(-time.Hour).Unix()}), 401, "the token has expired"},
			{"", as(i.Token(here)), 403, "no access rule admits this user"},
			{"", nil, 401, "missing key or token"},
		} {
			w, r := httptest.NewRecorder(), from(peer, loopback, "GET", "/whoami"+tc.query, tc.who...)
			if r, ok := a.Admit(w, r, "/whoami", a.TargetFor(r, "")); ok {
				a.Whoami(w, r)
			}
			body := strings.NewReplacer("\n", "", "  ", "", `": `, `":`).Replace(w.Body.String())
			if w.Code != tc.status || !strings.Contains(body, tc.want) {
				t.Errorf("%s: %d %s, want %s", tc.query, w.Code, body, tc.want)
			}
		}
	})
	w := httptest.NewRecorder()
	ruled(t, func(c *config.Config) { c.OAuth, c.Access = nil, nil }).Whoami(w, from(peer, loopback, "GET", "/whoami"))
	if strings.Join(strings.Fields(w.Body.String()), "") != `{"servers":["one","two"]}` {
		t.Errorf("without access rules: %d %s", w.Code, w.Body)
	}
}

// The log says why a request was refused, but not each time, and never what was shown. With an issuer, a request
// without a key is a detail: each sign-in begins with one.
func TestRejectedLogged(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	identified(t, log, asIs, func(t *testing.T, a *Access, i *authtest.Issuer) {
		shows := func(name string, header []string, want ...string) {
			t.Helper()
			out.Reset()
			if w := admit(a, from(peer, loopback, "POST", "/one/mcp?token=s3cr3t-in-the-query", header...), "/one/mcp"); w.Code != 401 {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
			if n := strings.Count(out.String(), "request rejected"); n != min(len(want), 1) || strings.Contains(out.String(), "s3cr3t") {
				t.Errorf("%s: %d lines: %s", name, n, &out)
			}
			for _, part := range want {
				if !strings.Contains(out.String(), part) {
					t.Errorf("%s: %s, want %s", name, &out, part)
				}
			}
		}
		wrong, other := []string{"X-API-Key", "s3cr3t-that-is-wrong"}, eng(i, "ann", "my-api")
		shows("nothing", nil, "level=DEBUG", "the request has no key")
		shows("for somebody else", other, "level=INFO", `its aud [\"my-api\"] must have`, "more=0")
		shows("the same", other)
		shows("too old", eng(i, "ann", here, authtest.Claims{"exp": time.Now().Add(-time.Hour).Unix()}), "level=INFO", "the token has expired")
		shows("a wrong key", wrong, "level=INFO", "the key of the request is not valid", "path=/one/mcp", "from=198.51.100.7")
		for range WrongAtOnce - 1 {
			shows("wrong keys", wrong)
		}
		time.Sleep(RejectedLogEvery)
		shows("later, for somebody else", other, "more=1")
		shows("later, a wrong key", wrong, fmt.Sprint("more=", WrongAtOnce-1))
	})
}
