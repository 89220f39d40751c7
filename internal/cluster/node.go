package cluster

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/internal/session"
)

// Options configure a Node.
type Options struct {
	Self     Member // Sessions, Draining and Servers are filled in
	Store    session.Store
	Registry Registry
	Peers    Peers
	// Lease is how long the others wait for a beat before they take this one's sessions
	// over.
	Lease time.Duration
	// Life is how long the record of a session lives that nobody prolongs. They are
	// prolonged well before.
	Life time.Duration
	// Stop says that nothing goes on without the store, not even while nobody reaches it.
	Stop bool
	// Most bounds the sessions of this instance.
	Most int
	Log  *slog.Logger
	// Lost is told that another instance has a session: it ends here. It must not block.
	Lost func(key string)
	// Servers returns a hash of the names of the servers that this instance has now.
	Servers func() string
}

// tries bounds one operation of the store.
const tries = 500 * time.Millisecond

// Node is this instance. Methods may be called concurrently.
//
// It has many fields: beats, membership and the sessions decide about each other under
// one lock.
type Node struct {
	o      Options
	good   atomic.Pointer[time.Time] // when the last good beat was sent
	failed atomic.Bool               // the last beat has failed
	frozen atomic.Pointer[time.Time] // when it was found out last that nobody reaches the store; nil when somebody may
	barred atomic.Int64              // sessions that may not be served yet
	took   atomic.Int64              // the last good beat, in nanoseconds
	drains atomic.Bool               // it is about to stop, and takes no sessions
	kick   chan struct{}
	work   chan struct{}
	stop   context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup
	counts Counts

	mu      sync.Mutex // guards the rest
	next    *round     // the beat that is not begun yet
	members map[string]Member
	known   map[string]Member // those of the last hour, too
	forgot  map[string]time.Time
	probes  map[string]*probe
	run     string
	said    State // what was logged last
	grace   time.Time
	emptied time.Time // until then others put again what the store has lost
	noTakes time.Time
	held    map[string]*entry
	ended   map[string]ended // within a minute: a store that has lost its last second may have them still

	told map[string]string // what was said of members; of the goroutine that beats
}

// Counts are what the metrics tell.
type Counts struct{ Forwarded, Taken, Lost, Refused atomic.Uint64 }

// round is one beat.
type round struct {
	done chan struct{}
	err  error
}

// entry is a session that this instance has.
type entry struct {
	session.Held
	dirty     bool          // to be saved
	unsettled bool          // the store may say something else
	barred    chan struct{} // not nil while it may not be served; closed then
	kept      time.Time     // when its life was prolonged
}

type ended struct {
	session.Held
	at time.Time
}

// probe is what asking an instance has told.
type probe struct {
	at    time.Time
	done  chan struct{}
	alive bool
}

var _ session.Leased = (*Node)(nil)

// New makes a node, which may begin nothing before Start.
func New(o Options) *Node {
	n := &Node{o: o, kick: make(chan struct{}, 1), work: make(chan struct{}, 1), next: &round{done: make(chan struct{})},
		members: map[string]Member{}, known: map[string]Member{}, forgot: map[string]time.Time{}, probes: map[string]*probe{}, held: map[string]*entry{}, ended: map[string]ended{}}
	n.ctx, n.stop = context.WithCancel(context.Background())
	return n
}

// Start joins the cluster: the node beats until Close. The others reach it at address.
func (n *Node) Start(address string) {
	n.o.Self.Address = address
	n.wg.Go(n.beats)
	n.wg.Go(n.works)
}

// Counts returns what the node counts.
func (n *Node) Counts() *Counts { return &n.counts }

// beatEvery keeps beats that are asked for apart.
const beatEvery = 100 * time.Millisecond

// beats beats until Close.
func (n *Node) beats() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-n.kick:
		case <-n.ctx.Done():
			return
		}
		begun := time.Now()
		n.mu.Lock()
		r := n.next
		n.next = &round{done: make(chan struct{})}
		n.mu.Unlock()
		r.err = n.beat()
		close(r.done)
		select {
		case <-time.After(beatEvery - time.Since(begun)):
		case <-n.ctx.Done():
			return
		}
		wait := n.o.Lease / 3
		if r.err != nil { // several attempts to find out who reaches the store, before this one's lease ends
			wait = n.o.Lease / 12
		}
		timer.Reset(wait - time.Since(begun))
	}
}

