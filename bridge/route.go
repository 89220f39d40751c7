package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// route is what the bridge knows of one server: its settings, the connections
// that sessions share, and how it fares.
type route struct {
	b         *Bridge
	o         ServerOptions
	log       *slog.Logger
	share     Share
	idle      time.Duration // of a lane; 0 means for ever
	handshake time.Duration
	restarts  int
	maxLanes  int64
	lanes     atomic.Int64
	ill       atomic.Bool   // failure is not nil
	openings  chan struct{} // one token for each connection that is being opened

	mu      sync.Mutex // guards the rest
	hubs    map[string]*hub
	served  bool  // a connection was opened
	failure error // the last one, nil when the server works
	since   time.Time
}

func newRoute(b *Bridge, o ServerOptions) *route {
	r := &route{
		b: b, o: o, log: b.log.With("server", o.Name),
		share: or(o.Share, ShareSession), idle: max(o.Idle, 0),
		handshake: or(o.Handshake, time.Minute),
		restarts:  or(o.Restarts, 5),
		maxLanes:  int64(or(o.MaxLanes, 256)),
		hubs:      map[string]*hub{},
		openings:  make(chan struct{}, maxOpenings),
	}
	if o.Idle == 0 && (r.share == SharePrincipal || r.share == ShareAll) {
		r.idle = 10 * time.Minute
	}
	return r
}

// admit takes a place for one more connection, and the right to open it until
// done is called. Every success needs a released too, when the connection has
// ended or was not opened.
func (r *route) admit(ctx context.Context) (done func(), err error) {
	if r.lanes.Add(1) > r.maxLanes {
		r.lanes.Add(-1)
		return nil, &Error{Server: r.o.Name, Kind: ErrUnavailable, Err: ErrOverloaded, Public: limitText("it has too many connections", int(r.maxLanes))}
	}
	if r.b.lanes.Add(1) > r.b.maxLanes {
		r.released()
		return nil, &Error{Server: r.o.Name, Kind: ErrUnavailable, Err: ErrOverloaded, Public: limitText("the bridge has too many connections", int(r.b.maxLanes))}
	}
	select {
	case r.openings <- struct{}{}:
		return func() { <-r.openings }, nil
	case <-ctx.Done():
		r.released()
		return nil, context.Cause(ctx)
	}
}

func (r *route) released() {
	r.lanes.Add(-1)
	r.b.lanes.Add(-1)
}

// failed notes that a connection could not be opened, or not be used.
func (r *route) failed(err error) {
	r.ill.Store(true)
	r.log.Warn("server failed", "err", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure, r.since = err, time.Now()
}

// fared notes how a call went: a server may be out of reach although its
// session lives on.
func (r *route) fared(err error) {
	switch {
	case err == nil:
		if r.ill.Load() {
			r.works()
		}
	case errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrOverloaded) && !r.ill.Load():
		r.failed(err)
	}
}

// works notes that a connection was opened.
func (r *route) works() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.served, r.failure = true, nil
	r.ill.Store(false)
}

// upstream returns what the session's calls go to.
func (r *route) upstream(s *Session) (Upstream, error) {
	switch r.share {
	case SharePrincipal, ShareAll:
		return r.join(s)
	case ShareCall:
		return &perCall{route: r, caller: s.caller, rest: receiver{s}}, nil
	}
	return newLane(r, s.caller, receiver{s}), nil
}

// join returns the session's view of the connection that it shares.
func (r *route) join(s *Session) (Upstream, error) {
	from := *s.caller
	from.Params = with(from.Params, "capabilities", with(from.Capabilities, "tasks", nil)) // tasks are relayed 1:1 only (D3)
	key := from.Principal + "\x00" + from.Revision + "\x00" + string(with(from.Capabilities, "tasks", nil))
	if r.share == ShareAll {
		key, from = "", Caller{Revision: latest, Params: ownParams}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hubs[key]
	if h == nil {
		if n := r.principalHubs(from.Principal); n >= maxHubs && !r.evict(from.Principal) {
			return nil, &Error{Server: r.o.Name, Kind: ErrUnavailable, Err: ErrOverloaded,
				Public: limitText("it has too many connections for clients of different revisions and capabilities", maxHubs)}
		}
		h = newHub(r, &from)
		r.hubs[key] = h
	}
	return h.join(receiver{s}), nil
}

func (r *route) principalHubs(principal string) (n int) {
	for _, h := range r.hubs {
		if h.lane.caller.Principal == principal {
			n++
		}
	}
	return n
}

// evict closes a shared connection of the principal that no session uses. The
// caller holds r.mu.
func (r *route) evict(principal string) bool {
	for key, h := range r.hubs {
		if h.lane.caller.Principal == principal && h.unused() {
			delete(r.hubs, key)
			r.b.wg.Go(func() { _ = h.lane.Close(r.b.force) })
			return true
		}
	}
	return false
}

func (r *route) close(ctx context.Context) {
	r.mu.Lock()
	hubs := r.hubs
	r.hubs = map[string]*hub{}
	r.mu.Unlock()
	var wg sync.WaitGroup
	for _, h := range hubs {
		wg.Go(func() { _ = h.lane.Close(ctx) })
	}
	wg.Wait()
}

// Status says how a server fares.
type Status struct {
	Name     string
	Usable   bool   // it works, or nothing speaks against trying it
	State    string // "ready", "idle" or "failing"
	Reason   string // of failing, for people; it may name programs and files
	Since    time.Time
	Lanes    int // connections open or being opened
	Sessions int
}

// Status returns how each server fares, in the order of Options.
func (b *Bridge) Status() []Status {
	sessions := map[*route]int{}
	b.mu.Lock()
	for s := range b.sessions {
		sessions[s.route]++
	}
	b.mu.Unlock()
	all := make([]Status, 0, len(b.routes))
	for _, r := range b.routes {
		st := r.status()
		st.Sessions = sessions[r]
		all = append(all, st)
	}
	return all
}

func (r *route) status() Status {
	st := Status{Name: r.o.Name, Usable: true, State: "idle", Lanes: int(r.lanes.Load())}
	if st.Lanes > 0 {
		st.State = "ready"
	}
	r.mu.Lock()
	failure, since, served := r.failure, r.since, r.served
	r.mu.Unlock()
	usable := false
	if failure != nil {
		usable = time.Since(since) > failingFor
	} else if !served && r.o.Check != nil {
		failure = r.o.Check()
	}
	if failure != nil {
		st.Usable, st.State, st.Reason, st.Since = usable, "failing", fmt.Sprint(failure), since
	}
	return st
}

// failingFor is how long a server counts as useless after it could not be
// started. It is started when it is needed, so somebody has to try again: a
// readiness probe that kept everybody away would keep it failing for ever.
const failingFor = time.Minute
