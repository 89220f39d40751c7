package gateway

import (
	"context"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
)

// laneGate admits the openings of a lane by the server's circuit breaker, and lists its open
// connections.
type laneGate struct {
	*breaker.Breaker
	Open  *health.Connections
	Share string // ServerOptions.Share
	Own   bool   // the lane belongs to one session
}

var _ lane.Gate = laneGate{}

// Opening implements lane.Gate.
func (l laneGate) Opening(ctx context.Context, from *bridge.Caller) (func(lane.Conn, bridge.Upstream, error) bridge.Upstream, error) {
	opened, err := l.Breaker.Opening(ctx, from, l.Own)
	return func(c lane.Conn, up bridge.Upstream, err error) bridge.Upstream {
		guarded := opened(c, up, err)
		if _, away := up.(bridge.LivesElsewhere); away { // its own instance has the breaker
			return up
		}
		if err != nil {
			return guarded
		}
		return l.Open.Add(c, up, guarded, from, l.kind())
	}, err
}

// kind returns the connection's kind as operators see it.
func (l laneGate) kind() string {
	if l.Share == "session" && !l.Own {
		return "stateless"
	}
	return l.Share
}
