// Package cache keeps what a server has listed, for all who may see it, and fetches
// each list once for all who ask for it at a time ([Cache]).
//
// A list kept of one principal never serves another, unless the server or its
// operator says that it is everybody's. From when a change is told, nothing from
// before it is given out. While a server cannot be had, what it listed last is.
//
// It starts goroutines that fetch, which Close ends. It keeps nothing on disk, and
// nothing that is not asked for.
package cache

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/tracing"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Cache keeps what one server has listed, for all who may see it: its lists, and
// of a modern server what it says of itself and the resources that it says for
// how long they hold (protocol.md B13, D1.3). What is kept are whole answers, as
// the server gave them: filters and translations are above.
//
// A change that the server announces is noted before anybody is told of it, and
// from then on nothing from before is given out: neither what is kept, nor the
// answer to what was asked before. That is why everything that is asked
// is entered here before it is sent.
type Cache struct {
	server Server
	o      atomic.Pointer[Options] // with their defaults
	ctx    context.Context         // of the fetches; ends with Close
	stop   context.CancelCauseFunc
	wg     sync.WaitGroup // fetches

	hits, misses, joined, served atomic.Uint64 // served ones were stale
	numbers                      atomic.Uint64 // of sources

	// announced says that the adapter announces changes itself: they are heard
	// whatever is open. It is set once.
	announced bool
	unfollow  func() // ends that

	mu        sync.Mutex // guards the rest, and all sources
	listeners listeners
	entries   *simplelru.LRU[string, *entry]
	bytes     int64
	shared    [subjects]map[string]*entry // those of kept that belong to no single connection
	fetches   map[string]*fetch           // that can be joined, by key
	asked     map[*fetch]struct{}         // all that may be kept once it is there
	old       bool                        // what is stale is given out
	closed    bool
}

// What is kept beyond lists.
const (
	contents  = list.Kinds + iota // of a resource
	greetings                     // answers to server/discover
	subjects
)

// Limits of what is kept (protocol.md F).
const (
	maxKept        = 16_384           // answers of one server
	maxKey         = 8 << 10          // bytes that tell what was asked, and by whom
	maxFresh       = 24 * time.Hour   // whatever the server says
	emptyFor       = time.Second      // a list with nothing in it: the server may be about to fill it
	passFor        = 10 * time.Second // for so long nobody waits for what another asks that must not be kept
	maxFetch       = 5 * time.Minute  // the adapter's own time-outs are mostly shorter
	doubtEvery     = time.Second      // how often one list is fetched for the errors of calls
	announcedFor   = time.Minute      // lists of legacy servers, whose changes are announced
	unannouncedFor = 5 * time.Second
)

// Server is the server whose lists are kept.
type Server struct {
	Name    string
	Adapter bridge.Adapter   // which may announce changes
	Forward []bridge.Forward // headers of requests that it gets: its lists may depend on them
	Process bool             // opening a connection starts a process: a list is no reason for that
	Shared  bool             // principals share its connections
	PerCall bool             // each call to a legacy server has a connection of its own
	Log     *slog.Logger
	Tracing *tracing.Tracing // nil without
}

// New returns what keeps the lists of a server, to be ended with Close; nil when
// nothing is to be kept.
func New(o Options, s Server) *Cache {
	if o.Off {
		return nil
	}
	c := &Cache{server: s, fetches: map[string]*fetch{}, asked: map[*fetch]struct{}{}}
	o = o.complete()
	c.o.Store(&o)
	for i := range c.shared {
		c.shared[i] = map[string]*entry{}
	}
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	var err error
	if c.entries, err = simplelru.NewLRU(maxKept, c.dropped); err != nil {
		panic(err) // the size is positive
	}
	if known, ok := s.Adapter.(bridge.AnnouncesChanges); ok {
		c.announced = true
		c.unfollow = known.AnnounceChanges(func(method string) { c.changed(nil, method) })
	}
	return c
}

// Set has other options count from now on. What is kept goes. nil keeps nothing, whatever
// they are.
func (c *Cache) Set(o Options) {
	if o = o.complete(); c == nil || *c.o.Load() == o {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.o.Store(&o)
	c.old = false
	c.entries.Purge()
	c.void(func(*key) bool { return true })
}

// On reports whether anything is kept.
func (c *Cache) On() bool { return c != nil && !c.o.Load().Off }

// Wrap returns up with its lists kept, where each call has a connection of its own
// that is opened on behalf of from. A nil Cache keeps nothing.
func (c *Cache) Wrap(up bridge.Upstream, from *bridge.Caller) bridge.Upstream {
	if c == nil {
		return up
	}
	return &Cached{Upstream: up, cache: c, from: from}
}

// Close ends the fetches, and returns when they have ended.
func (c *Cache) Close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	if c.unfollow != nil {
		c.unfollow()
	}
	c.stop(bridge.ErrShutdown)
	c.wg.Wait()
}

// Status says what is cached of a server, and how often that was of use. The
// counts begin with the process.
type Status struct {
	Entries int           // answers that are cached
	Bytes   int64         // their size
	Oldest  time.Duration // the age of the oldest of them
	Stale   bool          // expired answers are served, because the server cannot be asked
	Hits    uint64        // requests that were answered from the cache
	Misses  uint64        // requests that went to the server
	Joined  uint64        // requests that waited for the answer to another one of the same
	Served  uint64        // requests that were answered with an expired answer
}

// Status returns that.
func (c *Cache) Status() (s Status) {
	if c == nil {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, e := range c.entries.Values() {
		if !e.pass {
			s.Entries++
			s.Oldest = max(s.Oldest, now.Sub(e.got))
		}
	}
	s.Bytes, s.Stale = c.bytes, c.old
	s.Hits, s.Misses, s.Joined, s.Served = c.hits.Load(), c.misses.Load(), c.joined.Load(), c.served.Load()
	return s
}
