// Package gateway holds the sessions of clients, and builds the chain of wrappers
// that a client's calls to a server pass.
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
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/drain"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/bridge/internal/aggregate"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/calls"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/tracing"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// Share selects which sessions use one connection to a server.
type Share string

// The modes of sharing.
const (
	// ShareSession: each session has its own connection.
	ShareSession Share = "session"
	// SharePrincipal: all sessions of a principal share one, if their clients
	// have the same revision and capabilities.
	SharePrincipal Share = "principal"
	// ShareCall: each request opens a connection and closes it afterwards.
	ShareCall Share = "call"
	// ShareAll: all clients share one. The server cannot ask its clients
	// questions, since a question could reach the wrong client.
	ShareAll Share = "all"
)

// Offer selects which revisions clients can use at an address of the bridge,
// independent of the server's revision.
type Offer string

// The values of Offer.
const (
	OfferAll    Offer = "all"    // all that the bridge implements
	OfferLegacy Offer = "legacy" // those with a handshake and sessions, to 2025-11-25
)

// ServerOptions describe one server.
type ServerOptions struct {
	// Name is the server's path segment in URLs. It must be unique.
	Name string
	// Adapter opens connections to the server.
	Adapter bridge.Adapter
	// Share selects which sessions share a connection; empty means ShareSession.
	Share Share
	// Offer selects the revisions at the server's own address; empty means
	// Options.Offer.
	Offer Offer
	// EndWithServer ends a session when its connection is lost, for servers
	// that keep state in the process. Otherwise the session gets a new
	// connection.
	EndWithServer bool
	// Idle is how long a connection without calls and subscriptions stays open.
	// 0 means no limit with ShareSession and ShareCall, and 10 minutes otherwise;
	// a negative value means no limit.
	Idle time.Duration
	// Handshake bounds the opening of a connection; 0 means 60 s.
	Handshake time.Duration
	// Restarts is how often a lost connection may be reopened in a minute; 0 means 30.
	// Once half of them are used, the rest is spread over the minute.
	Restarts int
	// MaxPause is the longest pause before the bridge reopens a connection that
	// failed to open, or was lost before its first answer. Pauses begin at 1 s
	// and double. 0 means 1 min.
	MaxPause time.Duration
	// MaxLanes limits the connections to this server; 0 means 256.
	MaxLanes int
	// Queued is how many openings may wait in a queue of Adapter; 0 means that Adapter has no queue. Queued
	// adds to MaxLanes. The processes of such a server run elsewhere, and do not count in Options.MaxLanes.
	Queued int
	// Prefix precedes the names of the server's tools and prompts in the
	// aggregate; empty means none.
	Prefix string
	// Filter selects and changes the list entries that clients see.
	Filter filter.Options
	// Ping is how long a connection may be silent before the bridge pings the
	// server; 0 means never. Without an answer within the same time, the
	// connection counts as lost.
	Ping time.Duration
	// Forward lists the client headers that the server gets. No other header is
	// passed on (protocol.md D0.9).
	Forward []bridge.Forward
	// Validate checks arguments of tool calls against the input schemas of the
	// tools before the server gets them.
	Validate bool
	// MaxTask limits how long a call waits for a task of the server; 0 means no
	// limit. The Adapter limits all other calls.
	MaxTask time.Duration
	// Cache, Breaker, Limits and Retry configure the server's guards.
	Cache   cache.Options
	Breaker breaker.Options
	Limits  limits.Options
	Retry   retry.Options
	// Renew moves open sessions at the server of that name to these settings, as after a
	// lost connection. Otherwise they keep the former settings.
	Renew bool
	// Process: opening a connection starts a process. Refreshing a cached list is no
	// reason to do so.
	Process bool
	// Homed: a shared connection lives at one of several instances. See bridge.Cluster.
	Homed bool
	// Address is where the server is, for traces; the zero value means that it is unknown.
	Address bridge.Address
	// Check reports why the server cannot work, before its first start. A nil Check
	// checks nothing.
	Check func() error
}

// Options configure a Gateway.
type Options struct {
	Servers  []ServerOptions // in the order of lists
	Sessions session.Keeper  // nil means one in memory for 10,000 sessions
	Log      *slog.Logger    // nil means slog.Default()
	// Version is the bridge's version in handshakes; empty means "dev".
	Version string
	// Offer selects the revisions at the address of the aggregate, and of each server
	// without its own Offer. Empty means OfferAll.
	Offer Offer
	// SessionIdle is how long a session lives without a request, a call in flight
	// or an open stream; 0 means 30 minutes.
	SessionIdle time.Duration
	// SessionLeft replaces SessionIdle for a session with its own process whose client
	// closed its last stream and sent nothing since; 0 means 5 minutes.
	SessionLeft time.Duration
	// MaxBytes limits the memory of all messages together: request bodies, large
	// answers, and events queued for clients; 0 means 512 MiB. One eighth is reserved
	// for requests. With several principals, each has at most three quarters.
	MaxBytes int64
	// MaxLanes limits the connections to all servers together; 0 means 1,024.
	MaxLanes int
	// Grants are the access rules by principal. A principal without a grant may use
	// nothing. nil means no rules: all callers are the principal with the empty name.
	Grants map[string]filter.Grant
	// PerPrincipal limits each principal.
	PerPrincipal limits.PerPrincipal
	MaxCalls     int // requests of a session in flight; 0 means 128
	// Watch is called with the outcome of each client request, from several
	// goroutines. It must not block. It may be nil.
	Watch func(report.Report)
	// Sent is called with the outcome of each request on a connection to a server, as Watch. Its
	// reports have nothing of a client. It may be nil.
	Sent func(report.Report)
	// SessionEnded is called with each session of a client that ended, and ConnectionEnded with each session with a
	// server, as Watch. Both may be nil.
	SessionEnded, ConnectionEnded func(report.Session)
	// Calls records calls while an operator watches; it may be nil.
	Calls *calls.Calls
	// Client returns the address of the client that sent a request, by the address of the peer and the headers.
	// nil stands for the address of the peer.
	Client func(remote string, h http.Header) netip.Addr
	// Front returns the instance that forwarded a request, by its headers; nil without
	// a cluster.
	Front func(http.Header) string
	// Cluster holds the shared state of several instances.
	Cluster bridge.Cluster
	// Traces receives the spans of calls, and the bridge passes them to servers.
	// nil turns tracing off: trace contexts of clients pass unchanged.
	Traces trace.TracerProvider
}

