package bridge

import (
	"context"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// lower lets clients without sessions use one connection to a legacy server
// (protocol.md D1).
type lower struct {
	p    *pool
	key  string
	lane *lane
}

func newLower(p *pool, key string, from *Caller) *lower {
	l := &lower{p: p, key: key}
	l.lane = newLane(p.r, from, nobody{})
	return l
}

// Call makes the call of a client without a session.
func (l *lower) Call(ctx context.Context, r *Request) (*jsonrpc.Message, error) {
	return l.lane.Call(ctx, r)
}

func (l *lower) close(ctx context.Context) { _ = l.lane.Close(ctx) }
