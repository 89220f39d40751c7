// Package lanetest makes lanes for tests of the packages that use them.
package lanetest

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Options returns the settings of lanes to a server, up to 100 of them.
func Options(name string, server bridge.Adapter) *lane.Options {
	o := &lane.Options{
		Name:      name,
		Adapter:   server,
		Log:       slog.New(slog.DiscardHandler),
		Handshake: time.Minute,
		Settings:  new(atomic.Pointer[lane.Settings]),
		Budget:    lane.NewBudget(name, 100, shares{}, lane.NewTotal(100, shares{}), nil),
		Health:    Health{},
		Dropped:   new(atomic.Uint64),
	}
	o.Set(lane.Settings{Restarts: 30, MaxPause: time.Minute})
	return o
}

// shares are lane.Shares without a bound.
type shares struct{}

func (shares) Take(string, int64) bool { return true }
func (shares) Return(string, int64)    {}
func (shares) Most() int64             { return 0 }
func (shares) Refusal(string) error    { return nil }

// Health is a lane.Health that ignores everything.
type Health struct{}

var _ lane.Health = Health{}

// CallDone implements lane.Health.
func (Health) CallDone(error, bool) {}

// Failed implements lane.Health.
func (Health) Failed(error) {}

// NoRoom implements lane.Health.
func (Health) NoRoom(error) {}

// Lost implements lane.Health.
func (Health) Lost(error) {}

// Greeted implements lane.Health.
func (Health) Greeted(string, *bridge.Greeting) {}

// Opened implements lane.Health.
func (Health) Opened() {}

// Restarted implements lane.Health.
func (Health) Restarted() {}

// Unobserved is a lane.Observer that ignores everything.
type Unobserved struct{}

var _ lane.Observer = Unobserved{}

// Reopened implements lane.Observer.
func (Unobserved) Reopened(bool) {}

// Replaced implements lane.Observer.
func (Unobserved) Replaced() {}

// Notified implements lane.Observer.
func (Unobserved) Notified(*jsonrpc.Message) {}

// Ended implements lane.Observer.
func (Unobserved) Ended() {}
