// Package front is a small authorization server before an identity provider that MCP
// clients cannot use as it is: one that registers no clients, knows no resource indicators,
// or gives tokens that nobody else can read.
//
// Clients register themselves here, and get tokens from here. Users sign in at the
// provider, after they have agreed to it on a page of this package. No token of the
// provider reaches a client, and none of a client the provider.
//
// As much as possible is kept by others, sealed: a registration is the client's id, and
// a sign-in that is under way is the state that the provider brings back. Only codes, and
// what refresh tokens are good for, are in the Store.
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

// Options are what a front is made of.
type Options struct {
	Settings
	// Root is the public address of the bridge, without a slash at its end. It is the name
	// of the front as an issuer.
	Root string
	// Provider is the issuer at which users sign in. Transport makes requests to it.
	Provider  string
	Transport http.RoundTripper
	// Documents makes requests for metadata of clients, to addresses that strangers name.
	// It must refuse those of private networks.
	Documents http.RoundTripper
	// Identify checks an ID token of the provider, and returns its claims. An empty nonce
	// is not looked at.
	Identify func(ctx context.Context, raw, client, nonce string) (gjson.Result, error)
	// Admits reports whether the holder of an access token may use a resource; nil means
	// that everybody may.
	Admits func(ctx context.Context, token, resource string) bool
	// Resource returns the scopes that clients are told to ask for at an address; ok is
	// false if it is none of the bridge.
	Resource func(address string) (scopes []string, ok bool)
	// Scopes returns all scopes that there are.
	Scopes func() []string
	// From returns the address that a request comes from.
	From func(*http.Request) netip.Addr
	// Secrets are what keys are made of: the first is used, and all count. None means that
	// they are made up, and end with the process.
	Secrets []string
	// Store keeps codes and logins; nil means the memory of this process.
	Store Store
	Log   *slog.Logger
}

const (
	attemptLife = 10 * time.Minute    // from the page that asks for consent to the end of the sign-in
	codeLife    = time.Minute         // until a code is used
	usedLife    = time.Hour           // how long it is known that it was
	tokenLife   = 15 * time.Minute    // of an access token that a refresh token renews
	aloneLife   = time.Hour           // of one that nothing renews
	loginLife   = 30 * 24 * time.Hour // of a refresh token that nobody uses
	grace       = 10 * time.Second    // for which a refresh token counts that was used
	providerFor = time.Hour           // how long the metadata of the provider counts
	awayFor     = 10 * time.Second    // until it is asked for again if it cannot be had
	// Who asks for it waits for so long at most: without any or after a failure, and with a former one.
	meetFor      = 10 * time.Second
	meetAgainFor = 2 * time.Second

	maxBody  = 64 << 10
	bodyWait = 10 * time.Second // until a body must be there
	maxState = 1 << 10
	maxEnded = 20_000
	maxUsed  = 20_000
	maxAsked = 32
	askWait  = 10 * time.Second // until there must be room for one more
)

// Front is the authorization server. Its methods may be called concurrently; those of nil
// serve nothing.
type Front struct {
	o      Options
	base   string // the path of the root
	routes map[string]http.HandlerFunc
	seals  *seal.Key
	signer jose.Signer
	keys   []byte // the public ones, as a set
	client *discovery.Client
	find   *discovery.Finder
	ask    *discovery.Asker
	docs   *documents[client]
	sets   *documents[jwks.Fixed]

	registering, fetching, returning, signing, showing limiter
	codes                                              chan struct{} // has one for each code that the provider is asked about
	endings                                            endings

	mu       sync.Mutex // guards the rest
	provider *discovery.Issuer
	away     error                              // why there is none, or no newer one
	until    time.Time                          // how long these count
	asking   chan struct{}                      // closed when it has been asked for again; nil while nobody asks
	ended    *simplelru.LRU[string, struct{}]   // logins that have ended
	used     *simplelru.LRU[[32]byte, struct{}] // states that have come back
}

