package front

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/oauthtest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

const (
	root     = "https://mcp.example.com"
	provider = "https://idp.example.com"
	filesURL = root + "/files/mcp"
	back     = "http://127.0.0.1:7777/callback"
	verifier = "a-verifier-of-this-test-which-is-43-long-or-more"
)

func challenge(of string) string {
	sum := sha256.Sum256([]byte(of))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// idp is a provider that behaves well unless a test changes that.
type idp struct {
	*authtest.Issuer
	t       testing.TB
	mu      sync.Mutex // guards the fields below
	codes   map[string]url.Values
	forms   []url.Values                     // token requests so far
	change  func(url.Values, map[string]any) // changes an answer with tokens
	claims  authtest.Claims                  // changes of the usual claims of ID tokens
	refuse  string                           // error of its token endpoint
	during  func()                           // called during a renewal
	turn    int
	live    map[string]bool // valid refresh tokens
	meta    map[string]any
	noToken bool // issues no refresh token
}

func newIDP(t *testing.T) *idp {
	i := &idp{t: t, Issuer: authtest.New(t, provider), codes: map[string]url.Values{}, live: map[string]bool{}, meta: map[string]any{
		"issuer": provider, "jwks_uri": provider + "/jwks", "authorization_endpoint": provider + "/auth?tenant=1", "token_endpoint": provider + "/token",
		"authorization_response_iss_parameter_supported": true,
	}}
	i.Answer("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) { oauthtest.JSON(w, 200, i.meta) })
	i.Answer("/token", i.token)
	return i
}

func (i *idp) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	i.mu.Lock()
	i.forms = append(i.forms, r.PostForm)
	during, refuse := i.during, i.refuse
	q := i.codes[r.PostForm.Get("code")]
	delete(i.codes, r.PostForm.Get("code"))
	live := i.live[r.PostForm.Get("refresh_token")]
	i.mu.Unlock()
	if during != nil {
		during()
	}
	id, secret, _ := r.BasicAuth()
	nonce := any(q.Get("nonce"))
	switch {
	case refuse != "":
		oauthtest.JSON(w, map[bool]int{true: 400, false: 500}[refuse == "invalid_grant"], map[string]any{"error": refuse})
		return
	case id != "bridge" || secret != "the-secret":
		oauthtest.JSON(w, 401, map[string]any{"error": "invalid_client"})
		return
	case r.PostForm.Get("grant_type") == "refresh_token" && live:
		nonce = nil
	case q == nil || challenge(r.PostForm.Get("code_verifier")) != q.Get("code_challenge") || r.PostForm.Get("redirect_uri") != q.Get("redirect_uri"):
		oauthtest.JSON(w, 400, map[string]any{"error": "invalid_grant"})
		return
	}
	i.mu.Lock()
	i.turn++
	delete(i.live, r.PostForm.Get("refresh_token"))
	i.live[fmt.Sprint("theirs-", i.turn)] = true
	claims := i.Claims("bridge", authtest.Claims{"sub": "ann", "client_id": nil, "nonce": nonce, "groups": []string{"eng"}, "email": "ann@example.com"}, i.claims)
	out := map[string]any{"access_token": "theirs-access", "token_type": "bearer", "refresh_token": fmt.Sprint("theirs-", i.turn)}
	if i.noToken {
		delete(out, "refresh_token")
	}
	change := i.change
	i.mu.Unlock()
	out["id_token"] = i.Keys()[0].Sign(i.t, authtest.Claims{"typ": "JWT"}, claims)
	if change != nil {
		change(r.PostForm, out)
	}
	oauthtest.JSON(w, 200, out)
}

// set changes the provider.
func (i *idp) set(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f()
}

// signIn is the provider's page: the user signs in. It returns the address to which the browser is sent.
func (i *idp) signIn(t *testing.T, at string) *url.URL {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil || !strings.HasPrefix(at, provider+"/auth?") {
		t.Fatalf("the browser is at %s", at)
	}
	q := u.Query()
	i.mu.Lock()
	defer i.mu.Unlock()
	code := fmt.Sprint("code-", len(i.forms), len(i.codes))
	i.codes[code] = q
	to, _ := url.Parse(q.Get("redirect_uri"))
	to.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {provider}}.Encode()
	return to
}

// rig is a front with a provider and a verifier of its tokens.
type rig struct {
	*Front
	t     *testing.T
	p     *idp
	docs  *oauthtest.Net
	check *token.Verifier
	log   *bytes.Buffer
}

// testBridge is the bridge of a rig.
type testBridge struct {
	r      *rig
	admits func(ctx context.Context, token, resource string) bool
	from   func(*http.Request) netip.Addr
}

func (t *testBridge) Identify(ctx context.Context, raw, client, nonce string) (gjson.Result, error) {
	return t.r.check.Identify(ctx, provider, raw, client, nonce)
}

func (t *testBridge) Admits(ctx context.Context, token, resource string) bool {
	return t.admits(ctx, token, resource)
}

func (t *testBridge) Resource(address string) ([]string, bool) {
	return []string{"mcp:use"}, address == root || address == filesURL
}

func (t *testBridge) Scopes() []string { return []string{"files:write", "mcp:use"} }

func (t *testBridge) From(r *http.Request) netip.Addr { return t.from(r) }

// fronted runs f with a front, in a bubble.
func fronted(t *testing.T, change func(*Options), f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t, newIDP(t), change)) })
}

func newRig(t *testing.T, i *idp, change func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, p: i, docs: &oauthtest.Net{}, log: &bytes.Buffer{}}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	o := Options{
		Settings: Settings{Client: &oauth.Client{ID: "bridge", Secret: "the-secret"}, KeyFile: "is read elsewhere", Scopes: []string{"profile"}},
		Root:     root, Provider: provider, Transport: i, Documents: r.docs, Log: log, Secrets: []string{"a secret of this test of 32 bytes"},
		Bridge: &testBridge{
			r:      r,
			admits: func(context.Context, string, string) bool { return true },
			from:   func(*http.Request) netip.Addr { return netip.MustParseAddr("192.0.2.1") },
		},
	}
	if change != nil {
		change(&o)
	}
	var err error
	if r.Front, err = New(o); err != nil {
		t.Fatal(err)
	}
	r.check = token.New([]token.Issuer{{URL: provider, Transport: i, Front: r.Tokens(), Implies: map[string][]string{"files:write": {"files:read"}}}}, log)
	authtest.Run(t, r.check.Run)
	return r
}

// do sends a request to the front.
func (r *rig) do(method, path string, body any, header ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	text, kind := "", "application/json"
	switch b := body.(type) {
	case url.Values:
		text, kind = b.Encode(), "application/x-www-form-urlencoded"
	case string:
		text = b
	case nil:
	default:
		data, err := json.Marshal(b)
		if err != nil {
			r.t.Fatal(err)
		}
		text = string(data)
	}
	q := httptest.NewRequest(method, path, strings.NewReader(text))
	q.Header.Set("Content-Type", kind)
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	if !slices.Contains(r.Paths(), q.URL.Path) {
		r.t.Fatalf("%s is none of the front", path)
	}
	r.ServeHTTP(w, q)
	return w
}

// join registers a client and returns its id.
func (r *rig) join(redirects ...string) string {
	r.t.Helper()
	a := r.do("POST", "/register", map[string]any{"client_name": "Test client", "redirect_uris": redirects})
	if a.Code != 201 {
		r.t.Fatalf("register: %d %s", a.Code, a.Body)
	}
	return gjson.Get(a.Body.String(), "client_id").Str
}

// ask returns the parameters of a valid authorization request, with changes.
func ask(client string, changes ...string) url.Values {
	return changed(url.Values{
		"response_type": {"code"}, "client_id": {client}, "redirect_uri": {back}, "state": {"the state"}, "scope": {"mcp:use"},
		"code_challenge": {challenge(verifier)}, "code_challenge_method": {"S256"}, "resource": {filesURL},
	}, changes)
}

// browser is a browser with cookies.
type browser struct {
	*rig
	jar http.CookieJar
}

func (r *rig) browser() *browser {
	jar, _ := cookiejar.New(nil) // it never fails without options
	return &browser{r, jar}
}

var at, _ = url.Parse(root)

func (b *browser) do(method, path string, body any, header ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	for _, c := range b.jar.Cookies(at) {
		header = append(header, "Cookie", c.String())
	}
	a := b.rig.do(method, path, body, header...)
	b.jar.SetCookies(at, a.Result().Cookies())
	return a
}

var sealedRequest = regexp.MustCompile(`name="request" value="([^"]+)"`)

// page opens the consent page.
func (b *browser) page(q url.Values, header ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.do("GET", "/authorize?"+q.Encode(), nil, header...)
}

// sealedIn returns the request that a consent page holds; "" if it is none.
func sealedIn(a *httptest.ResponseRecorder) string {
	if found := sealedRequest.FindStringSubmatch(a.Body.String()); found != nil && a.Code == 200 {
		return html.UnescapeString(found[1])
	}
	return ""
}

// answer answers a consent page.
func (b *browser) answer(page *httptest.ResponseRecorder, what string) *httptest.ResponseRecorder {
	b.t.Helper()
	request := sealedIn(page)
	if request == "" {
		b.t.Fatalf("the user is not asked: %d %v %s", page.Code, page.Header(), page.Body)
	}
	return b.do("POST", "/oauth/consent", url.Values{"request": {request}, "answer": {what}}, "Origin", root, "Sec-Fetch-Site", "same-origin")
}

// agree opens the consent page and returns the answer to Allow.
func (b *browser) agree(q url.Values) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.answer(b.page(q), "allow")
}

// signIn goes through all pages and returns the client's callback.
func (b *browser) signIn(q url.Values) url.Values {
	b.t.Helper()
	a := b.agree(q)
	if a.Code != 302 {
		b.t.Fatalf("consent: %d %s", a.Code, a.Body)
	}
	return b.returns(b.p.signIn(b.t, a.Header().Get("Location")))
}

// returns follows the provider's redirect back.
func (b *browser) returns(to *url.URL) url.Values {
	b.t.Helper()
	a := b.do("GET", to.RequestURI(), nil)
	u, err := url.Parse(a.Header().Get("Location"))
	if a.Code != 302 || err != nil || !strings.HasPrefix(u.String(), back) {
		b.t.Fatalf("callback: %d %v %s\n%s", a.Code, a.Header(), a.Body, b.log)
	}
	return u.Query()
}

func form(client, code string, changes ...string) url.Values {
	return changed(url.Values{"grant_type": {"authorization_code"}, "client_id": {client}, "code": {code}, "redirect_uri": {back}, "code_verifier": {verifier}, "resource": {filesURL}}, changes)
}

// changed sets parameters; "" removes one.
func changed(q url.Values, changes []string) url.Values {
	for i := 0; i+1 < len(changes); i += 2 {
		if q.Set(changes[i], changes[i+1]); changes[i+1] == "" {
			q.Del(changes[i])
		}
	}
	return q
}

