package gateway

import (
	"context"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
)

// laneGate is what a lane asks before it opens a connection, and reports the outcome to: the
// circuit breaker of the server, and the list of its open connections.
type laneGate struct {
	*breaker.Breaker
	Open *health.Connections
	For  string // how sessions share connections
	Own  bool   // the lane is one session's
}

var _ lane.Gate = laneGate{}

// Opening implements lane.Gate.
func (g laneGate) Opening(ctx context.Context, from *bridge.Caller) (func(lane.Conn, bridge.Upstream, error) bridge.Upstream, error) {
	opened, err := g.Breaker.Opening(ctx, from, g.Own)
	return func(c lane.Conn, up bridge.Upstream, err error) bridge.Upstream {
		guarded := opened(c, up, err)
		if _, away := up.(bridge.LivesElsewhere); away { // there is a breaker where it lives
			return up
		}
		if err != nil {
			return guarded
		}
		return g.Open.Add(c, up, guarded, from, g.kind())
	}, err
}

// kind says for whom the connection is.
func (g laneGate) kind() string {
	if g.For == "session" && !g.Own {
		return "stateless"
	}
	return g.For
}
