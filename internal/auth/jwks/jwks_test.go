package jwks_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/auth/jwks"
)

const issuer = "https://idp.example.com/realms/a"

// start runs a set until the test ends. It is called in a bubble.
func start(t *testing.T, from string, i *authtest.Issuer) (*jwks.Set, *bytes.Buffer) {
	var log bytes.Buffer
	s := jwks.New(jwks.Options{Issuer: i.URL, From: from, Client: jwks.Client(i), Log: slog.New(slog.NewTextHandler(&log, nil))})
	authtest.Run(t, s.Run)
	return s, &log
}

func find(s *jwks.Set, id string) error {
	_, err := s.Find(context.Background(), id, true, "ES256")
	return err
}

// N-39: a thousand unknown keys cause one fetch, and no request with a valid token waits (I-021).
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := authtest.New(t, issuer)
		s, _ := start(t, "", i)
		if err := find(s, "k1"); err != nil {
			t.Fatal(err)
		}
		i.Answer("/realms/a/jwks", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		var wg sync.WaitGroup
		before := time.Now()
		for n := range 1000 {
			wg.Go(func() {
				if err := find(s, fmt.Sprint("unknown-", n)); !errors.Is(err, jwks.ErrUnavailable) {
					t.Errorf("unknown key: %v", err)
				}
			})
		}
		synctest.Wait()
		if err := find(s, "k1"); err != nil || time.Since(before) > 0 {
			t.Errorf("a good key: %v after %v", err, time.Since(before))
		}
		wg.Wait()
		if n := i.Asked("/realms/a/jwks"); n != 2 {
			t.Errorf("%d requests for the set", n)
		}
		if took := time.Since(before); took > 2*time.Second {
			t.Errorf("they waited for %v", took)
		}
		before = time.Now()
		if err := find(s, "late"); !errors.Is(err, jwks.ErrUnavailable) || time.Since(before) > 2*time.Second {
			t.Errorf("late: %v after %v", err, time.Since(before))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		i := authtest.New(t, issuer)
		s, _ := start(t, "", i)
		for n := range 100 { // one after the other, within 10 s
			before := time.Now()
			if err := find(s, "unknown"); !errors.Is(err, jwks.ErrUnknown) || time.Since(before) > 0 {
				t.Errorf("%d: %v after %v", n, err, time.Since(before))
			}
			time.Sleep(90 * time.Millisecond)
		}
		if n := i.Asked("/realms/a/jwks"); n != 2 {
			t.Errorf("%d requests for the set", n)
		}
	})
}

// A set that cannot be fetched: the old one is used for a day. Without one no key can be judged (I-022).
func TestUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := authtest.New(t, issuer)
		s, log := start(t, "", i)
		if err := find(s, "k1"); err != nil {
			t.Fatal(err)
		}
		i.Answer("/realms/a/jwks", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
		time.Sleep(23 * time.Hour)
		if err := find(s, "k1"); err != nil {
			t.Errorf("after 23 hours: %v", err)
		}
		for range 2 { // the key may be new
			if err := find(s, "other"); !errors.Is(err, jwks.ErrUnavailable) {
				t.Errorf("another key: %v", err)
			}
		}
		time.Sleep(2 * time.Hour)
		if err := find(s, "k1"); !errors.Is(err, jwks.ErrUnavailable) {
			t.Errorf("after 25 hours: %v", err)
		}
		if n := strings.Count(log.String(), "could not be fetched"); n != 1 {
			t.Errorf("it was said %d times:\n%s", n, log)
		}
		i.Answer("/realms/a/jwks", nil)
		time.Sleep(31 * time.Second)
		if err := find(s, "k1"); err != nil {
			t.Errorf("when it works again: %v", err)
		}
		if st := s.State(); !st.Have || st.Fault != "" || st.Failed < 1000 || st.Fetched <= st.Failed {
			t.Errorf("%+v", st)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the set never arrives
		i := authtest.New(t, issuer)
		i.Answer("/realms/a/.well-known/openid-configuration", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		s, _ := start(t, "", i)
		before := time.Now()
		if err := find(s, "k1"); !errors.Is(err, jwks.ErrUnavailable) || time.Since(before) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(before))
		}
		time.Sleep(10 * time.Second) // the fetch has failed
		before = time.Now()
		for range 3 {
			if err := find(s, "k1"); !errors.Is(err, jwks.ErrUnavailable) || time.Since(before) > 0 {
				t.Errorf("when it has failed: %v after %v", err, time.Since(before))
			}
		}
	})
	s := jwks.New(jwks.Options{Issuer: issuer, Client: jwks.Client(nil), Log: slog.New(slog.DiscardHandler)})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.Run(ended)
	if err := find(s, "k1"); !errors.Is(err, jwks.ErrUnavailable) {
		t.Errorf("after the end: %v", err)
	}
}