// tokens returns the access token and refresh token of the token endpoint, or its error.
func (r *rig) tokens(f url.Values) (access, refresh, fault string) {
	r.t.Helper()
	a := r.do("POST", "/token", f)
	v := gjson.Parse(a.Body.String())
	if a.Header().Get("Cache-Control") != "no-store" || a.Header().Get("Access-Control-Allow-Origin") != "*" {
		r.t.Errorf("the answer has %v", a.Header())
	}
	fault = v.Get("error").Str
	if (fault == "") != (a.Code == 200) || fault == "temporarily_unavailable" && (a.Code != 503 || a.Header().Get("Retry-After") == "") {
		r.t.Errorf("%d %v %s", a.Code, a.Header(), a.Body)
	}
	return v.Get("access_token").Str, v.Get("refresh_token").Str, fault
}

// granted returns the tokens that the token endpoint must give.
func (r *rig) granted(f url.Values) (access, refresh string) {
	r.t.Helper()
	access, refresh, fault := r.tokens(f)
	if fault != "" {
		r.t.Fatalf("%s: %s\n%s", f.Get("grant_type"), fault, r.log)
	}
	return access, refresh
}

// faults compares the error of the token endpoint; "" is none.
func (r *rig) faults(what string, f url.Values, want string) {
	r.t.Helper()
	if _, _, fault := r.tokens(f); fault != want {
		r.t.Errorf("%s: the error is %q, want %q", what, fault, want)
	}
}

// verified returns what a token of the front says.
func (r *rig) verified(access string) *token.Token {
	r.t.Helper()
	tok, err := r.good(access, filesURL)
	if err != nil {
		r.t.Fatal(err)
	}
	return tok
}

// counts compares whether a token counts at its resource.
func (r *rig) counts(what, access string, want bool) {
	r.t.Helper()
	if _, err := r.good(access, filesURL); (err == nil) != want {
		r.t.Errorf("%s: the token counts %t (%v), want %t", what, err == nil, err, want)
	}
}

func again(client, refresh string, changes ...string) url.Values {
	return changed(url.Values{"grant_type": {"refresh_token"}, "client_id": {client}, "refresh_token": {refresh}}, changes)
}

// good returns the verified token of the front.
func (r *rig) good(access, resource string) (*token.Token, error) {
	return r.check.Verify(r.t.Context(), access, sha256.Sum256([]byte(access)), token.Resource{Root: root, Path: strings.TrimPrefix(resource, root)})
}

// A client registers, its user agrees and signs in at the provider, and the client gets tokens and renews them. For
// the resource server each is a token of the provider.
func TestSignIn(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		id := r.join(back)
		b := r.browser()
		a := b.agree(ask(id, "scope", "mcp:use openid offline_access unknown"))
		u, err := url.Parse(a.Header().Get("Location"))
		if a.Code != 302 || err != nil {
			t.Fatal(a.Code, err)
		}
		q := u.Query()
		for name, want := range map[string]string{"tenant": "1", "response_type": "code", "client_id": "bridge", "redirect_uri": root + "/oauth/callback", "scope": "openid profile", "code_challenge_method": "S256", "resource": ""} {
			if q.Get(name) != want {
				t.Errorf("I-107: %s is %q, want %q", name, q.Get(name), want)
			}
		}
		if q.Get("state") == "the state" || q.Get("code_challenge") == challenge(verifier) || q.Get("nonce") == "" {
			t.Errorf("I-107: what is the client's goes to the provider, or there is no nonce: %v", q)
		}
		var cookies []*http.Cookie
		for _, c := range a.Result().Cookies() {
			if strings.HasPrefix(c.Name, "__Host-mcp-signin-") {
				cookies = append(cookies, c)
			}
		}
		if len(cookies) != 1 || !cookies[0].Secure || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteLaxMode || cookies[0].Path != "/" || cookies[0].Domain != "" || cookies[0].MaxAge != 600 {
			t.Errorf("I-106: the cookie is %v", cookies)
		}
		got := b.returns(r.p.signIn(t, u.String()))
		if len(got) != 3 || got.Get("state") != "the state" || len(got["iss"]) != 1 || got.Get("iss") != root {
			t.Errorf("I-111: the client is called back with %v", got)
		}
		access, refresh := r.granted(form(id, got.Get("code")))
		tok := r.verified(access)
		if tok.Issuer != provider || tok.Subject != "ann" || tok.Machine || !slices.Equal(tok.Scopes, []string{"mcp:use"}) || tok.Client != idOf(id) {
			t.Errorf("the token is of %s %s by %s for %v", tok.Issuer, tok.Subject, tok.Client, tok.Scopes)
		}
		if token.At(tok.Claims, "email").Str != "ann@example.com" || token.Texts(token.At(tok.Claims, "groups"))[0] != "eng" || token.At(tok.Claims, "sub").Str != "ann" || token.At(tok.Claims, "iss").Str != provider {
			t.Errorf("it says %s", tok.Claims.Raw)
		}
		if token.At(tok.Claims, "scope").Exists() || token.At(tok.Claims, "client_id").Exists() || !tok.Fronted() {
			t.Errorf("it says what is not the provider's word, or does not say that it is the bridge's: %s", tok.Claims.Raw)
		}
		if until := time.Until(tok.Until); until > time.Hour+30*time.Second {
			t.Errorf("I-109: it lives for %v", until)
		}
		head, _ := base64.RawURLEncoding.DecodeString(strings.Split(access, ".")[0])
		body, _ := base64.RawURLEncoding.DecodeString(strings.Split(access, ".")[1])
		if gjson.GetBytes(head, "typ").Str != "at+jwt" || gjson.GetBytes(head, "alg").Str != "ES256" || gjson.GetBytes(body, "aud").Str != filesURL || gjson.GetBytes(body, "iss").Str != root {
			t.Errorf("I-109: %s %s", head, body)
		}
		if strings.Contains(string(body), "eng") || strings.Contains(string(body), "@") {
			t.Errorf("the client can read what the provider says: %s", body)
		}
		for _, other := range []string{root, root + "/other/mcp"} { // the token is not for the whole bridge
			if _, err := r.good(access, other); err == nil {
				t.Errorf("N-81: it counts for %s", other)
			}
		}
		next, refresh2, fault := r.tokens(again(id, refresh))
		if fault != "" || next == access || refresh2 == refresh {
			t.Fatalf("%s, the same tokens: %t %t", fault, next == access, refresh2 == refresh)
		}
		if tok, err := r.good(next, filesURL); err != nil || tok.Subject != "ann" || token.At(tok.Claims, "email").Str == "" {
			t.Errorf("the renewed one: %v", err)
		}
		// I-110: neither side gets the tokens of the other.
		for _, form := range r.p.forms {
			for _, ours := range []string{access, refresh, got.Get("code"), verifier, id} {
				if strings.Contains(form.Encode(), url.QueryEscape(ours)) {
					t.Errorf("the provider was sent %v", form)
				}
			}
		}
		if all := access + refresh + next + got.Encode() + r.log.String(); strings.Contains(all, "theirs-") || strings.Contains(r.log.String(), access) || strings.Contains(r.log.String(), refresh) {
			t.Error("a token is where it should not be")
		}
	})
}

// I-100: the metadata, at each address where clients look.
func TestMetadata(t *testing.T) {
	fronted(t, func(o *Options) { o.Root = root + "/tools" }, func(t *testing.T, r *rig) {
		for _, path := range []string{"/.well-known/oauth-authorization-server/tools", "/.well-known/openid-configuration/tools", "/tools/.well-known/openid-configuration", "/tools/.well-known/oauth-authorization-server"} {
			a := r.do("GET", path, nil, "Origin", "https://inspector.example")
			v := gjson.Parse(a.Body.String())
			if a.Code != 200 || a.Header().Get("Content-Type") != "application/json" || a.Header().Get("Access-Control-Allow-Origin") != "*" || v.Get("issuer").Str != root+"/tools" ||
				v.Get("authorization_endpoint").Str != root+"/tools/authorize" || v.Get("token_endpoint").Str != root+"/tools/token" || v.Get("registration_endpoint").Str != root+"/tools/register" ||
				v.Get("code_challenge_methods_supported").Raw != `["S256"]` || v.Get("token_endpoint_auth_methods_supported").Raw != `["none","private_key_jwt"]` || v.Get("response_types_supported").Raw != `["code"]` ||
				!v.Get("authorization_response_iss_parameter_supported").Bool() || !v.Get("client_id_metadata_document_supported").Bool() || v.Get("scopes_supported").Raw != `["files:write","mcp:use"]` {
				t.Errorf("%s: %d %v %s", path, a.Code, a.Header(), a.Body)
			}
		}
		for path, methods := range map[string]string{"/tools/token": "POST", "/tools/register": "POST", "/tools/oauth/jwks": "GET, HEAD"} {
			a := r.do("OPTIONS", path, nil, "Origin", "https://inspector.example", "Access-Control-Request-Method", "POST")
			if a.Code != 204 || a.Header().Get("Access-Control-Allow-Methods") != methods || !strings.Contains(a.Header().Get("Access-Control-Allow-Headers"), "MCP-Protocol-Version") {
				t.Errorf("%s: %d %v", path, a.Code, a.Header())
			}
			if a := r.do("DELETE", path, nil); a.Code != 405 {
				t.Errorf("DELETE %s: %d", path, a.Code)
			}
		}
		// Pages are for browsers, not for scripts of other sites.
		for _, path := range []string{"/tools/authorize", "/tools/oauth/consent", "/tools/oauth/callback"} {
			if a := r.do("OPTIONS", path, nil, "Origin", "https://inspector.example"); a.Code != 405 || a.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s: %d %v", path, a.Code, a.Header())
			}
		}
		for _, path := range []string{"/.well-known/oauth-authorization-server", "/authorize", "/token", "/tools/files/mcp"} {
			if slices.Contains(r.Paths(), path) {
				t.Errorf("it takes %s", path)
			}
		}
		if v := gjson.Get(r.do("GET", "/tools/oauth/jwks", nil).Body.String(), "keys"); len(v.Array()) != 1 || v.Get("0.d").Exists() || v.Get("0.kty").Str != "EC" {
			t.Errorf("the keys are %s", v)
		}
	})
}

