// Package oauthtest helps to test OAuth clients. It has authorization servers and resources that behave well unless a
// test changes that, and a network that records requests.
package oauthtest

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Net is a network of handlers, by host. It implements http.RoundTripper. Hosts without a handler are unreachable.
type Net struct {
	mu    sync.Mutex
	hosts map[string]http.Handler
	sent  []Sent
}

type Sent struct {
	Method, URL string
	Header      http.Header
	Body        string
}

// Put sets the handler of a host, such as idp.example.com.
func (n *Net) Put(host string, h http.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hosts == nil {
		n.hosts = map[string]http.Handler{}
	}
	n.hosts[host] = h
}

// Sent returns the requests whose URL begins with a text.
func (n *Net) Sent(begin string) (all []Sent) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.sent {
		if strings.HasPrefix(s.URL, begin) {
			all = append(all, s)
		}
	}
	return all
}

// RoundTrip implements http.RoundTripper. If a handler waits for the end of the request's context, the handler acts as
// a server that hangs.
func (n *Net) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	n.mu.Lock()
	n.sent = append(n.sent, Sent{r.Method, r.URL.String(), r.Header.Clone(), string(body)})
	h := n.hosts[r.URL.Host]
	n.mu.Unlock()
	if h == nil {
		return nil, errors.New("no such host")
	}
	in := r.Clone(r.Context())
	in.Body, in.RequestURI = io.NopCloser(strings.NewReader(string(body))), r.URL.RequestURI()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, in)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	res := w.Result()
	res.Request = r
	return res, nil
}

// Pages is a site of fixed documents, by path. Values other than text are written as JSON.
type Pages map[string]any

// ServeHTTP implements http.Handler.
func (p Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch v := p[r.URL.Path].(type) {
	case nil:
		http.NotFound(w, r)
	case func(http.ResponseWriter, *http.Request):
		v(w, r)
	case string:
		_, _ = io.WriteString(w, v)
	default:
		JSON(w, http.StatusOK, v)
	}
}

// JSON writes an answer as JSON.
func JSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

type Registered struct {
	ID, Secret string
	Method     string           // the client's authentication method
	Key        crypto.PublicKey // verifies the client's assertions
	Redirects  []string
}

// Grant describes a token.
type Grant struct {
	Client, Resource, Scope string
	Subject                 string // the token that was exchanged for this token
	Until                   time.Time
}

// Issuer is an authorization server.
type Issuer struct {
	URL string // issuer identifier, without a trailing slash
	// Change, if not nil, changes the issuer's metadata before it is sent.
	Change func(map[string]any)
	// Life is the lifetime of tokens; 0 means an hour.
	Life time.Duration
	// Device, if not nil, enables the device flow. It returns the error for the n-th poll, or "" once the person has
	// signed in.
	Device func(n int) string
	// Takes, if not nil, reports whether a token may be exchanged.
	Takes func(subject string) bool
	// Authorized, if not nil, changes the answer to an authorization request.
	Authorized func(url.Values)

	t        testing.TB
	mu       sync.Mutex
	clients  map[string]*Registered
	codes    map[string]url.Values
	grants   map[string]Grant
	refresh  map[string]Grant
	used     map[string]bool // used refresh tokens
	override map[string]http.HandlerFunc
	asked    map[string]int
	reused   int
	polls    int
	asserted map[string]bool
}

func NewIssuer(t testing.TB, name string) *Issuer {
	return &Issuer{
		URL:      name,
		t:        t,
		clients:  map[string]*Registered{},
		codes:    map[string]url.Values{},
		grants:   map[string]Grant{},
		refresh:  map[string]Grant{},
		used:     map[string]bool{},
		override: map[string]http.HandlerFunc{},
		asked:    map[string]int{},
		asserted: map[string]bool{},
	}
}