// New makes a front.
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
		o.Log.Warn("the front has no key_file: after a restart, all clients register and sign in again")
	}
	if o.Store == nil {
		o.Store = NewMemory()
	}
	f := &Front{
		o: o, base: root.EscapedPath(), client: o.Client.Grant(),
		find: discovery.NewFinder(at, o.Transport), ask: discovery.NewAsker(o.Transport), docs: newDocuments[client](o.Documents, "the metadata of a client", (*client).most, o.Log),
		sets:        newDocuments[jwks.Fixed](o.Documents, "the keys of a client", func(*jwks.Fixed) time.Duration { return keysMost }, o.Log),
		registering: newLimiter(2*time.Second, 30), fetching: newLimiter(2*time.Second, 30),
		returning: newLimiter(time.Second, 100), codes: make(chan struct{}, maxAsked),
		signing: newLimiter(time.Minute, 30), showing: newLimiter(time.Second, 30),
	}
	f.ended, _ = simplelru.NewLRU[string, struct{}](maxEnded, nil) // the sizes are positive
	f.endings.owed, _ = lru.New[string, struct{}](maxEnded)
	f.used, _ = simplelru.NewLRU[[32]byte, struct{}](maxUsed, nil)
	if err := f.derive(); err != nil {
		return nil, err
	}
	f.routes = map[string]http.HandlerFunc{
		f.base + "/authorize":      only("GET, HEAD", f.authorize),
		f.base + "/oauth/consent":  only("POST", f.consented),
		f.base + "/oauth/callback": only("GET", f.callback),
		f.base + "/token":          open("POST", f.token),
		f.base + "/register":       open("POST", f.register),
		f.base + "/oauth/revoke":   open("POST", f.taken),
		f.base + "/oauth/jwks":     open("GET, HEAD", func(w http.ResponseWriter, _ *http.Request) { send(w, http.StatusOK, "max-age=300", f.keys) }),
	}
	for _, name := range []string{"oauth-authorization-server", "openid-configuration"} {
		for _, path := range []string{"/.well-known/" + name + f.base, f.base + "/.well-known/" + name} {
			f.routes[path] = open("GET, HEAD", func(w http.ResponseWriter, _ *http.Request) {
				answer(w, http.StatusOK, "max-age=300", f.metadata(name == "openid-configuration"))
			})
		}
	}
	return f, nil
}

// derive makes the keys, each for its own use (I-113).
func (f *Front) derive() (err error) {
	var seals []string
	var set jose.JSONWebKeySet
	for i, secret := range f.o.Secrets {
		// What was said of users of one provider must not count for those of another, nor at
		// another bridge with the same secret.
		of, err := json.Marshal([]string{f.o.Root, f.o.Provider, f.client.ID})
		if err != nil {
			return err
		}
		seals = append(seals, string(seal.Derive(secret, "front seals "+string(of), 32)))
		key := signingKey(secret, string(of))
		jwk := jose.JSONWebKey{Key: key.Public(), Use: "sig", Algorithm: string(jose.ES256)}
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
	for n := 0; ; n++ { // one number in four thousand million is too large for the curve
		raw := seal.Derive(secret, "front signing key "+strconv.Itoa(n)+" "+of, 32)
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw); err == nil {
			return key
		}
	}
}

// Issuer returns the name of the front as an issuer.
func (f *Front) Issuer() string { return f.o.Root }

// Callback returns where the provider sends browsers back to. It has to be registered there.
func Callback(root string) string { return root + "/oauth/callback" }

// Tokens returns how access tokens of the front are checked.
func (f *Front) Tokens() *token.Front {
	return &token.Front{Issuer: f.o.Root, Keys: f.keys, Open: f.opened}
}

// Paths returns the paths that it serves.
func (f *Front) Paths() []string {
	if f == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(f.routes))
}

// ServeHTTP serves a request for one of its paths.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Anybody may send a body here, and could keep a connection by never ending it. The
	// limit stays for one that is not read: net/http does so at the end. It sets another
	// one for the next request.
	c := http.NewResponseController(w)
	if r.ContentLength != 0 && c.SetReadDeadline(time.Now().Add(bodyWait)) == nil {
		r.Body = &limited{r.Body, c}
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	f.routes[r.URL.Path](w, r)
}

// limited is a body with a time limit, which goes when all of it is there: after that,
// net/http would take it for the client's going.
type limited struct {
	io.ReadCloser
	c *http.ResponseController
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = l.c.SetReadDeadline(time.Time{}) // it could be set: it can be taken away
	}
	return n, err
}

// only serves the pages of the front, for browsers that are led there.
func only(methods string, f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(strings.Split(methods, ", "), r.Method) {
			w.Header().Set("Allow", methods)
			page(w, http.StatusMethodNotAllowed, "This is not served here.")
			return
		}
		f(w, r)
	}
}

// open serves what clients ask for. They may be pages of any site: none of it goes by
// cookies (I-100).
func open(methods string, f http.HandlerFunc) http.HandlerFunc {
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

// metadata returns what the front says of itself (RFC 8414 §2). The document of OpenID
// Connect must have more, without which some clients refuse it.
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
	if all := f.o.Scopes(); len(all) > 0 {
		m["scopes_supported"] = all
	}
	if openid {
		m["subject_types_supported"], m["id_token_signing_alg_values_supported"] = []string{"public"}, []string{string(jose.ES256)}
	}
	return m
}

