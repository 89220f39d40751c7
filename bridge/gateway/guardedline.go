package gateway

import (
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
)

// guardedLine is a lane, or a view of a shared lane, inside the guards of the server.
type guardedLine struct {
	bridge.Upstream
	guardedLane
	checked bridge.Upstream // checks calls against the list of tools
	cache   *cache.Cached   // nil without a cache
}

var _ stateless.Line = (*guardedLine)(nil)

// guardedLane holds the methods of a lane that its guards do not wrap.
type guardedLane interface {
	Caller() *bridge.Caller
	Known(ctx context.Context) (g *bridge.Greeting, attributes bool, err error)
	Presume(g *bridge.Greeting)
	Keep(ctx context.Context) (release func(), err error)
	Go(f func(ctx context.Context)) bool
	Ping(ctx context.Context, within time.Duration) error
}

// newGuardedLine returns a line that calls up over lane. guarded is the Upstream with the guards: up itself, or for a
// view of a shared lane the Upstream inside the view. checked is up with the checks of tool calls.
func newGuardedLine(up, guarded bridge.Upstream, lane guardedLane, checked bridge.Upstream) *guardedLine {
	c, _ := guarded.(*cache.Cached)
	return &guardedLine{up, lane, checked, c}
}

// Checked returns the Upstream that checks calls against the list of tools before the guards.
func (g *guardedLine) Checked() bridge.Upstream { return g.checked }

// Holds reports whether the cache has the answer to r. See stateless.Line.
func (g *guardedLine) Holds(r *bridge.Request, s *bridge.Greeting, why error) bool {
	if !g.cache.Holds(r, s, why) {
		return false
	}
	g.Presume(s)
	return true
}
