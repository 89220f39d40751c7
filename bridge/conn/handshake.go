package conn

import (
	"context"
	"fmt"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Handshake makes the legacy handshake on a new connection on behalf of from: initialize, and after the answer
// notifications/initialized. most is the newest revision to offer; empty means no limit. If the server may be a
// modern one, the error is a kind of ErrNoHandshake.
func Handshake(ctx context.Context, c *Conn, from *bridge.Caller, most string) (*bridge.Greeting, error) {
	params := capped(from.Params, most)
	m, err := c.Call(ctx, &bridge.Request{
		Message:   jsonrpc.NewRequest("initialize", params),
		From:      from,
		Handshake: true,
	})
	if err != nil {
		return nil, err
	}
	defer m.Release()
	if m.Error != nil {
		return nil, &bridge.Error{
			Server: c.server,
			Kind:   bridge.ErrNoHandshake,
			Public: "it refused to initialize: " + gjson.GetBytes(m.Error, "message").String(),
		}
	}
	result := era.Greeted(rawjson.OneLine(m.Whole()), gjson.GetBytes(params, "protocolVersion").Str, c.server)
	g := greeting(gjson.GetBytes(result, "protocolVersion").String(), result)
	if !era.IsLegacy(g.Revision) {
		return nil, &bridge.Error{
			Server: c.server,
			Kind:   bridge.ErrNoHandshake,
			Public: fmt.Sprintf("it answered initialize with revision %.20q, which has no sessions or is unknown", g.Revision),
		}
	}
	return g, c.Notify(ctx, &bridge.Request{Message: jsonrpc.NewNotification("notifications/initialized", nil), From: from})
}

// Repeatable reports whether a message of that method may be sent again although the server may have acted on it. That
// is so for handshakes: nobody uses the session of an initialize without an answer.
func Repeatable(method string) bool {
	switch method {
	case "initialize", "notifications/initialized", "server/discover":
		return true
	}
	return false
}

// greeting returns the greeting of a server with that revision. A missing capabilities becomes {}.
func greeting(revision string, result []byte) *bridge.Greeting {
	g := &bridge.Greeting{
		Revision:     revision,
		Capabilities: []byte(gjson.GetBytes(result, "capabilities").Raw),
		Result:       result,
	}
	if !rawjson.IsObject(g.Capabilities) {
		g.Capabilities = []byte("{}")
	}
	return g
}

// Resume continues the connection of another process. result is the result of that process's handshake, and Resume
// returns its greeting. The numbers of calls are above above. The caller calls Resume before the first Call.
func (c *Conn) Resume(result []byte, above int64) (*bridge.Greeting, error) {
	g := greeting(gjson.GetBytes(result, "protocolVersion").String(), result)
	if !era.IsLegacy(g.Revision) {
		return nil, fmt.Errorf("revision %.20q has no handshake", g.Revision)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = above
	return g, nil
}
