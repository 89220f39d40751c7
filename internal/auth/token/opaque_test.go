package token

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth/authtest"
)

const introspection = "/realms/a/introspect"

// asking sets the options of an issuer with introspection.
func asking(always bool) func(*Issuer) {
	return func(i *Issuer) {
		i.Audience = []string{"app-2"}
		i.Introspection = &Introspection{Client: Client{ID: "the bridge", Secret: "s&cret"}, Always: always}
	}
}

// says makes an issuer answer f(token) for each token.
func says(i *authtest.Issuer, f func(raw string) any) {
	i.Answer(introspection, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		_ = json.NewEncoder(w).Encode(f(r.PostForm.Get("token")))
	})
}

// active returns an issuer's answer about a valid token, with changes.
func active(i *authtest.Issuer, changes ...claims) claims {
	c := i.Claims(here, changes...)
	if _, set := c["active"]; !set {
		c["active"] = true
	}
	return c
}

// An introspection answer is checked like a readable token (I-024).
func TestAsked(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change claims
		want   Result
	}{
		{"good", nil, OK},
		{"no iss: that of the issuer that was asked", claims{"iss": nil}, OK},
		{"a machine", claims{"sub": nil}, OK},
		{"no aud, and a client that is listed", claims{"aud": nil, "client_id": "app-2"}, OK},
		{"N-45 not active", claims{"active": false}, Invalid},
		{"N-46 active as text", claims{"active": "true"}, Invalid},
		{"active is missing", claims{"active": nil}, Invalid},
		{"N-47 another aud", claims{"aud": "https://other.example.com"}, Audience},
		{"no aud, and a client that is not listed", claims{"aud": nil}, Audience},
		{"no aud, and a client that is named as the bridge is", claims{"aud": nil, "client_id": here}, Audience},
		{"neither aud nor client", claims{"aud": nil, "client_id": nil}, Audience},
		{"aud is an empty list", claims{"aud": []string{}, "client_id": "app-2"}, Audience},
		{"another issuer", claims{"iss": "https://two.example.com"}, Unknown},
		{"iss is no text", claims{"iss": 7}, Unknown},
		{"no exp", claims{"exp": nil}, Invalid},
		{"over", claims{"exp": time.Now().Add(-40 * 365 * 24 * time.Hour).Unix()}, Expired},
		{"bound to a key", claims{"cnf": claims{"jkt": "x"}}, Invalid},
		{"a refresh token", claims{"typ": "Refresh"}, Invalid},
		{"a refresh token of another kind", claims{"token_use": "refresh_token"}, Invalid},
		{"a refresh token of a third kind", claims{"token_type": "refresh_token"}, Invalid},
		{"an offline token", claims{"typ": "Offline"}, Invalid},
		{"an ID token", claims{"token_use": "id"}, Invalid},
		{"a token_type that is no text", claims{"token_type": 7}, Invalid},
		{"an access token", claims{"typ": "Bearer", "token_use": "access_token", "token_type": "bearer"}, OK},
		{"nobody", claims{"sub": nil, "client_id": nil}, Invalid},
		{"a line break in sub", claims{"sub": "a\nb"}, Invalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, raw := range []string{"opaque-token-of-ann", "v4.local.x-y_z", strings.Repeat("a.", 4) + "a"} {
				synctest.Test(t, func(t *testing.T) {
					r := run(t, asking(false))
					i := r.issuers[0]
					change := claims{}
					for name, v := range tc.change {
						change[name] = v
					}
					says(i, func(string) any {
						c := active(i, change)
						if v, set := change["active"]; set && v == nil {
							delete(c, "active")
						}
						return c
					})
					for range 2 { // the second time it is cached
						got, res := r.check(raw)
						if res != tc.want {
							t.Fatalf("%s: %s, want %s", raw, res, tc.want)
						}
						if res == OK && (got.Issuer != i.URL || got.Machine != (tc.name == "a machine")) {
							t.Errorf("%s: %+v", raw, got)
						}
					}
					if n := i.Asked(introspection); n != 1 {
						t.Errorf("%s: asked %d times", raw, n)
					}
				})
			}
		})
	}
}

