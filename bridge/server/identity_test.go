package server

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/oauth/oauthtest"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// here is how clients in these tests reach the bridge.
const here = "http://127.0.0.1:8808"

// users are access rules for those of an issuer, beside alice and bob of private: its
// group eng may use everything, and guests the server one without its tool echo.
func users(i *authtest.Issuer) func(c *config.Config) {
	return func(c *config.Config) {
		private(c)
		c.OAuth = []config.OAuth{{Issuer: i.URL, Transport: i, Scopes: []string{"mcp:use"}}}
		c.Access = append(c.Access,
			config.Access{Name: "staff", Claims: map[string]config.Words{"groups": {"eng"}}},
			config.Access{Name: "guests", Users: config.Words{"guest-*"}, Servers: []string{"one"}, Tools: config.Choice{Deny: []string{"echo"}}})
	}
}

// eng makes a token of a member of the group eng.
func eng(i *authtest.Issuer, sub, audience string, life time.Duration) []string {
	return as(i.Token(audience, authtest.Claims{"sub": sub, "groups": []string{"eng"}, "exp": time.Now().Add(life).Unix()}))
}

// identified runs f in a bubble with an issuer and a bridge that takes its tokens.
func identified(t *testing.T, change func(*config.Config), f func(t *testing.T, r *rig, i *authtest.Issuer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		i := authtest.New(t, "https://idp.example.com")
		f(t, newRig(t, func(c *config.Config) {
			users(i)(c)
			if change != nil {
				change(c)
			}
		}, "one", "two"), i)
	})
}

// The metadata of each endpoint is at the place where the standard has it, and below the base. A page of any site may
// look. The challenge names an address that has the metadata (I-001 to I-006). Methods and other names of the bridge:
// TestAnswers.
func TestMetadataPaths(t *testing.T) {
	const own, public = "/.well-known/oauth-protected-resource", "https://mcp.example.com"
	for _, tc := range []struct{ public, base, path, resource string }{
		{"", "", own, here},
		{"", "", own + "/", here},
		{"", "", own + "/mcp", here + "/mcp"},
		{"", "", own + "/one/mcp/", here + "/one/mcp"},
		{"", "", own + "/two/sse", here + "/two/sse"},
		{"", "", own + "one/mcp", ""},
		{"", "", own + "//mcp", ""},
		{public, "", own + "/one/mcp", public + "/one/mcp"},
		{public, "/a/b", own + "/a/b/one/mcp", public + "/a/b/one/mcp"},
		{public, "/a/b", "/a/b" + own + "/one/mcp", public + "/a/b/one/mcp"},
		{public, "/a/b", own + "/a/b", public + "/a/b"},
		{public, "/a/b", "/a/b" + own, public + "/a/b"},
		{public, "/a/b", own, ""},
		{public, "/a/b", own + "/one/mcp", ""},
		{public, "/a/b", own + "/a/bc/one/mcp", ""},
	} {
		identified(t, func(c *config.Config) { c.PublicURL, c.BasePath = tc.public, tc.base }, func(t *testing.T, r *rig, i *authtest.Issuer) {
			a := r.answer(from(peer, loopback, "GET", tc.path, "Origin", "https://inspector.example.com", "Sec-Fetch-Site", "cross-site"))
			if found := a.Code == 200 && a.Header().Get("Access-Control-Allow-Origin") == "*"; found != (tc.resource != "") || gjson.Get(a.Body.String(), "resource").Str != tc.resource {
				t.Errorf("%s below %q: %d %v %s, want %q", tc.path, tc.base, a.Code, a.Header(), a.Body, tc.resource)
			}
			if root, ok := strings.CutSuffix(tc.resource, tc.base+"/one/mcp"); ok {
				got := r.answer(from(peer, loopback, "POST", tc.base+"/one/mcp")).Header().Get("WWW-Authenticate")
				if !strings.Contains(got, `resource_metadata="`+root+tc.base+own+`/one/mcp"`) {
					t.Errorf("below %q: %s", tc.base, got)
				}
			}
		})
	}
}

