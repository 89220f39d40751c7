// Package gateway holds the sessions of clients, and builds the chain of wrappers that a client's calls to a server
// pass.
package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/guard/drain"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/results"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/metatools"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/calls"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/tracing"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// ServerOptions describe one server.
type ServerOptions struct {
	// Name is the server's path segment in URLs. It must be unique.
	Name string
	// Adapter opens connections to the server.
	Adapter bridge.Adapter
	ServerSettings
	// EndWithServer ends a session when its connection is lost. It is meant for servers that keep the session's state
	// in the process. Without it, the session gets a new connection.
	EndWithServer bool
	// Idle is how long a connection without calls and subscriptions stays open. 0 means 10 minutes for SharePrincipal
	// and ShareAll, and no limit otherwise. A negative value means no limit.
	Idle time.Duration
	// Queued is how many openings may wait in a queue of Adapter; 0 means that Adapter has no queue. Queued adds to
	// MaxChildren. With a queue the server's processes run elsewhere, so they do not count in Options.MaxLanes.
	Queued int
	// Forward lists the client headers and claims that the server gets. The bridge passes on no other header
	// (protocol.md D0.9).
	Forward []bridge.Forward
	// MaxTask limits how long a call waits for a task of the server; 0 means no
	// limit. The Adapter limits all other calls.
	MaxTask time.Duration
	// Renew makes Apply move open sessions at the server of that name to these settings, as after a lost connection.
	// Otherwise open sessions keep the former settings.
	Renew bool
	// Process means that opening a connection starts a process. The bridge starts no process only to refresh a cached
	// list.
	Process bool
	// Homed means that one of several instances owns a shared connection, and the others use it through that instance.
	// See bridge.Cluster.
	Homed bool
	// Address is where the server is, as traces show it. The zero value means unknown.
	Address bridge.Address
	// Check returns why the server cannot work, such as a missing program. Status calls it until the server's first
	// handshake. A nil Check checks nothing.
	Check func() error
}

// Options configure a Gateway.
type Options struct {
	Common
	Servers  []ServerOptions // in the order of Gateway.Servers and of the aggregate's lists
	Sessions session.Keeper  // nil means a store in memory for 10,000 sessions
	Log      *slog.Logger    // nil means slog.Default()
	// Version is the bridge's version in handshakes; empty means "dev".
	Version string
	// Offer selects the revisions at the address of the aggregate, and of each server
	// without its own Offer. Empty means OfferAll.
	Offer Offer
	// Groups offer some of the servers as one.
	Groups []Group
	// MaxBytes limits the memory of all messages: request bodies, large answers, and events queued for clients. 0 means
	// 512 MiB. One eighth is reserved for requests. If there are several principals, each gets at most three quarters.
	MaxBytes int64
	// MaxLanes limits the connections to all servers together; 0 means 1,024.
	MaxLanes int
	// Grants are the access rules by principal. A principal without a grant may use nothing. nil means no access rules:
	// all callers are the principal with the empty name.
	Grants   map[string]filter.Grant
	MaxCalls int // requests of a session in flight; 0 means 128
	// Watch is called with the outcome of each client request, and with lists that are report.Report.Own, from several
	// goroutines at once. It must not block. It may be nil.
	Watch func(report.Report)
	// Sent is called like Watch, with the outcome of each request on a connection to a server. These reports name no
	// client. Sent may be nil.
	Sent func(report.Report)
	// SessionEnded is called like Watch when a client's session has ended, ConnectionEnded when a connection to a
	// server has ended. Both may be nil.
	SessionEnded, ConnectionEnded func(report.Session)
	// Calls records calls for operators. nil turns off what operators can do with calls and drains.
	Calls *calls.Calls
	// Client returns the address of the client that sent a request, from the address of the peer and the request's
	// headers. nil means that the peer is the client.
	Client func(remote string, h http.Header) netip.Addr
	// Front returns the name of the instance that forwarded a request, from the request's headers. It is nil without a
	// cluster.
	Front func(http.Header) string
	// Cluster holds the state that several instances share. The zero value means a single instance.
	Cluster bridge.Cluster
	// Traces receives the spans of calls. The bridge then sends its own trace context to servers. nil turns tracing
	// off: the trace contexts of clients pass unchanged.
	Traces trace.TracerProvider
}

