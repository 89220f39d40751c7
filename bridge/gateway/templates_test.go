package gateway

import (
	"fmt"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A server that announces resources and does not know the list of templates has an empty one, for clients of both
// eras. Without resources its error passes.
func TestNoTemplates(t *testing.T) {
	refuses := func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "resources/templates/list" {
			f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID))
		}
		return m.Method == "resources/templates/list"
	}
	run(t, ServerOptions{Adapter: &fake{serve: refuses}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		bridgetest.Contains(t, do(t, s, "1", "resources/templates/list", `{}`), `{"jsonrpc":"2.0","id":1,"result":{"resourceTemplates":[]}}`)
		bridgetest.Contains(t, visitor{}.call(t, g, "resources/templates/list", ""), `"resultType":"complete"`, `"resourceTemplates":[]`)
	})
	modern := newPeer()
	rest := modern.serve
	modern.serve = func(f *fakeWire, m *jsonrpc.Message) bool { return refuses(f, m) || rest(f, m) }
	run(t, ServerOptions{Adapter: modern}, func(t *testing.T, g *gateway) {
		bridgetest.Contains(t, visitor{}.call(t, g, "resources/templates/list", ""), `"ttlMs":0`, `"resourceTemplates":[]`)
	})
	bare := &fake{serve: refuses, result: `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`}
	run(t, ServerOptions{Adapter: bare}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		bridgetest.Contains(t, do(t, s, "1", "resources/templates/list", `{}`), `"code":-32601`)
	})
}