// A session is its user's, whatever token of its own that shows; nobody else's can use
// it (I-010, N-50). Calls under way are answered when the token ends meanwhile; streams
// end with the last one that was shown (I-027, N-51).
func TestTokenSessions(t *testing.T) {
	identified(t, func(c *config.Config) { c.Console = config.ConsoleOn }, func(t *testing.T, r *rig, i *authtest.Issuer) {
		ann := eng(i, "ann", here, 2*time.Minute)
		id := r.Do("POST", "/one/mcp", initialize, ann...).Wait().Header("Mcp-Session-Id")
		in := func(who []string) []string { return append(who[:2:2], "Mcp-Session-Id", id) }
		for name, tc := range map[string]struct {
			who    []string
			status int
		}{
			"the same token": {ann, 200}, "a newer one": {eng(i, "ann", here, 20*time.Minute), 200}, "N-50 another user": {eng(i, "bob", here, time.Hour), 404},
			"a key": {as(aliceKey), 404}, "nothing": {[]string{"X", "y"}, 401}, "one that has ended": {eng(i, "ann", here, -time.Minute), 401},
			"another rule": {as(i.Token(here, authtest.Claims{"sub": "guest-1"})), 404},
		} {
			if a := r.Do("POST", "/one/mcp", call("1", "echo"), in(tc.who)...).Wait(); a.Status() != tc.status {
				t.Errorf("with %s: %d %s, want %d", name, a.Status(), a.Body(), tc.status)
			}
		}

		// What is open with a token of two minutes: some of it ends, some is renewed, and calls are answered.
		bob := eng(i, "bob", here, 2*time.Minute)
		bobs := r.Do("POST", "/one/mcp", initialize, bob...).Wait().Header("Mcp-Session-Id")
		body, header := modernCall("subscriptions/listen", `"notifications":{"toolsListChanged":true},`)
		ends := []*wiretest.Reply{
			r.Do("GET", "/one/mcp", "", append(bob[:2:2], "Mcp-Session-Id", bobs)...),
			r.Do("POST", "/one/mcp", body, append(header, ann...)...),
			r.Do("POST", "/ui/mcp/one", body, append(header, ann...)...),
		}
		body, header = modernCall("tools/call", `"name":"late","arguments":{"after":"4m"},`)
		calls := []*wiretest.Reply{
			r.Do("POST", "/one/mcp", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"late","arguments":{"after":"4m"}}}`, in(ann)...),
			r.Do("POST", "/one/mcp", body, append(append(header, "Mcp-Name", "late"), ann...)...),
		}
		renewed := []*wiretest.Reply{r.Do("GET", "/one/mcp", "", in(ann)...), r.Do("GET", "/one/sse", "", ann...)}
		synctest.Wait()
		endpoint := renewed[1].Events()[0].Data
		if a := r.Do("POST", endpoint, initialize, eng(i, "bob", here, time.Hour)...).Wait(); a.Status() != 404 {
			t.Errorf("another user's stream: %d %s", a.Status(), a.Body())
		}
		newer := eng(i, "ann", here, 10*time.Minute)
		for _, a := range []*wiretest.Reply{r.Do("POST", endpoint, initialize, newer...), r.Do("POST", "/one/mcp", call("3", "echo"), in(newer)...)} {
			if a.Wait(); a.Status() >= 300 {
				t.Fatalf("a newer token: %d %s", a.Status(), a.Body())
			}
		}
		over := func(when string, all []*wiretest.Reply, want bool) {
			t.Helper()
			synctest.Wait()
			for n, r := range all {
				if r.Over() != want || r.Status() != 200 {
					t.Errorf("%s, %d is over: %t (%d)", when, n, r.Over(), r.Status())
				}
			}
		}
		time.Sleep(2 * time.Minute)
		over("at the end of the token, what ends with it", ends, false)
		time.Sleep(time.Minute)
		over("after the token, what ends with it", ends, true)
		over("after the token, what was renewed", renewed, false)
		for _, r := range calls {
			if r.Wait(); !strings.Contains(r.Body(), `"late":true`) {
				t.Errorf("a call that its token ended in: %d %s", r.Status(), r.Body())
			}
		}
		time.Sleep(6 * time.Minute)
		over("with a newer token, what was renewed", renewed, false)
		time.Sleep(3 * time.Minute)
		over("after the newer token, what was renewed", renewed, true)
	})
}

// N-48 and I-022: tokens that cannot be checked are not refused, and who has a key, or a token that was good before, does
// not notice. Operators see it (I-030). That holds for the keys of an issuer, and for tokens that only the issuer can
// read, which let users in as others do (I-024, I-025). No token is in the log, nor the secret of the bridge.
func TestIssuerAway(t *testing.T) {
	const secret, url = "the-bridges-secret", `{issuer="https://idp.example.com"} `
	for path, metrics := range map[string][]string{
		"/jwks":       {"jwks_age_seconds" + url, "jwks_fetches_total" + url, "jwks_fetch_failures_total" + url},
		"/introspect": {"introspections_total" + url + "4", "introspection_failures_total" + url + "1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			i := authtest.New(t, "https://idp.example.com")
			signed := i.Token(here, authtest.Claims{"groups": "eng"})
			good, before := signed, []string{aliceKey} // a token that cannot be checked meanwhile, and what was shown before
			fails := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
			reads := func(w http.ResponseWriter, r *http.Request) {
				_ = r.ParseForm()
				raw := r.PostForm.Get("token")
				oauthtest.JSON(w, 200, i.Claims(here, authtest.Claims{"active": strings.HasPrefix(raw, "opaque"), "sub": raw, "groups": []string{"eng"}}))
			}
			if i.Answer("/introspect", reads); path == "/introspect" {
				good, before = "opaque-of-cid", append(before, signed, "opaque-of-ann")
			} else {
				i.Answer(path, fails)
			}
			var log bytes.Buffer
			r := newRigLog(t, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), func(c *config.Config) {
				users(i)(c)
				if path == "/introspect" {
					c.OAuth[0].Introspection = config.Introspection{Client: config.OAuthClient{ID: "bridge", Secret: secret}}
				}
			}, "one", "two")
			shows := func(when, raw string, want int) *wiretest.Reply {
				t.Helper()
				a := r.Do("POST", "/one/mcp", initialize, as(raw)...).Wait()
				if a.Status() != want {
					t.Errorf("%s, %s, %.20s: %d %s, want %d", path, when, raw, a.Status(), a.Body(), want)
				}
				return a
			}
			look := func(key, want string) {
				t.Helper()
				got := r.Do("GET", "/readyz", "", "Accept", "application/json", "Authorization", "Bearer "+key).Wait().Body()
				if gjson.Get(got, "issuers.0.state").Str != want || (want == "unreachable") != strings.Contains(got, "500") {
					t.Errorf("%s: /readyz: %s, want %q", path, got, want)
				}
			}
			for _, raw := range before {
				shows("at first", raw, 200)
			}
			if path == "/introspect" {
				shows("at first", "nothing-of-eve", 401)
			}
			i.Answer(path, fails)
			a := shows("when it is away", good, 503)
			if a.Header("Retry-After") == "" || a.Header("WWW-Authenticate") != "" || gjson.Get(a.Body(), "error.data.bridge").Str != "unavailable_identity" {
				t.Errorf("%s: %s", path, a.Body())
			}
			for _, raw := range before {
				shows("meanwhile", raw, 200)
			}
			look(aliceKey, "unreachable")
			look(bobKey, "") // no operator
			i.Answer(path, map[string]http.HandlerFunc{"/introspect": reads}[path])
			time.Sleep(31 * time.Second)
			shows("when it is back", good, 200)
			look(aliceKey, "ok")
			scraped := r.Do("GET", "/metrics", "", as(aliceKey)...).Wait().Body()
			for _, want := range append(metrics, `auth_total{result="unavailable"} 1`, `auth_total{result="ok"} `) {
				if !strings.Contains(scraped, "\nmcp_bridge_"+want) {
					t.Errorf("/metrics has no %s: %s", want, scraped)
				}
			}
			for _, part := range []string{"eyJ", "Bearer", "nothing-of-eve", secret} {
				if strings.Contains(log.String(), part) {
					t.Errorf("%s: %s is in the log:\n%s", path, part, &log)
				}
			}
			if path == "/introspect" && !strings.Contains(log.String(), "introspection fails") {
				t.Errorf("the log:\n%s", &log)
			}
		})
	}
}

// N-84: a token that a client shows reaches nobody: no server, no log, no answer (I-029, I-058).
func TestTokenStaysHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := authtest.New(t, "https://idp.example.com")
		var log bytes.Buffer
		r := newRigLog(t, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), users(i), "one", "two")
		who := eng(i, "ann", here, time.Hour)
		parts := strings.Split(strings.TrimPrefix(who[1], "Bearer "), ".")
		a := r.Do("POST", "/one/mcp", initialize, who...).Wait()
		id := a.Header("Mcp-Session-Id")
		answers := a.Body()
		for _, body := range []string{call("1", "echo"), call("2", "quit"), call("3", "none"), `{"jsonrpc":"2.0","id":4,"method":"tools/list"}`, "junk"} {
			answers += r.Do("POST", "/one/mcp", body, append(who[:2:2], "Mcp-Session-Id", id)...).Wait().Body()
		}
		bad := append(who[:1:1], who[1]+"x")
		answers += r.Do("POST", "/one/mcp", initialize, bad...).Wait().Body() + r.Do("GET", "/readyz", "", who...).Wait().Body() + r.Do("GET", "/metrics", "", who...).Wait().Body()
		sent := strings.Join(r.f.Got(), "\n")
		if sent == "" || answers == "" || log.Len() == 0 {
			t.Fatal("nothing was looked at")
		}
		for what, text := range map[string]string{"a server": sent, "a client": answers, "the log": log.String()} {
			for _, part := range parts {
				if strings.Contains(text, part) {
					t.Errorf("%s has got a part of the token", what)
				}
			}
		}
	})
}
