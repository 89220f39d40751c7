package bridge

import (
	"fmt"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A server may change its mind about whom its list is for. What was kept for one
// caller does not keep it from what is everybody's now.
func TestCacheBecomesPublic(t *testing.T) {
	for _, before := range []string{`"ttlMs":0,"cacheScope":"private"`, `"ttlMs":1000,"cacheScope":"private"`} {
		asked := 0
		f := &stateless{serve: func(w *statelessWire, m *jsonrpc.Message) bool {
			if m.Method == "tools/list" {
				terms := before
				if asked++; asked > 1 {
					terms = `"ttlMs":60000,"cacheScope":"public"`
				}
				w.reply(m, fmt.Sprintf(`{"resultType":"complete","tools":[{"name":"t%d"}],%s}`, asked, terms))
			}
			return true
		}}
		run(t, ServerOptions{Adapter: f}, func(t *testing.T, b *Bridge) {
			contains(t, visitor{}.call(t, b, "tools/list", ""), `"t1"`)
			time.Sleep(20 * time.Second)
			for range 3 {
				contains(t, visitor{}.call(t, b, "tools/list", ""), `"t2"`)
			}
		})
	}
}
