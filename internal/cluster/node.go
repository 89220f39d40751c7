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
	// Lease is how long the others wait for a beat before they take this one's sessions
	// over.
	Lease time.Duration
	// Life is how long the record of a session lives that nobody prolongs. They are
	// prolonged well before.
	Life time.Duration
	// Stop says that nothing goes on without the store, not even while nobody reaches it.
	Stop bool
	// Most bounds the sessions of this instance. Homes are not counted.
	Most int
	Log  *slog.Logger
	// Lost is told that another instance has a session: it ends here. It must not block.
	Lost func(key string)
	// Hooked is told with each beat which webhooks there are. It must not block.
	Hooked func(map[string]int64)
	// Emptied is told that the store may have lost what this instance has written. It must
	// not block. It may be nil.
	Emptied func()
	// Free returns how many child processes this instance could still run for others. It
	// may be nil.
	Free func() int
	// Servers returns a hash of the names of the servers that this instance has now.
	Servers func() string
}

// tries bounds one operation of the store.
const tries = 500 * time.Millisecond

// Node is this instance. Methods may be called concurrently.
type Node struct {
	o      Options
	good   atomic.Pointer[time.Time] // when the last good beat was sent
	failed atomic.Bool               // the last beat has failed
	frozen atomic.Pointer[time.Time] // when it was found out last that nobody reaches the store; nil when somebody may
	thawed atomic.Pointer[time.Time] // when frozen became nil because somebody may
	barred atomic.Int64              // sessions that may not be served yet
	took   atomic.Int64              // the last good beat, in nanoseconds
	drains atomic.Bool               // it is about to stop, and takes no sessions
	joined chan struct{}             // closed with the first good beat
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
	greeted map[string]*greeting // the others, by id
	run     string
	said    State // what was logged last
	grace   time.Time
	emptied time.Time // until then others put again what the store has lost
	noTakes time.Time
	held    map[string]*entry
	homes   int               // of these
	ended   map[string]*ended // within endedFor, or owed: a store that has lost its last second may have them still
	drops   bool              // some of those are owed

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
	dirty  bool          // to be saved
	doubts int           // how often the store may have begun to say something else; 0 when it is settled
	barred chan struct{} // not nil while it may not be served; closed then
	lost   bool          // another instance has it: Lost is being told
	kept   time.Time     // when its life was prolonged
}

type ended struct {
	session.Held
	at       time.Time
	released bool // for whoever takes it
	unsure   bool // the store may have it with another epoch: an answer of the store was lost
	owed     bool // the store does not know it yet
}

// probe is what asking an instance has told.
type probe struct {
	at      time.Time
	done    chan struct{} // closed when what follows is known
	answers bool
	state   State
}

// greeting is how an instance was found when it was last asked whether it can be reached.
type greeting struct {
	asked time.Time
	fails bool // it could not
	said  bool // that was logged
}

var _ session.Leased = (*Node)(nil)

// New makes a node, which may begin nothing before Start.
func New(o Options) *Node {
	n := &Node{o: o, joined: make(chan struct{}), kick: make(chan struct{}, 1), work: make(chan struct{}, 1), next: &round{done: make(chan struct{})},
		members: map[string]Member{}, known: map[string]Member{}, forgot: map[string]time.Time{}, probes: map[string]*probe{}, greeted: map[string]*greeting{}, held: map[string]*entry{}, ended: map[string]*ended{}}
	n.ctx, n.stop = context.WithCancel(context.Background())
	return n
}

// Start joins the cluster: the node beats until Close. The others reach it at address.
func (n *Node) Start(address string) {
	n.o.Self.Address = address
	n.wg.Go(n.beats)
	n.wg.Go(n.works)
}

// Joined returns what is closed when the node has joined: the store knows it, and it knows
// the others.
func (n *Node) Joined() <-chan struct{} { return n.joined }

// Counts returns what the node counts.
func (n *Node) Counts() *Counts { return &n.counts }

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
		for _, m := range n.Others() {
			wg.Go(func() {
				_, _ = n.o.Peers.Hello(ctx, m, Hello{ID: n.o.Self.ID, State: n.State(), Store: true, Leaving: true})
			})
		}
		wg.Wait()
	}
	n.mu.Lock()
	n.stop() // ask starts nothing more
	n.mu.Unlock()
	n.wg.Wait()
	if err := n.o.Registry.Leave(ctx, n.o.Self.ID); err != nil && !errors.Is(err, session.ErrUnavailable) {
		n.o.Log.Debug("could not leave the cluster", "err", err)
	}
}
