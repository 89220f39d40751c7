package access

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
)

// The streams of a session end with the last token that was shown for it (I-027), and nothing is
// remembered of them then.
func TestLives(t *testing.T) {
	identified(t, quiet, func(c *config.Config) { c.PublicURL = here }, func(t *testing.T, a *Access, i *authtest.Issuer) {
		var all []func()
		who := "ann"
		// show shows a token at an endpoint, and returns when the request ends.
		show := func(method, path string, life time.Duration, header ...string) <-chan struct{} {
			t.Helper()
			at, w := TargetOf("", path), httptest.NewRecorder()
			r := from(peer, loopback, method, path, append(header, eng(i, who, here, authtest.Claims{"exp": time.Now().Add(life).Unix()})...)...)
			r, ok := a.Admit(w, r, path, at)
			if !ok {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			server, _, _ := strings.Cut(path[1:], "/")
			r, done := a.Follow(r, server, TargetOf("", path))
			all = append(all, done)
			return r.Context().Done()
		}
		lasts := func(what string, want time.Duration, streams ...<-chan struct{}) {
			t.Helper()
			began := time.Now()
			for _, ended := range streams {
				<-ended
			}
			if took := time.Since(began).Truncate(time.Minute); took < want || took > want+2*time.Minute { // clocks may differ
				t.Errorf("%s lasts %v, want %v", what, took, want)
			}
			for _, done := range all {
				done()
			}
			all = nil
			if len(a.streams.bySession) > 0 {
				t.Errorf("%s: %d streams are remembered", what, len(a.streams.bySession))
			}
		}
		session := []string{"Mcp-Session-Id", "s"}
		first, second := show("GET", "/one/mcp", 2*time.Minute, session...), show("GET", "/one/mcp", time.Minute, session...)
		show("POST", "/one/mcp", 10*time.Minute, session...)
		lasts("a session with a newer token", 10*time.Minute, first, second)

		first = show("GET", "/one/mcp", 5*time.Minute, session...)
		show("POST", "/two/mcp", time.Hour, session...)
		who = "bob"
		show("POST", "/one/mcp", time.Hour, session...)
		who = "ann"
		lasts("a session with newer tokens for another server and of another user", 5*time.Minute, first)

		first = show("GET", "/one/sse", 5*time.Minute)
		show("POST", "/one/messages", 15*time.Minute)
		lasts("a stream of HTTP+SSE with a newer token", 15*time.Minute, first)

		first, second = show("POST", "/one/mcp", 2*time.Minute, "Mcp-Method", "subscriptions/listen"), show("POST", "/one/mcp", 2*time.Minute, "Mcp-Method", "=?base64?c3Vic2NyaXB0aW9ucy9saXN0ZW4=?=")
		call := show("POST", "/one/mcp", time.Minute, "Mcp-Method", "tools/call")
		show("POST", "/one/mcp", time.Hour)
		lasts("a subscription without a session", 2*time.Minute, first, second)
		select {
		case <-call:
			t.Error("a call ends with its token")
		default:
		}

		first = show("GET", "/one/mcp", time.Hour, session...)
		i.Set(authtest.NewKey(t, "k2", "ES256"))
		began := time.Now()
		<-first
		if took := time.Since(began); took > 7*time.Minute {
			t.Errorf("without the key of its token, a stream lasts %v", took)
		}
	})
}
