// Package gateway serves clients: it keeps their sessions, and puts together what
// their calls to servers go through.
package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/aggregate"

	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/drain"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/calls"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/tracing"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// Share says which sessions use one connection to a server.
type Share string

// The modes of sharing.
const (
	// ShareSession gives each session a connection of its own.
	ShareSession Share = "session"
	// SharePrincipal gives one to all sessions of a principal whose clients
	// have the same revision and capabilities.
	SharePrincipal Share = "principal"
	// ShareCall opens one for each request and closes it afterwards.
	ShareCall Share = "call"
	// ShareAll gives one to everybody. The server cannot ask its clients
	// anything then, since the question might reach the wrong person.
	ShareAll Share = "all"
)

// Offer says which revisions of the protocol clients can use at an address of
// the bridge, whatever its server speaks.
type Offer string

// What can be offered.
const (
	OfferAll    Offer = "all"    // all that the bridge knows
	OfferLegacy Offer = "legacy" // those with a handshake and sessions, to 2025-11-25
)

// ServerOptions describe one server.
type ServerOptions struct {
	// Name is the server's part of the URL. It must be unique.
	Name string
	// Adapter opens connections to the server.
	Adapter bridge.Adapter
	// Share says who uses one connection together; empty means ShareSession.
	Share Share
	// Offer is what clients can use at the server's own address; empty means
	// Options.Offer.
	Offer Offer
	// EndWithServer ends a session when its connection is lost, for servers
	// whose state lives in the process. Otherwise the session goes on with a
	// new connection.
	EndWithServer bool
	// Idle is how long a connection without calls and subscriptions is kept;
	// 0 means for ever with ShareSession and ShareCall, 10 minutes otherwise;
	// negative means for ever.
	Idle time.Duration
	// Handshake bounds the opening of a connection; 0 means 60 s.
	Handshake time.Duration
	// Restarts bounds how often a lost connection is opened again within a
	// minute; 0 means 30. When half of that is used up, the rest is spread over
	// the minute.
	Restarts int
	// MaxPause bounds the pause before a connection is opened again that could not
	// be opened, or was lost before it had answered anything. The first pause is
	// a second, and each is twice as long as the one before. 0 means 1 min.
	MaxPause time.Duration
	// MaxLanes bounds the connections to this server; 0 means 256.
	MaxLanes int
	// Prefix stands before the names of the server's tools and prompts where
	// several servers are offered as one; empty means none.
	Prefix string
	// Filter chooses and changes what clients see.
	Filter filter.Options
	// Ping is how long a connection may be silent before the server is asked for
	// a sign of life; 0 means never. A server that owes it for as long again has
	// lost its connection.
	Ping time.Duration
	// Forward lists the headers of clients that the server gets. Nothing else of
	// them is passed on (protocol.md D0.9).
	Forward []bridge.Forward
	// Validate checks the arguments of tool calls against the tools' input
	// schemas before the server gets them.
	Validate bool
	// MaxTask bounds how long a task of the server's that a call waits for may
	// work; 0 means no limit. The Adapter bounds all other calls.
	MaxTask time.Duration
	// Cache, Breaker, Limits and Retry guard the server, and the others from it.
	Cache   cache.Options
	Breaker breaker.Options
	Limits  limits.Options
	Retry   retry.Options
	// Renew says that open sessions at a server of that name go on with these settings, as
	// after the loss of their connection, and do not keep the former ones.
	Renew bool
	// Process says that opening a connection starts a process: a list that is kept
	// is no reason for that.
	Process bool
	// Homed says that connections which are shared live at one of several instances: see
	// bridge.Cluster.
	Homed bool
	// Check tells why the server cannot work as things are, before it is
	// started for the first time; nil means that nothing can be said.
	Check func() error
}

