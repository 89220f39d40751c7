// Package front is a small authorization server before an identity provider that MCP clients cannot use directly. Such
// a provider does not register clients, does not know resource indicators, or issues tokens that only the provider can
// read.
//
// Clients register here and get their tokens here. Users agree on a page of this package and then sign in at the
// provider. Clients get no token of the provider, and the provider gets no token of a client.
//
// The front stores little. A registration is sealed into the client's id, and a sign-in in progress is sealed into the
// state that the provider returns. Only codes and logins are in the Store.
package front

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/auth/assertion"
	"github.com/mcp-bridge/bridge/internal/auth/jwks"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// Bridge is the bridge behind a front.
type Bridge interface {
	// Identify checks an ID token of the provider and returns the token's claims. If nonce is empty, Identify does not
	// check the token's nonce.
	Identify(ctx context.Context, raw, client, nonce string) (gjson.Result, error)
	// Admits reports whether the holder of an access token may use a resource.
	Admits(ctx context.Context, token, resource string) bool
	// Resource returns the scopes that clients should request at an address. If the bridge does not serve the address,
	// ok is false.
	Resource(address string) (scopes []string, ok bool)
	// Scopes returns all scopes of the bridge.
	Scopes() []string
	// From returns the client address of a request.
	From(r *http.Request) netip.Addr
}

// Options are the settings and dependencies of a Front.
type Options struct {
	Settings
	// Root is the public address of the bridge, without a trailing slash. It is the front's
	// issuer identifier.
	Root string
	// Provider is the issuer where users sign in, and Transport sends requests to it.
	Provider  string
	Transport http.RoundTripper
	// Documents fetches metadata of clients, from addresses that strangers name. It must refuse private networks.
	Documents http.RoundTripper
	Bridge    Bridge
	// Claims are the claims that access rules name. If an ID token lacks some of them, the front requests them from
	// userinfo.
	Claims []string
	// Secrets are the seeds of all keys. Keys of the first secret seal and sign; keys of all secrets open and verify.
	// Without secrets, the front uses a random secret, which lives as long as the process.
	Secrets []string
	// Store stores codes and logins; nil means in memory.
	Store Store
	Log   *slog.Logger
}

const (
	attemptLife   = 10 * time.Minute    // from the consent page to the end of the sign-in
	codeLife      = time.Minute         // lifetime of an unused code
	usedLife      = time.Hour           // how long a used code is stored
	tokenLife     = 15 * time.Minute    // lifetime of an access token with a refresh token
	plainLife     = time.Hour           // lifetime of an access token without a refresh token
	loginLife     = 30 * 24 * time.Hour // lifetime of an unused refresh token
	grace         = 10 * time.Second    // how long a used refresh token still works
	providerLife  = time.Hour           // lifetime of the provider's metadata
	providerPause = 10 * time.Second    // pause after a failed fetch of the metadata
	// providerTimeout bounds a fetch without older metadata or after a failure; refreshTimeout bounds other fetches.
	providerTimeout = 10 * time.Second
	refreshTimeout  = 2 * time.Second

	maxBody      = 64 << 10
	bodyWait     = 10 * time.Second // timeout for reading a request's body
	maxState     = 1 << 10
	maxEnded     = 20_000
	maxUsed      = 20_000
	maxExchanges = 32
	slotWait     = 10 * time.Second // maximum wait of a code for a slot
)

// Front is the authorization server. Its methods may be called concurrently. A nil Front
// serves no paths.
type Front struct {
	o          Options
	base       string // the path of Root
	routes     map[string]http.HandlerFunc
	seals      *seal.Key
	signer     jose.Signer
	keys       []byte // the public keys, as a JSON Web Key Set
	client     *discovery.Client
	find       *discovery.Finder
	ask        *discovery.Asker
	clientDocs *documents[client]
	keySets    *documents[jwks.Fixed]

	registering, fetching, returning, signing, uses limiter
	codeSlots                                       chan struct{} // holds one item for each code that is being exchanged at the provider
	endings                                         endings

	mu            sync.Mutex // guards the rest
	provider      *discovery.Issuer
	providerErr   error                                  // the error of the last fetch
	providerUntil time.Time                              // when provider or providerErr expires
	providerFetch chan struct{}                          // closed when the fetch in flight ends; nil if no fetch is in flight
	ended         simplelru.LRUCache[string, struct{}]   // ended logins
	used          simplelru.LRUCache[[32]byte, struct{}] // state parameters that the provider has returned
}