// N-42, N-43, N-44: useless answers of an issuer. The old keys stay.
func TestBadAnswers(t *testing.T) {
	const set, meta = "/realms/a/jwks", "/realms/a/.well-known/openid-configuration"
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(s)) }
	}
	for _, tc := range []struct {
		name, path, fault string
		answer            http.HandlerFunc
	}{
		{"N-42 1 MiB", set, "larger than 1 MiB", text(`{"keys":[],"x":"` + strings.Repeat("x", 1<<20) + `"}`)},
		{"N-42 HTML", set, "not a JSON Web Key Set", text("<html>sign in</html>")},
		{"N-42 500", set, "500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }},
		{"N-42 hanging", set, "deadline", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{"N-42 empty", set, "no usable key", text(`{"keys":[]}`)},
		{"N-42 101 keys", set, "101 keys", text(`{"keys":[` + strings.Repeat("{},", 100) + `{}]}`)},
		{"N-43 metadata of another issuer", meta, "write the issuer exactly", text(`{"issuer":"https://evil.example.com","jwks_uri":"https://evil.example.com/jwks"}`)},
		{"N-43 a slash more", meta, "write the issuer exactly", text(`{"issuer":"` + issuer + `/","jwks_uri":"` + issuer + `/jwks"}`)},
		{"no metadata", meta, "publishes no metadata", http.NotFound},
		{"keys over http", meta, "must be https", text(`{"issuer":"` + issuer + `","jwks_uri":"http://idp.example.com/jwks"}`)},
		{"no keys", meta, "must be a URL", text(`{"issuer":"` + issuer + `"}`)},
		{"N-44 redirect of the keys", set, "302", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
		}},
		{"N-44 redirect of the metadata", meta, "302", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			i := authtest.New(t, issuer)
			s, _ := start(t, "", i)
			if err := find(s, "k1"); err != nil {
				t.Fatalf("%s: %v", tc.name, err)
			}
			i.Answer(tc.path, tc.answer)
			time.Sleep(6 * time.Minute)
			if err := find(s, "k1"); err != nil {
				t.Errorf("%s: the former key: %v", tc.name, err)
			}
			if st := s.State(); !strings.Contains(st.Fault, tc.fault) {
				t.Errorf("%s: %q", tc.name, st.Fault)
			}
			if i.Asked("/latest/meta-data") > 0 {
				t.Errorf("%s: the redirect was followed", tc.name)
			}
		})
	}
}

// Unusable keys are left out; the others are not (I-014).
func TestLeftOut(t *testing.T) {
	good, private, small := authtest.NewKey(t, "good", "ES256"), authtest.NewKey(t, "private", "ES256"), authtest.NewKey(t, "small", "RS256").JWK(t)
	raw, err := jose.JSONWebKey{Key: private.Private, KeyID: "private"}.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	small["n"] = base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, 128))
	enc := authtest.NewKey(t, "enc", "ES256").JWK(t)
	enc["use"] = "enc"
	ops, sign := authtest.NewKey(t, "ops", "ES256").JWK(t), authtest.NewKey(t, "sign", "ES256").JWK(t)
	ops["key_ops"], sign["key_ops"] = []string{"encrypt", "wrapKey"}, []string{"sign"}
	set, err := json.Marshal(map[string]any{"keys": []any{
		json.RawMessage(raw), small, enc, map[string]any{"kty": "oct", "k": "c2VjcmV0", "kid": "oct"}, map[string]any{"kty": "AKP", "kid": "new"},
		map[string]any{"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "curve"}, "text", good.JWK(t), ops, sign,
	}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		i := authtest.New(t, issuer)
		i.Answer("/realms/a/jwks", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(set) })
		s, log := start(t, "", i)
		if err := errors.Join(find(s, "good"), find(s, "sign")); err != nil {
			t.Fatal(err, log)
		}
		for _, id := range []string{"private", "enc", "ops", "oct", "new", "curve"} {
			if err := find(s, id); !errors.Is(err, jwks.ErrUnknown) {
				t.Errorf("%s: %v", id, err)
			}
		}
		if _, err := s.Find(t.Context(), "small", true, "RS256"); !errors.Is(err, jwks.ErrUnknown) {
			t.Errorf("small: %v", err)
		}
		st := s.State()
		for _, want := range []string{"key 1: is a private key", "key 2: has 1024 bits", "key 7: is not a JSON Web Key"} {
			if !strings.Contains(st.Fault, want) {
				t.Errorf("%q says nothing of %q", st.Fault, want)
			}
		}
	})
}