// Options configure a Gateway.
type Options struct {
	Servers  []ServerOptions // in the order in which lists name them
	Sessions session.Keeper  // nil means one in memory for 10,000 sessions
	Log      *slog.Logger    // nil means slog.Default()
	// Version is the program's own, as servers and clients are told; empty means
	// "dev".
	Version string
	// Offer is what clients can use where several servers are offered as one, and
	// at the address of each server that says nothing else. Empty means OfferAll.
	Offer Offer
	// SessionIdle is how long a session lives without a request, a call under
	// way or an open stream; 0 means 30 minutes.
	SessionIdle time.Duration
	// SessionLeft is the same for a session with a process of its own whose client has closed
	// its last stream, and sent nothing since; 0 means 5 minutes.
	SessionLeft time.Duration
	// MaxBytes bounds what messages hold together: the bodies of requests, large
	// answers, and what event streams hold for their clients; 0 means 512 MiB. An
	// eighth of it is for requests only. Where there are several principals, one of
	// them has at most three quarters of it.
	MaxBytes int64
	// MaxLanes bounds the connections to all servers together; 0 means 1,024.
	MaxLanes int
	// Grants are the access rules: what each principal may use. A principal that
	// has none may use nothing. nil means that there are no rules, and everybody
	// is the one principal whose name is empty.
	Grants map[string]filter.Grant
	// PerPrincipal bounds what each principal may have.
	PerPrincipal limits.PerPrincipal
	MaxCalls     int // requests of a session that may be under way; 0 means 128
	// Watch is told what becomes of each request of a client, at once and by
	// several goroutines: it must not block. nil means that nobody wants to know.
	Watch func(report.Report)
	// Calls are told of each call that begins, while somebody looks; nil for nobody.
	Calls *calls.Calls
	// Front tells from a request's headers which instance has sent it on; nil without.
	Front func(http.Header) string
	// Cluster is what several instances of the bridge have in common.
	Cluster bridge.Cluster
	// Traces gets the spans of calls, and has servers told of them. nil means
	// that the bridge takes no part in tracing: what clients say of their traces
	// goes on to the servers as it is.
	Traces trace.TracerProvider
}

// Gateway connects sessions with servers.
type Gateway struct {
	log               *slog.Logger
	table             atomic.Pointer[table] // of its servers
	grants            *filter.Grants        // what each principal may use; nil when there are no rules
	store             session.Keeper
	idle, left        atomic.Int64  // how long a session may be, in nanoseconds
	quota             *limits.Quota // what each principal may have
	revoked           principals
	drains            *drain.Servers // nil when nobody operates them
	statelessInFlight atomic.Int64   // calls under way of clients without sessions
	bytes             *limits.Bytes
	version           string
	offer             Offer
	tracing           *tracing.Tracing // nil without
	ownParams         []byte           // of initialize, where no client's will do: there is nobody in particular to ask (D3)
	lanes             *lane.Total
	laneShares        *limits.Shares // of these connections, by principal
	dropped           atomic.Uint64  // notifications
	failures          rate.Sometimes // when a failed call is logged as more than a detail
	reports           *report.Reporter
	calls             *calls.Calls // nil when nobody ever looks
	cluster           bridge.Cluster
	seals             *seal.Key // of the handles that clients without sessions keep
	instance          string    // of the bridge, for handles that are good for this one only
	flight            InFlight
	maxCalls          int                  // of a session
	aggregate         *aggregate.Aggregate // all servers as one
	stateless         bridge.Upstream      // the same, for clients without sessions
	listening         context.Context      // ends when the bridge begins to stop: subscriptions do too
	stopListening     context.CancelFunc
	life              context.Context // ends with Close
	stop              context.CancelFunc
	force             context.Context // ends when Close has no more time
	hurry             context.CancelFunc
	workers           *goroutines // make the calls
	wg                sync.WaitGroup

	applying sync.Mutex // held while the table is changed

	mu       sync.Mutex // guards the rest
	sessions map[*Session]struct{}
	closed   bool
}

// maxCallsPerClient bounds a client: nobody takes what others need (protocol.md F).
const maxCallsPerClient = 128

// New makes a bridge. Close ends it.
func New(o Options) *Gateway {
	ctx, stop := context.WithCancel(context.Background())
	b := &Gateway{
		failures: rate.Sometimes{First: 1, Interval: time.Second},
		log:      cmp.Or(o.Log, slog.Default()), store: o.Sessions, life: ctx, stop: stop, grants: filter.NewGrants(o.Grants),
		version:  cmp.Or(o.Version, "dev"),
		maxCalls: cmp.Or(o.MaxCalls, maxCallsPerClient), offer: cmp.Or(o.Offer, OfferAll),
		workers:  newGoroutines(),
		drains:   drain.New(o.Calls != nil),
		sessions: map[*Session]struct{}{}, quota: limits.NewQuota(o.PerPrincipal),
	}
	var err error
	if b.seals, err = seal.New(o.Cluster.Secrets...); err != nil {
		panic(err) // a random key always makes a cipher
	}
	b.instance, b.cluster = cmp.Or(o.Cluster.Instance, rand.Text()), o.Cluster
	b.idle.Store(int64(cmp.Or(o.SessionIdle, 30*time.Minute)))
	b.left.Store(int64(cmp.Or(o.SessionLeft, 5*time.Minute)))
	maxLanes := cmp.Or(o.MaxLanes, 1024)
	b.laneShares = limits.NewShares(int64(maxLanes), len(o.Grants))
	b.lanes = lane.NewTotal(maxLanes, b.laneShares)
	b.bytes = limits.NewBytes(cmp.Or(o.MaxBytes, 512<<20), len(o.Grants))
	b.calls, b.reports = o.Calls, report.New(o.Watch, b.bytes.Weigh, o.Front)
	b.listening, b.stopListening = context.WithCancel(context.Background())
	b.tracing = tracing.New(o.Traces, b.version)
	b.ownParams = []byte(`{"protocolVersion":"` + era.LatestLegacy + `","capabilities":{},"clientInfo":{"name":"mcp-bridge","version":` + rawjson.Quote(b.version) + `}}`)
	b.force, b.hurry = context.WithCancel(context.Background())
	if b.store == nil {
		b.store = session.NewMemory(10_000)
	}
	b.aggregate = aggregate.New(aggregate.Options{
		Info: []byte(`{"name":"mcp-bridge","version":` + rawjson.Quote(b.version) + `}`), Params: b.ownParams,
		Force: b.force, Following: b.tracing.Following,
	})
	b.stateless = b.aggregate.Stateless()
	b.table.Store(&table{})
	var names []string
	for _, s := range o.Servers {
		names = append(names, s.Name)
	}
	_ = b.Apply(Change{Names: names, Servers: o.Servers})
	b.wg.Go(func() { b.sweep(ctx) })
	return b
}

