// Package line is a connection to a server with its guards, as those use it who translate
// for clients without sessions.
package line

import (
	"context"
	"time"

	"github.com/mcp-bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/guard/cache"
	"github.com/mcp-bridge/bridge/internal/list/tools"
	"github.com/mcp-bridge/bridge/internal/translate/stateless"
)

// Line is a lane with its guards, or a part in a shared one.
type Line struct {
	bridge.Upstream
	connection
	checked bridge.Upstream // with what the tools ask of calls
	kept    *cache.Cached   // nil when nothing is kept
}

var _ stateless.Line = (*Line)(nil)

// connection is what a lane has beside its Upstream, which has no guards.
type connection interface {
	Caller() *bridge.Caller
	Known(ctx context.Context) (s *bridge.Greeting, attributes bool, err error)
	Presume(s *bridge.Greeting)
	Keep(ctx context.Context) (release func(), err error)
	Go(f func(ctx context.Context)) bool
	Ping(ctx context.Context, within time.Duration) error
}

// New returns the line of up, which calls over lane; guarded is up, or of a part in a
// shared lane what has the guards. tools are those of the server.
func New(up, guarded bridge.Upstream, lane connection, tools *tools.Tools) *Line {
	kept, _ := guarded.(*cache.Cached)
	return &Line{up, lane, tools.Wrap(up), kept}
}

// Checked returns it with what the tools ask of calls.
func (l *Line) Checked() bridge.Upstream { return l.checked }

// Holds reports whether the answer to a request is kept: see stateless.Line.
func (l *Line) Holds(r *bridge.Request, s *bridge.Greeting, why error) bool {
	if !l.kept.Holds(r, s, why) {
		return false
	}
	l.Presume(s)
	return true
}
