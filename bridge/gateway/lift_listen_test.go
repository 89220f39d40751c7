package gateway

import (
	"testing"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

func parseRaw(text string) *jsonrpc.Message {
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		panic(err)
	}
	return m
}

// A server's error may have line breaks between its tokens; on the client's wire
// it is one line.
func TestListenErrorIsOneLine(t *testing.T) {
	f := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		if m.Method != era.Listen {
			return completely("{}")(s, m)
		}
		s.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + ",\"error\":{\n\"code\":-32603,\n\"message\":\"no\"}}")
		return true
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _, _ := beginAs(t, g, able("2025-11-25"))
		if got, want := do(t, s, "1", "resources/subscribe", `{"uri":"x:a"}`), `{"jsonrpc":"2.0","id":1,"error":{ "code":-32603, "message":"no"}}`; got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}
