package aggregate_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/internal/aggregate"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/lane/lanetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/dialogue"
	"github.com/mcp-bridge/bridge/internal/list"
)

// TestDialogues plays dialogues of sessions with servers of their era, and of stateless clients with theirs.
func TestDialogues(t *testing.T) {
	dialogue.Play(t, "aggregate", func(t *testing.T, d *dialogue.Dialogue) dialogue.Bridge {
		all := aggregate.New(aggregate.Options{
			Info:   []byte(`{"name":"bridge"}`),
			Params: []byte(bridgetest.InitializeParams),
			Force:  t.Context(),
			Start:  func() time.Duration { return 20 * time.Second },
			Shows:  func(list.Kind, string) bool { return true },
		})
		var servers []*aggregate.Server
		var shared []bridge.Upstream
		for _, s := range d.Servers {
			host := lanes{lanetest.Options(s.Name, s)}
			shared = append(shared, host.open(bridgetest.Caller(s.Revision(), "", `{}`), &bridgetest.Client{}))
			servers = append(servers, &aggregate.Server{
				Name:      s.Name,
				Prefix:    s.Name + "__",
				Log:       slog.New(slog.DiscardHandler),
				Stateless: shared[len(shared)-1],
				Host:      host,
			})
		}
		all.Set(servers)
		return &dialogue.Memory{
			Chain: func(from *bridge.Caller, to bridge.Client) bridge.Upstream {
				if from.Modern() {
					return all.Stateless()
				}
				return all.Session(from, to)
			},
			Shut: func() {
				for _, u := range shared {
					_ = u.Close(t.Context())
				}
			},
		}
	})
}

// lanes is an aggregate.Host whose connections are lanes, without guards.
type lanes struct{ o *lane.Options }

func (s lanes) open(from *bridge.Caller, to bridge.Client) bridge.Upstream {
	return lane.New(s.o, from, lane.Ends{Client: to, Observer: lanetest.Unobserved{}})
}

func (s lanes) Session(from *bridge.Caller, to bridge.Client) (bridge.Upstream, error) {
	return s.open(from, to), nil
}

func (lanes) Stores() bool                            { return true }
func (lanes) Serves(string) bool                      { return true }
func (lanes) Shows(list.Kind, string, string) bool    { return true }
func (lanes) Greeting(string) *bridge.Greeting        { return nil }
func (lanes) Failing() error                          { return nil }
func (lanes) Since() (at time.Time)                   { return at }
func (lanes) Await(*bridge.Caller, func()) (_ func()) { return func() {} }
func (lanes) Heard(*jsonrpc.Message)                  {}
