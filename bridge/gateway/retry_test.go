package gateway

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Through a whole bridge: a list is answered although its connection ends under
// it, and a tool is called once.
func TestRetryThrough(t *testing.T) {
	f := &fake{}
	var lists, calls atomic.Int64
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		switch m.Method {
		case "tools/list":
			if lists.Add(1) == 1 {
				f.die()
				return true
			}
		case "tools/call":
			calls.Add(1)
			f.die()
			return true
		}
		return false
	}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Cache: cache.Options{Off: true}}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"result"`)
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"x"}`), `upstream_lost`)
		time.Sleep(time.Minute)
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"x"`), `upstream_lost`)
		if lists.Load() != 2 || calls.Load() != 2 {
			t.Errorf("%d lists and %d calls reached the server, want 2 and 2", lists.Load(), calls.Load())
		}
	})
}