// N-74: a client may send its user to its own addresses only.
func TestRedirects(t *testing.T) {
	fronted(t, func(o *Options) { o.Redirects = nil }, func(t *testing.T, r *rig) {
		for _, tc := range []struct {
			given []string
			want  string // registered addresses, or the error
		}{
			{[]string{"https://claude.ai/api/mcp/auth_callback"}, "https://claude.ai/api/mcp/auth_callback"},
			{[]string{"http://localhost:8787/callback", "cursor://anysphere.cursor-mcp/oauth/callback", "https://www.cursor.com/agents/mcp/oauth/callback"}, "http://localhost:8787/callback cursor://anysphere.cursor-mcp/oauth/callback https://www.cursor.com/agents/mcp/oauth/callback"},
			{[]string{"https://*/cb"}, "invalid_redirect_uri"},
			{[]string{"https://*.example.com/cb"}, "invalid_redirect_uri"},
			{[]string{"https://app.example.com:99999/cb"}, "invalid_redirect_uri"},
			{[]string{"http://localhost:0/cb"}, "invalid_redirect_uri"},
			{[]string{"http://[::ffff:127.0.0.1]/cb"}, "invalid_redirect_uri"},
			{[]string{"http://[0:0:0:0:0:ffff:7f00:1]/cb"}, "invalid_redirect_uri"},
			{[]string{"http://[::1]:8/cb", "https://192.0.2.1:8443/cb", "https://[2001:db8::1]/cb"}, "http://[::1]:8/cb https://192.0.2.1:8443/cb https://[2001:db8::1]/cb"},
			{[]string{"http://[::1]/callback", "evil://x/y"}, "http://[::1]/callback"},
			{[]string{"evil://x/y"}, "invalid_redirect_uri"},
			{[]string{"cursor://other/oauth/callback"}, "invalid_redirect_uri"},
			{[]string{"http://mcp.example.com/callback"}, "invalid_redirect_uri"},
			{[]string{"http://localhost@evil.example/callback"}, "invalid_redirect_uri"},
			{[]string{"https://user@app.example.com/callback"}, "invalid_redirect_uri"},
			{[]string{"https://app.example.com/callback#x", "https://app.example.com/ok"}, "invalid_redirect_uri"},
			{[]string{"https://app.example.com/callback#"}, "invalid_redirect_uri"},
			{[]string{"javascript:alert(1)", "https://app.example.com/ok"}, "invalid_redirect_uri"},
			{[]string{"JavaScript:alert(1)"}, "invalid_redirect_uri"},
			{[]string{"data:text/html,x"}, "invalid_redirect_uri"},
			{[]string{"file:///etc/passwd"}, "invalid_redirect_uri"},
			{[]string{"vbscript:x"}, "invalid_redirect_uri"},
			{[]string{"https://app.example.com/?iss=x"}, "invalid_redirect_uri"},
			{[]string{"https://app.example.com/\\evil"}, "invalid_redirect_uri"},
			{[]string{"https://claude.ai%E2%88%95api%E2%88%95mcp.evil.example/cb"}, "invalid_redirect_uri"}, // a host that looks like claude.ai/api
			{[]string{"https://%D1%81laude.ai/cb"}, "invalid_redirect_uri"},
			{[]string{"https://evil.example%20/cb"}, "invalid_redirect_uri"},
			{[]string{"http://[::1%25lo]/cb"}, "invalid_redirect_uri"},
			{[]string{"https://app.example.com/cb?code=theirs;x"}, "invalid_redirect_uri"},
			{[]string{"https://app.example.com/cb?iss=https://evil%zz"}, "invalid_redirect_uri"},
			{[]string{"https://app.example.com/caf%C3%A9?x=%C3%A9"}, "https://app.example.com/caf%C3%A9?x=%C3%A9"},
			{[]string{"/callback"}, "invalid_redirect_uri"},
			{[]string{}, "invalid_redirect_uri"},
			{slices.Repeat([]string{"https://app.example.com/a"}, 9), "invalid_redirect_uri"},
			{[]string{"https://app.example.com/" + strings.Repeat("a", 2100)}, "invalid_redirect_uri"},
			{[]string{"https://app.example.com/" + strings.Repeat("a", 1100), "https://app.example.com/" + strings.Repeat("b", 1100)}, "invalid_redirect_uri"},
		} {
			a := r.do("POST", "/register", map[string]any{"client_name": "x", "redirect_uris": tc.given})
			v := gjson.Parse(a.Body.String())
			got := v.Get("error").Str
			if a.Code == 201 {
				var all []string
				v.Get("redirect_uris").ForEach(func(_, u gjson.Result) bool { all = append(all, u.Str); return true })
				got = strings.Join(all, " ")
				if v.Get("client_secret").Exists() || v.Get("token_endpoint_auth_method").Str != "none" {
					t.Errorf("%v: %s", tc.given, a.Body)
				}
			}
			if got != tc.want || a.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%v: %d %q, want %q", tc.given, a.Code, got, tc.want)
			}
			time.Sleep(2 * time.Second) // the rate limit is another test's subject
		}
		id := r.join(back, "https://app.example.com/callback", "http://localhost/cb?x=1")
		for to, want := range map[string]bool{
			back: true, "http://127.0.0.1:1/callback": true, "http://127.0.0.1/callback": true, "https://app.example.com/callback": true, "http://localhost:9/cb?x=1": true,
			"http://127.0.0.1:7777/callback/": false, "http://127.0.0.1:7777/other": false, "http://localhost:7777/callback": false, "http://[::1]:7777/callback": false,
			"https://app.example.com:8443/callback": false, "https://app.example.com/callback?x": false, "http://app.example.com/callback": false, "https://APP.example.com/callback": false,
			"http://localhost@evil.example/callback": false, "http://127.0.0.1:7777/callback#x": false, "http://localhost:9/cb?x=2": false, "https://127.0.0.1:7777/callback": false,
			"http://127.0.0.1.evil.example/callback": false, "": false,
		} {
			a := r.do("GET", "/authorize?"+ask(id, "redirect_uri", to).Encode(), nil)
			if got := a.Code == 200; got != want || a.Header().Get("Location") != "" {
				t.Errorf("%q: %d %s", to, a.Code, a.Header().Get("Location"))
			}
		}
		q := ask(id)
		q.Add("redirect_uri", "https://app.example.com/callback")
		if a := r.do("GET", "/authorize?"+q.Encode(), nil); a.Code != 400 || a.Header().Get("Location") != "" {
			t.Errorf("two addresses: %d %s", a.Code, a.Header())
		}
	})
}

// An address that the operator has removed from the list is not used any more, even for a client that registered it
// before.
func TestWithdrawn(t *testing.T) {
	const cursor = "cursor://anysphere.cursor-mcp/oauth/callback"
	fronted(t, nil, func(t *testing.T, r *rig) {
		id := r.join(cursor)
		path := "/authorize?" + ask(id, "redirect_uri", cursor).Encode()
		if a := r.do("GET", path, nil); a.Code != 200 {
			t.Errorf("while it is allowed: %d %s", a.Code, a.Body)
		}
		later := newRig(t, r.p, func(o *Options) { o.Redirects = []string{} })
		if a := later.do("GET", path, nil); a.Code != 400 {
			t.Errorf("when it is not: %d", a.Code)
		}
		also := newRig(t, r.p, func(o *Options) { o.Redirects = []string{"other://x/y"} })
		if got := also.do("POST", "/register", map[string]any{"redirect_uris": []string{"other://x/y", cursor, "third://x/y"}}); gjson.Get(got.Body.String(), "redirect_uris").Raw != `["other://x/y","`+cursor+`"]` {
			t.Errorf("when another is: %d %s", got.Code, got.Body)
		}
	})
}

// A body that does not end cannot hold a connection. The deadline is for the body alone: handling it may take longer.
func TestUnread(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		for _, tc := range []struct {
			method, path string
			want         int // how often a deadline is set; the second time clears it
		}{{"POST", "/token", 2}, {"POST", "/register", 2}, {"POST", "/oauth/consent", 2}, {"DELETE", "/token", 1}, {"GET", "/oauth/jwks", 0}} {
			body := "a=b"
			if tc.want == 0 {
				body = ""
			}
			d, q := &deadlines{ResponseRecorder: httptest.NewRecorder()}, httptest.NewRequest(tc.method, tc.path, strings.NewReader(body))
			q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.ServeHTTP(d, q)
			switch {
			case len(d.all) < tc.want || tc.want < 2 && len(d.all) > tc.want, tc.want > 0 && d.all[0] != time.Now().Add(bodyWait), tc.want == 2 && !d.all[len(d.all)-1].IsZero():
				t.Errorf("%s %s: the deadlines are %v", tc.method, tc.path, d.all)
			}
		}
	})
}

// deadlines records the read deadlines.
type deadlines struct {
	*httptest.ResponseRecorder
	all []time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.all = append(d.all, at)
	return nil
}

// I-104, N-81 and others: the client gets the faults of a request once it is known to be the client.
func TestRequests(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		id := r.join(back)
		for _, tc := range []struct {
			name   string
			change []string
			want   string
		}{
			{"N-75 plain", []string{"code_challenge_method", "plain"}, "invalid_request"},
			{"no method", []string{"code_challenge_method", ""}, "invalid_request"},
			{"no challenge", []string{"code_challenge", ""}, "invalid_request"},
			{"a short challenge", []string{"code_challenge", "abc"}, "invalid_request"},
			{"implicit", []string{"response_type", "token"}, "unsupported_response_type"},
			{"N-81 somebody else's", []string{"resource", "https://other.example.com/mcp"}, "invalid_target"},
			{"N-81 a server that is not there", []string{"resource", root + "/none/mcp"}, "invalid_target"},
			{"N-81 a beginning", []string{"resource", root + ".evil.example/files/mcp"}, "invalid_target"},
			{"another response mode", []string{"response_mode", "form_post"}, "invalid_request"},
			{"a fragment", []string{"response_mode", "fragment"}, "invalid_request"},
			{"no page", []string{"prompt", "none"}, "interaction_required"},
			{"a request object", []string{"request", "x.y.z"}, "request_not_supported"},
		} {
			a := r.do("GET", "/authorize?"+ask(id, tc.change...).Encode(), nil)
			u, err := url.Parse(a.Header().Get("Location"))
			if err != nil || a.Code != 302 {
				t.Errorf("%s: %d %s", tc.name, a.Code, a.Body)
				continue
			}
			if q := u.Query(); q.Get("error") != tc.want || q.Get("iss") != root || len(q["iss"]) != 1 || q.Get("state") != "the state" || q.Has("code") {
				t.Errorf("%s: %s", tc.name, u)
			}
		}
		// A site is not called back before the user has done something: anybody can register one.
		site := r.join("https://app.example.com/callback?x=1")
		a := r.do("GET", "/authorize?"+ask(site, "redirect_uri", "https://app.example.com/callback?x=1", "response_type", "token").Encode(), nil)
		if link := html.UnescapeString(a.Body.String()); a.Code != 400 || a.Header().Get("Location") != "" || !strings.Contains(link, `href="https://app.example.com/callback?x=1&error=unsupported_response_type`) || !strings.Contains(link, "iss="+url.QueryEscape(root)) {
			t.Errorf("a site: %d %v %s", a.Code, a.Header(), a.Body)
		}
		q := ask(id)
		q.Add("resource", root)
		if a := r.do("GET", "/authorize?"+q.Encode(), nil); !strings.Contains(a.Header().Get("Location"), "invalid_target") {
			t.Errorf("two resources: %s", a.Header())
		}
		// mcp-remote and others add a slash; clients of 2025-03-26 send no resource.
		for resource, aud := range map[string]string{filesURL + "/": filesURL, "": root} {
			b := r.browser()
			access, _, fault := r.tokens(form(id, b.signIn(ask(id, "resource", resource)).Get("code"), "resource", resource))
			body, _ := base64.RawURLEncoding.DecodeString(strings.Split(access+"..", ".")[1])
			if fault != "" || gjson.GetBytes(body, "aud").Str != aud {
				t.Errorf("%q: %s %s", resource, fault, body)
			}
		}
	})
}

