package token

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth/authtest"
)

const here = "https://mcp.example.com"

var files = Resource{here, "/files/mcp"}

type claims = authtest.Claims

// rigToken is a verifier of issuers' tokens that runs until the test ends.
type rigToken struct {
	t       testing.TB
	v       *Verifier
	issuers []*authtest.Issuer
	asked   *requests
}

// requests sends requests to the issuers without a network, and records others.
type requests struct {
	issuers []*authtest.Issuer
	mu      sync.Mutex
	foreign []string
}

func (r *requests) RoundTrip(req *http.Request) (*http.Response, error) {
	for _, i := range r.issuers {
		if strings.HasPrefix(i.URL, req.URL.Scheme+"://"+req.URL.Host) {
			return i.RoundTrip(req)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.foreign = append(r.foreign, req.URL.String())
	return nil, errors.New("there is nobody")
}

// skew is Issuer.Skew in these tests.
const skew = 30 * time.Second

// run starts a verifier of two issuers; set changes the options of the first. It is called in a bubble.
func run(t testing.TB, set func(*Issuer), prepare ...func(*authtest.Issuer)) *rigToken {
	one, two := authtest.New(t, "https://one.example.com/realms/a"), authtest.New(t, "https://two.example.com")
	for _, p := range prepare {
		p(one)
	}
	asked := &requests{issuers: []*authtest.Issuer{one, two}}
	o := []Issuer{{URL: one.URL, Skew: skew, Transport: asked}, {URL: two.URL, Skew: skew, Transport: asked}}
	if set != nil {
		set(&o[0])
	}
	r := &rigToken{t: t, v: New(o, slog.New(slog.DiscardHandler)), issuers: asked.issuers, asked: asked}
	authtest.Run(t, r.v.Run)
	return r
}

// check verifies a token and returns the result.
func (r *rigToken) check(raw string) (*Token, Result) {
	r.t.Helper()
	got, err := r.v.Verify(context.Background(), raw, sha256.Sum256([]byte(raw)), files)
	var e *Error
	switch {
	case err == nil:
		return got, OK
	case !errors.As(err, &e):
		r.t.Fatalf("Verify: %v", err)
	case raw != "" && strings.Contains(e.Why, raw) || strings.ContainsAny(e.Why, "\n\r"):
		r.t.Errorf("%q has the token, or a line break", e.Why)
	}
	return nil, e.Result
}

// checks compares the result for a token.
func (r *rigToken) checks(what, raw string, want Result) {
	r.t.Helper()
	if _, res := r.check(raw); res != want {
		r.t.Errorf("%s: %s, want %s", what, res, want)
	}
}

// hs256 signs with a secret.
func hs256(t testing.TB, header, body any, secret []byte) string {
	signing := authtest.Encode(t, header) + "." + authtest.Encode(t, body)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(signing))
	return signing + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Each invalid token, by its number, beside the same token without the fault, which is valid (I-013, I-017, I-018).
func TestRefused(t *testing.T) {
	rsaKey, strict, small := authtest.NewKey(t, "rsa", "RS256"), authtest.NewKey(t, "strict", "RS256"), authtest.NewKey(t, "small", "RS256")
	p384 := authtest.NewKey(t, "p384", "ES384")
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	small.Private = weak
	public, err := x509.MarshalPKIXPublicKey(rsaKey.Private.Public())
	if err != nil {
		t.Fatal(err)
	}
	modulus := rsaKey.Private.Public().(*rsa.PublicKey).N.Bytes()
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})

	prepare := func(i *authtest.Issuer) {
		i.Set(append(i.Keys(), rsaKey, strict, small, p384)...)
		set := []any{}
		for _, k := range i.Keys() {
			jwk := k.JWK(t)
			if k == strict {
				jwk["alg"] = "RS256"
			}
			set = append(set, jwk)
		}
		i.Answer("/realms/a/jwks", answer(t, map[string]any{"keys": set}))
	}
	const id = here + "/files/mcp"
	type testCase struct {
		name string
		raw  func(r *rigToken, i *authtest.Issuer) string
		want Result
	}
	with := func(want Result, name string, change claims) testCase {
		return testCase{name, func(_ *rigToken, i *authtest.Issuer) string { return i.Token(id, change) }, want}
	}
	head := func(want Result, name string, header claims) testCase {
		return testCase{name, func(_ *rigToken, i *authtest.Issuer) string { return i.Keys()[0].Sign(t, header, i.Claims(id)) }, want}
	}
	from := func(want Result, name string, f func(i *authtest.Issuer, good string) string) testCase {
		return testCase{name, func(_ *rigToken, i *authtest.Issuer) string { return f(i, i.Token(id)) }, want}
	}
	at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	cases := func() []testCase {
		return []testCase{
			with(OK, "good", nil),
			from(OK, "RS256", func(i *authtest.Issuer, _ string) string { return rsaKey.Sign(t, nil, i.Claims(id)) }),
			from(OK, "PS256 by a key that says nothing of algorithms", func(i *authtest.Issuer, _ string) string {
				return (&authtest.Key{ID: rsaKey.ID, Alg: "PS256", Private: rsaKey.Private}).Sign(t, nil, i.Claims(id))
			}),
			head(OK, "no kid", claims{"kid": nil}), head(OK, "no typ", claims{"typ": nil}), head(OK, "typ JWT", claims{"typ": "JWT"}),
			head(OK, "typ application/at+jwt", claims{"typ": "application/at+jwt"}),
			with(OK, "audience with a slash", claims{"aud": id + "/"}), with(OK, "audience of the bridge", claims{"aud": here}),
			with(OK, "one audience of several", claims{"aud": []string{"x", id}}), with(OK, "fraction", claims{"exp": 1e9 + 3e9 + 0.5}),

			from(Invalid, "N-02 empty", func(*authtest.Issuer, string) string { return "" }),
			from(Invalid, "N-02 opaque", func(*authtest.Issuer, string) string { return "2YotnFZFEjr1zCsicMWpAA" }),
			head(Signature, "N-06 alg none", claims{"alg": "none"}), head(Signature, "N-06 alg None", claims{"alg": "None"}),
			from(Signature, "N-06 alg none without a signature", func(i *authtest.Issuer, _ string) string {
				return authtest.Encode(t, claims{"alg": "none"}) + "." + authtest.Encode(t, i.Claims(id)) + "."
			}),
			from(Signature, "N-07 HS256 by the PEM", func(i *authtest.Issuer, _ string) string {
				return hs256(t, claims{"alg": "HS256", "kid": "rsa"}, i.Claims(id), text)
			}),
			from(Signature, "N-07 HS256 by the DER", func(i *authtest.Issuer, _ string) string {
				return hs256(t, claims{"alg": "HS256", "kid": "rsa"}, i.Claims(id), public)
			}),
			from(Signature, "N-07 HS256 by the modulus", func(i *authtest.Issuer, _ string) string {
				return hs256(t, claims{"alg": "HS256", "kid": "rsa"}, i.Claims(id), modulus)
			}),
			from(Signature, "N-09 PS256 by a key for RS256", func(i *authtest.Issuer, _ string) string {
				return (&authtest.Key{ID: strict.ID, Alg: "PS256", Private: strict.Private}).Sign(t, nil, i.Claims(id))
			}),
			from(Signature, "N-10 ES256 by a key of P-384", func(i *authtest.Issuer, _ string) string {
				return p384.Sign(t, claims{"alg": "ES256"}, i.Claims(id))
			}),
			from(Signature, "N-11 RSA of 1024 bits", func(i *authtest.Issuer, _ string) string { return small.Sign(t, nil, i.Claims(id)) }),
			from(Signature, "N-12 other payload", func(i *authtest.Issuer, good string) string {
				parts := strings.Split(good, ".")
				return parts[0] + "." + authtest.Encode(t, i.Claims(id, claims{"sub": "root"})) + "." + parts[2]
			}),
			from(Signature, "N-13 other header", func(i *authtest.Issuer, good string) string {
				parts := strings.Split(good, ".")
				return authtest.Encode(t, claims{"alg": "ES256", "kid": "k1", "typ": "JWT"}) + "." + parts[1] + "." + parts[2]
			}),
			from(Signature, "N-14 signature cut", func(_ *authtest.Issuer, good string) string { return good[:len(good)-4] }),
			from(Signature, "N-14 signature empty", func(_ *authtest.Issuer, good string) string { return good[:strings.LastIndex(good, ".")+1] }),
			from(Signature, "N-14 signature twice", func(_ *authtest.Issuer, good string) string { return good + good[strings.LastIndex(good, ".")+1:] }),
			from(Invalid, "N-14 no signature", func(_ *authtest.Issuer, good string) string { return good[:strings.LastIndex(good, ".")] }),
			from(Invalid, "N-15 JWE", func(_ *authtest.Issuer, good string) string { return good + ".aaaa.bbbb" }),
			from(Invalid, "N-16 JSON serialization", func(_ *authtest.Issuer, good string) string {
				p := strings.Split(good, ".")
				return `{"protected":"` + p[0] + `","payload":"` + p[1] + `","signature":"` + p[2] + `"}`
			}),
			head(Invalid, "N-17 crit", claims{"crit": []string{"exp"}}), head(Invalid, "N-17 b64", claims{"b64": false}),
			from(Signature, "N-18 key in the header", func(i *authtest.Issuer, _ string) string {
				own := authtest.NewKey(t, "k1", "ES256")
				return own.Sign(t, claims{"jwk": own.JWK(t)}, i.Claims(id))
			}),
			from(Signature, "N-18 address of keys in the header", func(i *authtest.Issuer, _ string) string {
				return authtest.NewKey(t, "other", "ES256").Sign(t, claims{"jku": "https://evil.example.com/jwks", "x5u": "https://evil.example.com/x5u"}, i.Claims(id))
			}),
			head(Signature, "N-19 kid of a file", claims{"kid": "../../etc/passwd"}), head(Signature, "N-19 long kid", claims{"kid": strings.Repeat("k", 4096)}),
			head(Signature, "N-19 kid with a line break", claims{"kid": "k\nlevel=ERROR"}), head(Invalid, "kid is a number", claims{"kid": 1}),
			with(Invalid, "N-20 17 KiB", claims{"x": strings.Repeat("x", 17<<10)}),
			from(Signature, "N-21 signature of zeros", func(_ *authtest.Issuer, good string) string {
				return good[:strings.LastIndex(good, ".")+1] + base64.RawURLEncoding.EncodeToString(make([]byte, 64))
			}),
			with(Invalid, "an ID token that says so", claims{"typ": "ID"}), with(Invalid, "a refresh token", claims{"token_use": "refresh"}), with(OK, "an access token that says so", claims{"typ": "Bearer", "token_use": "access", "token_type": "x"}),
			head(Invalid, "N-32 empty type", claims{"typ": ""}), head(Invalid, "N-32 another type", claims{"typ": "oauth-id-jag+jwt"}), head(Invalid, "N-32 dpop", claims{"typ": "dpop+jwt"}), head(Invalid, "N-32 logout", claims{"typ": "logout+jwt"}),

			with(Invalid, "N-22 no exp", claims{"exp": nil}), with(Invalid, "N-22 exp is text", claims{"exp": "4000000000"}),
			with(Expired, "N-23 too old", claims{"exp": at(-31 * time.Second)}), with(OK, "N-23 just not", claims{"exp": at(-29 * time.Second)}),
			with(Invalid, "N-24 nbf ahead", claims{"nbf": at(31 * time.Second)}), with(OK, "N-24 just not", claims{"nbf": at(29 * time.Second)}),
			with(Invalid, "N-25 iat ahead", claims{"iat": at(31 * time.Second)}), with(OK, "N-25 just not", claims{"iat": at(29 * time.Second)}),
			with(Audience, "N-26 no aud", claims{"aud": nil}), with(Audience, "N-26 empty aud", claims{"aud": []string{}}),
			with(Audience, "N-27 for another server", claims{"aud": here + "/tickets/mcp"}),
			with(Audience, "N-28 prefix", claims{"aud": here + "/files"}), with(Audience, "N-28 longer", claims{"aud": id + "/x"}),
			with(Audience, "N-28 other case", claims{"aud": here + "/Files/mcp"}), with(Audience, "N-28 other port", claims{"aud": here + ":8443/files/mcp"}),
			with(Audience, "N-28 account", claims{"aud": "account"}), with(Audience, "N-28 two slashes", claims{"aud": id + "//"}),
			with(Audience, "N-28 other host", claims{"aud": here + ".evil.com/files/mcp"}),
			{"N-29 another issuer's name, own key", func(r *rigToken, i *authtest.Issuer) string {
				return i.Token(id, claims{"iss": r.issuers[1].URL})
			}, Signature},
			with(Unknown, "N-29 issuer that is not there", claims{"iss": "https://evil.example.com"}),
			with(Unknown, "N-30 a slash more", claims{"iss": "https://one.example.com/realms/a/"}), with(Unknown, "no iss", claims{"iss": nil}),
			with(Unknown, "list of issuers", claims{"iss": []string{"https://one.example.com/realms/a"}}),
			from(Audience, "N-31 ID token", func(i *authtest.Issuer, _ string) string {
				return i.Keys()[0].Sign(t, claims{"typ": "JWT"}, i.Claims("app", claims{"nonce": "n", "azp": "app", "client_id": nil}))
			}),
			with(Invalid, "N-33 cnf", claims{"cnf": claims{"jkt": "x"}}),
			with(Invalid, "N-34 nobody", claims{"sub": nil, "client_id": nil}), with(Invalid, "N-34 empty sub", claims{"sub": ""}),
			with(Invalid, "N-34 sub is a number", claims{"sub": 7}), with(Invalid, "long sub", claims{"sub": strings.Repeat("s", 257)}),
			with(Invalid, "sub with a line break", claims{"sub": "ann\nlevel=ERROR"}),
			from(Invalid, "N-35 sub twice", func(i *authtest.Issuer, _ string) string {
				return i.Keys()[0].Sign(t, nil, `{"iss":"`+i.URL+`","aud":"`+id+`","exp":4000000000,"sub":"ann","\u0073ub":"root"}`)
			}),
			from(Invalid, "a claim twice further in", func(i *authtest.Issuer, _ string) string {
				return i.Keys()[0].Sign(t, nil, `{"iss":"`+i.URL+`","aud":"`+id+`","exp":4000000000,"sub":"ann","realm_access":{"roles":["a"],"roles":["admin"]}}`)
			}),
			from(Invalid, "alg twice", func(i *authtest.Issuer, _ string) string {
				return authtest.Encode(t, `{"alg":"none","alg":"ES256"}`) + "." + authtest.Encode(t, i.Claims(id)) + ".aaaa"
			}),
			with(Invalid, "N-37 scope is a number", claims{"scope": 7}),
			from(Signature, "scopes that nobody has signed are not read", func(i *authtest.Issuer, _ string) string {
				return authtest.NewKey(t, "k1", "ES256").Sign(t, nil, i.Claims(id, claims{"scope": 7}))
			}),
			with(Audience, "N-38 aud is an object", claims{"aud": claims{"a": id}}),
			with(Audience, "N-38 aud is a list of lists", claims{"aud": []any{[]string{id}}}),
			from(Invalid, "no object", func(i *authtest.Issuer, _ string) string { return i.Keys()[0].Sign(t, nil, `["iss"]`) }),
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := run(t, nil, prepare)
		for _, tc := range cases() {
			tc.name = strings.TrimSpace(tc.name)
			if _, got := r.check(tc.raw(r, r.issuers[0])); got != tc.want {
				t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
			}
		}
		if len(r.asked.foreign) > 0 {
			t.Errorf("asked others than the issuers: %q", r.asked.foreign)
		}
		if n := r.issuers[0].Asked("/realms/a/jwks"); n > 2 { // at first, and once for all unknown keys
			t.Errorf("%d requests for keys", n)
		}
	})
	t.Run("N-08 HS256 that is listed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, func(i *Issuer) { i.Algorithms = []string{"HS256", "none", "ES256"} }, prepare)
			r.checks("HS256", hs256(t, claims{"alg": "HS256", "kid": "rsa"}, r.issuers[0].Claims(id), text), Signature)
			r.checks("ES256", r.issuers[0].Token(id), OK)
			r.checks("RS256, which is not listed", rsaKey.Sign(t, nil, r.issuers[0].Claims(id)), Signature)
		})
	})
	t.Run("settings", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, func(i *Issuer) {
				i.Audience, i.Skew, i.ScopeClaim = []string{"mcp-bridge"}, 5*time.Minute, "permissions"
				i.Implies = map[string][]string{"admin": {"write"}, "write": {"read"}}
			})
			i := r.issuers[0]
			got, res := r.check(i.Token("mcp-bridge", claims{"exp": at(-299 * time.Second), "permissions": []string{"admin"}, "scope": "other", "sub": nil}))
			if res != OK || strings.Join(got.Scopes, " ") != "admin read write" || got.Subject != "app" || !got.Machine || got.Client != "app" {
				t.Errorf("%s: %+v", res, got)
			}
			r.checks("another audience", i.Token("mcp"), Audience)
			// N-36: the same subject of another issuer is somebody else.
			other, res := r.check(r.issuers[1].Token(id))
			if res != OK || other.Issuer != r.issuers[1].URL {
				t.Errorf("of the second issuer: %s, %+v", res, other)
			}
			r.checks("the second issuer with the audience of the first", r.issuers[1].Token("mcp-bridge"), Audience)
		})
	})
}

