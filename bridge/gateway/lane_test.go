package gateway

import (
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// silent makes a server that never answers that method.
func silent(method string) func(*fakeWire, *jsonrpc.Message) bool {
	return func(_ *fakeWire, m *jsonrpc.Message) bool { return m.Method == method }
}