// The bridge authenticates in the header or in the body, and a token goes only to its issuer. A text that cannot be
// a token is not sent.
func TestAskedBy(t *testing.T) {
	for _, inBody := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, func(i *Issuer) {
				asking(false)(i)
				i.Introspection.Client.InBody = inBody
			})
			i := r.issuers[0]
			var form url.Values
			var id, secret string
			i.Answer(introspection, func(w http.ResponseWriter, r *http.Request) {
				_ = r.ParseForm()
				form = r.PostForm
				id, secret, _ = r.BasicAuth()
				_ = json.NewEncoder(w).Encode(active(i))
			})
			r.checks("at first", "opaque-token-of-ann", OK)
			if inBody {
				id, secret = form.Get("client_id"), form.Get("client_secret")
			} else { // RFC 6749 §2.3.1
				id, _ = url.QueryUnescape(id)
				secret, _ = url.QueryUnescape(secret)
			}
			if id != "the bridge" || secret != "s&cret" || form.Get("token") != "opaque-token-of-ann" {
				t.Errorf("%q, %q, %v", id, secret, form)
			}
			for _, raw := range []string{"", "two words", "a\"b", "ä", "a\nb", strings.Repeat("x", maxToken+1), i.Token(here), r.issuers[1].Token(here), authtest.NewKey(t, "k", "ES256").Sign(t, nil, i.Claims(here))} {
				r.check(raw)
			}
			if n := i.Asked(introspection); n != 1 || r.issuers[1].Asked("/introspect") > 0 || len(r.asked.foreign) > 0 {
				t.Errorf("asked %d times, elsewhere %v", n, r.asked.foreign)
			}
		})
	}
}

// With always, readable tokens are introspected too, and no keys are needed.
func TestAskedAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, asking(true))
		i := r.issuers[0]
		good := true
		says(i, func(string) any { return active(i, claims{"active": good, "scope": "read"}) })
		raw := authtest.NewKey(t, "of nobody", "ES256").Sign(t, nil, i.Claims(here))
		got, res := r.check(raw)
		if res != OK || strings.Join(got.Scopes, " ") != "read" {
			t.Fatalf("%s, %+v", res, got)
		}
		good = false
		time.Sleep(31 * time.Second)
		r.checks("when it was revoked", raw, Invalid)
		if i.Asked("/realms/a/jwks") > 0 {
			t.Error("its keys were fetched")
		}
		r.checks("of the other issuer", r.issuers[1].Token(here), OK) // by its keys, as without
	})
}

// N-49: an answer is cached for a while, never beyond the end of the token. A revoked token is marked for its
// holders, and one that is valid again is a new Token.
func TestAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, func(i *Issuer) {
			asking(false)(i)
			i.Introspection.Cache = time.Minute
		})
		i := r.issuers[0]
		good := true
		end := time.Now().Add(10 * time.Minute).Unix()
		says(i, func(string) any { return active(i, claims{"active": good, "exp": end}) })
		first, _ := r.check("opaque")
		time.Sleep(61 * time.Second)
		if again, res := r.check("opaque"); res != OK || i.Asked(introspection) != 2 || again.Revoked() {
			t.Fatalf("%s after %d questions", res, i.Asked(introspection))
		}
		good = false
		time.Sleep(59 * time.Second)
		if _, res := r.check("opaque"); res != OK || first.Revoked() {
			t.Errorf("within a minute: %s", res)
		}
		time.Sleep(2 * time.Second)
		if _, res := r.check("opaque"); res != Invalid || !first.Revoked() {
			t.Errorf("when it was revoked: %s; the first has heard: %t", res, first.Revoked())
		}
		good = true
		r.checks("within 5 s of the refusal", "opaque", Invalid)
		time.Sleep(refusedLife + time.Second)
		if now, res := r.check("opaque"); res != OK || now.Revoked() || !first.Revoked() {
			t.Errorf("good again: %s", res)
		}
		time.Sleep(time.Until(time.Unix(end, 0).Add(skew)) + time.Second)
		r.checks("after its end", "opaque", Expired)
	})
}

// A token that was valid, or has the form of a JSON Web Token, is no guess at a key. An expired token is not
// introspected.
func TestAskedIsNoGuess(t *testing.T) {
	for _, always := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, asking(always))
			i := r.issuers[0]
			good := true
			end := time.Now().Add(time.Hour).Unix()
			says(i, func(string) any { return active(i, claims{"active": good, "exp": end}) })
			check := func(name, raw string, want Result, guess bool, questions int) {
				t.Helper()
				before := i.Asked(introspection)
				_, err := r.v.Verify(t.Context(), raw, sha256.Sum256([]byte(raw)), files)
				var e *Error
				if err != nil && !errors.As(err, &e) || (e == nil) != (want == OK) || e != nil && (e.Result != want || e.Text != guess) {
					t.Errorf("always %t, %s: %+v", always, name, err)
				}
				if n := i.Asked(introspection) - before; n != questions {
					t.Errorf("always %t, %s: %d questions", always, name, n)
				}
			}
			for _, raw := range []string{"revoked", "expired"} {
				check("good", raw, OK, false, 1)
			}
			jwt := i.Token(here, claims{"exp": time.Now().Add(-time.Hour).Unix()})
			check("a JSON Web Token that has expired", jwt, Expired, false, 0)
			good = false
			time.Sleep(31 * time.Second)
			for n := range 3 {
				check(fmt.Sprint("revoked ", n), "revoked", Invalid, false, 1)
				time.Sleep(refusedLife + time.Second)
			}
			check("unknown", "unknown", Invalid, true, 1)
			check("nearly of the form", "un.kno.wn", Invalid, true, 1)
			time.Sleep(2 * time.Hour)
			for n := range 3 {
				check(fmt.Sprint("expired ", n), "expired", Expired, false, 0)
				time.Sleep(refusedLife + time.Second)
			}
			if always {
				check("a JSON Web Token that is not active", authtest.NewKey(t, "k", "ES256").Sign(t, nil, i.Claims(here, claims{"exp": time.Now().Add(time.Hour).Unix()})), Invalid, false, 1)
			}
			check("an encrypted one", "eyJhbGciOiJkaXIifQ..a.b.c", Invalid, false, 1)
		})
	}
}