// Beat waits for a beat that begins after the call.
func (n *Node) Beat(ctx context.Context) error {
	n.mu.Lock()
	r := n.next
	n.mu.Unlock()
	wake(n.kick)
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return session.ErrUnavailable
	case <-n.ctx.Done():
		return session.ErrUnavailable
	}
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// beat tells the store that this instance lives.
func (n *Node) beat() error {
	n.mu.Lock()
	self := n.o.Self
	self.Sessions, self.Draining = 0, n.drains.Load()
	for key := range n.held {
		if !IsHome(key) {
			self.Sessions++
		}
	}
	n.mu.Unlock()
	if n.o.Servers != nil {
		self.Servers = n.o.Servers()
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(n.ctx, tries)
	seen, err := n.o.Registry.Beat(ctx, self, n.o.Lease)
	cancel()
	n.failed.Store(err != nil)
	if err != nil {
		if n.ctx.Err() == nil {
			n.alone(err)
		}
		return err
	}
	n.took.Store(int64(time.Since(sent)))
	n.heard(sent, seen)
	n.odd(&self, &seen)
	return nil
}

// Took returns how long the last good beat took.
func (n *Node) Took() time.Duration { return time.Duration(n.took.Load()) }

// odd says once what looks wrong with the store and the members. It is called by one
// goroutine.
func (n *Node) odd(self *Member, seen *Seen) {
	if seen.Evicts != "" {
		n.o.Log.Warn("the store evicts what is written when its memory is full: sessions that nobody has may be lost; set maxmemory-policy noeviction", "policy", seen.Evicts)
	}
	told := map[string]string{}
	say := func(id, what, text string, args ...any) {
		if told[id] = what; n.told[id] != what {
			n.o.Log.Warn(text, append([]any{"instance", id[:min(len(id), session.TagLength)]}, args...)...)
		}
	}
	for _, id := range seen.Sealed {
		say(id, "sealed", "an instance with the same prefix in the store has another secret: the two know nothing of each other's sessions")
	}
	for _, m := range seen.Members {
		switch {
		case minor(m.Version) != minor(self.Version):
			say(m.ID, m.Version, "an instance is of another version", "version", m.Version, "own", self.Version)
		case m.Servers != self.Servers:
			say(m.ID, m.Servers+self.Servers, "an instance has other servers: who has a session there gets 404 from one that does not have its server")
		}
	}
	n.told = told
}

// minor returns the version without its last number.
func minor(version string) string {
	if i := strings.LastIndexByte(version, '.'); i > 0 && strings.Count(version, ".") == 2 {
		return version[:i]
	}
	return version
}

// heard takes what a good beat has found.
func (n *Node) heard(sent time.Time, seen Seen) {
	n.mu.Lock()
	first := n.good.Load() == nil
	now := time.Now()
	if first || seen.Absent || seen.Run != n.run { // whoever missed beats, or writes of the store, finds out what it still has
		n.grace = now.Add(n.o.Lease)
		for _, e := range n.held {
			e.unsettled = true
			if seen.Absent && !first && e.barred == nil && !e.Bound {
				e.barred = make(chan struct{}) // another may have taken it
				n.barred.Add(1)
			}
		}
		for key, e := range n.ended {
			if now.Sub(e.at) > time.Minute {
				delete(n.ended, key)
			}
		}
		if !first {
			n.emptied = n.grace
			n.o.Log.Warn("the store has lost what this instance wrote, or has counted it out: its sessions are claimed again", "sessions", len(n.held))
		}
	}
	n.run = seen.Run
	var gone []string
	before := n.members
	n.members = map[string]Member{}
	for _, m := range seen.Members {
		n.members[m.ID], n.known[m.ID] = m, m
		delete(n.forgot, m.ID)
	}
	for id := range before {
		if _, there := n.members[id]; !there && id != n.o.Self.ID {
			gone, n.forgot[id] = append(gone, id), now
		}
	}
	for id, at := range n.forgot {
		if now.Sub(at) > time.Hour {
			delete(n.forgot, id)
			delete(n.known, id)
			delete(n.probes, id)
		}
	}
	n.good.Store(&sent)
	n.frozen.Store(nil)
	n.mu.Unlock()
	n.say(nil)
	for _, id := range gone {
		n.wg.Go(func() {
			if dead, err := n.Dead(n.ctx, id); dead && err == nil {
				n.o.Log.Warn("another instance has ended without a word: its sessions are taken over when they are asked for", "instance", id)
				n.o.Peers.Bury(id)
			}
		})
	}
	wake(n.work)
}

// alone is for a beat that has failed: the others say whether they reach the store.
func (n *Node) alone(err error) {
	good := n.good.Load()
	if good == nil || time.Since(*good) < n.o.Lease/2 || n.o.Stop {
		n.say(err)
		return
	}
	n.mu.Lock()
	others := slices.Collect(maps.Values(n.members))
	n.mu.Unlock()
	asked := time.Now()
	ctx, cancel := context.WithTimeout(n.ctx, tries)
	defer cancel()
	var reached, store atomic.Int64
	var wg sync.WaitGroup
	for _, m := range others {
		if m.ID == n.o.Self.ID {
			reached.Add(1)
			continue
		}
		wg.Go(func() {
			if h, err := n.o.Peers.Hello(ctx, m, Hello{ID: n.o.Self.ID, State: n.State()}); err == nil && h.ID == m.ID {
				if reached.Add(1); h.Store {
					store.Add(1)
				}
			}
		})
	}
	wg.Wait()
	// Whoever was isolated for a moment may have lost sessions: only a beat tells.
	if may := n.sure() || n.isFrozen(); may && store.Load() == 0 && 2*reached.Load() > int64(len(others)) {
		n.frozen.Store(&asked)
	} else {
		n.frozen.Store(nil)
	}
	n.say(err)
}

// say logs when the state has changed.
func (n *Node) say(err error) {
	now := n.State()
	n.mu.Lock()
	before := n.said
	n.said = now
	n.mu.Unlock()
	switch {
	case before == now || before == "" && now == Sure:
	case now == Sure:
		n.o.Log.Info("the store is in reach")
	case now == Frozen:
		n.o.Log.Warn("no instance reaches the store: each goes on with the sessions that it has", "err", err)
	default:
		n.o.Log.Error("this instance does not reach the store: clients are turned away", "err", err)
	}
}

// State returns the state.
func (n *Node) State() State {
	switch {
	case n.sure():
		return Sure
	case n.isFrozen():
		return Frozen
	}
	return Isolated
}

// sure reports whether nobody can have taken anything over.
func (n *Node) sure() bool { return n.fresh(n.good.Load()) }

// isFrozen reports whether nobody reaches the store.
func (n *Node) isFrozen() bool { return n.fresh(n.frozen.Load()) }

// fresh reports whether what was found out at that time holds still: by both clocks,
// since one of them may stand still while the process does not run.
func (n *Node) fresh(at *time.Time) bool {
	if at == nil {
		return false
	}
	now, most := time.Now(), n.o.Lease*5/6
	wall := now.Round(0).Sub(at.Round(0))
	return now.Sub(*at) < most && wall < most && wall > -most
}

// Ready reports whether requests of a session that this instance has may begin. It is
// asked for each, so it looks at two words.
func (n *Node) Ready() bool { return (n.sure() || n.isFrozen()) && n.barred.Load() == 0 }

// Await waits until requests of the session may begin, for half a second at most. The
// error is ErrUnavailable. An empty key is that of no session in particular.
func (n *Node) Await(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, tries)
	defer cancel()
	if !n.sure() && !n.isFrozen() {
		if err := n.Beat(ctx); err != nil && !n.isFrozen() {
			return session.ErrUnavailable
		}
	}
	n.mu.Lock()
	var barred chan struct{}
	if e := n.held[key]; e != nil {
		barred = e.barred
	}
	n.mu.Unlock()
	if barred == nil {
		return nil
	}
	select {
	case <-barred:
		return nil
	case <-ctx.Done():
		return session.ErrUnavailable
	}
}

