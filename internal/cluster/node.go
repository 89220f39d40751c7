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
	Self     Member // New sets Servers, and each beat Sessions and Draining
	Store    session.Store
	Registry Registry
	Peers    Peers
	// Lease is how long the others wait for a beat of this instance before they take over its sessions.
	Lease time.Duration
	// Life is how long the store keeps a record that is not extended. The node extends its records well before that.
	Life time.Duration
	// Stop means that no request begins while the store is unreachable, even if no instance reaches it. The node is
	// never Frozen then.
	Stop bool
	// MaxSessions bounds the sessions of this instance, without shared connections.
	MaxSessions int
	Log         *slog.Logger
	// Lost is called when another instance owns a session or a shared connection that this instance owned. It must not
	// block.
	Lost func(key string)
	// Hooked is called after each beat, with the number of the last webhook of each server. It must not block.
	Hooked func(map[string]int64)
	// StoreEmptied is called when the store may have lost the data of this instance. It must not block. It may
	// be nil.
	StoreEmptied func()
	// Room returns how many more child processes this instance can run for others, and how many it runs, by server. It
	// may be nil.
	Room func() (free int, running map[string]int)
	// Servers returns a hash of the names of this instance's current servers.
	Servers func() string
}

// opTimeout bounds one operation of the store.
const opTimeout = 500 * time.Millisecond

// Node is this instance in the cluster. Its methods may be called concurrently.
type Node struct {
	o          Options
	lastGood   atomic.Pointer[time.Time] // when the last successful beat was sent
	beatFailed atomic.Bool               // the last beat failed
	frozenAt   atomic.Pointer[time.Time] // when it was known that no instance reaches the store; nil while one may reach it
	thawedAt   atomic.Pointer[time.Time] // when the node stopped being frozen, because an instance may reach the store again
	blocked    atomic.Int64              // sessions whose requests wait until their owner is known
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
	known        map[string]Member // members of the last hour
	goneAt       map[string]time.Time
	probes       map[string]*probe
	reach        map[string]*reachCheck // checks of the other members, by id
	storeRun     string
	loggedState  State // state in the last log line about the state
	graceUntil   time.Time
	emptiedUntil time.Time // until then the others may put again the records that the store lost
	noTakesUntil time.Time
	held         map[string]*entry
	connections  int                // number of shared connections in held
	ended        map[string]*ending // ended here less than endedFor ago, or pending; a store that lost its last second may still have their records
	hasPending   bool               // an entry of ended is pending

	warned map[string]string // last warning about each member; only the goroutine of beats uses it
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
	dirty    bool          // the record must be saved
	doubts   int           // writes whose result is unknown; 0 when the state of the store is known
	blocked  chan struct{} // nil unless requests of the session wait; then closed when they may begin
	lost     bool          // another instance owns the session, and Options.Lost is being called
	extended time.Time     // when the record's life was last extended
}

// ending is a session, or a shared connection, that ended here.
type ending struct {
	session.Held
	at       time.Time
	released bool // any instance may take the session
	unsure   bool // the store may have another epoch, since an answer of it was lost
	pending  bool // the store does not know of the ending yet
}

// probe is the answer of an instance to a Hello.
type probe struct {
	at      time.Time
	done    chan struct{} // closed when the fields below are set
	answers bool
	state   State
}

// reachCheck is the result of the last check whether this instance reaches another instance.
type reachCheck struct {
	asked  time.Time
	fails  bool // the check failed
	logged bool // the failure was logged
}

var _ session.Leased = (*Node)(nil)

// New returns a Node. No request may begin before Start.
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

// Start joins the cluster. The node beats until Close. address is where the other instances reach it.
func (n *Node) Start(address string) {
	n.o.Self.Address = address
	n.wg.Go(n.beats)
	n.wg.Go(n.writeBehind)
}

// Joined returns a channel that closes when the store lists the node, and the node has read the list.
func (n *Node) Joined() <-chan struct{} { return n.joined }

// Counts returns the counters of the node.
func (n *Node) Counts() *Counts { return &n.counts }

// Drain marks this instance as about to stop, so that it takes no more sessions.
func (n *Node) Drain(ctx context.Context) {
	n.draining.Store(true)
	_ = n.Beat(ctx) // if the beat fails, the others learn of it later
}

// Draining reports whether Drain was called.
func (n *Node) Draining() bool { return n.draining.Load() }

// Beats returns the time after which the other instances have seen a change of this one: the time of two beats. It is 0
// if there are no others.
func (n *Node) Beats() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.members) < 2 {
		return 0
	}
	return n.o.Lease * 2 / 3
}

// Close leaves the cluster. The records of its sessions stay in the store.
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
	n.stop() // from now on, ask starts no goroutine
	n.mu.Unlock()
	n.wg.Wait()
	if err := n.o.Registry.Leave(ctx, n.o.Self.ID); err != nil && !errors.Is(err, session.ErrUnavailable) {
		n.o.Log.Debug("could not leave the cluster", "err", err)
	}
}
