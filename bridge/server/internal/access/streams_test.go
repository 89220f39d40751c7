package access

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
)

// The streams of a session end with the last token that was shown for it, and nothing is
// remembered of them then.
func TestLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const here = "http://127.0.0.1:8808"
		i := authtest.New(t, "https://idp.example.com")
		a := ruled(t, func(c *config.Config) { c.OAuth[0].Transport, c.PublicURL = i, here })
		a.Start()
		defer a.Stop()
		at := Target{Endpoint: "/one/mcp"}
		show := func(method string, life time.Duration) (ended <-chan struct{}, done func()) {
			t.Helper()
			r := httptest.NewRequest(method, "/one/mcp", nil)
			r.Header.Set("Mcp-Session-Id", "s")
			r.Header.Set("Authorization", "Bearer "+i.Token(here, authtest.Claims{"groups": []string{"eng"}, "exp": time.Now().Add(life).Unix()}))
			w := httptest.NewRecorder()
			r, ok := a.Admit(w, r, r.URL.Path, at)
			if !ok {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			r, done = a.Follow(r, "one", at)
			return r.Context().Done(), done
		}
		began := time.Now()
		first, firstDone := show("GET", 2*time.Minute)
		second, secondDone := show("GET", time.Minute)
		_, done := show("POST", 10*time.Minute)
		done()
		<-first
		<-second
		if took := time.Since(began).Truncate(time.Minute); took < 10*time.Minute || took > 12*time.Minute { // clocks may differ
			t.Errorf("they end after %v", took)
		}
		firstDone()
		secondDone()
		if len(a.streams.bySession) > 0 {
			t.Errorf("%d streams are remembered", len(a.streams.bySession))
		}
	})
}
