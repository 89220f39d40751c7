package lane_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/lane/lanetest"
	"github.com/mcp-bridge/bridge/internal/dialogue"
)

// TestDialogues plays dialogues over lanes: each client with sessions has its own, and all clients without sessions share
// one.
func TestDialogues(t *testing.T) {
	dialogue.Play(t, "lane", func(_ *testing.T, d *dialogue.Dialogue) dialogue.Bridge {
		o := lanetest.Options(d.Servers[0].Name, d.Servers[0])
		o.Idle = d.Duration("idle")
		o.Set(lane.Settings{
			EndWithServer: d.Options["restart"] == "no",
			Ping:          d.Duration("ping"),
			Restarts:      cmp.Or(d.Number("starts"), 30),
			MaxPause:      cmp.Or(d.Duration("max_pause"), time.Minute),
		})
		all := lane.New(o, bridgetest.Caller(era.LatestModern, "", "{}"), lane.Ends{Client: bridge.Nobody{}, Observer: lanetest.Unobserved{}})
		return &dialogue.Memory{
			Chain: func(from *bridge.Caller, to bridge.Client) bridge.Upstream {
				if from.Modern() {
					return all
				}
				return lane.New(o, from, lane.Ends{Client: to, Observer: lanetest.Unobserved{}})
			},
			Shut: func() { _ = all.Close(context.Background()) },
		}
	})
}