// Only a token that could be valid causes a fetch of keys: issuer, algorithm and times are checked first (I-021).
func TestNotFetchedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, nil)
		i := r.issuers[0]
		r.checks("at first", i.Token(here), OK)
		before, other := i.Asked("/realms/a/jwks"), authtest.NewKey(t, "other", "ES256")
		show := func(header, change claims) Result {
			_, res := r.check(other.Sign(t, header, i.Claims(here, change)))
			return res
		}
		for name, got := range map[string]Result{
			"an expired one": show(nil, claims{"exp": time.Now().Add(-time.Hour).Unix()}), "one from the future": show(nil, claims{"nbf": time.Now().Add(time.Hour).Unix()}), "one without an end": show(nil, claims{"exp": nil}),
			"one of another issuer": show(nil, claims{"iss": "https://evil.example.com"}), "one that is signed by a secret": show(claims{"alg": "HS256"}, nil), "one of nobody": show(nil, claims{"sub": ""}), "one for nobody": show(nil, claims{"aud": nil}),
		} {
			if got == OK || got == Unavailable {
				t.Errorf("%s: %s", name, got)
			}
		}
		if n := i.Asked("/realms/a/jwks") - before; n != 0 {
			t.Errorf("keys were fetched %d times for tokens that cannot be good", n)
		}
		if res := show(nil, nil); res != Signature || i.Asked("/realms/a/jwks") != before+1 {
			t.Errorf("one that could be: %s, %d fetches", res, i.Asked("/realms/a/jwks")-before)
		}
	})
}