// Room returns the room of a principal among the bytes under way
// (Options.MaxBytes); the empty name is nobody's in particular.
func (b *Gateway) Room(principal string) limits.Room { return b.bytes.Room(principal) }

// OffersModern reports whether clients of 2026-07-28 and later are served as such
// at the address of that server; an empty name means all servers as one, or the
// only one. Where they are not, their requests are to be taken for those of a
// client that has not begun its session.
func (b *Gateway) OffersModern(server string) bool {
	offer := b.offer
	if r := b.table.Load().at(server); r != nil {
		offer = r.offer
	}
	return offer != OfferLegacy
}

// Drain refuses new calls and waits until those under way have ended, or ctx.
func (b *Gateway) Drain(ctx context.Context) error {
	b.stopListening()
	return b.flight.Drain(ctx)
}

// Draining reports whether Drain or Close was called.
func (b *Gateway) Draining() bool { return b.flight.Draining() }

// Activity returns the number of calls under way, and of all calls so far.
func (b *Gateway) Activity() (now int, all uint64) { return b.flight.Activity() }

// enter admits a call, whatever kind of client makes it. Every success needs a
// leave.
func (b *Gateway) enter(from *bridge.Caller, m *jsonrpc.Message) error {
	if err := b.flight.Enter(); err != nil {
		return err
	}
	if err := b.quota.Enter(from, m); err != nil {
		b.flight.Leave()
		return err
	}
	return nil
}

// leave ends what enter began.
func (b *Gateway) leave(from *bridge.Caller) {
	b.quota.Leave(from)
	b.flight.Leave()
}

// Close ends all sessions and connections and returns when nothing is left of
// them. The end of ctx cuts the polite part short.
func (b *Gateway) Close(ctx context.Context) {
	b.flight.Shut()
	b.stopListening()
	stop := context.AfterFunc(ctx, b.hurry)
	defer stop()
	b.applying.Lock() // no Apply comes after this
	b.mu.Lock()
	b.closed = true
	b.applying.Unlock()
	open := slices.Collect(maps.Keys(b.sessions))
	b.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range open {
		wg.Go(func() { s.close(ctx, bridge.ErrShutdown) })
	}
	wg.Wait()
	wg.Go(func() { _ = b.stateless.Close(ctx) })
	for _, r := range b.table.Load().servers {
		wg.Go(func() { r.close(ctx) })
	}
	wg.Wait()
	b.stop()
	b.wg.Wait()
	b.workers.Stop()
	b.hurry()
}

// goes runs f in a goroutine that Close awaits. It reports false when the
// bridge has been closed.
func (b *Gateway) goes(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Go(f)
	return true
}

// open returns the sessions of which that is true.
func (b *Gateway) open(which func(*Session) bool) (all []*Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.sessions {
		if which(s) {
			all = append(all, s)
		}
	}
	return all
}

// sweepEvery is how often idle sessions are looked for: more often where they
// are not kept for long, so that none is kept for much longer.
const sweepEvery = 30 * time.Second

// sweep ends sessions that nobody uses.
func (b *Gateway) sweep(ctx context.Context) {
	every := func() time.Duration {
		return max(min(sweepEvery, time.Duration(min(b.idle.Load(), b.left.Load()))/4), 10*time.Millisecond)
	}
	tick := time.NewTicker(every())
	defer tick.Stop()
	for ; ; tick.Reset(every()) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		all := b.open(func(*Session) bool { return true })
		b.quota.Sweep(time.Now())
		for _, r := range b.table.Load().servers {
			r.rates.Sweep(time.Now())
		}
		for _, s := range all {
			if s.idleFor(time.Now()) > s.patience(time.Duration(b.idle.Load()), time.Duration(b.left.Load())) {
				s.End(bridge.ErrIdle)
			}
		}
	}
}
