package stateless_test

import (
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/lane/lanetest"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/dialogue"
)

// TestDialogues plays dialogues of clients without sessions, over lanes to the server.
func TestDialogues(t *testing.T) {
	dialogue.Play(t, "stateless", func(t *testing.T, d *dialogue.Dialogue) dialogue.Bridge {
		s := lanes{lanetest.Options(d.Servers[0].Name, d.Servers[0])}
		p := newPool(t, s, stateless.Options{Queue: queue{time.Minute, 10}, Budget: s.o.Budget})
		return &dialogue.Memory{
			Chain: func(*bridge.Caller, bridge.Client) bridge.Upstream { return p },
			Shut:  func() { _ = p.Close(t.Context()) },
		}
	})
}

// lanes is a stateless.Server whose lines are lanes.
type lanes struct{ o *lane.Options }

func (s lanes) Line(from *bridge.Caller, to bridge.Client) stateless.Line {
	return laneLine{lane.New(s.o, from, lane.Ends{Client: to, Observer: lanetest.Unobserved{}, GivenUp: func() { to.Gone(nil) }})}
}

func (lanes) Misheaded(*bridge.Request) *jsonrpc.Message { return nil }
func (lanes) Heard(*jsonrpc.Message)                     {}

type laneLine struct{ *lane.Lane }

func (l laneLine) Checked() bridge.Upstream                          { return l.Lane }
func (laneLine) Holds(*bridge.Request, *bridge.Greeting, error) bool { return false }