// Keys are refreshed after the time in their answer, within bounds. A withdrawn key is marked for its holders.
func TestRenewal(t *testing.T) {
	for _, tc := range []struct {
		control string
		every   time.Duration
	}{{"", 5 * time.Minute}, {"max-age=1", 5 * time.Minute}, {"public, Max-Age=1800", 30 * time.Minute}, {"max-age=999999", time.Hour}, {"max-age=-1", 5 * time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			i := authtest.New(t, issuer)
			key := i.Keys()[0]
			i.Answer("/realms/a/jwks", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Cache-Control", tc.control)
				_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{i.Keys()[0].JWK(t)}})
			})
			s, _ := start(t, "", i)
			synctest.Wait()
			found, err := s.Find(t.Context(), key.ID, true, "ES256")
			if err != nil {
				t.Fatal(err)
			}
			i.Set(authtest.NewKey(t, "k2", "ES256"))
			time.Sleep(tc.every - time.Second)
			if found[0].Withdrawn() {
				t.Errorf("%q: gone too early", tc.control)
			}
			time.Sleep(2 * time.Second)
			if !found[0].Withdrawn() {
				t.Errorf("%q: not gone", tc.control)
			}
		})
	}
}

// The set may be a file or have its own address. The metadata may be at any of its addresses.
func TestPlaces(t *testing.T) {
	i := authtest.New(t, issuer)
	set, err := json.Marshal(map[string]any{"keys": []any{i.Keys()[0].JWK(t)}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(path, set, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{path, "https://idp.example.com/realms/a/jwks"} {
		synctest.Test(t, func(t *testing.T) {
			i := authtest.New(t, issuer)
			i.Set(authtest.NewKey(t, "k1", "ES256"))
			s, _ := start(t, from, i)
			if err := find(s, "k1"); err != nil {
				t.Errorf("%s: %v", from, err)
			}
			if i.Asked("/realms/a/.well-known/openid-configuration") > 0 {
				t.Errorf("%s: asked for the metadata", from)
			}
		})
	}
	meta := func(own string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":"https://idp.example.com/keys",
				"introspection_endpoint":7,"registration_endpoint":{},"client_id_metadata_document_supported":"yes","code_challenge_methods_supported":"S256","scopes_supported":["a",1]}`, own) // what is not used may be anything
		}
	}
	for _, place := range []struct{ issuer, path string }{
		{issuer, "/realms/a/.well-known/openid-configuration"}, {issuer, "/.well-known/oauth-authorization-server/realms/a"},
		{issuer, "/.well-known/openid-configuration/realms/a"},
		{"https://idp.example.com", "/.well-known/openid-configuration"}, {"https://idp.example.com/", "/.well-known/oauth-authorization-server"},
	} {
		synctest.Test(t, func(t *testing.T) {
			i := authtest.New(t, place.issuer)
			for _, standard := range []string{"/realms/a/.well-known/openid-configuration", "/.well-known/openid-configuration"} {
				i.Answer(standard, http.NotFound)
			}
			i.Answer(place.path, meta(place.issuer))
			i.Answer("/keys", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(set) })
			s, log := start(t, "", i)
			if err := find(s, "k1"); err != nil {
				t.Errorf("%s: %v\n%s", place.path, err, log)
			}
		})
	}
}

// Allowed addresses of keys and metadata.
func TestSafe(t *testing.T) {
	for address, good := range map[string]bool{
		"https://idp.example.com/x": true, "http://127.0.0.1:9/x": true, "http://[::1]/x": true, "http://localhost/x": true,
		"http://idp.example.com": false, "http://169.254.169.254/x": false, "file:///etc/passwd": false, "": false, "https://a:b@idp.example.com": false,
	} {
		if err := jwks.CheckAddress(address); (err == nil) != good {
			t.Errorf("Safe(%q) = %v", address, err)
		}
	}
}
