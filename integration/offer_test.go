//lint:file-ignore SA1019 logging is deprecated from 2026-07-28 on; the bridge serves the revisions before it.

package integration

import (
	"errors"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// TestOfferLegacy has a client that knows both eras connect as it does by itself: it asks for the newer era first, and uses
// what only the older one has (ping, the level of the log). Before a bridge that offers the older era, over HTTP and through
// "mcp-bridge connect", it finds what it finds at a legacy server without a bridge.
func TestOfferLegacy(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	for _, server := range references {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			command := server.command(t, "stdio")
			where := map[string]target{}
			p := startBridge(t, []string{"--offer", "legacy"}, command...)
			where["http"] = target{transport: "streamable", url: p.base + "/mcp"}
			all := startBridge(t, nil, command...)
			where["connect"] = target{transport: "stdio", command: []string{bridgeProgram(t), "connect", "--offer", "legacy", all.base + "/mcp"}}
			if server.name == "npm" { // that by the Go SDK is modern by itself
				where["direct"] = target{transport: "stdio", command: command, direct: true}
			}
			for name, where := range where {
				t.Run(name, func(t *testing.T) {
					p := newPeer("both", false).connect(t, where, "")
					defer p.close(t)
					same(t, "revision", p.session.InitializeResult().ProtocolVersion, legacy)
					if err := errors.Join(p.session.Ping(t.Context(), nil), p.session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"})); err != nil {
						t.Error(err)
					}
					same(t, "echo", p.text(t, "echo", map[string]any{"message": "hello"}), "Echo: hello")
				})
			}
		})
	}
}
