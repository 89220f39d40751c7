package server

import (
	"net/http"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/config"
)

// What comes by a webhook at one instance counts at all of them, also at those that start
// later, and when the store has been emptied meanwhile (S-043).
func TestClusterHooks(t *testing.T) {
	t.Parallel()
	severally(t, 0, plain, func(t *testing.T, s *several) {
		start := func() {
			s.add(func(c *config.Server) {
				c.Stdio, c.Rest = nil, &rest.Config{BaseURL: "http://localhost:1", Catalog: rest.Catalog{Webhook: true, Secret: hookSecret}}
			})
			s.joined(len(s.all))
		}
		post := func(at int, body string, want int) {
			t.Helper()
			if r := s.all[at].site.Do("POST", "/hooks/files", body, as(hookSecret)...).Wait(); r.Status() != want {
				t.Fatalf("a webhook with %s: %d %s, want %d", body, r.Status(), r.Body(), want)
			}
		}
		offers := func(tool string, some ...*wholeOne) {
			t.Helper()
			for _, o := range some {
				s.until("each instance has "+tool, func() bool {
					_, m := s.post(o, "", stateless(1, "tools/list", ""))
					return m.Get("result.tools.#.name").Raw == `["`+tool+`"]`
				})
			}
		}
		start()
		start()
		post(0, `{"no":"list"}`, http.StatusUnprocessableEntity)
		post(0, `[{"name":"calc","request":"POST /calc"}]`, http.StatusOK)
		offers("calc", s.all...)
		start()
		offers("calc", s.all[2])
		s.wipe(nil)
		start()
		offers("calc", s.all[3])
		post(3, `[{"name":"sum","request":"POST /sum"}]`, http.StatusOK)
		offers("sum", s.all...)
		s.refuse(s.all...)
		post(1, `[{"name":"lost","request":"POST /lost"}]`, http.StatusServiceUnavailable)
	})
}
