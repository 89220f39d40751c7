package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/bridge/lane"
	"github.com/mcp-bridge/bridge/bridge/lane/share"
	"github.com/mcp-bridge/bridge/bridge/list"
	"github.com/mcp-bridge/bridge/bridge/list/filter"
	"github.com/mcp-bridge/bridge/bridge/list/tools"
	"github.com/mcp-bridge/bridge/bridge/observe/health"
	"github.com/mcp-bridge/bridge/bridge/observe/report"
	"github.com/mcp-bridge/bridge/bridge/translate/lift"
	"github.com/mcp-bridge/bridge/bridge/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/translate/stateless"
)

// route is what the bridge knows of one server: its settings, the connections
// that sessions share, and how it fares.
type route struct {
	b              *Gateway
	o              ServerOptions
	log            *slog.Logger
	share          Share
	offer          Offer
	lane           lane.Options
	portions       *limits.Shares // of the connections, by principal
	shared         *share.Hubs    // lanes that sessions share
	reports        *report.Server
	health         *health.Server
	filter         *filter.Filter
	statelessCalls bridge.Upstream  // what calls of clients without sessions go to
	pool           *stateless.Pool  // their connections
	tools          *tools.Tools     // what its list of them asks of calls
	gate           *limits.Queue    // that calls pass
	rates          *limits.Rates    // of calls; nil when they are not limited
	breaker        *breaker.Breaker // nil when the server is never left alone
	retries        *retry.Retries   // nil when calls are not made again
	rewrites       list.Rewrites    // of its lists
	lifts          lift.Options     // of sessions
	cache          *cache.Cache     // of what it lists; nil when nothing is kept
	tasks          *filter.Tasks    // whose they are; nil when nobody need know
}

func newRoute(b *Gateway, o ServerOptions) *route {
	handshake := or(o.Handshake, time.Minute)
	r := &route{
		b: b, o: o, log: b.log.With("server", o.Name),
		share: or(o.Share, ShareSession), offer: or(o.Offer, b.offer),
		gate: limits.NewQueue(o.Name, o.Limits),
	}
	maxPause := or(o.MaxPause, maxBackOff)
	r.health = health.New(health.Options{
		Log: r.log, Shared: r.share == ShareAll, MaxPause: maxPause, Life: b.life, Go: b.goes, Try: r.retry, Left: func() time.Duration { return r.breaker.Left() },
	})
	r.reports = b.reports.Server(o.Name, r.health.Speaks)
	r.rates = limits.NewRates(o.Name, o.Limits)
	r.tools = tools.New(o.Name, tools.Options{Check: o.Validate, Idempotent: o.Retry.Tools}, r.log)
	r.retries = retry.New(o.Retry, r.tools.Idempotent, r.log, b.life)
	r.breaker = breaker.New(o.Breaker, breaker.Server{
		Name: o.Name, Log: r.log, Shared: r.share == ShareAll, Within: handshake, Life: b.life, Go: b.goes, Noted: r.health.Noted, Works: r.health.Works,
		Open: func(ctx context.Context, from *bridge.Caller) (func(), error) { return r.try(ctx, from, nil) },
	})
	r.filter = filter.New(o.Name, o.Filter, b.grants)
	shared := r.share == SharePrincipal || r.share == ShareAll
	if b.grants != nil && (shared || !o.Process) { // otherwise each session has a process of its own
		r.tasks = filter.NewTasks()
	}
	r.cache = cache.New(o.Cache, cache.Server{
		Name: o.Name, Adapter: o.Adapter, Forward: o.Forward, Process: o.Process, Shared: r.share == ShareAll, PerCall: r.share == ShareCall, Log: r.log, Tracing: b.tracing,
	})
	r.lifts = lift.Options{Server: o.Name, Handshake: handshake, Log: r.log, Rewrites: &r.rewrites, Missed: r.cache.Heard}
	users := 0
	for principal := range b.grants {
		if r.filter.Serves(principal) {
			users++
		}
	}
	maxLanes := or(o.MaxLanes, 256)
	r.portions = limits.NewShares(int64(maxLanes), users)
	r.pool = newPool(r, maxLanes)
	r.statelessCalls = r.stateless()
	r.lane = lane.Options{
		Name: o.Name, Adapter: o.Adapter, Log: r.log, Tracing: b.tracing, Forward: o.Forward, Shared: r.share == ShareAll, EndWithServer: o.EndWithServer,
		Idle: max(o.Idle, 0), Handshake: handshake, Ping: o.Ping, Restarts: or(o.Restarts, 30), MaxPause: maxPause,
		Budget: lane.NewBudget(o.Name, maxLanes, r.portions, b.lanes, r.pool.Yield), Health: r.health,
		Room: func(principal string) bridge.Room { return b.Room(principal).Incoming() }, Dropped: &b.dropped,
	}
	if o.Idle == 0 && shared {
		r.lane.Idle = 10 * time.Minute
	}
	r.shared = share.New(share.Options{
		Server: o.Name, All: r.lane.Shared, Params: b.ownParams, Forward: o.Forward, Budget: r.lane.Budget, Force: b.force,
		Open: func(from *bridge.Caller, to bridge.Client, givenUp func()) (*lane.Lane, bridge.Upstream) {
			return r.guarded(from, to, false, givenUp)
		},
	})
	return r
}

var _ lane.Health = (*health.Server)(nil)

// maxBackOff is how long the pauses between attempts grow.
const maxBackOff = 60 * time.Second

// caller returns the caller as the server may see it.
func (r *route) caller(from *bridge.Caller) *bridge.Caller {
	if from.Header == nil {
		return from
	}
	mine := *from
	mine.Header = bridge.Forwarded(from.Header, r.o.Forward)
	return &mine
}

func (r *route) close(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { r.shared.Close(ctx) })
	wg.Go(func() { _ = r.pool.Close(ctx) })
	wg.Go(r.cache.Close)
	wg.Wait()
}

// retry opens a connection to see whether the server works, and closes it, unless
// somebody is trying already. When the server is left alone that is up to the
// breaker, which says it when the server works.
func (r *route) retry(from *bridge.Caller) {
	if r.lane.Budget.Opening() {
		return
	}
	if r.breaker.Shut() {
		_ = r.breaker.Pass(r.b.life, from)
		return
	}
	done, _ := r.try(r.b.life, from, gate{r.breaker, false})
	done()
}

// try opens a connection if g lets it; nil lets it in any case. done closes it.
func (r *route) try(ctx context.Context, from *bridge.Caller, g lane.Gate) (done func(), err error) {
	l := lane.New(&r.lane, from, lane.Ends{Client: bridge.Nobody{}, Observer: r.cache.Source(from), Gate: g})
	_, _, err = l.Known(ctx)
	return func() { _ = l.Close(r.b.force) }, err
}

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
