package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/drain"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/results"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/bridge/internal/aggregate"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/lane/share"
	"github.com/mcp-bridge/bridge/bridge/internal/metatools"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/internal/tools"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lift"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
	"github.com/mcp-bridge/bridge/internal/list"
)

// server is one server: its settings, guards, connections and state.
type server struct {
	g              *gateway
	o              ServerOptions
	log            *slog.Logger
	share          Share
	offer          Offer
	handshake      time.Duration  // bounds the time to open a connection
	lane           lane.Options   // options of connections that are not shared
	sharing        lane.Options   // options of shared connections
	laneShares     *limits.Shares // shares of the connections by principal
	shared         *share.Hubs    // shared lanes
	reports        *report.Server
	health         *health.Server
	trying         atomic.Bool // a test that Gateway.Try started is in flight
	filter         *filter.Filter
	check          *metatools.Check
	offered        atomic.Pointer[Listing] // ServerSettings.Listing
	statelessCalls bridge.Upstream         // chain of wrappers for calls of stateless clients
	pool           *stateless.Pool         // connections of stateless clients
	tools          *tools.Tools            // checks arguments and headers of calls against the server's list of tools
	results        *results.Results        // cuts long results
	queue          *limits.Queue           // bounds the calls in flight
	rates          *limits.Rates           // bounds the rate of calls; nil without a bound
	drained        *drain.Server           // nil without operators
	breaker        *breaker.Breaker        // nil when it is off
	conns          *health.Connections
	retries        *retry.Retries // nil when they are off
	rewrites       list.Rewrites  // shared by all translations of the server's lists
	lifts          lift.Options   // options of lift for sessions
	maxTask        atomic.Int64   // ServerOptions.MaxTask, in nanoseconds
	cache          *cache.Cache   // cached lists; nil when it is off
	tasks          *filter.Tasks  // owners of the server's tasks; nil when each session may see all of them
	member         *aggregate.Server
	listening      context.Context // ends when the server is removed or replaced, or the bridge stops; subscriptions end with it
	stopListening  context.CancelFunc
	removed        context.Context // ends when the server is removed, not when it is replaced; the cause is the error for its clients
	remove         context.CancelCauseFunc
}

func newServer(g *gateway, o ServerOptions) *server {
	s := &server{
		g:         g,
		check:     metatools.NewCheck(),
		o:         o,
		log:       g.log.With("server", o.Name),
		share:     cmp.Or(o.Share, ShareSession),
		offer:     cmp.Or(o.Offer, g.offer),
		handshake: cmp.Or(o.HandshakeTimeout, time.Minute),
		queue:     limits.NewQueue(o.Name, o.Limits),
		rates:     limits.NewRates(o.Name, o.Limits),
		filter:    filter.New(o.Name, o.Lists, g.grants),
		conns:     health.NewConnections(o.Name),
		drained:   g.drains.Of(o.Name),
	}
	s.listening, s.stopListening = context.WithCancel(g.listening)
	s.removed, s.remove = context.WithCancelCause(context.Background())
	s.health = health.New(health.Options{
		Log:    s.log,
		Shared: s.share == ShareAll,
		Life:   g.life,
		Host:   s,
	})
	s.reports = g.reports.Server(o.Name, s.health.Speaks)
	s.results = results.New(g.results)
	s.tools = tools.New(o.Name, tools.Options{}, s.log)
	s.retries = retry.New(o.Retry, s.tools.Idempotent, s.log, g.life)
	s.breaker = breaker.New(o.Breaker, breaker.Server{
		Name:   o.Name,
		Log:    s.log,
		Shared: s.share == ShareAll,
		Within: s.handshake,
		Life:   g.life,
		Host:   s,
		Health: s.health,
	})
	if g.grants != nil && (s.shares() || !o.Process) { // a session with a process of its own sees only its own tasks
		s.tasks = filter.NewTasks(o.Name, g.cluster.Owners, s.log)
	}
	s.cache = s.newCache()
	s.lifts = lift.Options{
		Server:    o.Name,
		Handshake: s.handshake,
		Log:       s.log,
		Rewrites:  &s.rewrites,
		Cache:     s.cache,
	}
	s.addLanes()
	s.pool = s.newPool()
	s.statelessCalls = s.stateless()
	s.set(o)
	s.member = &aggregate.Server{
		Name:      o.Name,
		Prefix:    o.Prefix,
		Log:       s.log,
		Stateless: s.statelessCalls,
		Host:      s,
	}
	return s
}