// Serve returns an authorization server that listens on loopback until the test ends.
func Serve(t testing.TB) *Issuer {
	i := NewIssuer(t, "")
	s := httptest.NewUnstartedServer(i)
	i.URL = "http://" + s.Listener.Addr().String() // before others can read the URL
	s.Start()
	t.Cleanup(s.Close)
	return i
}

func (i *Issuer) Register(r Registered) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.clients[r.ID] = &r
}

// Forget removes all clients.
func (i *Issuer) Forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.clients)
}

// Answer sets the handler of a path below the issuer. nil restores the default handler.
func (i *Issuer) Answer(path string, f http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.override[path] = f
}

// Asked returns the number of requests for a path below the issuer.
func (i *Issuer) Asked(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked[path]
}

// Reused returns how often a used refresh token was sent again.
func (i *Issuer) Reused() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.reused
}

// Good returns the grant of a token, and whether the token is valid.
func (i *Issuer) Good(token string) (Grant, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	g, ok := i.grants[token]
	return g, ok && time.Now().Before(g.Until)
}

// Revoke ends all access tokens, and with refresh also all refresh tokens.
func (i *Issuer) Revoke(refresh bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.grants)
	if refresh {
		clear(i.refresh)
	}
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	own, err := url.Parse(i.URL)
	if err != nil {
		i.t.Error(err)
	}
	path := strings.TrimPrefix(r.URL.Path, own.Path)
	i.mu.Lock()
	i.asked[path]++
	f := i.override[path]
	i.mu.Unlock()
	if f != nil {
		f(w, r)
		return
	}
	switch path {
	case "/.well-known/oauth-authorization-server":
		m := map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "registration_endpoint": i.URL + "/register",
			"revocation_endpoint": i.URL + "/revoke", "code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none", "client_secret_basic", "client_secret_post", "private_key_jwt"},
			"authorization_response_iss_parameter_supported": true,
		}
		if i.Device != nil {
			m["device_authorization_endpoint"] = i.URL + "/device"
		}
		if i.Change != nil {
			i.Change(m)
		}
		JSON(w, http.StatusOK, m)
	case "/device":
		i.device(w, r)
	case "/register":
		i.register(w, r)
	case "/authorize":
		i.authorize(w, r)
	case "/token":
		i.token(w, r)
	case "/revoke":
		_ = r.ParseForm()
		i.mu.Lock()
		delete(i.refresh, r.PostForm.Get("token"))
		i.mu.Unlock()
	default:
		http.NotFound(w, r)
	}
}

func (i *Issuer) register(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Redirects []string `json:"redirect_uris"`
		Method    string   `json:"token_endpoint_auth_method"`
		Grants    []string `json:"grant_types"`
	}
	if json.NewDecoder(r.Body).Decode(&in) != nil || len(in.Redirects) == 0 && !slices.Contains(in.Grants, deviceGrant) {
		JSON(w, http.StatusBadRequest, map[string]any{"error": "invalid_client_metadata"})
		return
	}
	c := Registered{
		ID:        "client-" + rand.Text()[:8],
		Method:    in.Method,
		Redirects: in.Redirects,
	}
	out := map[string]any{"client_id": c.ID, "redirect_uris": in.Redirects, "token_endpoint_auth_method": in.Method}
	if in.Method != "none" {
		c.Secret = rand.Text()
		out["client_secret"], out["client_secret_expires_at"] = c.Secret, 0
	}
	i.Register(c)
	JSON(w, http.StatusCreated, out)
}

func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	i.mu.Lock()
	c := i.clients[q.Get("client_id")]
	i.mu.Unlock()
	if c == nil || !slices.Contains(c.Redirects, q.Get("redirect_uri")) || q.Get("code_challenge_method") != "S256" || q.Get("state") == "" || q.Get("response_type") != "code" {
		http.Error(w, "bad authorization request", http.StatusBadRequest)
		return
	}
	to, err := url.Parse(q.Get("redirect_uri"))
	if err != nil {
		http.Error(w, "bad redirect_uri", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	i.mu.Lock()
	i.codes[code] = q
	i.mu.Unlock()
	answer := url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {i.URL}}
	if i.Authorized != nil {
		i.Authorized(answer)
	}
	to.RawQuery = answer.Encode()
	http.Redirect(w, r, to.String(), http.StatusFound)
}