// gateway is a Gateway.
type gateway struct {
	log               *slog.Logger
	table             atomic.Pointer[table] // the current servers; Apply replaces it
	grants            *filter.Grants        // nil without access rules
	store             session.Keeper
	idle, left        atomic.Int64  // Options.SessionIdle and SessionLeft, in nanoseconds
	listWait          atomic.Int64  // Options.ListWait, in nanoseconds
	quota             *limits.Quota // limits of each principal
	revoked           principals
	drains            *drain.Servers // nil without operators
	statelessInFlight atomic.Int64   // calls of stateless clients
	bytes             *limits.Bytes
	version           string
	offer             Offer
	tracing           *tracing.Tracing // nil without Options.Traces
	sent              func(report.Report)
	sessionEnded      func(report.Session)
	connectionEnded   func(report.Session)
	ownParams         []byte // params of initialize for connections that no single client owns (D3)
	lanes             *lane.Total
	laneShares        *limits.Shares // shares of lanes by principal
	dropped           atomic.Uint64  // notifications that full queues dropped
	failures          rate.Sometimes // limits the log lines of callFailed at info
	reports           *report.Reporter
	calls             *calls.Calls // nil without operators
	cluster           bridge.Cluster
	seals             *seal.Key // seals the handles of stateless clients
	instance          string    // name of this instance, in handles that only it can open
	inFlight          InFlight
	maxCalls          int    // maximum number of requests in flight of a session
	joint             *group // all servers together
	indexes           *metatools.Indexes
	results           *results.Store  // whole results that callers may read
	info              []byte          // serverInfo of the bridge
	listening         context.Context // ends when the bridge begins to stop; ends subscriptions
	stopListening     context.CancelFunc
	life              context.Context // ends with Close
	stop              context.CancelFunc
	force             context.Context // ends when Close runs out of time
	hurry             context.CancelFunc
	workers           *goroutines // make the calls
	wg                sync.WaitGroup

	applying sync.Mutex // held while the table changes

	mu       sync.Mutex // guards the rest
	sessions map[*sitting]struct{}
	closed   bool
}

// maxCallsPerClient is the default of Options.MaxCalls, so that one client cannot use all of MaxInFlight (protocol.md
// F).
const maxCallsPerClient = 128

func newGateway(o Options) *gateway {
	ctx, stop := context.WithCancel(context.Background())
	g := &gateway{
		failures: rate.Sometimes{First: 1, Interval: time.Second},
		log:      cmp.Or(o.Log, slog.Default()),
		store:    o.Sessions,
		life:     ctx,
		stop:     stop,
		grants:   filter.NewGrants(o.Grants),
		version:  cmp.Or(o.Version, "dev"),
		maxCalls: cmp.Or(o.MaxCalls, maxCallsPerClient),
		offer:    cmp.Or(o.Offer, OfferAll),
		workers:  newGoroutines(),
		drains:   drain.New(o.Calls != nil),
		sessions: map[*sitting]struct{}{},
		quota:    limits.NewQuota(o.PerPrincipal),
		indexes:  metatools.NewIndexes(),
		results:  results.NewStore(int64(o.ResultsMemory), metatools.ResultPrefix),
		info:     []byte(`{"name":"mcp-bridge","version":` + rawjson.Quote(cmp.Or(o.Version, "dev")) + `}`),
	}
	var err error
	if g.seals, err = seal.New(o.Cluster.Secrets...); err != nil {
		panic(err) // New fails for no key that it makes
	}
	g.instance, g.cluster = cmp.Or(o.Cluster.Instance, rand.Text()), o.Cluster
	g.idle.Store(int64(cmp.Or(o.SessionIdle, 30*time.Minute)))
	g.left.Store(int64(cmp.Or(o.SessionLeft, 5*time.Minute)))
	g.listWait.Store(int64(cmp.Or(o.ListWait, 20*time.Second)))
	maxLanes := cmp.Or(o.MaxLanes, 1024)
	g.laneShares = limits.NewShares(int64(maxLanes), len(o.Grants))
	g.lanes = lane.NewTotal(maxLanes, g.laneShares)
	g.bytes = limits.NewBytes(cmp.Or(o.MaxBytes, 512<<20), len(o.Grants))
	g.calls, g.reports = o.Calls, report.New(o.Watch, g.bytes.Weigh, o.Front, o.Client)
	g.listening, g.stopListening = context.WithCancel(context.Background())
	g.tracing, g.sent = tracing.New(o.Traces, g.version, o.Client), o.Sent
	g.sessionEnded, g.connectionEnded = o.SessionEnded, o.ConnectionEnded
	g.ownParams = []byte(`{"protocolVersion":"` + era.LatestLegacy + `","capabilities":{},"clientInfo":` + string(g.info) + `}`)
	g.force, g.hurry = context.WithCancel(context.Background())
	if g.store == nil {
		g.store = session.NewMemory(10_000)
	}
	g.results.SetUsual(o.Results)
	g.joint = g.newGroup("")
	g.joint.set(Group{Listing: o.Listing})
	g.table.Store(&table{groups: g.regroup(nil, o.Groups)})
	var names []string
	for _, s := range o.Servers {
		names = append(names, s.Name)
	}
	_ = g.Apply(Change{Names: names, Servers: o.Servers})
	g.wg.Go(func() { g.sweep(ctx) })
	return g
}

