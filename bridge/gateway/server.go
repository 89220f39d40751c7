package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/drain"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/bridge/internal/aggregate"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/lane/share"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/internal/tools"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lift"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
	"github.com/mcp-bridge/bridge/internal/list"
)

// server holds the settings of one server, its guards, its shared connections and its state.
type server struct {
	g              *gateway
	o              ServerOptions
	log            *slog.Logger
	share          Share
	offer          Offer
	lane           lane.Options   // of connections that are not shared
	sharing        lane.Options   // of shared connections
	laneShares     *limits.Shares // of the connections, by principal
	shared         *share.Hubs    // shared lanes
	reports        *report.Server
	health         *health.Server
	trying         atomic.Bool // Gateway.Try tries the server
	filter         *filter.Filter
	statelessCalls bridge.Upstream  // the chain of stateless clients
	pool           *stateless.Pool  // their connections
	tools          *tools.Tools     // checks calls against the server's list of tools
	queue          *limits.Queue    // of calls
	rates          *limits.Rates    // of calls; nil without limits
	drained        *drain.Server    // nil without operators
	breaker        *breaker.Breaker // nil when it is off
	conns          *health.Connections
	retries        *retry.Retries // nil when they are off
	rewrites       list.Rewrites  // of its lists
	lifts          lift.Options   // of sessions
	maxTask        atomic.Int64   // ServerOptions.MaxTask, in nanoseconds
	cache          *cache.Cache   // of its lists; nil when it is off
	tasks          *filter.Tasks  // owners of its tasks; nil when all callers may see them
	member         *aggregate.Server
	listening      context.Context // ends when the server is removed; ends subscriptions
	stopListening  context.CancelFunc
	left           context.Context // ends when the server is removed; its cause is the error for its clients
	leave          context.CancelCauseFunc
}