// A slow, hanging or useless issuer: requests with unknown tokens get no answer in time, and no others wait (I-025,
// N-48).
func TestAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, asking(false))
		i := r.issuers[0]
		hang := make(chan struct{})
		close(hang)
		i.Answer(introspection, func(w http.ResponseWriter, q *http.Request) {
			select {
			case <-hang:
			case <-q.Context().Done():
				return
			}
			_ = json.NewEncoder(w).Encode(active(i))
		})
		r.checks("at first", "known", OK)
		jwt := i.Token(here)
		r.checks("at first", jwt, OK)
		hang = make(chan struct{})
		var wg sync.WaitGroup
		before := time.Now()
		for n := range 1000 {
			wg.Go(func() {
				raw := "same"
				if n%2 == 0 {
					raw = "other-" + strings.Repeat("x", n)
				}
				if _, res := r.check(raw); res != Unavailable {
					t.Errorf("%.10s: %s", raw, res)
				}
			})
		}
		synctest.Wait()
		if n := i.Asked(introspection) - 1; n > 64 {
			t.Errorf("%d questions are under way", n)
		}
		for _, raw := range []string{"known", jwt, r.issuers[1].Token(here)} {
			if _, res := r.check(raw); res != OK || time.Since(before) > 0 {
				t.Errorf("%.20s: %s after %v", raw, res, time.Since(before))
			}
		}
		wg.Wait()
		if took := time.Since(before); took > askLimit {
			t.Errorf("they waited for %v", took)
		}
		close(hang)
		asked := i.Asked(introspection)
		before = time.Now()
		for range 100 {
			wg.Go(func() {
				r.checks("when it answers", "same", OK)
			})
		}
		wg.Wait()
		if n := i.Asked(introspection) - asked; n != 1 || len(r.v.opaque.flights) > 0 || time.Since(before) > 0 {
			t.Errorf("asked %d times for one token; %d are under way", n, len(r.v.opaque.flights))
		}
	})
	for name, f := range map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"401": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		},
		"HTML": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"too large": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"active":true,"x":"` + strings.Repeat("x", 1<<20) + `"}`))
		},
		"twice":      func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"active":false,"active":true}`)) },
		"no object":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`true`)) },
		"not really": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, asking(false))
			i := r.issuers[0]
			i.Answer(introspection, f)
			r.checks(name, "opaque", Unavailable)
			says(i, func(string) any { return active(i) })
			r.checks(name+", and then a good answer", "opaque", OK) // the result is not cached
		})
	}
}

// The answer for a disconnected client serves the others.
func TestAskedByOneWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, asking(false))
		i := r.issuers[0]
		answers := make(chan struct{})
		i.Answer(introspection, func(w http.ResponseWriter, _ *http.Request) {
			<-answers
			_ = json.NewEncoder(w).Encode(active(i))
		})
		var wg sync.WaitGroup
		ctx, leave := context.WithCancel(t.Context())
		wg.Go(func() { _, _ = r.v.Verify(ctx, "opaque", sha256.Sum256([]byte("opaque")), files) })
		synctest.Wait()
		for range 3 {
			wg.Go(func() {
				r.checks("at first", "opaque", OK)
			})
		}
		synctest.Wait()
		leave()
		close(answers)
		wg.Wait()
		if n := i.Asked(introspection); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// The cache of refusals is bounded (I-025).
func TestRefusedBounded(t *testing.T) {
	a := newAsker(nil, &issuer{}, nil, 0)
	for n := range maxRefused + 100 {
		a.refused.Add([32]byte{byte(n), byte(n >> 8)}, refused{})
	}
	if a.refused.Len() != maxRefused {
		t.Errorf("%d are kept", a.refused.Len())
	}
}