func New(o Options) (*Front, error) {
	root, err := url.Parse(o.Root)
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(o.Provider)
	if err != nil {
		return nil, err
	}
	if len(o.Secrets) == 0 {
		o.Secrets = []string{rand.Text() + rand.Text()}
		o.Log.Warn("the front has no key_file: after a restart, all clients must register and all users sign in again")
	}
	if o.Store == nil {
		o.Store = NewMemory()
	}
	f := &Front{
		o:           o,
		base:        root.EscapedPath(),
		client:      o.Client.Grant(),
		find:        discovery.NewFinder(at, o.Transport),
		ask:         discovery.NewAsker(o.Transport),
		clientDocs:  newDocuments[client](o.Documents, "the metadata of a client", (*client).documentLife, o.Log),
		keySets:     newDocuments[jwks.Fixed](o.Documents, "the keys of a client", func(*jwks.Fixed) time.Duration { return keysMost }, o.Log),
		registering: newLimiter(2*time.Second, 30),
		fetching:    newLimiter(2*time.Second, 30),
		returning:   newLimiter(time.Second, 100),
		codeSlots:   make(chan struct{}, maxExchanges),
		signing:     newLimiter(time.Minute, 30),
		uses:        newLimiter(time.Second, 30),
	}
	f.ended, _ = simplelru.NewLRU[string, struct{}](maxEnded, nil) // the sizes are positive
	f.endings.owed, _ = lru.New[string, struct{}](maxEnded)
	f.used, _ = simplelru.NewLRU[[32]byte, struct{}](maxUsed, nil)
	if err := f.derive(); err != nil {
		return nil, err
	}
	f.routes = map[string]http.HandlerFunc{
		f.base + "/authorize":      pageHandler("GET, HEAD", f.authorize),
		f.base + "/oauth/consent":  pageHandler("POST", f.consentAnswer),
		f.base + "/oauth/callback": pageHandler("GET", f.callback),
		f.base + "/token":          apiHandler("POST", f.token),
		f.base + "/register":       apiHandler("POST", f.register),
		f.base + "/oauth/revoke":   apiHandler("POST", f.revocation),
		f.base + "/oauth/jwks":     apiHandler("GET, HEAD", func(w http.ResponseWriter, _ *http.Request) { send(w, http.StatusOK, "max-age=300", f.keys) }),
	}
	for _, name := range []string{"oauth-authorization-server", "openid-configuration"} {
		for _, path := range []string{"/.well-known/" + name + f.base, f.base + "/.well-known/" + name} {
			f.routes[path] = apiHandler("GET, HEAD", func(w http.ResponseWriter, _ *http.Request) {
				answer(w, http.StatusOK, "max-age=300", f.metadata(name == "openid-configuration"))
			})
		}
	}
	return f, nil
}

// derive derives the keys from the secrets, a separate key for each use (I-113).
func (f *Front) derive() (err error) {
	var seals []string
	var set jose.JSONWebKeySet
	for i, secret := range f.o.Secrets {
		// Seals for one provider must not open for another provider, or at another bridge with the same secret.
		of, err := json.Marshal([]string{f.o.Root, f.o.Provider, f.client.ID})
		if err != nil {
			return err
		}
		seals = append(seals, string(seal.Derive(secret, "front seals "+string(of), 32)))
		key := signingKey(secret, string(of))
		jwk := jose.JSONWebKey{
			Key:       key.Public(),
			Use:       "sig",
			Algorithm: string(jose.ES256),
		}
		sum, err := jwk.Thumbprint(crypto.SHA256)
		if err != nil {
			return err
		}
		jwk.KeyID = fmt.Sprintf("%x", sum[:8])
		set.Keys = append(set.Keys, jwk)
		if i > 0 {
			continue
		}
		o := (&jose.SignerOptions{}).WithType("at+jwt").WithHeader("kid", jwk.KeyID)
		if f.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, o); err != nil {
			return err
		}
	}
	if f.keys, err = json.Marshal(set); err != nil {
		return err
	}
	f.seals, err = seal.New(seals...)
	return err
}

// signingKey returns the key that signs access tokens.
func signingKey(secret, of string) *ecdsa.PrivateKey {
	for n := 0; ; n++ { // one candidate in 2^32 is too large for the curve
		raw := seal.Derive(secret, "front signing key "+strconv.Itoa(n)+" "+of, 32)
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw); err == nil {
			return key
		}
	}
}

// Issuer returns the front's issuer identifier.
func (f *Front) Issuer() string { return f.o.Root }

// Callback returns the address to which the provider sends browsers back. The operator must register it at the
// provider.
func Callback(root string) string { return root + "/oauth/callback" }

// Tokens returns the settings for checking the front's access tokens.
func (f *Front) Tokens() *token.Front {
	return &token.Front{
		Issuer: f.o.Root,
		Keys:   f.keys,
		Open:   f.userClaims,
	}
}

