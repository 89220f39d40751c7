package server

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/oauthtest"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// signsIn makes an issuer a provider at which ann of the group signs in. Only userinfo tells the group.
func signsIn(t *testing.T, i *authtest.Issuer, group string) {
	i.Answer("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		oauthtest.JSON(w, 200, map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/jwks", "authorization_endpoint": i.URL + "/auth", "token_endpoint": i.URL + "/token", "userinfo_endpoint": i.URL + "/userinfo"})
	})
	i.Answer("/token", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		nonce := any(r.PostForm.Get("code")) // the code has it, for the lack of a memory
		if r.PostForm.Get("grant_type") == "refresh_token" {
			nonce = nil
		}
		id := i.Keys()[0].Sign(t, authtest.Claims{"typ": "JWT"}, i.Claims("bridge", authtest.Claims{"client_id": nil, "nonce": nonce}))
		oauthtest.JSON(w, 200, map[string]any{"access_token": "theirs", "token_type": "Bearer", "refresh_token": "theirs", "id_token": id})
	})
	i.Answer("/userinfo", func(w http.ResponseWriter, _ *http.Request) {
		oauthtest.JSON(w, 200, map[string]any{"sub": "ann", "groups": []string{group}})
	})
}

// fronting has the bridge stand in for its issuer.
func fronting(c *config.Config) {
	c.PublicURL = here
	c.OAuth[0].Front = &config.Front{Client: &oauth.Client{ID: "bridge", Secret: "the-secret"}}
}

// The bridge stands in for its issuer: its metadata names it, its routes are served beside
// those of servers, and its tokens count by the rules for users of the issuer, at the address
// that they are for.
func TestFront(t *testing.T) {
	for _, base := range []string{"", "/tools"} {
		root := here + base
		identified(t, func(c *config.Config) {
			fronting(c)
			c.BasePath = base
			c.Servers[1].HTTP = &remote.Config{URL: "https://tools.example.com/mcp", OAuth: &oauth.Settings{Exchange: "standard"}}
		}, func(t *testing.T, r *rig, i *authtest.Issuer) {
			a := r.ask("GET", "/.well-known/oauth-protected-resource"+base+"/one/mcp", "")
			if got := gjson.Get(a.Body.String(), "authorization_servers").Raw; got != `["`+root+`"]` {
				t.Fatalf("I-100: the metadata of the resource names %s", got)
			}
			a = r.ask("GET", "/.well-known/oauth-authorization-server"+base, "", "Origin", "https://inspector.example.com", "Sec-Fetch-Site", "cross-site")
			if v := gjson.Parse(a.Body.String()); v.Get("issuer").Str != root || v.Get("scopes_supported").Raw != `["mcp:use"]` || a.Header().Get("Access-Control-Allow-Origin") != "*" {
				t.Fatalf("%d %v %s", a.Code, a.Header(), a.Body)
			}
			// Under a name that is not served here there is none of it.
			for _, path := range []string{"/.well-known/oauth-authorization-server" + base, base + "/authorize", base + "/token", base + "/register"} {
				if a := r.ask("GET", path, "", "Host", "evil.example.com"); a.Code != 403 {
					t.Errorf("%s as evil.example.com: %d", path, a.Code)
				}
			}
			at := func(int) *rig { return r }
			signsIn(t, i, "sales") // no rule of access is for him
			if s := frontLogin(t, base, root+"/one/mcp", at); s.fault != "access_denied" {
				t.Errorf("of the group sales: %+v", s)
			}
			signsIn(t, i, "eng")
			if s := frontLogin(t, base, root+"/three/mcp", at); s.fault != "invalid_target" {
				t.Errorf("N-81: %+v", s)
			}
			s := frontLogin(t, base, root+"/one/mcp", at)
			token := s.tokens.Get("access_token").Str
			a = r.ask("GET", base+"/whoami?for=/one/mcp", "", as(token)...)
			if v := gjson.Parse(a.Body.String()); a.Code != 200 || v.Get("principal").Str != "staff/https://idp.example.com#ann" || v.Get("issuer").Str != i.URL || v.Get("scopes.0").Str != "mcp:use" || v.Get("scopes.#").Int() != 1 {
				t.Errorf("it is %d %s", a.Code, a.Body)
			}
			if a := r.ask("GET", base+"/whoami?for=/two/mcp", "", as(token)...); a.Code != 401 {
				t.Errorf("at another server: %d %s", a.Code, a.Body)
			}
			// Tokens of the issuer's are exchanged for those of servers, and ours are shown to
			// nobody else (I-110).
			for text, shown := range map[string]bool{token: false, i.Token(root+"/one/mcp", authtest.Claims{"groups": "eng"}): true} {
				q := from(peer, loopback, "POST", base+"/one/mcp", as(text)...)
				at := access.Target{Base: base, Endpoint: "/one/mcp"}
				q, ok := r.s.access.Admit(httptest.NewRecorder(), q, "", at)
				if q = r.s.access.Identify(q, at); !ok || (identity.SubjectOf(auth.IdentityOf(q.Context())) != nil) != shown {
					t.Errorf("a token is handed on: %t, want %t", !shown, shown)
				}
			}
			// One that the issuer itself has made out for the bridge counts, and is the same user.
			if a := r.ask("GET", base+"/whoami", "", as(i.Token(root, authtest.Claims{"groups": "eng"}))...); gjson.Get(a.Body.String(), "principal").Str != "staff/https://idp.example.com#ann" {
				t.Errorf("the issuer's own: %d %s", a.Code, a.Body)
			}
			if a := r.ask("GET", base+"/readyz", "", as(aliceKey)...); !strings.Contains(a.Body.String(), `"issuer": "`+root+`"`) {
				t.Errorf("operators do not see how the keys fare: %s", a.Body)
			}
		})
	}
}

