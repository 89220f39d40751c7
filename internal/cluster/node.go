package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
)

// Options configure a Node.
type Options struct {
	Self     Member // Sessions, Draining and Servers are filled in
	Store    session.Store
	Registry Registry
	Peers    Peers
	// Lease is the time that the others wait for a beat before they take over the sessions of this instance.
	Lease time.Duration
	// Life is the lifetime of a record that is not extended. The node extends its records well before
	// they expire.
	Life time.Duration
	// Stop rules out Frozen: no request begins without the store, not even while no instance reaches it.
	Stop bool
	// MaxSessions bounds the sessions of this instance. Shared connections are not counted.
	MaxSessions int
	Log         *slog.Logger
	// Lost is called when another instance owns a session, or a shared connection, of this one. It must
	// not block.
	Lost func(key string)
	// Hooked is called after each beat, with the numbers of the last webhooks by server. It must not block.
	Hooked func(map[string]int64)
	// StoreEmptied is called when the store may have lost the data of this instance. It must not block. It may
	// be nil.
	StoreEmptied func()
	// Room returns the number of further child processes that this instance could run for others, and by server the
	// number of those that run. It may be nil.
	Room func() (free int, running map[string]int)
	// Servers returns a hash of the names of the current servers of this instance.
	Servers func() string
}

// opTimeout bounds one operation of the store.
const opTimeout = 500 * time.Millisecond

// Node is this instance. Methods may be called concurrently.
type Node struct {
	o          Options
	lastGood   atomic.Pointer[time.Time] // when the last successful beat was sent
	beatFailed atomic.Bool               // the last beat failed
	frozenAt   atomic.Pointer[time.Time] // when no instance reached the store; nil when one may
	thawedAt   atomic.Pointer[time.Time] // time of the end of a freeze: some instance may reach the store again
	blocked    atomic.Int64              // sessions whose requests wait
	beatTook   atomic.Int64              // duration of the last successful beat, in nanoseconds
	draining   atomic.Bool               // the instance is about to stop, and takes no sessions
	joined     chan struct{}             // closed with the first successful beat
	beatNow    chan struct{}
	writeNow   chan struct{}
	stop       context.CancelFunc
	ctx        context.Context
	wg         sync.WaitGroup
	counts     Counts

	mu           sync.Mutex // guards the rest
	nextBeat     *beatRound // the beat that has not begun yet
	members      map[string]Member
	known        map[string]Member // also the members of the last hour
	goneAt       map[string]time.Time
	probes       map[string]*probe
	reach        map[string]*reachCheck // of the other members, by id
	storeRun     string
	loggedState  State // the state that was logged last
	graceUntil   time.Time
	emptiedUntil time.Time // until then the others put again the records that the store lost
	noTakesUntil time.Time
	held         map[string]*entry
	connections  int                // entries of held that are shared connections
	ended        map[string]*ending // within endedFor, or pending: a store that lost its last second may have the record
	hasPending   bool               // ended has pending endings

	warned map[string]string // the last warning about each member; used only by the goroutine that beats
}

// Counts holds the counters that the metrics show.
type Counts struct{ Forwarded, Taken, Lost, Refused atomic.Uint64 }

type beatRound struct {
	done chan struct{}
	err  error
}

// entry is a session, or a shared connection, that this instance owns.
type entry struct {
	session.Held
	dirty    bool          // its record must be saved
	doubts   int           // writes whose result is unknown; 0 when the state of the store is known
	blocked  chan struct{} // not nil while its requests wait; then closed
	lost     bool          // another instance owns it; Options.Lost is being called
	extended time.Time     // when the life of its record was extended
}

// ending is a session, or a shared connection, that ended here.
type ending struct {
	session.Held
	at       time.Time
	released bool // any instance may take it
	unsure   bool // the store may have it with another epoch: an answer of the store was lost
	pending  bool // it is not in the store yet
}

// probe is the answer of an instance to a hello.
type probe struct {
	at      time.Time
	done    chan struct{} // closed when the fields below are set
	answers bool
	state   State
}

// reachCheck is the result of the last check whether this instance reaches another one.
type reachCheck struct {
	asked  time.Time
	fails  bool // it was not reached
	logged bool // the failure was logged
}

var _ session.Leased = (*Node)(nil)

// New makes a node. No request may begin before Start.
func New(o Options) *Node {
	n := &Node{
		o:        o,
		joined:   make(chan struct{}),
		beatNow:  make(chan struct{}, 1),
		writeNow: make(chan struct{}, 1),
		nextBeat: &beatRound{done: make(chan struct{})},
		members:  map[string]Member{},
		known:    map[string]Member{},
		goneAt:   map[string]time.Time{},
		probes:   map[string]*probe{},
		reach:    map[string]*reachCheck{},
		held:     map[string]*entry{},
		ended:    map[string]*ending{},
	}
	n.ctx, n.stop = context.WithCancel(context.Background())
	return n
}

// Start joins the cluster: the node beats until Close. The other instances reach it at address.
func (n *Node) Start(address string) {
	n.o.Self.Address = address
	n.wg.Go(n.beats)
	n.wg.Go(n.writeBehind)
}

// Joined returns a channel that is closed when the store lists the node, and the node has read the others.
func (n *Node) Joined() <-chan struct{} { return n.joined }

// Counts returns the counters of the node.
func (n *Node) Counts() *Counts { return &n.counts }

// Drain marks this instance as about to stop: it takes no more sessions.
func (n *Node) Drain(ctx context.Context) {
	n.draining.Store(true)
	_ = n.Beat(ctx) // without it the others see it later
}

// Draining reports whether Drain was called.
func (n *Node) Draining() bool { return n.draining.Load() }

// Beats returns the time after which the others have seen a change of this instance: two of their beats. It
// is 0 without others.
func (n *Node) Beats() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.members) < 2 {
		return 0
	}
	return n.o.Lease * 2 / 3
}

// Close leaves the cluster. The records of sessions stay in the store.
func (n *Node) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*opTimeout)
	defer cancel()
	if n.reaches() {
		var wg sync.WaitGroup
		for _, m := range n.Others() {
			wg.Go(func() {
				_, _ = n.o.Peers.Hello(ctx, m, Hello{
					ID:      n.o.Self.ID,
					State:   n.State(),
					Store:   true,
					Leaving: true,
				})
			})
		}
		wg.Wait()
	}
	n.mu.Lock()
	n.stop() // from now on ask starts no goroutine
	n.mu.Unlock()
	n.wg.Wait()
	if err := n.o.Registry.Leave(ctx, n.o.Self.ID); err != nil && !errors.Is(err, session.ErrUnavailable) {
		n.o.Log.Debug("could not leave the cluster", "err", err)
	}
}
