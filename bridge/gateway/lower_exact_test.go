package gateway

import (
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// sayOn makes the server send a message on the stream of a call, as it can over
// Streamable HTTP.
func (f *fakeWire) sayOn(call int64, text string) {
	f.queue <- func() {
		m, err := jsonrpc.Parse([]byte(text))
		if err != nil {
			panic(err)
		}
		f.DeliverOn(call, m)
	}
}