func newServer(g *gateway, o ServerOptions) *server {
	handshake := cmp.Or(o.Handshake, time.Minute)
	s := &server{
		g:       g,
		o:       o,
		log:     g.log.With("server", o.Name),
		share:   cmp.Or(o.Share, ShareSession),
		offer:   cmp.Or(o.Offer, g.offer),
		queue:   limits.NewQueue(o.Name, o.Limits),
		conns:   health.NewConnections(o.Name),
		drained: g.drains.Of(o.Name),
	}
	s.listening, s.stopListening = context.WithCancel(g.listening)
	s.left, s.leave = context.WithCancelCause(context.Background())
	s.health = health.New(health.Options{
		Log:      s.log,
		Shared:   s.share == ShareAll,
		Life:     g.life,
		Go:       g.run,
		Try:      s.retry,
		MaxPause: func() time.Duration { return s.lane.Settings.Load().MaxPause },
		Left:     func() time.Duration { return s.breaker.Left() },
	})
	s.reports = g.reports.Server(o.Name, s.health.Speaks)
	s.rates = limits.NewRates(o.Name, o.Limits)
	s.tools = tools.New(o.Name, tools.Options{Check: o.Validate, Idempotent: o.Retry.Tools}, s.log)
	s.retries = retry.New(o.Retry, s.tools.Idempotent, s.log, g.life)
	s.breaker = breaker.New(o.Breaker, breaker.Server{
		Name:   o.Name,
		Log:    s.log,
		Shared: s.share == ShareAll,
		Within: handshake,
		Life:   g.life,
		Go:     g.run,
		Opened: s.health.RecordFailure,
		Closed: s.health.Works,
		Open:   func(ctx context.Context, from *bridge.Caller) (func(), error) { return s.try(ctx, from, nil) },
	})
	s.filter = filter.New(o.Name, o.Filter, g.grants)
	shared := s.share == SharePrincipal || s.share == ShareAll
	if g.grants != nil && (shared || !o.Process) { // otherwise each session has its own process
		s.tasks = filter.NewTasks(o.Name, g.cluster.Owners, s.log)
	}
	s.cache = cache.New(o.Cache, cache.Server{
		Name:    o.Name,
		Adapter: o.Adapter,
		Forward: o.Forward,
		Process: o.Process,
		Shared:  s.share == ShareAll,
		PerCall: s.share == ShareCall,
		Log:     s.log,
		Tracing: g.tracing,
	})
	s.lifts = lift.Options{
		Server:    o.Name,
		Handshake: handshake,
		Log:       s.log,
		Rewrites:  &s.rewrites,
		Missed:    s.cache.Heard,
	}
	s.laneShares = limits.NewShares(0, s.users())
	s.pool = newPool(s)
	total := g.lanes
	if o.Queued > 0 {
		total = lane.NewTotal(math.MaxInt, limits.NewShares(0, 0))
	}
	s.statelessCalls = s.stateless()
	s.lane = lane.Options{
		Name:      o.Name,
		Adapter:   o.Adapter,
		Log:       s.log,
		Tracing:   g.tracing,
		Address:   o.Address,
		Sent:      g.sent,
		Closed:    g.connectionEnded,
		Forward:   o.Forward,
		Shared:    s.share == ShareAll,
		Ahead:     s.share != ShareCall && len(o.Forward) == 0 && (g.cluster.Places == nil || !o.Homed || !shared),
		Idle:      max(o.Idle, 0),
		Handshake: handshake,
		Settings:  new(atomic.Pointer[lane.Settings]),
		Budget:    lane.NewBudget(o.Name, 0, s.laneShares, total, s.pool.Yield),
		Health:    s.health,
		Room:      func(principal string) bridge.Room { return g.Room(principal).Incoming() },
		Dropped:   &g.dropped,
		Tap:       g.calls.Tap(o.Name),
	}
	if o.Idle == 0 && shared {
		s.lane.Idle = 10 * time.Minute
	}
	if s.sharing = s.lane; g.cluster.Places != nil && o.Homed && shared {
		s.sharing.Adapter = g.cluster.Places.Shared(o.Name, o.Forward, s.lane.Shared, o.Adapter)
	}
	s.shared = share.New(share.Options{
		Server:  o.Name,
		All:     s.lane.Shared,
		Params:  g.ownParams,
		Forward: o.Forward,
		Budget:  s.lane.Budget,
		Force:   g.force,
		Open: func(from *bridge.Caller, to bridge.Client, givenUp func()) (*lane.Lane, bridge.Upstream) {
			return s.guarded(&s.sharing, from, to, false, givenUp)
		},
	})
	s.set(o)
	s.member = s.asMember()
	return s
}

// set applies the options that need no new connection. A guard that was off at the start stays off.
// set returns the kinds of lists that changed for clients.
func (s *server) set(o ServerOptions) (changed []list.Kind) {
	s.queue.Set(o.Limits)
	s.rates.Set(o.Limits)
	s.tools.Set(tools.Options{Check: o.Validate, Idempotent: o.Retry.Tools})
	s.retries.Set(o.Retry)
	s.breaker.Set(o.Breaker)
	s.cache.Set(o.Cache)
	s.maxTask.Store(int64(o.MaxTask))
	lanes := cmp.Or(o.MaxLanes, 256) + o.Queued
	s.laneShares.Resize(int64(lanes))
	s.lane.Budget.Set(lanes)
	s.lane.Set(lane.Settings{
		EndWithServer: o.EndWithServer,
		Ping:          o.Ping,
		Restarts:      cmp.Or(o.Restarts, 30),
		MaxPause:      cmp.Or(o.MaxPause, maxBackOff),
	})
	return s.filter.Set(o.Filter)
}

// ends reports whether a session ends with its connection.
func (s *server) ends() bool { return s.lane.Settings.Load().EndWithServer }

// maxBackOff is the default of ServerOptions.MaxPause.
const maxBackOff = 60 * time.Second

