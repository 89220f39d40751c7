package access

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/oauth/oauthtest"
)

// From one address only so many wrong keys may be shown in a time. Good ones, and
// none, are answered as ever, and so are other addresses.
func TestWrongKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := ruled(t, keyed)
		status := func(want int, what, peer string, header ...string) *httptest.ResponseRecorder {
			t.Helper()
			w := admit(a, from(peer, loopback, "POST", "/one/mcp", header...), "/one/mcp")
			if w.Code != want {
				t.Errorf("%s from %s: %d, want %d", what, peer, w.Code, want)
			}
			return w
		}
		for range WrongAtOnce {
			status(401, "a wrong key", peer, as(wrongKey)...)
			status(401, "a wrong key", "[2001:db8::1]:1", as(wrongKey)...)
		}
		w := status(429, "one too many", peer, as(wrongKey)...)
		if w.Header().Get("Retry-After") != "3" || !strings.Contains(w.Body.String(), `"data":{"bridge":"rate_limited","retryAfterMs":3000}`) {
			t.Errorf("one too many: %v %s", w.Header(), w.Body)
		}
		status(429, "another port", "198.51.100.7:4321", as(wrongKey)...)
		status(429, "another address of the network", "[2001:db8::2]:1", as(wrongKey)...)
		status(401, "another network", "[2001:db8:0:1::1]:1", as(wrongKey)...)
		status(429, "an address that only the sender says", peer, append(as(wrongKey), "X-Forwarded-For", "192.0.2.9")...)
		status(401, "no key", peer)
		status(200, "a good key", peer, as(aliceKey)...)
		if _, _, ok := a.StatusView(from(peer, loopback, "GET", "/readyz", as(wrongKey)...), ""); ok {
			t.Error("a wrong key shows the state")
		}
		if _, _, wait, ok := a.Key(from(peer, loopback, "POST", "/ui/login"), wrongKey); ok || wait == 0 {
			t.Errorf("signing in with a wrong key: %t, %v", ok, wait)
		}
		if who, _, _, ok := a.Key(from(peer, loopback, "POST", "/ui/login"), aliceKey); !ok || who != "alice" {
			t.Errorf("signing in with a good key: %t %s", ok, who)
		}
		time.Sleep(WrongEvery)
		status(401, "after the pause", peer, as(wrongKey)...)
		status(429, "another one after the pause", peer, as(wrongKey)...)
	})
}

// What is known of addresses is bounded: one that has not shown a wrong key for the
// longest time is forgotten.
func TestWrongKeysBounded(t *testing.T) {
	l := newLimit(quiet)
	first := netip.MustParseAddr("192.0.2.1")
	others := func(n int) {
		for i := range n {
			l.Take(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}))
		}
	}
	for range WrongAtOnce {
		l.Take(first)
	}
	others(WrongAddresses - 1)
	if l.Take(first) == 0 {
		t.Errorf("beside %d others, it is forgotten", WrongAddresses-1)
	}
	if others(WrongAddresses); l.Take(first) != 0 {
		t.Errorf("after %d others, it is not forgotten", WrongAddresses)
	}
}

// Bad tokens are no guesses at keys: their clients are told each time how to get in. What could be a key is a guess.
func TestTokenIsNoGuess(t *testing.T) {
	identified(t, quiet, asIs, func(t *testing.T, a *Access, i *authtest.Issuer) {
		other, foreign := authtest.New(t, i.URL), authtest.New(t, "https://other.example.com")
		for n := range 2 * WrongAtOnce {
			for _, who := range [][]string{eng(other, "ann", here), eng(foreign, "ann", here)} {
				if w := admit(a, from(peer, loopback, "POST", "/one/mcp", who...), "/one/mcp"); w.Code != 401 || !strings.Contains(w.Header().Get("WWW-Authenticate"), "resource_metadata") {
					t.Fatalf("token %d: %d %v", n, w.Code, w.Header())
				}
			}
		}
		for at, guess := range []string{wrongKey, "YWJj.YWJj.YWJj"} {
			for n := range WrongAtOnce + 1 {
				w := admit(a, from(fmt.Sprintf("192.0.2.%d:1", at), loopback, "POST", "/one/mcp", as(guess)...), "/one/mcp")
				if (w.Code == 429) != (n == WrongAtOnce) {
					t.Errorf("%s for the %d. time: %d", guess, n+1, w.Code)
				}
			}
		}
	})
}

// introspecting has a bridge ask the issuer about tokens that only the issuer can read.
func introspecting(always bool) func(c *config.Config) {
	return func(c *config.Config) {
		c.OAuth[0].Introspection = config.Introspection{Client: config.OAuthClient{ID: "bridge", Secret: "the-secret"}, Always: always}
	}
}