// newCache returns the cache of the server's lists, or nil when it is off.
func (s *server) newCache() *cache.Cache {
	return cache.New(s.o.Cache, cache.Server{
		Name:    s.o.Name,
		Adapter: s.o.Adapter,
		Forward: s.o.Forward,
		Process: s.o.Process,
		Shared:  s.share == ShareAll,
		PerCall: s.share == ShareCall,
		Log:     s.log,
		Tracing: s.g.tracing,
	})
}

// addLanes sets the options of the server's connections: lane for those of one session or stateless client, sharing for
// shared ones.
func (s *server) addLanes() {
	g, o, total := s.g, &s.o, s.g.lanes
	if o.Queued > 0 {
		total = lane.NewTotal(math.MaxInt, limits.NewShares(0, 0))
	}
	away := g.cluster.Places != nil && o.Homed && s.shares() // another instance may own the shared connections
	s.laneShares = limits.NewShares(0, s.users())
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
		Ahead:     s.share != ShareCall && len(o.Forward) == 0 && !away,
		Idle:      max(o.Idle, 0),
		Handshake: s.handshake,
		Settings:  new(atomic.Pointer[lane.Settings]),
		Budget:    lane.NewBudget(o.Name, 0, s.laneShares, total, s),
		Health:    s.health,
		Bytes:     g.bytes,
		Dropped:   &g.dropped,
		Calls:     g.calls,
	}
	if o.Idle == 0 && s.shares() {
		s.lane.Idle = 10 * time.Minute
	}
	if s.sharing = s.lane; away {
		s.sharing.Adapter = g.cluster.Places.Shared(o.Name, o.Forward, s.lane.Shared, o.Adapter)
	}
	s.shared = share.New(share.Options{
		Server:  o.Name,
		All:     s.lane.Shared,
		Params:  g.ownParams,
		Forward: o.Forward,
		Budget:  s.lane.Budget,
		Force:   g.force,
		Lanes:   s,
	})
}

// newPool returns the pool that holds the server's connections of stateless clients.
func (s *server) newPool() *stateless.Pool {
	sharing := map[Share]stateless.Sharing{
		ShareSession:   stateless.Apart,
		SharePrincipal: stateless.Principal,
		ShareAll:       stateless.Everybody,
		ShareCall:      stateless.EachCall,
	}
	return stateless.New(stateless.Options{
		Legacy: lower.Options{
			Name:     s.o.Name,
			Log:      s.log,
			MaxTask:  &s.maxTask,
			Instance: s.g.instance,
			Seals:    s.g.seals,
			Rewrites: &s.rewrites,
			Tracing:  s.g.tracing,
		},
		Sharing: sharing[s.share],
		Idle:    s.o.Idle,
		Forward: s.o.Forward,
		Server:  s,
		Queue:   s.queue,
		Shares:  s.laneShares,
		Budget:  s.lane.Budget,
		Force:   s.g.force,
		Places:  s.g.cluster.Places,
		Owned:   s.o.Homed,
		Process: s.o.Process,
	})
}

// set applies the options that need no new connection, and returns the kinds of lists that changed for clients. A guard
// that was off when the server was made stays off.
func (s *server) set(o ServerOptions) (changed []list.Kind) {
	s.queue.Set(o.Limits)
	s.rates.Set(o.Limits)
	s.tools.Set(tools.Options{Check: o.Validate, Idempotent: o.Retry.Tools, Overrides: o.Tools.Arguments()})
	s.retries.Set(o.Retry)
	s.results.Set(o.Results, o.Tools.MaxResults())
	s.breaker.Set(o.Breaker)
	s.cache.Set(o.Cache)
	s.maxTask.Store(int64(o.MaxTask))
	lanes := cmp.Or(o.MaxChildren, 256) + o.Queued
	s.laneShares.Resize(int64(lanes))
	s.lane.Budget.Set(lanes)
	s.lane.Set(lane.Settings{
		EndWithServer: o.EndWithServer,
		Ping:          o.Ping,
		Restarts:      cmp.Or(o.StartsPerMinute, 30),
		MaxPause:      cmp.Or(o.RestartMaxPause, maxBackOff),
	})
	was := s.offered.Swap(&o.Listing)
	if changed = s.filter.Set(o.Lists); was != nil && !reflect.DeepEqual(*was, o.Listing) && !slices.Contains(changed, list.Tools) {
		changed = append(changed, list.Tools)
	}
	return changed
}

// shares reports whether several sessions can use one connection.
func (s *server) shares() bool { return s.share == SharePrincipal || s.share == ShareAll }

// ends reports whether a session ends when its connection ends.
func (s *server) ends() bool { return s.lane.Settings.Load().EndWithServer }

// maxBackOff is the default of ServerSettings.RestartMaxPause.
const maxBackOff = 60 * time.Second

// caller returns from with only the headers and claims that the server may get.
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
