package server

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/config"
)

// What comes by a webhook at one instance counts at all of them, also at those that start
// later, and when the store has been emptied meanwhile (S-043).
func TestClusterHooks(t *testing.T) {
	t.Parallel()
	const key = "a-secret-of-the-hook"
	inWorld(t, func(t *testing.T, w *world) {
		var all []*wholeOne
		start := func() {
			c := instanceIn()
			flows := config.DefaultServer("flows", "")
			flows.Rest = &rest.Config{BaseURL: "http://localhost:1", Catalog: rest.Catalog{Webhook: true, Secret: key}}
			c.Servers = []config.Server{flows}
			all = append(all, w.start(c, slog.New(slog.DiscardHandler), (*server).reach))
			w.joined(len(all))
		}
		post := func(at int, body string, want int) {
			t.Helper()
			if r := all[at].site.Do("POST", "/hooks/flows", body, as(key)...).Wait(); r.Status() != want {
				t.Fatalf("a webhook with %s: %d %s, want %d", body, r.Status(), r.Body(), want)
			}
		}
		offers := func(tool string, some ...*wholeOne) {
			t.Helper()
			for _, o := range some {
				w.until("each instance has "+tool, func() bool {
					body, head := modernCall("tools/list", "")
					return gjson.Get(o.site.Do("POST", "/flows/mcp", body, head...).Wait().Body(), "result.tools.#.name").Raw == `["`+tool+`"]`
				})
			}
		}
		start()
		start()
		post(0, `{"no":"list"}`, http.StatusUnprocessableEntity)
		post(0, `[{"name":"calc","request":"POST /calc"}]`, http.StatusOK)
		offers("calc", all...)
		start()
		offers("calc", all[2])
		w.wipe(nil)
		start()
		offers("calc", all[3])
		post(3, `[{"name":"sum","request":"POST /sum"}]`, http.StatusOK)
		offers("sum", all...)
		w.refuse(all...)
		post(1, `[{"name":"lost","request":"POST /lost"}]`, http.StatusServiceUnavailable)
	})
}