// N-75: a code works once, for a minute, for the client that requested it.
func TestCodes(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		id, other := r.join(back), r.join(back, "https://app.example.com/callback")
		b := r.browser()
		code := b.signIn(ask(id)).Get("code")
		for name, f := range map[string]url.Values{
			"another client":         form(other, code),
			"another verifier":       form(id, code, "code_verifier", verifier+"x"),
			"no verifier":            form(id, code, "code_verifier", ""),
			"another address":        form(id, code, "redirect_uri", "http://127.0.0.1:1/callback"),
			"made up":                form(id, "x"),
			"none":                   form(id, ""),
			"the refresh of another": again(id, "x"),
		} {
			r.faults(name, f, "invalid_grant")
		}
		r.faults("another resource", form(id, code, "resource", root), "invalid_target")
		r.faults("another grant", url.Values{"client_id": {id}, "grant_type": {"password"}}, "unsupported_grant_type")
		f := form(id, code)
		f.Add("code", code)
		r.faults("two codes", f, "invalid_request")
		access, refresh := r.granted(form(id, code)) // refused attempts do not use up the code
		r.counts("the token", access, true)
		r.faults("twice", form(id, code), "invalid_grant")
		r.counts("what came of a code that was used twice goes on", access, false)
		r.faults("and is renewed", again(id, refresh), "invalid_grant")
		late := b.signIn(ask(id)).Get("code")
		time.Sleep(61 * time.Second)
		r.faults("after 61 s", form(id, late), "invalid_grant")
		code = b.signIn(ask(id)).Get("code")
		var wg sync.WaitGroup
		var mu sync.Mutex
		var good []string
		for range 10 {
			wg.Go(func() {
				a := r.do("POST", "/token", form(id, code))
				mu.Lock()
				defer mu.Unlock()
				if a.Code == 200 {
					good = append(good, a.Body.String())
				}
			})
		}
		if wg.Wait(); len(good) != 1 {
			t.Fatalf("ten at once: %d got tokens", len(good))
		}
		if _, err := r.good(gjson.Get(good[0], "access_token").Str, filesURL); err == nil {
			t.Error("the token of a code that ten used goes on")
		}
		r.faults("and is renewed", again(id, gjson.Get(good[0], "refresh_token").Str), "invalid_grant")
	})
}

// A code that is used a second time just before or after it was marked ends the login, too.
func TestCodeTwice(t *testing.T) {
	for _, after := range []bool{false, true} {
		store := &hooked{Memory: NewMemory(), after: after}
		fronted(t, func(o *Options) { o.Store = store }, func(t *testing.T, r *rig) {
			id := r.join(back)
			code := r.browser().signIn(ask(id)).Get("code")
			var access, refresh, second string
			store.on = func(call, key string, _ []byte) error {
				if call == "Swap" && strings.HasPrefix(key, "code:") {
					store.on = nil
					access, refresh, second = r.tokens(form(id, code))
				}
				return nil
			}
			a, next, first := r.tokens(form(id, code))
			if first+second != "invalid_grant" || (first == "") != after {
				t.Fatalf("after it was marked %t: the first got %q, the second %q", after, first, second)
			}
			r.counts("of a code that was used twice", access+a, false)
			r.faults("its refresh token", again(id, refresh+next), "invalid_grant")
		})
	}
}

// N-76, N-77 and I-105: nobody can bypass the consent page, with another page or another browser.
func TestConsent(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		id := r.join(back, "https://app.example.com/callback")
		b := r.browser()
		a := b.page(ask(id, "redirect_uri", "https://app.example.com/callback"))
		text := a.Body.String()
		for _, want := range []string{`<p class="host">app.example.com</p>`, "Test client", filesURL, "<li>mcp:use</li>", "what the program says of itself"} {
			if !strings.Contains(text, want) {
				t.Errorf("the page has no %q: %s", want, text)
			}
		}
		if h := a.Header(); !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") || h.Get("X-Frame-Options") != "DENY" || h.Get("Cache-Control") != "no-store" ||
			h.Get("Cross-Origin-Opener-Policy") != "" { // some clients open the page in a window and must reach that window later
			t.Errorf("the page has %v", h)
		}
		for _, c := range a.Result().Cookies() {
			if strings.Contains(c.Name, "signin") {
				t.Errorf("I-106: before consent there is the cookie %s", c)
			}
		}
		sealed := sealedIn(a)
		answer := func(request string) url.Values { return url.Values{"request": {request}, "answer": {"allow"}} }
		yes, theirs := answer(sealed), sealedIn(r.browser().page(ask(id)))
		for name, tc := range map[string]struct {
			by     *browser
			answer url.Values
			header []string
		}{
			"of another browser":              {r.browser(), yes, nil},
			"of another site":                 {b, yes, []string{"Origin", "https://evil.example"}},
			"same-site":                       {b, yes, []string{"Sec-Fetch-Site", "same-site"}},
			"of a sandbox":                    {b, yes, []string{"Origin", "null"}},
			"cross-site":                      {b, yes, []string{"Sec-Fetch-Site", "cross-site"}},
			"of another one's page":           {b, answer(theirs), nil},
			"changed":                         {b, answer(sealed[:40] + string(sealed[40]^1) + sealed[41:]), nil},
			"the id of a client in its place": {b, answer(id), nil},
		} {
			if a := tc.by.do("POST", "/oauth/consent", tc.answer, tc.header...); a.Code != 403 || a.Header().Get("Location") != "" {
				t.Errorf("an answer %s: %d %s", name, a.Code, a.Header().Get("Location"))
			}
		}
		if a := b.do("GET", "/oauth/consent?"+yes.Encode(), nil); a.Code != 405 {
			t.Errorf("by GET: %d", a.Code)
		}
		a = b.do("POST", "/oauth/consent", url.Values{"request": {sealed}, "answer": {"deny"}})
		if u, _ := url.Parse(a.Header().Get("Location")); u.Host != "app.example.com" || u.Query().Get("error") != "access_denied" || u.Query().Get("iss") != root || u.Query().Get("state") != "the state" {
			t.Errorf("the answer no: %s", u)
		}
		if len(r.p.forms) > 0 || r.p.Asked("/token") > 0 {
			t.Error("the provider was asked")
		}
		// N-76: a browser that returns must have agreed before.
		for name, path := range map[string]string{"nothing": "/oauth/callback", "made up": "/oauth/callback?code=x&state=y", "a page": "/oauth/callback?code=x&state=" + url.QueryEscape(sealed), "twice": "/oauth/callback?code=x&state=y&state=z"} {
			if a := b.do("GET", path, nil); a.Code != 403 || a.Header().Get("Location") != "" {
				t.Errorf("N-76 with %s: %d %s", name, a.Code, a.Header())
			}
		}
		// N-77: and it must be this browser.
		to := r.p.signIn(t, b.agree(ask(id)).Header().Get("Location"))
		other := r.browser()
		other.agree(ask(id)) // has its own sign-in in progress
		if a := other.do("GET", to.RequestURI(), nil); a.Code != 403 || a.Header().Get("Location") != "" {
			t.Errorf("N-77: %d %s", a.Code, a.Header())
		}
		if r.p.Asked("/token") > 0 {
			t.Error("N-77: the code was exchanged")
		}
		if got := b.returns(to); got.Get("code") == "" {
			t.Errorf("the browser itself: %v", got)
		}
		kept, _ := url.Parse(root)
		if a := b.do("GET", to.RequestURI(), nil); a.Code != 403 || len(b.jar.Cookies(kept)) != 1 {
			t.Errorf("once more: %d, %v", a.Code, b.jar.Cookies(kept))
		}
		// Two sign-ins in one browser do not disturb each other. After ten minutes both have ended.
		one, two := r.p.signIn(t, b.agree(ask(id)).Header().Get("Location")), r.p.signIn(t, b.agree(ask(id, "state", "two")).Header().Get("Location"))
		if got := b.returns(one); got.Get("state") != "the state" {
			t.Errorf("the first: %v", got)
		}
		page := sealedIn(b.page(ask(id)))
		var held []string // cookies that a browser keeps too long
		for _, c := range b.jar.Cookies(at) {
			held = append(held, c.Name+"="+c.Value)
		}
		time.Sleep(attemptLife + time.Second)
		if a := b.do("GET", two.RequestURI(), nil); a.Code != 403 {
			t.Errorf("after ten minutes: %d", a.Code)
		}
		if a := r.do("GET", two.RequestURI(), nil, "Cookie", strings.Join(held, "; ")); a.Code != 403 || a.Header().Get("Location") != "" {
			t.Errorf("after ten minutes, with its cookie: %d %s", a.Code, a.Header())
		}
		a = r.do("POST", "/oauth/consent", answer(page), "Cookie", strings.Join(held, "; "))
		if a.Code != 403 || !strings.Contains(a.Body.String(), pageEnded) {
			t.Errorf("a page that is ten minutes old was answered: %d %s", a.Code, a.Header())
		}
	})
}

// The page escapes the names of clients.
func TestNames(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		a := r.do("POST", "/register", map[string]any{"client_name": `<script>alert(1)</script>` + "\u202e" + strings.Repeat("ä", 200), "redirect_uris": []string{back}})
		text := r.do("GET", "/authorize?"+ask(gjson.Get(a.Body.String(), "client_id").Str).Encode(), nil).Body.String()
		if strings.Contains(text, "<script>alert") || strings.Contains(text, "\u202e") || strings.Contains(text, strings.Repeat("ä", 100)) {
			t.Errorf("the page is %s", text)
		}
		if !strings.Contains(text, "a program on your own computer") {
			t.Errorf("I-105: no warning: %s", text)
		}
	})
}

