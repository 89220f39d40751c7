package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
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
	"github.com/mcp-bridge/bridge/bridge/observe/report"
	"github.com/mcp-bridge/bridge/bridge/translate/lift"
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
	tally          tally
	ill            atomic.Bool  // failure is not nil
	lacked         atomic.Int64 // when Lacked last said so; Unix nanoseconds
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

	mu      sync.Mutex                  // guards the rest
	known   *bridge.Greeting            // what the last handshake said; nil before the first
	told    map[string]*bridge.Greeting // the same, by principal
	waiters map[*waiter]struct{}
	probing bool      // a goroutine tries whether the server works again
	served  bool      // a connection was opened
	failure error     // the last one, nil when the server works
	since   time.Time // the first one of these
	latest  time.Time // the last one
}

func newRoute(b *Gateway, o ServerOptions) *route {
	handshake := or(o.Handshake, time.Minute)
	r := &route{
		b: b, o: o, log: b.log.With("server", o.Name),
		share: or(o.Share, ShareSession), offer: or(o.Offer, b.offer),
		told:    map[string]*bridge.Greeting{},
		waiters: map[*waiter]struct{}{},
		gate:    limits.NewQueue(o.Name, o.Limits),
	}
	r.reports = b.reports.Server(o.Name, r.speaks)
	r.rates = limits.NewRates(o.Name, o.Limits)
	r.tools = tools.New(o.Name, tools.Options{Check: o.Validate, Idempotent: o.Retry.Tools}, r.log)
	r.retries = retry.New(o.Retry, r.tools.Idempotent, r.log, b.life)
	r.breaker = breaker.New(o.Breaker, breaker.Server{
		Name: o.Name, Log: r.log, Shared: r.share == ShareAll, Within: handshake, Life: b.life, Go: b.goes, Noted: r.noted, Works: r.works,
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
		Idle: max(o.Idle, 0), Handshake: handshake, Ping: o.Ping, Restarts: or(o.Restarts, 30), MaxPause: or(o.MaxPause, maxBackOff),
		Budget: lane.NewBudget(o.Name, maxLanes, r.portions, b.lanes, r.pool.Yield), Health: r,
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

var _ lane.Health = (*route)(nil)

// maxBackOff is how long the pauses between attempts grow.
const maxBackOff = 60 * time.Second

// Failed notes that a connection could not be opened, or not be used.
func (r *route) Failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ill.Store(true)
	level := slog.LevelWarn
	if r.failure != nil && r.failure.Error() == err.Error() {
		level = slog.LevelDebug // said before
	}
	r.log.Log(context.Background(), level, "server failed", "err", err)
	now := time.Now()
	if r.failure == nil {
		r.since = now
	}
	r.failure, r.latest = err, now
	r.tally.failed(err)
}

// Lacked says that the bridge itself had no room for a connection: that is no
// failure of the server's. It says so once in a while.
func (r *route) Lacked(err error) {
	now, said := time.Now().UnixNano(), r.lacked.Load()
	if now-said >= int64(lackEvery) && r.lacked.CompareAndSwap(said, now) {
		r.log.Warn("connection not opened", "err", err)
	}
}

const lackEvery = 10 * time.Second

// Fared notes how a call went: a server may be out of reach although its
// session lives on. One that does not take a request is not; that it refuses who
// the bridge says it is concerns all calls, unless the caller said who it is.
func (r *route) Fared(err error, headers bool) {
	switch {
	case err == nil:
		if r.ill.Load() {
			r.works()
		}
	case bridge.Exhausted(err), errors.Is(err, bridge.ErrOverloaded), errors.Is(err, bridge.ErrOpen), errors.Is(err, bridge.ErrRejected) && (headers || !errors.Is(err, bridge.ErrCredentials)):
	case errors.Is(err, bridge.ErrUnavailable) && !r.ill.Load():
		r.Failed(err)
	}
}

// works notes that the server can be used. Whoever waits for that is told.
func (r *route) works() {
	r.mu.Lock()
	if r.failure != nil {
		r.log.Info("server works again")
	}
	r.served, r.failure = true, nil
	r.ill.Store(false)
	waiters := r.waiters
	r.waiters = map[*waiter]struct{}{}
	r.mu.Unlock()
	for w := range waiters {
		w.tell()
	}
}

// caller returns the caller as the server may see it.
func (r *route) caller(from *bridge.Caller) *bridge.Caller {
	if from.Header == nil {
		return from
	}
	mine := *from
	mine.Header = bridge.Forwarded(from.Header, r.o.Forward)
	return &mine
}

// failing returns why the server cannot be had, if that was so a moment ago.
func (r *route) failing() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure != nil && time.Since(r.latest) < failingFor {
		return r.failure
	}
	return nil
}

func (r *route) close(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { r.shared.Close(ctx) })
	wg.Go(func() { _ = r.pool.Close(ctx) })
	wg.Go(r.cache.Close)
	wg.Wait()
}