// Grace reports whether what is missing in the store may be there soon: instances put
// again what it has lost.
func (n *Node) Grace() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Now().Before(n.grace)
}

// reaches reports whether this instance reaches the store.
func (n *Node) reaches() bool {
	good := n.good.Load()
	return good != nil && !n.failed.Load() && time.Since(*good) < n.o.Lease/2
}

// Answer answers the hello of another instance.
func (n *Node) Answer(h Hello) Hello {
	if h.Store {
		n.frozen.Store(nil)
	}
	if h.Absent {
		wake(n.kick)
	}
	store := n.reaches()
	if store && !h.Store { // then perhaps it is gone for this one, too
		wake(n.kick)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.Leaving {
		delete(n.members, h.ID)
	}
	if !store { // the other may go on in the belief that nobody takes anything over
		n.noTakes = time.Now().Add(n.o.Lease)
	}
	return Hello{ID: n.o.Self.ID, State: n.State(), Store: store}
}

// Members returns the members of the last good beat, by id.
func (n *Node) Members() []Member {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.SortedFunc(maps.Values(n.members), func(a, b Member) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
}

// Member returns an instance that was there within the last hour.
func (n *Node) Member(id string) (Member, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, ok := n.known[id]
	return m, ok
}

// Tagged returns the other living instance whose ids begin with the tag.
func (n *Node) Tagged(tag string) (Member, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, m := range n.members {
		if tag != "" && id != n.o.Self.ID && id[:min(len(id), session.TagLength)] == tag && !m.Left() {
			return m, true
		}
	}
	return Member{}, false
}

// Least returns the other member with the fewest sessions that takes some.
func (n *Node) Least() (least Member, ok bool) {
	for _, m := range n.Members() {
		if m.ID != n.o.Self.ID && !m.Draining && (!ok || m.Sessions < least.Sessions) {
			least, ok = m, true
		}
	}
	return least, ok
}

// Dead reports whether an instance has ended: its key is absent, and it does not answer
// either, or says that it is isolated. It asks at most once a second.
func (n *Node) Dead(ctx context.Context, id string) (bool, error) {
	one, cancel := context.WithTimeout(ctx, tries)
	defer cancel()
	there, err := n.o.Registry.Present(one, id)
	if there || err != nil {
		return false, err
	}
	n.mu.Lock()
	m, known := n.known[id]
	if !known {
		defer n.mu.Unlock()
		if time.Now().Before(n.grace) {
			return false, session.ErrUnavailable // it may be one that has not beaten yet
		}
		return true, nil
	}
	p := n.probes[id]
	if p == nil || time.Since(p.at) > time.Second {
		p = &probe{at: time.Now(), done: make(chan struct{})}
		n.probes[id] = p
		n.wg.Go(func() {
			defer close(p.done)
			ctx, cancel := context.WithTimeout(n.ctx, tries)
			defer cancel()
			h, err := n.o.Peers.Hello(ctx, m, Hello{ID: n.o.Self.ID, State: n.State(), Store: true, Absent: true})
			p.alive = err == nil && h.ID == id && h.State != Isolated
		})
	}
	n.mu.Unlock()
	select {
	case <-p.done:
		return !p.alive, nil
	case <-ctx.Done():
		return false, session.ErrUnavailable
	}
}

// Drain says that this instance is about to stop: it takes no sessions any more.
func (n *Node) Drain(ctx context.Context) {
	n.drains.Store(true)
	_ = n.Beat(ctx) // the others know soon, or find nobody later
}

// Draining reports whether Drain was called.
func (n *Node) Draining() bool { return n.drains.Load() }

// Beats is how long it takes until the others have seen what this one says of itself:
// two of their beats. It is 0 where there is nobody else.
func (n *Node) Beats() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.members) < 2 {
		return 0
	}
	return n.o.Lease * 2 / 3
}

// Close leaves the cluster. What is left of sessions stays in the store.
func (n *Node) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*tries)
	defer cancel()
	if n.reaches() {
		var wg sync.WaitGroup
		for _, m := range n.Members() {
			if m.ID != n.o.Self.ID {
				wg.Go(func() {
					_, _ = n.o.Peers.Hello(ctx, m, Hello{ID: n.o.Self.ID, State: n.State(), Store: true, Leaving: true})
				})
			}
		}
		wg.Wait()
	}
	n.stop()
	n.wg.Wait()
	if err := n.o.Registry.Leave(ctx, n.o.Self.ID); err != nil && !errors.Is(err, session.ErrUnavailable) {
		n.o.Log.Debug("could not leave the cluster", "err", err)
	}
}