func (g *gateway) Room(principal string) limits.Room { return g.bytes.Room(principal) }

func (g *gateway) OffersModern(server string) bool {
	offer := g.offer
	if s := g.table.Load().at(server); s != nil {
		offer = s.offer
	}
	return offer != OfferLegacy
}

func (g *gateway) Drain(ctx context.Context) error {
	g.stopListening()
	return g.inFlight.Drain(ctx)
}

func (g *gateway) Draining() bool { return g.inFlight.Draining() }

func (g *gateway) Activity() (now int, all uint64) { return g.inFlight.Activity() }

// enter admits a call of any client. After a nil error, leave must be called.
func (g *gateway) enter(from *bridge.Caller, m *jsonrpc.Message) error {
	if err := g.inFlight.Enter(); err != nil {
		return err
	}
	if err := g.quota.Enter(from, m); err != nil {
		g.inFlight.Leave()
		return err
	}
	return nil
}

// leave reverses enter.
func (g *gateway) leave(from *bridge.Caller) {
	g.quota.Leave(from)
	g.inFlight.Leave()
}

// lastWait is how long Close waits for goroutines after it forced their connections to close.
const lastWait = 2 * time.Second

func (g *gateway) Close(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.close(ctx)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-time.After(lastWait):
		g.log.Error("goroutines of sessions or servers have not ended: they are not waited for", "waited", lastWait.String())
	}
}

func (g *gateway) close(ctx context.Context) {
	g.inFlight.Shut()
	g.stopListening()
	stop := context.AfterFunc(ctx, g.hurry)
	defer stop()
	g.applying.Lock() // no Apply comes after this
	g.mu.Lock()
	g.closed = true
	g.applying.Unlock()
	open := slices.Collect(maps.Keys(g.sessions))
	g.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range open {
		wg.Go(func() { s.close(ctx, bridge.ErrShutdown) })
	}
	wg.Wait()
	for _, p := range g.table.Load().groups {
		wg.Go(func() { _ = p.stateless.Close(ctx) })
	}
	for _, s := range g.table.Load().servers {
		wg.Go(func() { s.close(ctx) })
	}
	wg.Wait()
	g.stop()
	g.wg.Wait()
	g.workers.Stop()
	g.hurry()
}

// run runs f in a goroutine that Close awaits. After Close, run reports false and does not call f.
func (g *gateway) run(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.wg.Go(f)
	return true
}

// open returns the open sessions for which which returns true.
func (g *gateway) open(which func(*sitting) bool) (all []*sitting) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s := range g.sessions {
		if which(s) {
			all = append(all, s)
		}
	}
	return all
}

// sweepEvery is the longest interval between two searches for idle sessions. The interval is a quarter of the shortest
// idle limit, if that is shorter.
const sweepEvery = 30 * time.Second

// sweep ends idle sessions and removes unused counts of limits, until ctx ends.
func (g *gateway) sweep(ctx context.Context) {
	every := func() time.Duration {
		return max(min(sweepEvery, time.Duration(min(g.idle.Load(), g.left.Load()))/4), 10*time.Millisecond)
	}
	tick := time.NewTicker(every())
	defer tick.Stop()
	for ; ; tick.Reset(every()) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		all := g.open(func(*sitting) bool { return true })
		g.quota.Sweep(time.Now())
		g.results.Sweep(time.Now())
		for _, s := range g.table.Load().servers {
			s.rates.Sweep(time.Now())
		}
		for _, s := range all {
			if s.idleFor(time.Now()) > s.idleLimit(time.Duration(g.idle.Load()), time.Duration(g.left.Load())) {
				s.End(bridge.ErrIdle)
			}
		}
	}
}
