package integration

import (
	"context"
	"os/exec"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestOfferLegacy has a client that knows both eras, and asks for more than the newer one has, use a bridge that offers the
// older: over HTTP, and through "bridge connect".
func TestOfferLegacy(t *testing.T) {
	t.Parallel()
	b := startBridge(t, []string{"--offer", "legacy"}, everythingProgram(t))
	all := startBridge(t, nil, everythingProgram(t))
	for name, open := range map[string]func() mcp.Transport{
		"http": func() mcp.Transport { return &mcp.StreamableClientTransport{Endpoint: b.base + "/mcp"} },
		"connect": func() mcp.Transport {
			return &mcp.CommandTransport{Command: exec.Command(bridgeProgram(t), "connect", "--offer", "legacy", all.base+"/mcp")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			c := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
			s, err := c.Connect(ctx, open(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if v := s.InitializeResult().ProtocolVersion; v != "2025-11-25" {
				t.Errorf("revision %s", v)
			}
			if err := s.Ping(ctx, nil); err != nil {
				t.Errorf("ping: %v", err)
			}
			//lint:ignore SA1019 deprecated in 2026-07-28, and what clients of today use
			if err := s.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
				t.Errorf("set the level: %v", err)
			}
			if tools, err := s.ListTools(ctx, nil); err != nil || len(tools.Tools) == 0 {
				t.Errorf("list the tools: %v, %v", tools, err)
			}
		})
	}
}