const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// device answers with a user code.
func (i *Issuer) device(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.client(r)
	if c == nil {
		JSON(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	code := "device-" + rand.Text()
	i.codes[code] = url.Values{"client_id": {c.ID}, "scope": {r.PostForm.Get("scope")}, "resource": {r.PostForm.Get("resource")}}
	JSON(w, http.StatusOK, map[string]any{
		"device_code": code, "user_code": "BCDF-GHJK", "verification_uri": i.URL + "/activate", "verification_uri_complete": i.URL + "/activate?user_code=BCDF-GHJK", "expires_in": 600, "interval": 1,
	})
}

// client returns the authenticated client of a request.
func (i *Issuer) client(r *http.Request) *Registered {
	if id, secret, ok := r.BasicAuth(); ok {
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
		if r := i.clients[id]; r != nil && r.Secret != "" && r.Secret == secret && (r.Method == "" || r.Method == "client_secret_basic") {
			return r
		}
		return nil
	}
	if signed := r.PostForm.Get("client_assertion"); signed != "" {
		return i.signed(signed, r.PostForm.Get("client_assertion_type"))
	}
	c := i.clients[r.PostForm.Get("client_id")]
	if c == nil || c.Key != nil || c.Secret != r.PostForm.Get("client_secret") || c.Secret != "" && c.Method == "client_secret_basic" {
		return nil
	}
	return c
}

// signed returns the client of an assertion, which works only once.
func (i *Issuer) signed(text, kind string) *Registered {
	s, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA})
	if err != nil || kind != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" {
		return nil
	}
	var claims struct {
		Iss, Sub, Aud, Jti string
		Exp                int64
	}
	if json.Unmarshal(s.UnsafePayloadWithoutVerification(), &claims) != nil || claims.Iss != claims.Sub || claims.Aud != i.URL || claims.Jti == "" || i.asserted[claims.Jti] {
		return nil
	}
	r := i.clients[claims.Sub]
	left := time.Until(time.Unix(claims.Exp, 0))
	if r == nil || r.Key == nil || left <= 0 || left > time.Minute {
		return nil
	}
	if _, err := s.Verify(r.Key); err != nil {
		return nil
	}
	i.asserted[claims.Jti] = true
	return r
}

