package lift_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/lane/lanetest"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lift"
	"github.com/mcp-bridge/bridge/internal/dialogue"
	"github.com/mcp-bridge/bridge/internal/list"
)

// TestDialogues plays dialogues of clients with sessions. Each has its own lane.
func TestDialogues(t *testing.T) {
	dialogue.Play(t, "lift", func(_ *testing.T, d *dialogue.Dialogue) dialogue.Bridge {
		server := d.Servers[0]
		lanes := lanetest.Options(server.Name, server)
		o := &lift.Options{
			Server:    server.Name,
			Handshake: time.Minute,
			Log:       slog.New(slog.DiscardHandler),
			Rewrites:  &list.Rewrites{},
			Cache:     &stage{},
		}
		return &dialogue.Memory{Chain: func(from *bridge.Caller, to bridge.Client) bridge.Upstream {
			l := lift.New(from, to, o)
			return l.Wrap(lane.New(lanes, from, lane.Ends{Client: l.Client(), Observer: lanetest.Unobserved{}}))
		}}
	})
}
