package gateway

import (
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/lane"
	"github.com/mcp-bridge/bridge/bridge/lane/share"
	"github.com/mcp-bridge/bridge/bridge/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/translate/stateless"
)

// line is a lane with its guards, or a part in a shared one, as those use it who
// translate for clients without sessions.
type line struct {
	bridge.Upstream
	connection
	checked bridge.Upstream // with what the tools ask of calls
	kept    *cache.Cached   // nil when nothing is kept
}

// connection is what a lane has beside its Upstream, which has no guards.
type connection interface {
	Caller() *bridge.Caller
	Known(ctx context.Context) (s *bridge.Greeting, attributes bool, err error)
	Presume(s *bridge.Greeting)
	Keep(ctx context.Context) (release func(), err error)
	Go(f func(ctx context.Context)) bool
	Ping(ctx context.Context, within time.Duration) error
}

// line returns a connection for clients without sessions. It is opened when it is
// needed.
func (r *route) line(from *bridge.Caller, rest bridge.Client) *line {
	if from = r.caller(from); r.share == ShareAll {
		from = &bridge.Caller{Revision: from.Revision, Capabilities: from.Capabilities, Params: r.b.ownParams}
	}
	var l *lane.Lane
	var up, guarded bridge.Upstream
	v, err := (*share.View)(nil), error(bridge.ErrUnavailable)
	if r.share == ShareAll {
		v, err = r.shared.Join(*from, rest, true)
	}
	if err == nil { // there is one for everybody, so there is room for it
		l, up, guarded = v.Lane(), v, v.Guarded()
	} else {
		l, up = r.guarded(from, rest, false, func() { rest.Gone(nil) })
		guarded = up
	}
	kept, _ := guarded.(*cache.Cached)
	return &line{up, l, r.tools.Wrap(up), kept}
}

// Checked returns it with what the tools ask of calls.
func (l *line) Checked() bridge.Upstream { return l.checked }

// Holds reports whether the answer to a request is kept: see stateless.Line.
func (l *line) Holds(r *bridge.Request, s *bridge.Greeting, why error) bool {
	if !l.kept.Holds(r, s, why) {
		return false
	}
	l.Presume(s)
	return true
}

// newPool returns what serves the stateless clients of a server.
func newPool(r *route, lanes int) *stateless.Pool {
	sharing := map[Share]stateless.Sharing{ShareSession: stateless.Apart, SharePrincipal: stateless.Principal, ShareAll: stateless.Everybody, ShareCall: stateless.EachCall}
	return stateless.New(stateless.Options{
		Legacy: lower.Options{
			Name: r.o.Name, Log: r.log, MaxTask: r.o.MaxTask,
			Instance: r.b.instance, Seals: r.b.seals, Rewrites: &r.rewrites, Following: r.b.tracing.Following,
		},
		Sharing: sharing[r.share], Idle: r.o.Idle, Lanes: lanes, Forward: r.o.Forward, Queue: r.gate, Shares: r.portions,
		Open:    func(from *bridge.Caller, to bridge.Client) stateless.Line { return r.line(from, to) },
		Refuse:  r.tools.Misheaded,
		Heard:   r.cache.Heard,
		Leaving: func() (context.Context, func()) { return r.b.force, r.lane.Budget.Leaving() },
	})
}
