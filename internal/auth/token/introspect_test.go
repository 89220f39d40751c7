package token

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/mcp-bridge/bridge/internal/auth/assertion"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/auth/jwks"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// rig is an endpoint whose issuer answers that each token is not active.
type rig struct {
	*Endpoint
	metadata func(context.Context) (*discovery.Issuer, error)
	looked   int
	answer   func(*http.Request)
	log      bytes.Buffer
}

func newRig(t *testing.T, url string) *rig {
	r := &rig{}
	i := authtest.New(t, "https://idp.example.com")
	i.Answer("/introspect", func(w http.ResponseWriter, q *http.Request) {
		if r.answer != nil {
			r.answer(q)
		}
		_, _ = w.Write([]byte(`{"active":false}`))
	})
	var mu sync.Mutex
	r.Endpoint = NewEndpoint(EndpointOptions{Issuer: i.URL, URL: url, As: &discovery.Client{ID: "a", Secret: "b"}, Client: jwks.Client(i), Log: slog.New(slog.NewTextHandler(&r.log, nil)), Metadata: func(ctx context.Context) (*discovery.Issuer, error) {
		mu.Lock()
		r.looked++
		mu.Unlock()
		return r.metadata(ctx)
	}})
	return r
}

const place = "https://idp.example.com/introspect"

// Slow or missing metadata delays one request, and none if the address is known.
func TestFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		good := func(context.Context) (*discovery.Issuer, error) { return &discovery.Issuer{Introspection: place}, nil }
		slow := func(ctx context.Context) (*discovery.Issuer, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		ask := func(name string, want bool, most time.Duration, looks int) {
			t.Helper()
			before, had := time.Now(), r.looked
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					if _, err := r.Ask(ctx, "x", false); (err == nil) != want {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			wg.Wait()
			if took := time.Since(before); took > most || r.looked-had != looks {
				t.Errorf("%s: took %v, and looked %d times", name, took, r.looked-had)
			}
		}
		r.metadata = slow
		ask("slow", false, findLimit, 1)
		ask("a moment later", false, 0, 0)
		r.metadata = good
		time.Sleep(findErrLife)
		ask("good", true, 0, 1)
		r.metadata = slow
		time.Sleep(addressLife)
		ask("slow again", true, findLimit, 1)
		ask("within a minute", true, 0, 0)
		time.Sleep(addressGrace)
		r.metadata = good
		ask("good again", true, 0, 1)
	})
}

// Made-up tokens do not delay requests with valid ones.
func TestSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, place)
		r.answer = func(q *http.Request) {
			if _ = q.ParseForm(); q.PostForm.Get("token") == "made-up" {
				<-q.Context().Done()
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 2 * (maxInFlight + maxSpare) {
			wg.Go(func() { _, _ = r.Ask(ctx, "made-up", false) })
		}
		synctest.Wait()
		if _, err := r.Ask(ctx, "good", true); err != nil {
			t.Error(err)
		}
		if _, err := r.Ask(ctx, "new", false); !errors.Is(err, ErrUnavailable) {
			t.Errorf("a new one beyond the bound: %v", err)
		}
		wg.Wait()
	})
}

// An unstable endpoint is not logged each time.
func TestSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, place)
		for range 100 {
			r.record(errors.New("too slow"))
			r.record(nil)
			time.Sleep(time.Second)
		}
		if n := strings.Count(r.log.String(), "\n"); n != 4 || strings.Count(r.log.String(), "again") != 2 {
			t.Errorf("%d lines:\n%s", n, &r.log)
		}
	})
}

// I-024, I-301: a key signs instead of a secret, for this issuer alone, anew for each request.
func TestAskSigned(t *testing.T) {
	key := authtest.NewKey(t, "k7", "ES256")
	r := newRig(t, place)
	r.o.As.Secret, r.o.As.Key = "", assertion.Key{File: key.File(t), ID: "k7"}
	seen := map[string]bool{}
	r.answer = func(q *http.Request) {
		_ = q.ParseForm()
		text := q.PostForm.Get("client_assertion")
		signed, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.ES256})
		if err != nil || signed.Signatures[0].Header.KeyID != "k7" || q.PostForm.Has("client_id") || q.Header.Get("Authorization") != "" || q.PostForm.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" {
			t.Errorf("asked with %v %v: %v", q.Header, q.PostForm, err)
			return
		}
		claims, err := signed.Verify(key.Private.Public())
		var c struct{ Iss, Sub, Aud, Jti string }
		if err != nil || json.Unmarshal(claims, &c) != nil || c.Iss != "a" || c.Sub != "a" || c.Aud != "https://idp.example.com" || seen[c.Jti] {
			t.Errorf("the assertion says %s: %v", claims, err)
		}
		seen[c.Jti] = true
	}
	for range 2 {
		if _, err := r.Ask(t.Context(), "x", false); err != nil {
			t.Error(err)
		}
	}
	if len(seen) != 2 {
		t.Errorf("%d assertions, want 2", len(seen))
	}
	r.o.As.Key.File += ".gone"
	if _, err := r.Ask(t.Context(), "x", false); !errors.Is(err, ErrUnavailable) || !strings.Contains(r.log.String(), "key_file") {
		t.Errorf("without the file: %v; the log: %s", err, r.log.String())
	}
}
