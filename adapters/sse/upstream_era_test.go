package sse

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// C2.9: the modern era is never used here, whatever the caller, and the
// server is offered no more than the settings allow.
func TestUpstreamIsLegacy(t *testing.T) {
	for _, c := range []struct{ name, most, offered string }{
		{"no limit", "", "2025-11-25"},
		{"capped", "2024-11-05", "2024-11-05"},
		{"capped higher than the client", "2026-07-28", "2025-11-25"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, _ := serve(t, &fakePeer{}, remote.Config{}, conn.Options{Revision: c.most})
			up := adaptertest.OpenModern(t, u, &adaptertest.Client{})
			if up.Server().Modern() {
				t.Errorf("revision %s", up.Server().Revision)
			}
			seen := adaptertest.Seen(t, up)
			if len(seen) != 3 || !strings.Contains(seen[0], `"method":"initialize"`) || !strings.Contains(seen[0], `"protocolVersion":"`+c.offered+`"`) || !strings.Contains(seen[1], "notifications/initialized") {
				t.Errorf("the server received %q, want initialize with %s and notifications/initialized first", seen, c.offered)
			}
		})
	}
}