// at returns the metadata of the provider. A former one counts while there is no other, and
// while it is asked for again. Those who wait for the first share one request.
func (f *Front) at(ctx context.Context) (*discovery.Issuer, error) {
	f.mu.Lock()
	had, away, fresh, asking := f.provider, f.away, time.Now().Before(f.until), f.asking
	if !fresh && asking == nil {
		f.asking = make(chan struct{})
	}
	f.mu.Unlock()
	switch {
	case had != nil && (fresh || asking != nil):
		return had, nil
	case fresh:
		return nil, away
	case asking == nil:
		return f.meet(context.WithoutCancel(ctx)) // for all who come after
	}
	select {
	case <-asking:
		return f.at(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// meet asks the provider for its metadata, and tells those who wait for it.
func (f *Front) meet(ctx context.Context) (*discovery.Issuer, error) {
	f.mu.Lock()
	patience := meetFor
	if f.provider != nil && f.away == nil { // after a failure it may take the whole time
		patience = meetAgainFor
	}
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	now, err := f.find.Issuer(ctx, f.o.Provider)
	switch {
	case err == nil && now == nil:
		err = errors.New("it has no metadata")
	case err == nil && now.Authorization == "":
		err = errors.New("its metadata names no authorization_endpoint")
	}
	if err != nil {
		f.o.Log.Warn("the provider of the front cannot be used", "issuer", f.o.Provider, "err", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.asking)
	f.asking = nil
	if err == nil {
		f.provider, f.away, f.until = now, nil, time.Now().Add(providerFor)
		return now, nil
	}
	f.away, f.until = err, time.Now().Add(awayFor)
	if f.provider != nil {
		return f.provider, nil
	}
	return nil, err
}

// fail answers with an error of OAuth (RFC 6749 §5.2).
func fail(w http.ResponseWriter, status int, code, text string) {
	answer(w, status, "no-store", map[string]string{"error": code, "error_description": text})
}

// answer answers with JSON.
func answer(w http.ResponseWriter, status int, cache string, v any) {
	data, err := json.Marshal(v)
	if err != nil { // nothing that is sent can fail
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
	_, _ = w.Write(data) // a client that has gone needs no answer
}

// wait tells a client to come back later.
func wait(w http.ResponseWriter, after time.Duration) {
	httpio.RetryAfter(w.Header(), after)
	fail(w, http.StatusTooManyRequests, "temporarily_unavailable", "too many requests from this address")
}

// single returns the parameters of a request by their names; ok is false if one is there
// twice, which could be read in two ways.
func single(all url.Values) (_ func(name string) string, ok bool) {
	for _, values := range all {
		if len(values) > 1 {
			return nil, false
		}
	}
	return all.Get, true
}

// sealed returns a handle of that kind for a value; open reads it.
func (f *Front) sealed(kind string, v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return "" // nothing that is sealed can fail
	}
	return f.seals.Seal("front "+kind, data)
}

func (f *Front) open(kind, text string, into any) bool {
	data, err := f.seals.Open("front "+kind, text)
	return err == nil && json.Unmarshal(data, into) == nil
}

// asked returns the scopes that a client gets of those that it asks for: those that there
// are; without any, what clients are told to ask for.
func (f *Front) asked(text string, standard []string) []string {
	var all []string
	known := f.o.Scopes()
	for s := range strings.FieldsSeq(text) {
		if slices.Contains(known, s) && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	if strings.TrimSpace(text) == "" {
		return standard
	}
	return all
}

// idOf returns what stands for a client in tokens, and in the log.
func idOf(client string) string {
	if isDocument(client) && len(client) <= 200 {
		return client
	}
	return "registered-" + seal.Fingerprint(client)
}

// end has the tokens of a login end that were given out, or are shown, here.
func (f *Front) end(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended.Add(id, struct{}{})
}

// over reports whether a login has ended.
func (f *Front) over(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended.Contains(id)
}

// first reports whether a state comes back for the first time.
func (f *Front) first(sum [32]byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.used.Contains(sum) {
		return false
	}
	f.used.Add(sum, struct{}{})
	return true
}

// secure reports whether browsers reach the front over https. Otherwise they are on this
// machine, and might not keep cookies that are for https.
func (f *Front) secure() bool { return strings.HasPrefix(f.o.Root, "https:") }

// cookie returns a cookie, for as long. The prefix keeps other hosts of the domain from
// setting it.
func (f *Front) cookie(name, value string, life time.Duration) *http.Cookie {
	c := &http.Cookie{Name: f.named(name), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: f.secure(), MaxAge: int(life.Seconds())}
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

// cookieOf returns the value of a cookie; empty without one.
func (f *Front) cookieOf(r *http.Request, name string) string {
	c, err := r.Cookie(f.named(name))
	if err != nil {
		return ""
	}
	return c.Value
}
