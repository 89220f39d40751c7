package gateway

import (
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/internal/tools"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
)

// guardedLine is a lane with its guards, or a part in a shared one.
type guardedLine struct {
	bridge.Upstream
	guardedLane
	checked bridge.Upstream // with what the tools ask of calls
	kept    *cache.Cached   // nil when nothing is kept
}

var _ stateless.Line = (*guardedLine)(nil)

// guardedLane is what a lane has beside its Upstream, which has no guards.
type guardedLane interface {
	Caller() *bridge.Caller
	Known(ctx context.Context) (s *bridge.Greeting, attributes bool, err error)
	Presume(s *bridge.Greeting)
	Keep(ctx context.Context) (release func(), err error)
	Go(f func(ctx context.Context)) bool
	Ping(ctx context.Context, within time.Duration) error
}

// newGuardedLine returns the line of up, which calls over lane; guarded is up, or of a part in a
// shared lane what has the guards. tools are those of the server.
func newGuardedLine(up, guarded bridge.Upstream, lane guardedLane, tools *tools.Tools) *guardedLine {
	kept, _ := guarded.(*cache.Cached)
	return &guardedLine{up, lane, tools.Wrap(up), kept}
}

// Checked returns it with what the tools ask of calls.
func (l *guardedLine) Checked() bridge.Upstream { return l.checked }

// Holds reports whether the answer to a request is kept: see stateless.Line.
func (l *guardedLine) Holds(r *bridge.Request, s *bridge.Greeting, why error) bool {
	if !l.kept.Holds(r, s, why) {
		return false
	}
	l.Presume(s)
	return true
}
