// Package authtest is an issuer of tokens for tests. It signs all claims and sends all answers that a test sets.
package authtest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Claims are the claims of a token, or its header.
type Claims = map[string]any

// Key is a key that signs.
type Key struct {
	ID, Alg string
	Private crypto.Signer
}

// NewKey returns a key of the usual size for an algorithm.
func NewKey(t testing.TB, id, alg string) *Key {
	t.Helper()
	k := &Key{ID: id, Alg: alg}
	var err error
	switch {
	case alg == "EdDSA":
		_, k.Private, err = ed25519.GenerateKey(rand.Reader)
	case strings.HasPrefix(alg, "ES"):
		curve := map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()}[alg]
		k.Private, err = ecdsa.GenerateKey(curve, rand.Reader)
	default:
		k.Private, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// JWK returns the public key as an entry of a key set.
func (k *Key) JWK(t testing.TB) map[string]any {
	t.Helper()
	data, err := jose.JSONWebKey{
		Key:   k.Private.Public(),
		KeyID: k.ID,
		Use:   "sig",
	}.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// File writes the private key to a PEM file and returns its path.
func (k *Key) File(t testing.TB) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(k.Private)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Run runs f until the test ends.
func Run(t testing.TB, f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

// Issuer is an identity provider. It is an http.Handler, and an http.RoundTripper without a network.
type Issuer struct {
	t testing.TB
	// URL is the issuer identifier.
	URL string

	mu       sync.Mutex // guards the fields below
	keys     []*Key
	override map[string]http.HandlerFunc
	asked    map[string]int
}

// New returns an issuer with that URL, which only RoundTrip can reach. It has one ES256 key with the id k1.
func New(t testing.TB, issuer string) *Issuer {
	return &Issuer{
		t:        t,
		URL:      issuer,
		keys:     []*Key{NewKey(t, "k1", "ES256")},
		override: map[string]http.HandlerFunc{},
		asked:    map[string]int{},
	}
}

// Serve returns an issuer that listens on loopback until the test ends.
func Serve(t testing.TB) *Issuer {
	i := New(t, "")
	s := httptest.NewServer(i)
	t.Cleanup(s.Close)
	i.URL = s.URL
	return i
}

func (i *Issuer) Set(keys ...*Key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = keys
}

func (i *Issuer) Keys() []*Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys
}

// Answer sets the handler of a path; nil restores the default.
func (i *Issuer) Answer(path string, f http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.override[path] = f
}

// Asked returns the number of requests for a path.
func (i *Issuer) Asked(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked[path]
}

// ServeHTTP serves the issuer's metadata, and its keys at /jwks.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	f, keys := i.override[r.URL.Path], i.keys
	i.asked[r.URL.Path]++
	i.mu.Unlock()
	own := "/"
	if u, err := url.Parse(i.URL); err == nil {
		own = strings.TrimSuffix(u.Path, "/") + "/"
	}
	var answer any
	switch {
	case f != nil:
		f(w, r)
		return
	case r.URL.Path == own+".well-known/openid-configuration":
		answer = map[string]any{
			"issuer":                 i.URL,
			"jwks_uri":               strings.TrimSuffix(i.URL, "/") + "/jwks",
			"introspection_endpoint": i.URL + "/introspect",
		}
	case r.URL.Path == own+"jwks":
		all := []any{}
		for _, k := range keys {
			all = append(all, jose.JSONWebKey{
				Key:   k.Private.Public(),
				KeyID: k.ID,
				Use:   "sig",
			})
		}
		answer = map[string]any{"keys": all}
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// RoundTrip answers a request without a network. To play a server that hangs, a handler waits until the context of the
// request ends.
func (i *Issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	i.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// Claims returns the claims of a valid token for the audience, with changes. The value nil removes a claim.
func (i *Issuer) Claims(audience any, changes ...Claims) Claims {
	now := time.Now()
	c := Claims{"iss": i.URL, "aud": audience, "sub": "ann", "client_id": "app", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	for _, change := range changes {
		for name, v := range change {
			if v == nil {
				delete(c, name)
			} else {
				c[name] = v
			}
		}
	}
	return c
}

// Token returns a valid token for the audience, with changes to its claims. The first key signs it.
func (i *Issuer) Token(audience any, changes ...Claims) string {
	i.t.Helper()
	return i.Keys()[0].Sign(i.t, nil, i.Claims(audience, changes...))
}

// Sign signs claims, which may be a raw text. header overrides alg, kid and typ of the token's header.
func (k *Key) Sign(t testing.TB, header Claims, claims any) string {
	t.Helper()
	h := Claims{"alg": k.Alg, "kid": k.ID, "typ": "at+jwt"}
	for name, v := range header {
		if v == nil {
			delete(h, name)
		} else {
			h[name] = v
		}
	}
	signing := Encode(t, h) + "." + Encode(t, claims)
	return signing + "." + base64.RawURLEncoding.EncodeToString(k.sign(t, []byte(signing)))
}

// sign signs with the algorithm of the key, whatever the header says.
func (k *Key) sign(t testing.TB, data []byte) []byte {
	t.Helper()
	if k.Alg == "EdDSA" {
		return ed25519.Sign(k.Private.(ed25519.PrivateKey), data)
	}
	hash := map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}[k.Alg[2:]]
	h := hash.New()
	h.Write(data)
	sum := h.Sum(nil)
	var err error
	var out []byte
	switch private := k.Private.(type) {
	case *ecdsa.PrivateKey:
		r, s, failed := ecdsa.Sign(rand.Reader, private, sum)
		size := (private.Curve.Params().BitSize + 7) / 8
		out, err = make([]byte, 2*size), failed
		r.FillBytes(out[:size])
		s.FillBytes(out[size:])
	case *rsa.PrivateKey:
		if strings.HasPrefix(k.Alg, "PS") {
			out, err = rsa.SignPSS(rand.Reader, private, hash, sum, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
		} else {
			out, err = rsa.SignPKCS1v15(rand.Reader, private, hash, sum)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Encode returns a part of a token: a string as it is, other values as JSON.
func Encode(t testing.TB, part any) string {
	t.Helper()
	data, is := part.(string)
	if !is {
		b, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		data = string(b)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(data))
}
