// Package cache keeps the lists of a server. All callers that ask for a list at the same time share
// one fetch.
//
// A list of one principal never serves another one, unless the server or its operator declares it
// public. A change that the server announces drops the list before any client gets the
// notification. While the server is unavailable, its last lists are served.
//
// The cache fetches lists in goroutines, which Close stops and awaits. The cache writes nothing to
// disk, and fetches only requested lists.
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

// Cache keeps the answers of one server: its lists. For a modern server it also keeps the results
// of server/discover and of resources/read (protocol.md B13, D1.3). It keeps whole answers as the
// server sent them. Filters and translations come after it.
//
// A change must also void answers that are still on their way. So each request is
// registered in inFlight before it is sent.
type Cache struct {
	server  Server
	options atomic.Pointer[Options] // with their defaults
	ctx     context.Context         // of the fetches; Close cancels it
	stop    context.CancelCauseFunc
	wg      sync.WaitGroup // fetches

	hits, misses, joined, served atomic.Uint64 // served counts stale answers
	sources                      atomic.Uint64 // the last id of a Source
	stale                        atomic.Bool   // stale answers were served since the server last answered

	unfollow func() // ends the adapter's own announcements of changes; nil without

	mu       sync.Mutex // guards the rest
	entries  simplelru.LRUCache[string, *entry]
	bytes    int64
	fetches  map[string]*fetch   // fetches that further callers may join, by key
	inFlight map[*fetch]struct{} // all whose answers may be stored
	closed   bool
}

// Subjects of cached answers beside the kinds of lists.
const (
	contents  = list.Kinds + iota // of a resource
	greetings                     // results of server/discover
)

// Limits (protocol.md F).
const (
	maxEntries = 16_384         // of one server
	maxKey     = 8 << 10        // bytes
	maxFresh   = 24 * time.Hour // longer times of the server are cut
	emptyFor   = time.Second    // the server may be about to fill an empty list
	maxFetch   = 5 * time.Minute
)

// Server describes the server whose answers are cached.
type Server struct {
	Name    string
	Adapter bridge.Adapter   // may implement bridge.AnnouncesChanges
	Forward []bridge.Forward // headers of clients that the server gets: its lists may depend on them
	Process bool             // a connection is a process, which is not started for a list
	Shared  bool             // principals share its connections
	PerCall bool             // a connection to a legacy server serves one call
	Log     *slog.Logger
	Tracing *tracing.Tracing // may be nil
}

// New returns the cache of a server, or nil if o switches it off. The caller must Close it.
func New(o Options, s Server) *Cache {
	if o.Off {
		return nil
	}
	c := &Cache{
		server:   s,
		fetches:  map[string]*fetch{},
		inFlight: map[*fetch]struct{}{},
	}
	o = o.complete()
	c.options.Store(&o)
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	var err error
	if c.entries, err = simplelru.NewLRU(maxEntries, func(_ string, e *entry) { c.bytes -= e.size }); err != nil {
		panic(err) // the size is positive
	}
	if a, ok := s.Adapter.(bridge.AnnouncesChanges); ok {
		c.unfollow = a.AnnounceChanges(func(method string) { c.changed(nil, method) })
	}
	return c
}

// Set replaces the options and drops all entries. A nil Cache stays off.
func (c *Cache) Set(o Options) {
	if o = o.complete(); c == nil || *c.options.Load() == o {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.options.Store(&o)
	c.stale.Store(false)
	c.drop(func(*key) bool { return true })
}

// On reports whether the cache keeps anything.
func (c *Cache) On() bool { return c != nil && !c.options.Load().Off }

// Wrap returns up with the cache before it. Each call of up opens a connection on behalf of
// from. A nil Cache returns up.
func (c *Cache) Wrap(up bridge.Upstream, from *bridge.Caller) bridge.Upstream {
	if c == nil {
		return up
	}
	return &Cached{
		Upstream: up,
		cache:    c,
		from:     from,
	}
}

// Close stops the fetches and awaits them.
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

// Status describes the cache of a server. Counts begin with the process.
type Status struct {
	Entries int           // cached answers
	Bytes   int64         // their size
	Oldest  time.Duration // the age of the oldest one
	Stale   bool          // expired answers are served, because the server is unavailable
	Hits    uint64        // requests that were answered from the cache
	Misses  uint64        // requests that went to the server
	Joined  uint64        // requests that waited for the answer to an equal one
	Served  uint64        // requests that were answered with an expired answer
}

func (c *Cache) Status() (s Status) {
	if c == nil {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, e := range c.entries.Values() {
		s.Oldest = max(s.Oldest, now.Sub(e.asked))
	}
	s.Entries, s.Bytes, s.Stale = c.entries.Len(), c.bytes, c.stale.Load()
	s.Hits, s.Misses, s.Joined, s.Served = c.hits.Load(), c.misses.Load(), c.joined.Load(), c.served.Load()
	return s
}