// Paths returns the paths that the front serves.
func (f *Front) Paths() []string {
	if f == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(f.routes))
}

// ServeHTTP serves a request for one of the paths.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Any stranger may send a body here, and could hold a connection by never ending the body. The deadline also stays
	// for a body that no handler reads: net/http reads the body at the end, and sets a new deadline for the next
	// request.
	c := http.NewResponseController(w)
	if r.ContentLength != 0 && c.SetReadDeadline(time.Now().Add(bodyWait)) == nil {
		r.Body = &limited{r.Body, c}
	}
	r.Body = httpio.MaxBytes(w, r.Body, maxBody)
	f.routes[r.URL.Path](w, r)
}

// limited is a body that clears the read deadline at its end. Otherwise, net/http would later mistake an expired
// deadline for a disconnected client.
type limited struct {
	io.ReadCloser
	c *http.ResponseController
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = l.c.SetReadDeadline(time.Time{}) // setting it worked, so clearing it works
	}
	return n, err
}

// pageHandler returns the handler of a page for browsers.
func pageHandler(methods string, f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(strings.Split(methods, ", "), r.Method) {
			w.Header().Set("Allow", methods)
			page(w, http.StatusMethodNotAllowed, "This is not served here.")
			return
		}
		f(w, r)
	}
}

// apiHandler returns the handler of an endpoint for clients. Clients may be pages of any site, because no endpoint uses
// cookies (I-100).
func apiHandler(methods string, f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		switch {
		case r.Method == http.MethodOptions:
			h.Set("Access-Control-Allow-Methods", methods)
			h.Set("Access-Control-Allow-Headers", "Content-Type, Accept, Authorization, MCP-Protocol-Version")
			h.Set("Access-Control-Max-Age", "7200")
			w.WriteHeader(http.StatusNoContent)
		case !slices.Contains(strings.Split(methods, ", "), r.Method):
			h.Set("Allow", methods)
			fail(w, http.StatusMethodNotAllowed, "invalid_request", "this method is not served here")
		default:
			f(w, r)
		}
	}
}

// metadata returns the front's metadata (RFC 8414 §2). openid adds members of OpenID Connect: some clients refuse an
// OpenID Connect document without them.
func (f *Front) metadata(openid bool) map[string]any {
	m := map[string]any{
		"issuer": f.o.Root, "authorization_endpoint": f.o.Root + "/authorize", "token_endpoint": f.o.Root + "/token",
		"registration_endpoint": f.o.Root + "/register", "revocation_endpoint": f.o.Root + "/oauth/revoke", "jwks_uri": f.o.Root + "/oauth/jwks",
		"response_types_supported": []string{"code"}, "response_modes_supported": []string{"query"},
		"grant_types_supported":                          []string{"authorization_code", "refresh_token"},
		"token_endpoint_auth_methods_supported":          []string{discovery.None, discovery.Key},
		"revocation_endpoint_auth_methods_supported":     []string{discovery.None, discovery.Key},
		"code_challenge_methods_supported":               []string{"S256"},
		"authorization_response_iss_parameter_supported": true,
		"client_id_metadata_document_supported":          true,
	}
	for _, endpoint := range []string{"token", "revocation"} {
		m[endpoint+"_endpoint_auth_signing_alg_values_supported"] = assertion.Algorithms
	}
	if all := f.o.Bridge.Scopes(); len(all) > 0 {
		m["scopes_supported"] = all
	}
	if openid {
		m["subject_types_supported"], m["id_token_signing_alg_values_supported"] = []string{"public"}, []string{string(jose.ES256)}
	}
	return m
}

