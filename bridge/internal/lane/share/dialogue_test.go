package share_test

import (
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/lane/lanetest"
	"github.com/mcp-bridge/bridge/bridge/internal/lane/share"
	"github.com/mcp-bridge/bridge/internal/dialogue"
)

// lanes are the lanes of a server.
type lanes struct{ o *lane.Options }

func (s lanes) SharedLane(from *bridge.Caller, to bridge.Client, givenUp func()) (*lane.Lane, bridge.Upstream) {
	l := lane.New(s.o, from, lane.Ends{Client: to, Observer: lanetest.Unobserved{}, GivenUp: givenUp})
	return l, l
}

// TestDialogues plays dialogues of clients that share a lane, or that have one for each call.
func TestDialogues(t *testing.T) {
	dialogue.Play(t, "share", func(t *testing.T, d *dialogue.Dialogue) dialogue.Bridge {
		s := lanes{lanetest.Options(d.Servers[0].Name, d.Servers[0])}
		s.o.Shared = d.Options["share"] == "all"
		if d.Options["share"] == "call" {
			return &dialogue.Memory{Chain: func(from *bridge.Caller, to bridge.Client) bridge.Upstream {
				return &share.PerCall{
					Name:   s.o.Name,
					Client: to,
					Budget: s.o.Budget,
					Force:  t.Context(),
					Open: func(level []byte) (*lane.Lane, bridge.Upstream) {
						l := lane.New(s.o, from, lane.Ends{Client: to, Observer: lanetest.Unobserved{}, Level: level})
						return l, l
					},
				}
			}}
		}
		hubs := share.New(share.Options{
			Server: s.o.Name,
			All:    s.o.Shared,
			Params: []byte(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bridge","version":"1"}}`),
			Budget: s.o.Budget,
			Force:  t.Context(),
			Lanes:  s,
		})
		return &dialogue.Memory{
			Chain: func(from *bridge.Caller, to bridge.Client) bridge.Upstream {
				v, err := hubs.Join(*from, to, from.Modern())
				if err != nil {
					t.Fatal(err)
				}
				return v
			},
			Shut: func() { hubs.Close(t.Context()) },
		}
	})
}