func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		JSON(w, http.StatusBadRequest, map[string]any{"error": "invalid_request"})
		return
	}
	f := r.PostForm
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.client(r)
	if c == nil {
		JSON(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	g := Grant{
		Client:   c.ID,
		Resource: f.Get("resource"),
		Scope:    f.Get("scope"),
	}
	refuse := func(code string) { JSON(w, http.StatusBadRequest, map[string]any{"error": code}) }
	renews := false
	switch f.Get("grant_type") {
	case "client_credentials":
	case "authorization_code":
		q := i.codes[f.Get("code")]
		delete(i.codes, f.Get("code"))
		sum := sha256.Sum256([]byte(f.Get("code_verifier")))
		if q == nil || q.Get("client_id") != c.ID || q.Get("redirect_uri") != f.Get("redirect_uri") || q.Get("resource") != f.Get("resource") || base64.RawURLEncoding.EncodeToString(sum[:]) != q.Get("code_challenge") {
			refuse("invalid_grant")
			return
		}
		g.Scope, renews = q.Get("scope"), true
	case deviceGrant:
		q := i.codes[f.Get("device_code")]
		if q == nil || q.Get("client_id") != c.ID || q.Get("resource") != f.Get("resource") {
			refuse("invalid_grant")
			return
		}
		if i.polls++; i.Device(i.polls) != "" {
			refuse(i.Device(i.polls))
			return
		}
		delete(i.codes, f.Get("device_code"))
		g.Scope, renews = q.Get("scope"), true
	case "refresh_token":
		old := f.Get("refresh_token")
		was, ok := i.refresh[old]
		if i.used[old] { // like a good server, end the whole family
			i.reused++
			clear(i.refresh)
			clear(i.grants)
		}
		if !ok || i.used[old] || was.Client != c.ID || was.Resource != g.Resource {
			refuse("invalid_grant")
			return
		}
		i.used[old] = true
		delete(i.refresh, old)
		g.Scope, renews = was.Scope, true
	case "urn:ietf:params:oauth:grant-type:token-exchange", "urn:ietf:params:oauth:grant-type:jwt-bearer":
		g.Subject = f.Get("subject_token")
		if f.Get("requested_token_use") == "on_behalf_of" {
			g.Subject = f.Get("assertion")
		} else if f.Get("subject_token_type") != "urn:ietf:params:oauth:token-type:access_token" || f.Has("assertion") {
			g.Subject = ""
		}
		if g.Subject == "" || i.Takes == nil || !i.Takes(g.Subject) {
			refuse("invalid_grant")
			return
		}
	default:
		refuse("unsupported_grant_type")
		return
	}
	life := i.Life
	if life == 0 {
		life = time.Hour
	}
	g.Until = time.Now().Add(life)
	access := "access-" + rand.Text()
	i.grants[access] = g
	out := map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": int(life.Seconds())}
	if g.Scope != "" {
		out["scope"] = g.Scope
	}
	if renews {
		next := "refresh-" + rand.Text()
		i.refresh[next] = g
		out["refresh_token"] = next
	}
	JSON(w, http.StatusOK, out)
}

// Resource protects the handler at the path of a URL with tokens of an issuer, and publishes its metadata (RFC 9728).
type Resource struct {
	URL    string
	Issuer *Issuer
	Next   http.Handler // nil means status 200
	// Needs, if not nil, returns the scope that a request needs.
	Needs func(*http.Request) string
	// Change, if not nil, changes the metadata before it is sent.
	Change func(map[string]any)

	mu  sync.Mutex
	saw []string
}

// Saw returns the Authorization headers that the resource has received.
func (r *Resource) Saw() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.saw)
}

// ServeHTTP implements http.Handler.
func (r *Resource) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	u, err := url.Parse(r.URL)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	prm := "/.well-known/oauth-protected-resource" + u.Path
	if req.URL.Path == prm {
		m := map[string]any{"resource": r.URL, "authorization_servers": []string{r.Issuer.URL}}
		if r.Change != nil {
			r.Change(m)
		}
		JSON(w, http.StatusOK, m)
		return
	}
	if req.URL.Path != u.Path {
		http.NotFound(w, req)
		return
	}
	shown := req.Header.Get("Authorization")
	r.mu.Lock()
	r.saw = append(r.saw, shown)
	r.mu.Unlock()
	token, _ := strings.CutPrefix(shown, "Bearer ")
	g, ok := r.Issuer.Good(token)
	challenge := `Bearer resource_metadata="` + u.Scheme + "://" + u.Host + prm + `"`
	if !ok || g.Resource != r.URL {
		w.Header().Set("WWW-Authenticate", challenge)
		http.Error(w, "no token", http.StatusUnauthorized)
		return
	}
	if r.Needs != nil {
		if need := r.Needs(req); need != "" && !slices.Contains(strings.Fields(g.Scope), need) {
			w.Header().Set("WWW-Authenticate", challenge+`, error="insufficient_scope", scope="`+need+`"`)
			http.Error(w, "scope", http.StatusForbidden)
			return
		}
	}
	if r.Next != nil {
		r.Next.ServeHTTP(w, req)
	}
}