// providerMetadata returns the provider's metadata. Older metadata is used during a fetch and after a failed fetch.
// Callers that wait for the first metadata share one fetch.
func (f *Front) providerMetadata(ctx context.Context) (*discovery.Issuer, error) {
	f.mu.Lock()
	old, lastErr, fresh, fetch := f.provider, f.providerErr, time.Now().Before(f.providerUntil), f.providerFetch
	if !fresh && fetch == nil {
		f.providerFetch = make(chan struct{})
	}
	f.mu.Unlock()
	switch {
	case old != nil && (fresh || fetch != nil):
		return old, nil
	case fresh:
		return nil, lastErr
	case fetch == nil:
		return f.fetchProvider(context.WithoutCancel(ctx)) // other callers wait for the fetch
	}
	select {
	case <-fetch:
		return f.providerMetadata(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fetchProvider fetches the provider's metadata and wakes the callers that wait for it.
func (f *Front) fetchProvider(ctx context.Context) (*discovery.Issuer, error) {
	f.mu.Lock()
	timeout := providerTimeout
	if f.provider != nil && f.providerErr == nil { // after a failure, the fetch gets the full timeout
		timeout = refreshTimeout
	}
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	now, err := f.find.Provider(ctx, f.o.Provider)
	switch {
	case err == nil && now == nil:
		err = errors.New("it publishes no metadata")
	case err == nil && now.Authorization == "":
		err = errors.New("its metadata names no authorization_endpoint")
	}
	if err != nil {
		f.o.Log.Warn("the metadata of the front's provider cannot be used", "issuer", f.o.Provider, "err", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.providerFetch)
	f.providerFetch = nil
	if err == nil {
		f.provider, f.providerErr, f.providerUntil = now, nil, time.Now().Add(providerLife)
		return now, nil
	}
	f.providerErr, f.providerUntil = err, time.Now().Add(providerPause)
	if f.provider != nil {
		return f.provider, nil
	}
	return nil, err
}

// fail sends an OAuth error (RFC 6749 §5.2).
func fail(w http.ResponseWriter, status int, code, text string) {
	answer(w, status, "no-store", map[string]string{"error": code, "error_description": text})
}

// answer sends v as JSON.
func answer(w http.ResponseWriter, status int, cache string, v any) {
	data, err := json.Marshal(v)
	if err != nil { // every value that is sent can be marshalled
		status, data = http.StatusInternalServerError, []byte("{}")
	}
	send(w, status, cache, data)
}

func send(w http.ResponseWriter, status int, cache string, data []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", cache)
	if cache == "no-store" {
		h.Set("Pragma", "no-cache")
	}
	w.WriteHeader(status)
	_, _ = w.Write(data) // a disconnected client needs no answer
}

// tooMany refuses a request because of a rate limit.
func tooMany(w http.ResponseWriter, after time.Duration) {
	httpio.RetryAfter(w.Header(), after)
	fail(w, http.StatusTooManyRequests, "temporarily_unavailable", "too many requests from this address: try again later")
}

// single returns a getter of the parameters. If a parameter occurs twice, which is ambiguous, ok is false.
func single(all url.Values) (_ func(name string) string, ok bool) {
	for _, values := range all {
		if len(values) > 1 {
			return nil, false
		}
	}
	return all.Get, true
}

// sealed seals a value of a kind; open opens it.
func (f *Front) sealed(kind string, v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return "" // every value that is sealed can be marshalled
	}
	return f.seals.Seal("front "+kind, data)
}

func (f *Front) open(kind, text string, into any) bool {
	data, err := f.seals.Open("front "+kind, text)
	return err == nil && json.Unmarshal(data, into) == nil
}

// grantedScopes returns the requested scopes that exist, or the standard scopes if text names none that exist.
func (f *Front) grantedScopes(text string, standard []string) []string {
	var all []string
	known := f.o.Bridge.Scopes()
	for _, s := range discovery.SplitScopes(text) {
		if slices.Contains(known, s) && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	if strings.TrimSpace(text) == "" {
		return standard
	}
	return all
}

// idOf returns the name of a client in tokens and in the log.
func idOf(client string) string {
	if isDocument(client) && len(client) <= 200 {
		return client
	}
	return "registered-" + seal.Fingerprint(client)
}

// markEnded makes this instance refuse the access tokens of a login.
func (f *Front) markEnded(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended.Add(id, struct{}{})
}

func (f *Front) hasEnded(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended.Contains(id)
}

// firstReturn reports whether the provider returns a state for the first time.
func (f *Front) firstReturn(sum [32]byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.used.Contains(sum) {
		return false
	}
	f.used.Add(sum, struct{}{})
	return true
}

// secure reports whether browsers reach the front over https. Otherwise, they run on this machine and may drop cookies
// that need https.
func (f *Front) secure() bool { return strings.HasPrefix(f.o.Root, "https:") }

// cookie returns a cookie with a lifetime. The prefix of its name keeps other hosts of the domain from setting it.
func (f *Front) cookie(name, value string, life time.Duration) *http.Cookie {
	c := &http.Cookie{
		Name:     f.named(name),
		Value:    value,
		Path:     "/",
		HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
		Secure:   f.secure(),
		MaxAge:   int(life.Seconds()),
	}
	if life <= 0 {
		c.MaxAge = -1
	}
	return c
}

func (f *Front) named(cookie string) string {
	if f.secure() {
		return "__Host-mcp-" + cookie
	}
	return "mcp-" + cookie
}

// cookieOf returns the value of a cookie, or "" if there is no such cookie.
func (f *Front) cookieOf(r *http.Request, name string) string {
	c, err := r.Cookie(f.named(name))
	if err != nil {
		return ""
	}
	return c.Value
}