// introspect returns the handler of an issuer for which those tokens count that begin with opaque while good is set.
func introspect(i *authtest.Issuer, good *bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		raw := r.PostForm.Get("token")
		oauthtest.JSON(w, 200, i.Claims(here, authtest.Claims{"active": *good && strings.HasPrefix(raw, "opaque"), "sub": raw, "groups": []string{"eng"}}))
	}
}

// Who makes tokens up has the issuer asked about so many only; tokens that were good count
// meanwhile, and so do users whose tokens have ended (I-025).
func TestMadeUp(t *testing.T) {
	identified(t, quiet, introspecting(true), func(t *testing.T, a *Access, i *authtest.Issuer) {
		good := true
		i.Answer("/introspect", introspect(i, &good))
		ask := func(raw string) int {
			return admit(a, from(peer, loopback, "POST", "/one/mcp", as(raw)...), "/one/mcp").Code
		}
		if got := ask("opaque-of-ann"); got != 200 {
			t.Fatal(got)
		}
		other := authtest.NewKey(t, "k", "ES256")
		for form, made := range map[string]func(n int) string{
			"opaque":           func(n int) string { return fmt.Sprint("nothing-", n) },
			"a JSON Web Token": func(n int) string { return other.Sign(t, nil, i.Claims(here, authtest.Claims{"jti": fmt.Sprint(n)})) },
		} {
			before, refused := i.Asked("/introspect"), 0
			for n := range 3 * WrongAtOnce {
				if ask(made(n)) == 429 {
					refused++
				}
			}
			if asked := i.Asked("/introspect") - before; asked != WrongAtOnce || refused != 2*WrongAtOnce {
				t.Errorf("%s: %d questions, %d refused", form, asked, refused)
			}
			if got := ask("opaque-of-bob"); got != 429 {
				t.Errorf("%s: one that was never shown before: %d", form, got)
			}
			if got := ask("opaque-of-ann"); got != 200 {
				t.Errorf("%s: one that was good: %d", form, got)
			}
			time.Sleep(WrongAtOnce * WrongEvery)
		}
		good = false
		for n := range 3 * WrongAtOnce {
			if got := ask("opaque-of-ann"); got != 401 {
				t.Fatalf("one that was revoked, for the %d. time: %d", n, got)
			}
			time.Sleep(time.Second)
		}
	})
}

// Made-up tokens that come all at once have the issuer asked about so many only, too, also
// if their sender does not wait for the answers. Good ones wait for their turn.
func TestMadeUpAtOnce(t *testing.T) {
	identified(t, quiet, introspecting(false), func(t *testing.T, a *Access, i *authtest.Issuer) {
		good := true
		var hold chan struct{}
		says := introspect(i, &good)
		i.Answer("/introspect", func(w http.ResponseWriter, r *http.Request) {
			<-hold
			says(w, r)
		})
		// wave shows tokens at once, and returns how many answers have which status.
		wave := func(name string, n int, leave bool) map[int]int {
			hold = make(chan struct{})
			before, ctx, left := i.Asked("/introspect"), t.Context(), func() {}
			if leave {
				ctx, left = context.WithCancel(ctx)
			}
			var all sync.WaitGroup
			var mu sync.Mutex
			got := map[int]int{}
			for k := range n {
				all.Go(func() {
					r := from(peer, loopback, "POST", "/one/mcp", as(fmt.Sprint(name, "-", k))...)
					ctx := context.WithValue(ctx, http.LocalAddrContextKey, r.Context().Value(http.LocalAddrContextKey))
					code := admit(a, r.WithContext(ctx), "/one/mcp").Code
					mu.Lock()
					defer mu.Unlock()
					got[code]++
				})
			}
			synctest.Wait()
			if asked := i.Asked("/introspect") - before; asked != WrongAtOnce {
				t.Errorf("%s: %d questions are under way, want %d", name, asked, WrongAtOnce)
			}
			left()
			synctest.Wait()
			close(hold)
			all.Wait()
			synctest.Wait()
			return got
		}
		before := i.Asked("/introspect")
		if got := wave("nothing", 100, false); got[401] != WrongAtOnce || got[429] != 100-WrongAtOnce {
			t.Errorf("made up: %v", got)
		}
		if asked := i.Asked("/introspect") - before; asked != WrongAtOnce {
			t.Errorf("made up: %d questions", asked)
		}
		time.Sleep(WrongAtOnce * WrongEvery)
		if got := wave("opaque", 60, false); got[200] != 60 {
			t.Errorf("good: %v", got)
		}
		wave("left", WrongAtOnce, true)
		if w := admit(a, from(peer, loopback, "POST", "/one/mcp", as("one-more")...), "/one/mcp"); w.Code != 429 {
			t.Errorf("after many whose sender has left: %d", w.Code)
		}
	})
}