// Scopes are read from all usual claims (I-056).
func TestScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, nil)
		for _, tc := range []struct {
			change claims
			want   string
		}{
			{claims{"scope": "b a"}, "a b"}, {claims{"scope": []string{"b", "a"}}, "a b"}, {claims{"scp": "a"}, "a"}, {claims{"scp": []string{"a", "a"}}, "a"},
			{claims{"scope": "a", "scp": "b"}, "a b"}, {nil, ""}, {claims{"scope": "a\u00a0b  c\td"}, "a\u00a0b c\td"},
		} {
			got, res := r.check(r.issuers[0].Token(here, tc.change))
			if res != OK || strings.Join(got.Scopes, " ") != tc.want {
				t.Errorf("%v: %s, %+v, want %q", tc.change, res, got, tc.want)
			}
		}
	})
}

// A claim is found by its whole name, or by a path.
func TestAt(t *testing.T) {
	v, err := object([]byte(`{"groups":["eng",7,true,null,["x"],{}],"https://example.com/roles":"a","realm_access":{"roles":["b"]},"n":1.50,"resource_access":{"my.client":{"roles":["c"]}},"a.b":"d","a":{"b":"e"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"groups": "eng|7|true", "https://example.com/roles": "a", "realm_access.roles": "b", "resource_access.my.client.roles": "c", "a.b": "d", "n": "1.50",
		"realm_access": "", "missing": "", "groups.0": "", "": "", "realm_access.": "",
	} {
		if got := strings.Join(Texts(At(v, name)), "|"); got != want {
			t.Errorf("At(%q) = %q, want %q", name, got, want)
		}
	}
}

// A token is checked each time it is used: its end, its resource, and whether its key is still valid (I-015, I-016,
// I-023).
func TestKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, nil)
		i := r.issuers[0]
		raw := i.Token(here+"/files/mcp", claims{"exp": time.Now().Add(10 * time.Minute).Unix()})
		first, res := r.check(raw)
		again, res2 := r.check(raw)
		if res != OK || res2 != OK || first != again {
			t.Fatalf("%s, then %s; known %t", res, res2, first == again)
		}
		if _, err := r.v.Verify(t.Context(), raw, sha256.Sum256([]byte(raw)), Resource{here, "/tickets/mcp"}); err == nil {
			t.Error("it counts at another server")
		}
		time.Sleep(10*time.Minute + 31*time.Second)
		r.checks("after its end", raw, Expired)

		// N-40: the tokens of a withdrawn key end.
		raw = i.Token(here)
		r.checks("at first", raw, OK)
		i.Set(authtest.NewKey(t, "k2", "ES256"))
		time.Sleep(6 * time.Minute)
		r.checks("after its key", raw, Signature)
		r.checks("by the new key", i.Token(here), OK)
	})
}

// N-41: a change of an issuer's keys fails no request, whether it publishes the new key before or at the same time.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, nil)
		i := r.issuers[0]
		for n := range 20 {
			time.Sleep(11 * time.Second) // the last fetch, also that of Run, is long enough ago
			next := authtest.NewKey(t, "next", "ES256")
			next.ID += string(rune('a' + n))
			i.Set(next, i.Keys()[0])
			if _, res := r.check(i.Token(here)); res != OK {
				t.Fatalf("change %d: %s", n, res)
			}
		}
	})
}

// All keys are tried if they have no id, or the same one.
func TestSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := authtest.NewKey(t, "k", "ES256"), authtest.NewKey(t, "k", "ES256")
		r := run(t, nil, func(i *authtest.Issuer) { i.Set(one, two) })
		for _, k := range []*authtest.Key{one, two} {
			for _, header := range []claims{nil, {"kid": nil}} {
				if _, res := r.check(k.Sign(t, header, r.issuers[0].Claims(here))); res != OK {
					t.Errorf("%v: %s", header, res)
				}
			}
		}
		r.checks("a third key of that id", authtest.NewKey(t, "k", "ES256").Sign(t, nil, r.issuers[0].Claims(here)), Signature)
	})
}

// The cache of tokens is bounded (I-026).
func TestKnownBounded(t *testing.T) {
	v := New(nil, slog.New(slog.DiscardHandler))
	for n := range maxKnown + 100 {
		v.known.Add(sha256.Sum256([]byte{byte(n), byte(n >> 8)}), &Token{})
	}
	if v.known.Len() != maxKnown {
		t.Errorf("%d tokens are kept", v.known.Len())
	}
}

// Tokens come from strangers.
func FuzzVerify(f *testing.F) {
	i := authtest.New(f, "https://one.example.com")
	v := New([]Issuer{{URL: i.URL, Transport: i}}, slog.New(slog.DiscardHandler))
	authtest.Run(f, v.Run)
	good := i.Token(here)
	f.Add(good)
	f.Add(`eyJhbGciOiJub25lIn0.e30.`)
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := v.Verify(t.Context(), raw, sha256.Sum256([]byte(raw)), files)
		if err == nil && strings.TrimRight(raw, "=") != good && got.Subject != "ann" {
			t.Errorf("%q counts", raw)
		}
	})
}

// A cached token costs almost nothing, and a new one the check of its signature.
func BenchmarkVerify(b *testing.B) {
	for _, alg := range []string{"RS256", "ES256"} {
		i := authtest.New(b, "https://one.example.com")
		i.Set(authtest.NewKey(b, "k", alg))
		v := New([]Issuer{{URL: i.URL, Transport: i}}, slog.New(slog.DiscardHandler))
		authtest.Run(b, v.Run)
		raw := i.Token(here, claims{"groups": []string{"eng", "ops", "all"}, "scope": "mcp:use files:read", "name": strings.Repeat("x", 300)})
		sum := sha256.Sum256([]byte(raw))
		if _, err := v.Verify(b.Context(), raw, sum, files); err != nil {
			b.Fatal(err)
		}
		b.Run(alg+"/known", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(b.Context(), raw, sum, files); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(alg+"/new", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.verify(b.Context(), raw, sum, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// answer returns a handler that answers with JSON.
func answer(t testing.TB, v any) http.HandlerFunc {
	data := []byte(authtest.Encode(t, v))
	return func(w http.ResponseWriter, _ *http.Request) {
		text, _ := base64.RawURLEncoding.DecodeString(string(data))
		_, _ = w.Write(text)
	}
}
