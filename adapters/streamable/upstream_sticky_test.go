package streamable

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// A balancer that pins a session to its node by a cookie finds it in each request of the
// connection, and in none of another one.
func TestUpstreamSticky(t *testing.T) {
	for _, era := range []conn.Era{conn.EraLegacy, conn.EraModern} {
		t.Run(string(era), func(t *testing.T) {
			p := newProbed(t, good(discovered), nil, good(`{"resultType":"complete","ok":1}`))
			p.session = "s"
			pinned := make(chan string, 100)
			h := p.Config.Handler
			p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c, err := r.Cookie("AWSALB")
				if err != nil {
					http.SetCookie(w, &http.Cookie{Name: "AWSALB", Value: "node", Path: "/"})
					pinned <- r.Method + " -"
				} else {
					pinned <- r.Method + " " + c.Value
				}
				h.ServeHTTP(w, r)
			})
			u := adapter(t, p.URL, nil, conn.Options{Era: era})
			for range 2 {
				var got []string
				up := adaptertest.Open(t, u, &adaptertest.Client{})
				if got := adaptertest.Call(t.Context(), t, up, nil, ask).Result(t); !strings.Contains(got, `"ok":1`) {
					t.Errorf("the answer is %s", got)
				}
				_ = up.Close(t.Context())
				for len(pinned) > 0 {
					got = append(got, <-pinned)
				}
				if n := len(slices.DeleteFunc(slices.Clone(got), func(s string) bool { return !strings.HasSuffix(s, "-") })); n != 1 || got[0] != "POST -" {
					t.Errorf("the requests came as %q, want all but the first with the cookie", got)
				}
				if era == conn.EraLegacy && !(slices.Contains(got, "GET node") && slices.Contains(got, "DELETE node")) {
					t.Errorf("the requests came as %q", got)
				}
			}
		})
	}
}