// N-78: a remembered consent skips the page only if no other page has sent the user.
func TestRemembered(t *testing.T) {
	fronted(t, func(o *Options) { o.Consent = ConsentRemember }, func(t *testing.T, r *rig) {
		const site = "https://app.example.com/callback"
		id, other := r.join(back, site), r.join(back)
		b := r.browser()
		agree := func(q url.Values) { // with a sign-in, which identifies the user who agreed
			b.do("GET", r.p.signIn(t, b.agree(q).Header().Get("Location")).RequestURI(), nil)
		}
		agree(ask(id, "redirect_uri", site))
		agree(ask(id))
		for _, tc := range []struct {
			name   string
			b      *browser
			q      url.Values
			header []string
			asked  bool
		}{
			{"the same again", b, ask(id), []string{"Sec-Fetch-Site", "none"}, false},
			{"N-78 by a link", b, ask(id), []string{"Sec-Fetch-Site", "cross-site"}, true},
			{"N-78 by a link of a neighbour", b, ask(id), []string{"Sec-Fetch-Site", "same-site"}, true},
			{"N-78 nobody knows how", b, ask(id), nil, true},
			{"another client", b, ask(other), []string{"Sec-Fetch-Site", "none"}, true},
			{"another address", b, ask(id, "redirect_uri", "http://127.0.0.1:1/callback"), []string{"Sec-Fetch-Site", "none"}, true},
			{"more scopes", b, ask(id, "scope", "mcp:use files:write"), []string{"Sec-Fetch-Site", "none"}, true},
			{"another resource", b, ask(id, "resource", root), []string{"Sec-Fetch-Site", "none"}, true},
			{"another browser", r.browser(), ask(id), []string{"Sec-Fetch-Site", "none"}, true},
			{"a site", b, ask(id, "redirect_uri", site), []string{"Sec-Fetch-Site", "none"}, true}, // a link in a mail looks the same
		} {
			a := tc.b.do("GET", "/authorize?"+tc.q.Encode(), nil, tc.header...)
			if asked := a.Code == 200; asked != tc.asked || !asked && !strings.HasPrefix(a.Header().Get("Location"), provider) {
				t.Errorf("%s: %d %s", tc.name, a.Code, a.Header().Get("Location"))
			}
		}
		for i := range maxAgreed + 5 { // the remembered consents are bounded
			agree(ask(id, "redirect_uri", fmt.Sprintf("http://127.0.0.1:%d/callback", i+1)))
		}
		if n := len(b.cookieNamed("__Host-mcp-agreed")); n > 3000 {
			t.Errorf("the cookie has %d bytes", n)
		}
		// A new consent does not extend older ones.
		early := ask(id, "redirect_uri", "http://127.0.0.1:7000/callback")
		agree(early)
		time.Sleep(time.Minute)
		agree(ask(id))
		var all []agreement
		if !r.open("agreed", b.cookieNamed("__Host-mcp-agreed"), &all) {
			t.Fatal("the cookie cannot be read")
		}
		for i := range all {
			all[i].At -= (rememberFor - 30*time.Second).Milliseconds()
		}
		b.jar.SetCookies(at, []*http.Cookie{r.cookie("agreed", r.sealed("agreed", all), rememberFor)})
		for name, tc := range map[string]struct {
			q    url.Values
			want int
		}{"30 days ago": {early, 200}, "a minute later": {ask(id), 302}} {
			if a := b.do("GET", "/authorize?"+tc.q.Encode(), nil, "Sec-Fetch-Site", "none"); a.Code != tc.want {
				t.Errorf("agreed to %s: %d, want %d", name, a.Code, tc.want)
			}
		}
	})
	fronted(t, nil, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		b.signIn(ask(id))
		if a := b.do("GET", "/authorize?"+ask(id).Encode(), nil, "Sec-Fetch-Site", "none"); a.Code != 200 || b.cookieNamed("__Host-mcp-agreed") != "" {
			t.Errorf("with consent: ask it is not asked: %d", a.Code)
		}
	})
}

// I-105: a consent is remembered for one user alone. Another user in the same browser is asked, and reveals nothing
// before the answer.
func TestRememberedUser(t *testing.T) {
	fronted(t, func(o *Options) { o.Consent = ConsentRemember }, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		as := func(sub string) {
			r.p.set(func() { r.p.claims = authtest.Claims{"sub": sub} })
		}
		// open is a program that opens the page; the provider signs in its present user.
		open := func() *httptest.ResponseRecorder {
			t.Helper()
			a := b.page(ask(id), "Sec-Fetch-Site", "none")
			if a.Code == 200 {
				if !strings.Contains(a.Body.String(), "Test client") {
					t.Fatalf("the page is %s", a.Body)
				}
				return a
			}
			return b.do("GET", r.p.signIn(t, a.Header().Get("Location")).RequestURI(), nil, "Sec-Fetch-Site", "cross-site")
		}
		subject := func(a *httptest.ResponseRecorder) string {
			t.Helper()
			u, err := url.Parse(a.Header().Get("Location"))
			if err != nil || u.Query().Get("code") == "" || u.Query().Get("state") != "the state" {
				t.Fatalf("there is no code: %d %v %s", a.Code, u, a.Body)
			}
			access, _ := r.granted(form(id, u.Query().Get("code")))
			return r.verified(access).Subject
		}
		as("ann")
		b.signIn(ask(id))
		if got := subject(open()); got != "ann" {
			t.Errorf("the one who has agreed: %q", got)
		}
		as("bob")
		u := b.answer(open(), "allow").Header().Get("Location")
		if !strings.HasPrefix(u, provider) {
			t.Fatalf("when another has agreed: %s", u)
		}
		if got := subject(b.do("GET", r.p.signIn(t, u).RequestURI(), nil)); got != "bob" {
			t.Errorf("another who has agreed: %q", got)
		}
		for _, who := range []string{"bob", "ann"} {
			as(who)
			if got := subject(open()); got != who {
				t.Errorf("%s, who has agreed before: %q", who, got)
			}
		}
		as("eve")
		for range 2 {
			if u := b.answer(open(), "deny").Header().Get("Location"); !strings.Contains(u, "error=access_denied") {
				t.Errorf("who does not agree: %s", u)
			}
		}
	})
}

func (b *browser) cookieNamed(name string) string {
	for _, c := range b.jar.Cookies(at) {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

// N-79: an id works only unchanged, at a front with its key.
func TestForeignClients(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		id := r.join(back)
		theirs := newRig(t, r.p, func(o *Options) { o.Secrets = []string{"another secret of the same length"} })
		for name, bad := range map[string]string{
			"none": "", "made up": "client", "cut": id[:len(id)-2], "changed": id[:50] + string(id[50]^1) + id[51:], "of another key": theirs.join(back), "longer": id + "A", "a line": id + "\n",
		} {
			if a := r.do("GET", "/authorize?"+ask(bad).Encode(), nil); a.Code != 400 || a.Header().Get("Location") != "" {
				t.Errorf("%s: %d %s", name, a.Code, a.Header())
			}
			a := r.do("POST", "/token", form(bad, "x"))
			if a.Code != 401 || gjson.Get(a.Body.String(), "error").Str != "invalid_client" {
				t.Errorf("%s at the token endpoint: %d %s", name, a.Code, a.Body)
			}
		}
		// Basic authentication without a secret is accepted; with a secret it is not.
		b := r.browser()
		basic := func(secret string) *httptest.ResponseRecorder {
			f := form(id, b.signIn(ask(id)).Get("code"))
			f.Del("client_id")
			return r.do("POST", "/token", f, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(id)+":"+secret)))
		}
		if a := basic(""); a.Code != 200 {
			t.Errorf("by Basic: %d %s", a.Code, a.Body)
		}
		if a := basic("secret"); a.Code != 401 {
			t.Errorf("by Basic with a secret: %d %s", a.Code, a.Body)
		}
	})
}

// N-80: the document at a client's address.
func TestDocuments(t *testing.T) {
	const id = "https://app.example.com/client.json"
	fronted(t, nil, func(t *testing.T, r *rig) {
		serve := func(f http.HandlerFunc) { r.docs.Put("app.example.com", f) }
		good := map[string]any{"client_id": id, "client_name": "The app", "redirect_uris": []string{back}, "token_endpoint_auth_method": "none"}
		with := func(name string, v any) http.HandlerFunc {
			m := map[string]any{}
			for k, v := range good {
				m[k] = v
			}
			m[name] = v
			return func(w http.ResponseWriter, _ *http.Request) { oauthtest.JSON(w, 200, m) }
		}
		for name, f := range map[string]http.HandlerFunc{
			"other client_id":    with("client_id", "https://app.example.com/other.json"),
			"other method":       with("token_endpoint_auth_method", "client_secret_basic"),
			"no address":         with("redirect_uris", []string{}),
			"a script":           with("redirect_uris", []string{back, "javascript:x"}),
			"addresses are text": with("redirect_uris", back),
			"redirect": func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/client.json" {
					http.Redirect(w, r, "/elsewhere.json", http.StatusFound)
					return
				}
				oauthtest.JSON(w, 200, good)
			},
			"1 MiB": with("more", strings.Repeat("x", 1<<20)),
			"slow":  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			"a page": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html")
				_ = json.NewEncoder(w).Encode(good)
			},
			"no JSON": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte("<html>"))
			},
			"500":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
			"not there": http.NotFound,
		} {
			serve(f)
			began := time.Now()
			if a := r.do("GET", "/authorize?"+ask(id).Encode(), nil); a.Code != 400 || time.Since(began) > 6*time.Second || strings.Contains(a.Body.String(), "deadline") {
				t.Errorf("%s: %d after %v", name, a.Code, time.Since(began))
			}
			time.Sleep(failureLife + time.Second)
		}
		if a := r.do("GET", "/authorize?"+ask("https://inside.example.com/c").Encode(), nil); !strings.Contains(a.Body.String(), "its metadata cannot be fetched") || !strings.Contains(r.log.String(), "no such host") {
			t.Errorf("what the network says: %s\n%s", a.Body, r.log)
		}
		for _, bad := range []string{"http://app.example.com/client.json", "https://app.example.com", "https://app.example.com/", "https://user@app.example.com/c", "https://app.example.com/c#x", "https://app.example.com/a/../c", "https://\u0430pp.example.com/c", "https://app.example.com/\u0441", "https://app.example.com%E2%88%95c.evil.example/c", "https://app.example.com/c\u202e", `https://app.example.com\c`,
			"https://app.example.com/" + strings.Repeat("a", 1024)} {
			before := len(r.docs.Sent(""))
			if a := r.do("GET", "/authorize?"+ask(bad).Encode(), nil); a.Code != 400 || len(r.docs.Sent("")) != before {
				t.Errorf("%.60s: %d", bad, a.Code)
			}
		}
		fetched := len(r.docs.Sent(id))
		serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cache-Control", "public, max-age=7200")
			oauthtest.JSON(w, 200, good)
		})
		for range 3 {
			a := r.do("GET", "/authorize?"+ask(id).Encode(), nil)
			if text := a.Body.String(); a.Code != 200 || !strings.Contains(text, "The app") || !strings.Contains(text, id) || !strings.Contains(text, "Any program there can say") {
				t.Fatalf("%d %s\n%s", a.Code, text, r.log)
			}
		}
		if n := len(r.docs.Sent(id)) - fetched; n != 1 {
			t.Errorf("it was fetched %d times", n)
		}
		// A document that cannot be fetched again is used for an hour more, unless it was removed.
		time.Sleep(7201 * time.Second)
		for name, tc := range map[string]struct {
			f    http.HandlerFunc
			want int
		}{"500": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 200}, "slow": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 200}} {
			serve(tc.f)
			if a := r.do("GET", "/authorize?"+ask(id).Encode(), nil); a.Code != tc.want || !strings.Contains(a.Body.String(), "The app") {
				t.Errorf("the former document, %s: %d", name, a.Code)
			}
			time.Sleep(failureLife + time.Second)
		}
		time.Sleep(OldFor)
		if a := r.do("GET", "/authorize?"+ask(id).Encode(), nil); a.Code != 400 {
			t.Errorf("an hour later: %d", a.Code)
		}
		if !strings.Contains(r.log.String(), "the bridge uses the old document") {
			t.Error("nothing is logged of the former document")
		}
		time.Sleep(failureLife + time.Second)
		serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cache-Control", "public, max-age=7200")
			oauthtest.JSON(w, 200, good)
		})
		if a := r.do("GET", "/authorize?"+ask(id).Encode(), nil); a.Code != 200 {
			t.Errorf("when it is back: %d", a.Code)
		}
		time.Sleep(7201 * time.Second)
		serve(http.NotFound)
		if a := r.do("GET", "/authorize?"+ask(id).Encode(), nil); a.Code != 400 || strings.Contains(a.Body.String(), "404") {
			t.Errorf("one that is gone: %d %s", a.Code, a.Body)
		}
		time.Sleep(failureLife + time.Second)
		fetched = len(r.docs.Sent(id)) - 1
		serve(func(w http.ResponseWriter, _ *http.Request) { oauthtest.JSON(w, 200, good) })
		access, _, fault := r.tokens(form(id, r.browser().signIn(ask(id)).Get("code")))
		if tok, err := r.good(access, filesURL); fault != "" || err != nil || tok.Client != id {
			t.Errorf("%s %v", fault, err)
		}
		if n := len(r.docs.Sent(id)) - fetched; n != 2 {
			t.Errorf("when it is there again it was fetched %d times", n-1)
		}
		long := "https://app.example.com/" + strings.Repeat("a", 300)
		serve(with("client_id", long))
		if a := r.do("GET", "/authorize?"+ask(long).Encode(), nil); a.Code != 200 || !strings.Contains(a.Body.String(), "says who it is at "+long) {
			t.Errorf("a long address: %d %s", a.Code, a.Body)
		}
		// I-114: an address cannot cause any number of fetches.
		before, blocked := len(r.docs.Sent("")), 0
		for i := range 100 {
			if a := r.do("GET", "/authorize?"+ask(fmt.Sprintf("https://victim.example.com/%d", i)).Encode(), nil); strings.Contains(a.Body.String(), "too many") {
				blocked++
			}
		}
		if n := len(r.docs.Sent("")) - before; n > 40 || blocked < 60 {
			t.Errorf("%d were asked for, %d were not", n, blocked)
		}
	})
}