// post sends a form.
func (r *rig) post(path string, form url.Values, header ...string) *httptest.ResponseRecorder {
	return r.ask("POST", path, form.Encode(), append(header, "Content-Type", "application/x-www-form-urlencoded")...)
}

// signedIn is a client whose user has signed in by the front.
type signedIn struct {
	client string
	code   url.Values // the form that the tokens are for
	tokens gjson.Result
	fault  string // the error with which the client is called back
}

// renew asks for tokens with a refresh token.
func (s *signedIn) renew(r *rig, refresh string) gjson.Result {
	return gjson.Parse(r.post("/token", url.Values{"grant_type": {"refresh_token"}, "client_id": {s.client}, "refresh_token": {refresh}}).Body.String())
}

// frontLogin registers a client of another page and signs its user in, for a resource below a base. at returns who serves
// each step.
func frontLogin(t *testing.T, base, resource string, at func(step int) *rig) (s signedIn) {
	t.Helper()
	const to = "http://127.0.0.1:7/cb"
	page := []string{"Origin", "https://inspector.example.com"}
	cookie := func(a *httptest.ResponseRecorder) []string {
		return []string{"Cookie", strings.SplitN(a.Header().Get("Set-Cookie"), ";", 2)[0], "Sec-Fetch-Site", "cross-site"}
	}
	called := func(a *httptest.ResponseRecorder) url.Values {
		t.Helper()
		u, err := url.Parse(a.Header().Get("Location"))
		if err != nil || a.Code != 302 {
			t.Fatalf("%d %s %v", a.Code, a.Body, err)
		}
		return u.Query()
	}
	s.client = gjson.Get(at(0).ask("POST", base+"/register", `{"client_name":"c","redirect_uris":["`+to+`"]}`, page...).Body.String(), "client_id").Str
	sum := sha256.Sum256([]byte("a verifier"))
	ask := url.Values{"response_type": {"code"}, "client_id": {s.client}, "redirect_uri": {to}, "code_challenge_method": {"S256"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}}
	if resource != "" {
		ask.Set("resource", resource)
	}
	a := at(1).ask("GET", base+"/authorize?"+ask.Encode(), "", "Sec-Fetch-Site", "cross-site")
	if a.Code == 302 {
		s.fault = called(a).Get("error")
		return s
	}
	found := regexp.MustCompile(`name="request" value="([^"]+)"`).FindStringSubmatch(a.Body.String())
	if found == nil || !strings.Contains(a.Body.String(), `action="`+base+`/oauth/consent"`) {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	a = at(2).post(base+"/oauth/consent", url.Values{"request": {html.UnescapeString(found[1])}, "answer": {"allow"}}, append(cookie(a)[:2], "Origin", here)...)
	back := called(a)
	if got := back.Get("redirect_uri"); got != here+base+"/oauth/callback" {
		t.Errorf("the provider calls %s back", got)
	}
	back = called(at(3).ask("GET", base+"/oauth/callback?"+url.Values{"code": {back.Get("nonce")}, "state": {back.Get("state")}}.Encode(), "", cookie(a)...))
	if s.fault = back.Get("error"); s.fault != "" {
		return s
	}
	s.code = url.Values{"grant_type": {"authorization_code"}, "client_id": {s.client}, "code": {back.Get("code")}, "redirect_uri": {to}, "code_verifier": {"a verifier"}}
	s.tokens = gjson.Parse(at(4).post(base+"/token", s.code, page...).Body.String())
	if s.tokens.Get("access_token").Str == "" {
		t.Fatalf("there is no token: %s", s.tokens)
	}
	return s
}

// With state_dir, a login of the only instance outlives its restart.
func TestFrontRestart(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "front.key")
	if err := os.WriteFile(key, []byte("a key of this test that is long enough"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := authtest.Serve(t)
	signsIn(t, i, "eng")
	start := func(state string) *rig {
		return newRig(t, func(c *config.Config) {
			users(i)(c)
			fronting(c)
			c.OAuth[0].Transport, c.Listen = nil, "127.0.0.1:0"
			c.OAuth[0].Front.KeyFile, c.OAuth[0].Front.StateDir = key, state
		}, "one")
	}
	for state, want := range map[string]bool{filepath.Join(dir, "state"): true, "": false} {
		r := start(state)
		listener, err := r.s.Listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = listener.Close()
		s := frontLogin(t, "", "", func(int) *rig { return r })
		r.s.Close(t.Context())
		r = start(state)
		next := s.renew(r, s.tokens.Get("refresh_token").Str)
		token := as(next.Get("access_token").Str)
		if good := token[1] != "Bearer "; good != want {
			t.Errorf("after a restart with state_dir %q: %s", state, next)
		}
		if a := r.ask("GET", "/whoami", "", token...); (gjson.Get(a.Body.String(), "subject").Str == "ann") != want {
			t.Errorf("the token, with state_dir %q: %d %s", state, a.Code, a.Body)
		}
		if a := r.post("/token", s.code); gjson.Get(a.Body.String(), "error").Str != "invalid_grant" {
			t.Errorf("the code, after a restart: %d %s", a.Code, a.Body)
		}
		r.s.Close(t.Context())
	}
	// What cannot be used is known at the start.
	r := start(filepath.Join(key, "x"))
	if l, err := r.s.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "state_dir cannot be created") {
		t.Errorf("a folder that cannot be made: %v %v", l, err)
	}
}

// Two instances are one front: what begins at one of them ends at the other, a code is good
// once for both (S-045), and a login that ends at one of them has ended at both.
func TestClusterFront(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		i := authtest.New(t, "https://idp.example.com")
		signsIn(t, i, "eng")
		var both [2]*rig
		for n := range both {
			c := instanceIn()
			c.Servers = []config.Server{config.DefaultServer("one", "")}
			users(i)(c)
			fronting(c)
			o := w.start(c, slog.New(slog.DiscardHandler), reaching(&wiretest.Server{}))
			both[n] = &rig{t: t, s: o.s}
		}
		s := frontLogin(t, "", "", func(step int) *rig { return both[step%2] })
		if a := both[1].ask("GET", "/whoami", "", as(s.tokens.Get("access_token").Str)...); gjson.Get(a.Body.String(), "subject").Str != "ann" {
			t.Errorf("the token at the other: %d %s", a.Code, a.Body)
		}
		next := s.renew(both[1], s.tokens.Get("refresh_token").Str)
		if next.Get("access_token").Str == "" {
			t.Fatalf("renewed at the other: %s", next)
		}
		if a := both[1].post("/token", s.code); gjson.Get(a.Body.String(), "error").Str != "invalid_grant" {
			t.Errorf("the code at the other: %d %s", a.Code, a.Body)
		}
		if end := s.renew(both[0], next.Get("refresh_token").Str); end.Get("error").Str != "invalid_grant" {
			t.Errorf("what came of a code that was used twice: %s", end)
		}
		w.until("the other instance hears of it", func() bool {
			return both[0].ask("GET", "/whoami", "", as(next.Get("access_token").Str)...).Code == 401
		})
	})
}

// The front is put together with what keeps it safe: metadata of clients is not fetched from
// private networks (N-80).
func TestFrontWiring(t *testing.T) {
	var connections atomic.Int64
	inside := httptest.NewUnstartedServer(http.NotFoundHandler())
	inside.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew { // before it has shown its certificate
			connections.Add(1)
		}
	}
	inside.StartTLS()
	t.Cleanup(inside.Close)
	i := authtest.Serve(t)
	signsIn(t, i, "eng")
	r := newRig(t, func(c *config.Config) {
		users(i)(c)
		fronting(c)
		c.OAuth[0].Transport = nil
	}, "one")
	a := r.ask("GET", "/authorize?"+url.Values{"client_id": {inside.URL + "/client.json"}, "response_type": {"code"}}.Encode(), "")
	if a.Code != 400 || !strings.Contains(a.Body.String(), "its metadata cannot be fetched") || connections.Load() > 0 {
		t.Errorf("N-80: %d %s, connections: %d", a.Code, a.Body, connections.Load())
	}
}
