// Package gate is what a lane asks before it opens a connection, and tells of it then: the
// circuit breaker of the server, and the list of its open connections.
package gate

import (
	"context"

	"github.com/mcp-bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/guard/breaker"
	"github.com/mcp-bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/internal/observe/conns"
)

// Gate is that of one lane.
type Gate struct {
	*breaker.Breaker
	Open *conns.Connections
	For  string // how sessions share connections
	Own  bool   // the lane is one session's
}

var _ lane.Gate = Gate{}

// Opening implements lane.Gate.
func (g Gate) Opening(ctx context.Context, from *bridge.Caller) (func(lane.Conn, bridge.Upstream, error) bridge.Upstream, error) {
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
func (g Gate) kind() string {
	if g.For == "session" && !g.Own {
		return "stateless"
	}
	return g.For
}