// N-82 and I-109: a refresh token works once, and a moment longer for a client that is several processes.
func TestRefresh(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		id, other := r.join(back), r.join(back)
		b := r.browser()
		_, first, _ := r.tokens(form(id, b.signIn(ask(id, "scope", "mcp:use files:write")).Get("code")))
		r.faults("of another client", again(other, first), "invalid_grant")
		r.faults("for another resource", again(id, first, "resource", root), "invalid_target")
		r.faults("for more", again(id, first, "scope", "mcp:use admin"), "invalid_scope")
		asked := len(r.p.forms)
		// Ten processes at once: the provider gets one request, and nobody must sign in.
		var wg sync.WaitGroup
		var mu sync.Mutex
		nexts := map[string]bool{}
		r.p.set(func() { r.p.during = func() { time.Sleep(3 * time.Second) } })
		for range 10 {
			wg.Go(func() {
				a := r.do("POST", "/token", again(id, first))
				mu.Lock()
				defer mu.Unlock()
				if a.Code != 200 {
					t.Errorf("at once: %d %s", a.Code, a.Body)
				}
				nexts[gjson.Get(a.Body.String(), "refresh_token").Str] = true
			})
		}
		wg.Wait()
		if n := len(r.p.forms) - asked; n != 1 {
			t.Errorf("the provider was asked %d times", n)
		}
		r.p.set(func() { r.p.during = nil })
		var second string
		for next := range nexts {
			second = next
		}
		access, third, fault := r.tokens(again(id, second, "scope", "mcp:use"))
		if tok, err := r.good(access, filesURL); fault != "" || err != nil || !slices.Equal(tok.Scopes, []string{"mcp:use"}) {
			t.Fatalf("fewer scopes: %s %v", fault, err)
		}
		for next := range nexts { // whichever of them the processes have stored
			r.faults("another process", again(id, next), "")
		}
		time.Sleep(grace + time.Second)
		r.faults("N-82: used again", again(id, second), "invalid_grant")
		r.faults("N-82: the thief goes on", again(id, third), "invalid_grant")
		r.counts("N-82: the access token goes on", access, false)
		if !strings.Contains(r.log.String(), "a refresh token was used again") {
			t.Error("N-82: nothing is logged")
		}
	})
}

// I-109: an old refresh token does not work again while its successor is being renewed, or if that fails.
func TestFormer(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		sign := func() (first, second string) {
			_, first, _ = r.tokens(form(id, b.signIn(ask(id)).Get("code")))
			_, second = r.granted(again(id, first))
			return first, second
		}
		set := func(refuse string, during func()) {
			r.p.set(func() { r.p.refuse, r.p.during = refuse, during })
		}
		first, second := sign()
		time.Sleep(grace + time.Second)
		set("server_error", nil)
		r.faults("the provider is down", again(id, second), "temporarily_unavailable")
		r.faults("after a try that has failed", again(id, first), "invalid_grant")
		set("", nil)
		first, second = sign()
		time.Sleep(grace + time.Second)
		set("", func() { time.Sleep(3 * time.Second) })
		var wg sync.WaitGroup
		wg.Go(func() { r.faults("a renewal of what has ended", again(id, second), "invalid_grant") })
		time.Sleep(time.Second)
		r.faults("while its successor is renewed", again(id, first), "invalid_grant")
		wg.Wait()
		// In its grace period it works, also if another process renews meanwhile.
		set("", nil)
		first, second = sign()
		set("server_error", nil)
		for i, want := range []string{"", "invalid_grant"} {
			r.faults("the provider is down", again(id, second), "temporarily_unavailable")
			r.faults(fmt.Sprint("after try ", i+1), again(id, first), want)
		}
	})
}

// I-110: a login ends if the provider refuses to renew it. It continues if the provider cannot renew it now.
func TestRenewal(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		sign := func() string {
			_, refresh := r.granted(form(id, b.signIn(ask(id)).Get("code")))
			return refresh
		}
		refresh := sign()
		r.p.set(func() { r.p.refuse = "server_error" })
		r.faults("the provider is down", again(id, refresh), "temporarily_unavailable")
		r.p.set(func() { r.p.refuse = "" })
		_, refresh = r.granted(again(id, refresh))
		r.p.set(func() { r.p.claims = authtest.Claims{"groups": []string{"sales"}} })
		access, refresh, fault := r.tokens(again(id, refresh))
		if tok, err := r.good(access, filesURL); fault != "" || err != nil || token.Texts(token.At(tok.Claims, "groups"))[0] != "sales" {
			t.Errorf("other groups: %s %v", fault, err)
		}
		r.p.set(func() {
			r.p.claims = nil
			r.p.change = func(_ url.Values, out map[string]any) {
				delete(out, "id_token")
				r.p.live["theirs-kept"] = true
				out["refresh_token"] = "theirs-kept"
			}
		})
		access, refresh, fault = r.tokens(again(id, refresh))
		if tok, err := r.good(access, filesURL); fault != "" || err != nil || token.Texts(token.At(tok.Claims, "groups"))[0] != "sales" {
			t.Errorf("without an ID token: %s %v", fault, err)
		}
		stranger := authtest.NewKey(t, "new", "ES256")
		r.p.set(func() {
			r.p.change = func(_ url.Values, out map[string]any) {
				out["id_token"] = stranger.Sign(t, authtest.Claims{"typ": "JWT"}, r.p.Claims("bridge"))
			}
		})
		r.faults("a key that is not known yet", again(id, refresh), "temporarily_unavailable")
		r.p.set(func() { r.p.change = nil })
		_, refresh = r.granted(again(id, refresh))
		r.p.set(func() { r.p.change, r.p.claims = nil, authtest.Claims{"sub": "bob"} })
		r.faults("another user", again(id, refresh), "invalid_grant")
		if !strings.Contains(r.log.String(), "now names another user") {
			t.Errorf("the log is %s", r.log)
		}
		r.p.set(func() { r.p.claims = nil })
		refresh = sign()
		r.p.set(func() { r.p.refuse = "invalid_grant" })
		r.faults("the provider has ended it", again(id, refresh), "invalid_grant")
		r.p.set(func() { r.p.refuse = "" })
		r.faults("and it comes back", again(id, refresh), "invalid_grant")
		r.p.set(func() { r.p.refuse = "" })
		refresh = sign()
		r.p.set(func() { r.p.claims = authtest.Claims{"groups": strings.Repeat("x", 5000)} })
		r.faults("more than is kept of a user", again(id, refresh), "temporarily_unavailable")
		r.p.set(func() { r.p.claims = nil })
		_, refresh = r.granted(again(id, refresh))
		time.Sleep(unconfirmedFor + time.Minute)
		r.p.set(func() { r.p.claims = authtest.Claims{"groups": strings.Repeat("x", 5000)} })
		r.faults("for the first time in a day", again(id, refresh), "temporarily_unavailable")
		time.Sleep(unconfirmedFor + time.Minute)
		r.faults("for a day", again(id, refresh), "invalid_grant")
		r.p.set(func() { r.p.claims, r.p.noToken = nil, true })
		access, refresh, fault = r.tokens(form(id, b.signIn(ask(id)).Get("code")))
		tok, err := r.good(access, filesURL)
		if fault != "" || err != nil || refresh != "" || time.Until(tok.Until) < 59*time.Minute {
			t.Errorf("a provider without refresh tokens: %s %v, a refresh token: %t", fault, err, refresh != "")
		}
		time.Sleep(time.Hour + time.Minute)
		r.counts("the token does not end", access, false)
	})
}

// A user whom no rule admits gets no code, and nothing of the sign-in is stored: everybody may have an account at a
// public provider.
func TestAdmits(t *testing.T) {
	var asked []string
	store := NewMemory()
	fronted(t, func(o *Options) {
		o.Store = store
		o.Bridge.(*testBridge).admits = func(_ context.Context, token, resource string) bool {
			asked = append(asked, resource)
			return strings.Count(token, ".") == 2 && len(asked) > 1
		}
	}, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		if got := b.signIn(ask(id)); got.Get("error") != "access_denied" || got.Get("code") != "" {
			t.Errorf("a stranger gets %v", got)
		}
		if n := len(store.all); n != 0 {
			t.Errorf("values of %d kinds are kept of a stranger", n)
		}
		if _, _, fault := r.tokens(form(id, b.signIn(ask(id)).Get("code"))); fault != "" || len(asked) != 2 || asked[1] != filesURL {
			t.Errorf("a user gets %s, asked for %q", fault, asked)
		}
	})
}

