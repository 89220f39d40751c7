package gateway

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// An answer that is nested too deep fails its call at once, wherever its id stands;
// what else is nested so deep is nobody's answer.
func TestTooDeep(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 100_000)
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method != "tools/call" {
			return false
		}
		for _, text := range []string{
			`{"jsonrpc":"2.0","method":"notifications/x","params":` + deep,
			`{"jsonrpc":"2.0","result":` + deep + `1` + strings.Repeat("}", 100_000) + `,"id":` + string(m.ID) + `}`,
		} {
			_, err := jsonrpc.Parse([]byte(text))
			f.Invalid([]byte(text), err)
		}
		return true
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "p")
		bridgetest.Contains(t, do(t, s, "7", "tools/call", tool("x")), `"id":7,`, `"bridge":"upstream_invalid"`, "its answer is nested too deep at byte", "1000 nested arrays and objects")
	})
}