// Status says how a server fares.
type Status struct {
	Name     string
	Usable   bool      // it works, or nothing speaks against trying it
	State    string    // "ready", "starting", "idle" or "failing"
	Reason   string    // of failing, for people; it may name programs and files
	Since    time.Time // it is failing
	Lanes    int       // connections open or being opened
	Sessions int
	// Calls are the requests of clients under way, when Options.Watch is set.
	Calls    int
	Parked   int    // calls that wait for clients without sessions to come back
	Revision string // what the last handshake agreed on; empty before the first
	// Opened counts the connections that were opened, Failures those that could not
	// be, or whose server was out of reach, Losses those that ended by themselves,
	// and Restarts the openings after that.
	Opened, Failures, Losses, Restarts uint64
	// Last is the last failure or loss, also after the server has recovered from
	// it. It may name programs and files.
	Last   string
	LastAt time.Time
	// Status is what is under way, as Limits count it. Queued has also those that
	// wait for a connection of their own, and Refused what came too often, as rate.
	limits.Status
	// Breaker is whether the server is used: "closed" when it is, "open" when it
	// is left alone until RetryAt, or no connection to it is opened until then,
	// "half-open" while it is tried, and "off".
	Breaker string
	RetryAt time.Time
	Trips   uint64 // how often it began to be left alone
	// Cache says what is kept of what it lists.
	Cache cache.Status
}

// Status returns how each server fares, in the order of Options.
func (b *Gateway) Status() []Status {
	sessions := map[string]int{}
	b.mu.Lock()
	for s := range b.sessions {
		sessions[s.server]++
	}
	b.mu.Unlock()
	all := make([]Status, 0, len(b.routes))
	for _, r := range b.routes {
		st := r.status()
		st.Status = r.gate.Status()
		of := r.pool.Status()
		st.Queued += of.Queued
		st.Parked = of.Waiting
		st.Refused["rate"] = r.rates.Refused()
		st.Sessions = sessions[r.o.Name]
		if len(b.routes) == 1 {
			st.Sessions += sessions[""]
		}
		all = append(all, st)
	}
	return all
}

func (r *route) status() Status {
	st := Status{Name: r.o.Name, Usable: true, State: "idle", Lanes: int(r.lane.Budget.Open()), Calls: int(r.reports.Calls()), Cache: r.cache.Status()}
	r.mu.Lock()
	failure, since, latest, served := r.failure, r.since, r.latest, r.served
	if r.known != nil {
		st.Revision = r.known.Revision
	}
	r.tally.show(&st)
	r.mu.Unlock()
	switch {
	case st.Lanes > 0 && served:
		st.State = "ready"
	case st.Lanes > 0:
		st.State = "starting"
	}
	usable := false
	if failure != nil {
		usable = time.Since(latest) > failingFor
	} else if !served && r.o.Check != nil {
		failure = r.o.Check()
	}
	if failure != nil {
		st.Usable, st.State, st.Reason, st.Since = usable, "failing", fmt.Sprint(failure), since
	}
	br := r.breaker.Status()
	if st.Breaker, st.Trips = br.State, br.Trips; br.Why == nil {
		return st
	}
	if br.State == "open" {
		st.RetryAt = br.Again
	}
	if time.Now().Before(br.Again) { // from then on somebody has to try it
		st.Usable = false
	}
	if st.State != "failing" {
		st.State, st.Reason = "failing", br.Why.Error()
	}
	if st.Since.IsZero() || br.Since.Before(st.Since) {
		st.Since = br.Since
	}
	return st
}

// failingFor is how long a server counts as useless after it could not be
// started. It is started when it is needed, so somebody has to try again: a
// readiness probe that kept everybody away would keep it failing for ever.
const failingFor = time.Minute