// I-107: a provider's answer counts only if it belongs to the request.
func TestProvider(t *testing.T) {
	other := authtest.NewKey(t, "k1", "ES256")
	for name, change := range map[string]func(i *idp){
		"another nonce":      func(i *idp) { i.claims = authtest.Claims{"nonce": "x"} },
		"no nonce":           func(i *idp) { i.claims = authtest.Claims{"nonce": nil} },
		"for another client": func(i *idp) { i.claims = authtest.Claims{"aud": "other"} },
		"for two":            func(i *idp) { i.claims = authtest.Claims{"aud": []string{"bridge", "other"}} },
		"azp of another":     func(i *idp) { i.claims = authtest.Claims{"azp": "other"} },
		"of another issuer":  func(i *idp) { i.claims = authtest.Claims{"iss": "https://evil.example"} },
		"expired":            func(i *idp) { i.claims = authtest.Claims{"exp": time.Now().Add(-time.Minute).Unix()} },
		"no sub":             func(i *idp) { i.claims = authtest.Claims{"sub": nil} },
		"too much":           func(i *idp) { i.claims = authtest.Claims{"groups": strings.Repeat("x", 5000)} },
		"no ID token":        func(i *idp) { i.change = func(_ url.Values, out map[string]any) { delete(out, "id_token") } },
		"an access token": func(i *idp) {
			i.change = func(_ url.Values, out map[string]any) { out["id_token"] = i.Token("bridge") }
		},
		"signed by another key": func(i *idp) {
			i.change = func(_ url.Values, out map[string]any) {
				out["id_token"] = other.Sign(t, authtest.Claims{"typ": "JWT"}, i.Claims("bridge"))
			}
		},
		"not signed": func(i *idp) {
			i.change = func(_ url.Values, out map[string]any) {
				out["id_token"] = authtest.Encode(t, authtest.Claims{"alg": "none"}) + "." + authtest.Encode(t, i.Claims("bridge")) + "."
			}
		},
		"refused": func(i *idp) { i.refuse = "invalid_grant" },
	} {
		t.Run(name, func(t *testing.T) {
			fronted(t, nil, func(t *testing.T, r *rig) {
				change(r.p)
				id := r.join(back)
				got := r.browser().signIn(ask(id))
				if got.Get("error") != "server_error" || got.Has("code") || got.Get("iss") != root || got.Get("state") != "the state" {
					t.Errorf("the client is called back with %v", got)
				}
				if !strings.Contains(r.log.String(), "a sign-in failed") || strings.Contains(r.log.String(), "the-secret") {
					t.Errorf("the log is %s", r.log)
				}
			})
		})
	}
	fronted(t, nil, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		for name, tc := range map[string]struct {
			change func(url.Values)
			want   string // error for the client; empty means a page
		}{
			"another iss": {func(q url.Values) { q.Set("iss", "https://evil.example") }, ""},
			"no iss":      {func(q url.Values) { q.Del("iss") }, ""},
			"denied":      {func(q url.Values) { q.Del("code"); q.Set("error", "access_denied") }, "access_denied"},
			"failed":      {func(q url.Values) { q.Del("code"); q.Set("error", "<script>") }, "server_error"},
			"no code":     {func(q url.Values) { q.Del("code") }, "server_error"},
		} {
			to := r.p.signIn(t, b.agree(ask(id)).Header().Get("Location"))
			q := to.Query()
			tc.change(q)
			to.RawQuery = q.Encode()
			a := b.do("GET", to.RequestURI(), nil)
			u, _ := url.Parse(a.Header().Get("Location"))
			switch {
			case tc.want == "" && (a.Code != 403 || a.Header().Get("Location") != "" || strings.Contains(a.Body.String(), "evil")):
				t.Errorf("%s: %d %v %s", name, a.Code, a.Header(), a.Body)
			case tc.want != "" && (a.Code != 302 || u.Query().Get("error") != tc.want || u.Query().Get("iss") != root || strings.Contains(u.String(), "script%3E")):
				t.Errorf("%s: %d %s", name, a.Code, u)
			}
		}
		if r.p.Asked("/token") > 0 {
			t.Error("a code was exchanged")
		}
	})
}

// A client learns that the provider is unreachable, and can try again.
func TestProviderAway(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		var asked atomic.Int64
		r.p.Answer("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) { asked.Add(1); w.WriteHeader(500) })
		id, b := r.join(back), r.browser()
		u, _ := url.Parse(b.agree(ask(id)).Header().Get("Location"))
		if u.Query().Get("error") != "temporarily_unavailable" || u.Query().Get("iss") != root {
			t.Errorf("the client is called back at %s", u)
		}
		synctest.Wait() // the keys were requested, too
		first := asked.Load()
		b.agree(ask(id))
		if synctest.Wait(); first == 0 || asked.Load() != first {
			t.Errorf("the provider was asked %d times, and %d more by the next client", first, asked.Load()-first)
		}
		r.p.Answer("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) { oauthtest.JSON(w, 200, r.p.meta) })
		time.Sleep(time.Minute) // its keys are fetched again
		if got := b.signIn(ask(id)); got.Get("code") == "" {
			t.Errorf("when it is back: %v", got)
		}
	})
}

// Many providers have groups and names in userinfo only. It is asked for the claims that rules name and the
// ID token lacks, at the sign-in and at each renewal, and only about the same user.
func TestUserinfo(t *testing.T) {
	claims := func(o *Options) { o.Claims = []string{"email", "preferred_username", "realm.roles", "azp"} }
	// info answers with status and v, to the access token of the provider only.
	info := func(r *rig, status int, v any) (asked *atomic.Int64) {
		asked = &atomic.Int64{}
		synctest.Wait() // the front may be reading them
		meta := maps.Clone(r.p.meta)
		meta["userinfo_endpoint"] = provider + "/userinfo"
		r.p.Answer("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) { oauthtest.JSON(w, 200, meta) })
		r.p.Answer("/userinfo", func(w http.ResponseWriter, q *http.Request) {
			asked.Add(1)
			if q.Method != http.MethodGet || q.Header.Get("Authorization") != "Bearer theirs-access" {
				t.Errorf("userinfo was asked with %s and %v", q.Method, q.Header)
			}
			oauthtest.JSON(w, status, v)
		})
		return asked
	}
	fronted(t, claims, func(t *testing.T, r *rig) {
		more := map[string]any{"sub": "ann", "email": "eve@example.com", "preferred_username": "ann2", "realm": map[string]any{"roles": []string{"ops"}}, "azp": "x", "secret": "y"}
		asked := info(r, 200, more)
		id := r.join(back)
		access, refresh, fault := r.tokens(form(id, r.browser().signIn(ask(id)).Get("code")))
		if fault != "" || asked.Load() != 1 {
			t.Fatalf("%s, %d questions: %s", fault, asked.Load(), r.log)
		}
		got := r.verified(access).Claims
		if token.At(got, "preferred_username").Str != "ann2" || token.Texts(token.At(got, "realm.roles"))[0] != "ops" || token.At(got, "email").Str != "ann@example.com" {
			t.Errorf("the token says %s", got.Raw)
		}
		if token.At(got, "azp").Exists() || token.At(got, "secret").Exists() {
			t.Errorf("the token says more than rules name: %s", got.Raw)
		}
		more["preferred_username"] = "ann3"
		access, refresh, fault = r.tokens(again(id, refresh))
		if fault != "" || token.At(r.verified(access).Claims, "preferred_username").Str != "ann3" {
			t.Errorf("the renewed token: %s %s", fault, access)
		}
		info(r, 500, map[string]any{}) // a claim that restricts the user may be missing: nothing is decided
		r.faults("renewal while userinfo is down", again(id, refresh), "temporarily_unavailable")
		if got := r.browser().signIn(ask(id)); got.Get("error") != "server_error" {
			t.Errorf("sign-in while userinfo is down: %v", got)
		}
		info(r, 200, more)
		r.faults("renewal when userinfo is back", again(id, refresh), "")
		for name, other := range map[string]any{"another user": map[string]any{"sub": "eve", "preferred_username": "ann"}, "no user": map[string]any{"preferred_username": "ann"}, "no object": []string{}} {
			info(r, 200, other)
			if got := r.browser().signIn(ask(id)); got.Get("error") != "server_error" {
				t.Errorf("%s: %v", name, got)
			}
		}
		info(r, 403, map[string]any{"error": "insufficient_scope"})
		if got := r.browser().signIn(ask(id)); got.Get("code") == "" || !strings.Contains(r.log.String(), "userinfo refuses the bridge") {
			t.Errorf("userinfo refuses: %v %s", got, r.log)
		}
		if strings.Contains(r.log.String(), "theirs-access") {
			t.Error("the log has the token")
		}
	})
	fronted(t, claims, func(t *testing.T, r *rig) { // no endpoint
		id := r.join(back)
		if got := r.browser().signIn(ask(id)); got.Get("code") == "" || !strings.Contains(r.log.String(), "has no userinfo_endpoint") {
			t.Errorf("%v %s", got, r.log)
		}
	})
	fronted(t, func(o *Options) { o.Claims = []string{"email", "sub"} }, func(t *testing.T, r *rig) { // nothing is missing
		asked := info(r, 200, map[string]any{"sub": "ann"})
		id := r.join(back)
		if got := r.browser().signIn(ask(id)); got.Get("code") == "" || asked.Load() != 0 {
			t.Errorf("%v, %d questions", got, asked.Load())
		}
	})
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// All waiting requests share one fetch of the provider's metadata. None waits if there is older metadata.
func TestProviderOnce(t *testing.T) {
	var asked atomic.Int64
	var gate atomic.Pointer[chan struct{}]
	change := func(o *Options) {
		to := o.Transport
		o.Transport = tripper(func(r *http.Request) (*http.Response, error) {
			asked.Add(1)
			select {
			case <-*gate.Load():
				return to.RoundTrip(r)
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})
	}
	fronted(t, change, func(t *testing.T, r *rig) {
		var wg sync.WaitGroup
		ask := func() {
			if at, err := r.providerMetadata(t.Context()); err != nil || at.Token != provider+"/token" {
				t.Errorf("the metadata: %v %v", at, err)
			}
		}
		wait := make(chan struct{})
		gate.Store(&wait)
		for range 5 {
			wg.Go(ask)
		}
		if synctest.Wait(); asked.Load() != 1 {
			t.Errorf("the provider was asked %d times", asked.Load())
		}
		close(wait)
		wg.Wait()
		time.Sleep(providerLife + time.Second)
		hangs := make(chan struct{})
		gate.Store(&hangs)
		first := time.Now()
		wg.Go(ask)
		synctest.Wait()
		before, began := asked.Load(), time.Now()
		if ask(); asked.Load() != before || time.Since(began) > 0 {
			t.Errorf("another one asks %d times, and waits %v", asked.Load()-before, time.Since(began))
		}
		wg.Wait() // the request that fetches uses the older metadata, and soon
		if took := time.Since(first); took > refreshTimeout {
			t.Errorf("the one that asks waits %v for a provider that hangs", took)
		}
		time.Sleep(providerPause + time.Second)
		slow := make(chan struct{})
		gate.Store(&slow)
		time.AfterFunc(refreshTimeout+time.Second, func() { close(slow) })
		ask()
		before = asked.Load()
		time.Sleep(2 * providerPause)
		if ask(); asked.Load() != before {
			t.Error("a provider that is slow is never read again")
		}
	})
}

// I-112: special needs of providers.
func TestFixes(t *testing.T) {
	fronted(t, func(o *Options) {
		o.ScopePrefix, o.AuthorizeParams = "api://mcp/", map[string]string{"access_type": "offline", "audience": "https://api"}
	}, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		r.p.change = func(_ url.Values, out map[string]any) { out["scope"] = "openid api://mcp/mcp:use" }
		a := b.agree(ask(id, "scope", "mcp:use files:write"))
		u, _ := url.Parse(a.Header().Get("Location"))
		if q := u.Query(); q.Get("scope") != "openid profile api://mcp/mcp:use api://mcp/files:write" || q.Get("access_type") != "offline" || q.Get("audience") != "https://api" || q.Has("resource") {
			t.Errorf("the provider is asked for %v", q)
		}
		access, _, fault := r.tokens(form(id, b.returns(r.p.signIn(t, u.String())).Get("code")))
		if tok, err := r.good(access, filesURL); fault != "" || err != nil || !slices.Equal(tok.Scopes, []string{"mcp:use"}) {
			t.Errorf("%s %v", fault, err)
		}
	})
	// Without a prefix, the user decides. A scope implies others as configured.
	fronted(t, nil, func(t *testing.T, r *rig) {
		id := r.join(back)
		access, _, _ := r.tokens(form(id, r.browser().signIn(ask(id, "scope", "files:write")).Get("code")))
		if tok, err := r.good(access, filesURL); err != nil || !slices.Equal(tok.Scopes, []string{"files:read", "files:write"}) {
			t.Errorf("%v", err)
		}
		access, _, _ = r.tokens(form(id, r.browser().signIn(ask(id, "scope", "")).Get("code")))
		if tok, err := r.good(access, filesURL); err != nil || !slices.Equal(tok.Scopes, []string{"mcp:use"}) {
			t.Errorf("without any: %v", err)
		}
	})
}

// I-113: a front with the same key and store continues after a restart and for another instance. An older key still
// works.
func TestKeys(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		access, refresh, _ := r.tokens(form(id, b.signIn(ask(id)).Get("code")))
		code := b.signIn(ask(id)).Get("code")
		second := newRig(t, r.p, func(o *Options) {
			o.Store, o.Secrets = r.o.Store, []string{"a newer secret of more than 32 bytes", r.o.Secrets[0]}
		})
		second.counts("the access token", access, true)
		second.faults("the code", form(id, code), "")
		// The first step in a cluster: all instances know the new key, and none uses it yet.
		both := newRig(t, r.p, func(o *Options) {
			o.Store, o.Secrets = r.o.Store, []string{r.o.Secrets[0], "a newer secret of more than 32 bytes"}
		})
		if _, _, fault := both.tokens(form(id, code)); fault != "invalid_grant" || !strings.Contains(both.log.String(), "a code was used twice") {
			t.Errorf("the code, at another one too: %s", fault)
		}
		next, refresh := second.granted(again(id, refresh))
		second.counts("the renewed one", next, true)
		both.counts("the renewed one, at another one", next, true)
		r.counts("who does not know the new key takes what is made with it", next, false)
		// A registration does not change by renewals of its tokens.
		newer := newRig(t, r.p, func(o *Options) {
			o.Store, o.Secrets = r.o.Store, []string{"a newer secret of more than 32 bytes"}
		})
		newer.faults("without the old key", again(id, refresh), "invalid_client")
		// A sign-in that begins at one instance ends at the other.
		to := r.p.signIn(t, b.agree(ask(id)).Header().Get("Location"))
		if got := (&browser{second, b.jar}).returns(to); got.Get("code") == "" {
			t.Errorf("the sign-in: %v", got)
		}
		for name, change := range map[string]func(o *Options){
			"client of the provider": func(o *Options) { o.Client = &oauth.Client{ID: "other", Secret: "the-secret"} },
			"provider":               func(o *Options) { o.Provider = "https://other.example.com" },
			"address":                func(o *Options) { o.Root = root + "/other" },
		} {
			other := newRig(t, r.p, change)
			if other.registered(id) != nil || bytes.Equal(other.keys, r.keys) {
				t.Errorf("with the same secret, what is for one %s counts for another one", name)
			}
		}
		alone := newRig(t, r.p, func(o *Options) { o.Secrets = nil })
		if !strings.Contains(alone.log.String(), "no key_file") {
			t.Error("nothing says that all have to sign in again")
		}
		alone.counts("without the key, a token counts", access, false)
	})
}