// caller returns the caller with only those headers that the server may see.
func (s *server) caller(from *bridge.Caller) *bridge.Caller {
	if from.Header == nil && from.Identity == nil {
		return from
	}
	mine := *from
	mine.Header, mine.Identity = bridge.Forwarded(from.Header, from.Identity, s.o.Forward)
	return &mine
}

func (s *server) close(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { s.shared.Close(ctx) })
	wg.Go(func() { _ = s.pool.Close(ctx) })
	wg.Go(s.cache.Close)
	wg.Wait()
}

// retry opens and closes a connection to test the server, unless another opening is in
// flight. While the circuit is open, the breaker's own probe does that.
func (s *server) retry(from *bridge.Caller) {
	if s.lane.Budget.Opening() {
		return
	}
	if s.breaker.Shut() {
		_ = s.breaker.Pass(s.g.life, from)
		return
	}
	done, _ := s.try(s.g.life, from, s.opener(false))
	done()
}

// opener returns the gate that a lane passes before it opens a connection. own: the lane
// belongs to one session.
func (s *server) opener(own bool) lane.Gate {
	return laneGate{
		Breaker: s.breaker,
		Open:    s.conns,
		Share:   string(s.share),
		Own:     own,
	}
}

// try opens a connection if g admits it; a nil g always does. done closes the connection.
func (s *server) try(ctx context.Context, from *bridge.Caller, g lane.Gate) (done func(), err error) {
	l := lane.New(&s.sharing, from, lane.Ends{
		Client:   bridge.Nobody{},
		Observer: s.cache.Source(from),
		Gate:     g,
	})
	_, _, err = l.Known(ctx)
	return func() { _ = l.Close(s.g.force) }, err
}

// line returns a connection for stateless clients, which opens with its first call.
func (s *server) line(from *bridge.Caller, rest bridge.Client) *guardedLine {
	if from = s.caller(from); s.share == ShareAll {
		from = &bridge.Caller{
			Revision:     from.Revision,
			Capabilities: from.Capabilities,
			Params:       s.g.ownParams,
		}
	}
	var l *lane.Lane
	var up, guarded bridge.Upstream
	v, err := (*share.View)(nil), error(bridge.ErrUnavailable)
	if s.share == ShareAll {
		v, err = s.shared.Join(*from, rest, true)
	}
	if err == nil {
		l, up, guarded = v.Lane(), v, v.Guarded()
	} else {
		l, up = s.guarded(&s.lane, from, rest, false, func() { rest.Gone(nil) })
		guarded = up
	}
	return newGuardedLine(up, guarded, l, s.tools)
}

// newPool returns the pool that serves the stateless clients of a server.
func newPool(s *server) *stateless.Pool {
	sharing := map[Share]stateless.Sharing{
		ShareSession:   stateless.Apart,
		SharePrincipal: stateless.Principal,
		ShareAll:       stateless.Everybody,
		ShareCall:      stateless.EachCall,
	}
	return stateless.New(stateless.Options{
		Legacy: lower.Options{
			Name:      s.o.Name,
			Log:       s.log,
			MaxTask:   func() time.Duration { return time.Duration(s.maxTask.Load()) },
			Instance:  s.g.instance,
			Seals:     s.g.seals,
			Rewrites:  &s.rewrites,
			Following: s.g.tracing.Following,
		},
		Sharing:  sharing[s.share],
		Idle:     s.o.Idle,
		Lanes:    func() int { return int(s.lane.Budget.Most()) },
		Forward:  s.o.Forward,
		Queue:    s.queue,
		Shares:   s.laneShares,
		Open:     func(from *bridge.Caller, to bridge.Client) stateless.Line { return s.line(from, to) },
		Refuse:   s.tools.Misheaded,
		Notified: s.cache.Heard,
		Closing:  func() (context.Context, func()) { return s.g.force, s.lane.Budget.Closing() },
		Places:   s.g.cluster.Places,
		Owned:    s.o.Homed,
		Process:  s.o.Process,
	})
}