// gateway is a Gateway.
type gateway struct {
	log               *slog.Logger
	table             atomic.Pointer[table] // of servers
	grants            *filter.Grants        // nil without access rules
	store             session.Keeper
	idle, left        atomic.Int64  // Options.SessionIdle and SessionLeft, in nanoseconds
	quota             *limits.Quota // of each principal
	revoked           principals
	drains            *drain.Servers // nil without operators
	statelessInFlight atomic.Int64   // calls of stateless clients
	bytes             *limits.Bytes
	version           string
	offer             Offer
	tracing           *tracing.Tracing // nil without
	sent              func(report.Report)
	sessionEnded      func(report.Session)
	connectionEnded   func(report.Session)
	ownParams         []byte // of initialize for connections that no single client owns (D3)
	lanes             *lane.Total
	laneShares        *limits.Shares // of these connections, by principal
	dropped           atomic.Uint64  // notifications
	failures          rate.Sometimes // limits failed calls logged at info
	reports           *report.Reporter
	calls             *calls.Calls // nil without operators
	cluster           bridge.Cluster
	seals             *seal.Key // seals the handles of stateless clients
	instance          string    // name of this instance, in handles that only it can open
	inFlight          InFlight
	maxCalls          int                  // of a session
	aggregate         *aggregate.Aggregate // all servers as one
	stateless         bridge.Upstream      // the aggregate for stateless clients
	listening         context.Context      // ends when the bridge begins to stop; ends subscriptions
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

// maxCallsPerClient limits the calls of one client in flight, for the sake of the others (protocol.md F).
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
	}
	var err error
	if g.seals, err = seal.New(o.Cluster.Secrets...); err != nil {
		panic(err) // a random key always makes a cipher
	}
	g.instance, g.cluster = cmp.Or(o.Cluster.Instance, rand.Text()), o.Cluster
	g.idle.Store(int64(cmp.Or(o.SessionIdle, 30*time.Minute)))
	g.left.Store(int64(cmp.Or(o.SessionLeft, 5*time.Minute)))
	maxLanes := cmp.Or(o.MaxLanes, 1024)
	g.laneShares = limits.NewShares(int64(maxLanes), len(o.Grants))
	g.lanes = lane.NewTotal(maxLanes, g.laneShares)
	g.bytes = limits.NewBytes(cmp.Or(o.MaxBytes, 512<<20), len(o.Grants))
	g.calls, g.reports = o.Calls, report.New(o.Watch, g.bytes.Weigh, o.Front, o.Client)
	g.listening, g.stopListening = context.WithCancel(context.Background())
	g.tracing, g.sent = tracing.New(o.Traces, g.version, o.Client), o.Sent
	g.sessionEnded, g.connectionEnded = o.SessionEnded, o.ConnectionEnded
	g.ownParams = []byte(`{"protocolVersion":"` + era.LatestLegacy + `","capabilities":{},"clientInfo":{"name":"mcp-bridge","version":` + rawjson.Quote(g.version) + `}}`)
	g.force, g.hurry = context.WithCancel(context.Background())
	if g.store == nil {
		g.store = session.NewMemory(10_000)
	}
	g.aggregate = aggregate.New(aggregate.Options{
		Info: []byte(`{"name":"mcp-bridge","version":` + rawjson.Quote(g.version) + `}`), Params: g.ownParams,
		Force: g.force, Tracing: g.tracing,
	})
	g.stateless = g.aggregate.Stateless()
	g.table.Store(&table{})
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

// leave releases what enter took.
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
	wg.Go(func() { _ = g.stateless.Close(ctx) })
	for _, s := range g.table.Load().servers {
		wg.Go(func() { s.close(ctx) })
	}
	wg.Wait()
	g.stop()
	g.wg.Wait()
	g.workers.Stop()
	g.hurry()
}

// run runs f in a goroutine that Close awaits. It reports false after Close.
func (g *gateway) run(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.wg.Go(f)
	return true
}

// open returns the sessions for which which is true.
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

// sweepEvery is the longest interval between searches for idle sessions. Short idle
// limits shorten it.
const sweepEvery = 30 * time.Second

// sweep ends idle sessions until ctx ends.
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