// Stored values are useless to readers of the store, and under another key of it.
func TestKept(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		_, ann, _ := r.tokens(form(id, b.signIn(ask(id)).Get("code")))
		r.p.claims = authtest.Claims{"sub": "bob"}
		_, bob, _ := r.tokens(form(id, b.signIn(ask(id)).Get("code")))
		m := r.o.Store.(*Memory)
		var logins []string
		for _, all := range m.all {
			for _, key := range all.Keys() {
				s, _ := all.Peek(key)
				if text := key + string(s.value); strings.Contains(text, "ann") || strings.Contains(text, "theirs") || strings.Contains(text, ann) {
					t.Errorf("it can be read: %s", text)
				}
				if strings.HasPrefix(key, "login:") {
					logins = append(logins, key)
				}
			}
		}
		all := m.all["login"]
		one, _ := all.Peek(logins[0])
		two, _ := all.Peek(logins[1])
		all.Add(logins[0], two)
		all.Add(logins[1], one)
		for _, refresh := range []string{ann, bob} {
			r.faults("exchanged", again(id, refresh), "invalid_grant")
		}
	})
}

// N-83: clients store their own registrations.
func TestRegistrations(t *testing.T) {
	scaletest.Unraced(t)
	r := newRig(t, newIDP(t), func(o *Options) {
		n := 0
		o.Bridge.(*testBridge).from = func(*http.Request) netip.Addr {
			n++
			return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
		}
	})
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for range 5000 { // more addresses than the limiter remembers
		r.join(back)
	}
	before := used()
	var last string
	for range scaletest.Of(4000, 10_000) {
		last = r.join(back)
	}
	if after := used(); after > before+1<<20 {
		t.Errorf("the memory has grown by %d bytes", after-before)
	}
	if r.registered(last) == nil {
		t.Error("the last one is not registered")
	}
}

// I-114: one address does not lock out others, and the state is bounded.
func TestLimits(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		from := netip.MustParseAddr("2001:db8::1")
		r.o.Bridge.(*testBridge).from = func(*http.Request) netip.Addr { return from }
		count := func(f func() *httptest.ResponseRecorder) (refused int) {
			for range 60 {
				if a := f(); a.Code == 429 {
					refused++
					if a.Header().Get("Retry-After") == "" {
						t.Error("it does not say when to come back")
					}
				}
			}
			return refused
		}
		if n := count(func() *httptest.ResponseRecorder {
			return r.do("POST", "/register", map[string]any{"redirect_uris": []string{back}})
		}); n != 30 {
			t.Errorf("of 60 registrations %d were refused", n)
		}
		// Made-up tokens cause no lookup, and lock out nobody at the same address.
		var looked atomic.Int64
		r.o.Store = &hooked{Memory: r.o.Store.(*Memory), on: func(string, string, []byte) error {
			looked.Add(1)
			return nil
		}}
		from = netip.MustParseAddr("2001:db8:3::1")
		own := r.join(back)
		for name, f := range map[string]url.Values{"client": form("x", "y"), "code": form(own, "y"), "refresh token": again(own, "y")} {
			if n := count(func() *httptest.ResponseRecorder { return r.do("POST", "/token", f) }); n != 0 || looked.Load() != 0 {
				t.Errorf("a made-up %s: of 60 requests %d were refused, and the store was asked %d times", name, n, looked.Load())
			}
		}
		// Lookups of real tokens are limited.
		code := r.browser().signIn(ask(own)).Get("code")
		_, refresh, _ := r.tokens(form(own, code))
		for name, f := range map[string]url.Values{"code": form(own, code), "refresh token": again(own, refresh)} {
			if n := count(func() *httptest.ResponseRecorder { return r.do("POST", "/token", f) }); n < 29 || n > 31 {
				t.Errorf("the same %s: of 60 requests %d were refused", name, n)
			}
		}
		from = netip.MustParseAddr("2001:db8:1::1")
		id := r.join(back)
		from = netip.MustParseAddr("2001:db8::ffff") // the same subscriber: valid tokens still work
		r.faults("a good request", form(id, r.browser().signIn(ask(id)).Get("code")), "")
		m := NewMemory()
		if ok, err := m.Swap(t.Context(), "login:1", nil, []byte("x"), time.Hour); !ok || err != nil {
			t.Fatal(ok, err)
		}
		for i := range maxStored + 10 {
			if ok, err := m.Swap(t.Context(), fmt.Sprint("code:", i), nil, []byte("x"), time.Minute); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		if n := m.all["code"].Len(); n != maxStored {
			t.Errorf("%d are kept", n)
		}
		if v, _ := m.Get(t.Context(), "login:1"); v == nil {
			t.Error("codes have taken the place of a login")
		}
		from = netip.MustParseAddr("2001:db8:2::1")
		a := r.do("POST", "/register", `{"client_name":"`+strings.Repeat("x", 20<<10)+`"}`)
		if a.Code != 400 {
			t.Errorf("20 KiB: %d", a.Code)
		}
		if a := r.do("POST", "/token", url.Values{"code": {strings.Repeat("x", 100<<10)}}); a.Code != 400 && a.Code != 429 {
			t.Errorf("100 KiB: %d", a.Code)
		}
		a = r.do("GET", "/authorize?"+ask(id, "state", strings.Repeat("s", 1025)).Encode(), nil)
		if u, _ := url.Parse(a.Header().Get("Location")); u.Query().Get("error") != "invalid_request" || u.Query().Has("state") {
			t.Errorf("a long state: %d %s", a.Code, u)
		}
	})
}

// An unreachable store ends no login.
func TestStoreAway(t *testing.T) {
	down := false
	broken := &hooked{Memory: NewMemory(), on: func(string, string, []byte) error {
		if down {
			return errAway
		}
		return nil
	}}
	fronted(t, func(o *Options) { o.Store = broken }, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		code := b.signIn(ask(id)).Get("code")
		down = true
		r.faults("a code", form(id, code), "temporarily_unavailable")
		if got := b.signIn(ask(id)); got.Get("error") != "temporarily_unavailable" {
			t.Errorf("a sign-in: %v", got)
		}
		down = false
		_, refresh := r.granted(form(id, code))
		down = true
		r.faults("a refresh token", again(id, refresh), "temporarily_unavailable")
		down = false
		r.faults("when it is back", again(id, refresh), "")
	})
}
