package streamable

import (
	"compress/gzip"
	"io"
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

// A server, or what stands before it, that compresses what it answers is understood, as
// JSON and as events, in both eras.
func TestUpstreamCompressed(t *testing.T) {
	zip := func(with reply) reply {
		return func(w http.ResponseWriter, r *http.Request, id string) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			with(&zipping{w, z}, r, id)
			_ = z.Close()
		}
	}
	for _, era := range []conn.Era{conn.EraLegacy, conn.EraModern} {
		for name, answer := range map[string]reply{
			"json":   good(`{"resultType":"complete","ok":1}`),
			"events": streamed("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"resultType\":\"complete\",\"ok\":1}}\n\n"),
		} {
			t.Run(string(era)+" "+name, func(t *testing.T) {
				p := newProbed(t, zip(good(discovered)), nil, zip(answer))
				up := adaptertest.Open(t, adapter(t, p.URL, nil, conn.Options{Era: era}), &adaptertest.Client{})
				if got := adaptertest.Call(t.Context(), t, up, nil, ask).Result(t); !strings.Contains(got, `"ok":1`) {
					t.Errorf("the answer is %s", got)
				}
				_ = up.Close(t.Context())
			})
		}
	}
}

type zipping struct {
	http.ResponseWriter
	to io.Writer
}

func (z *zipping) Write(b []byte) (int, error) { return z.to.Write(b) }
