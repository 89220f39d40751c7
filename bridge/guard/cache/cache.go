// Package cache keeps the lists of a server. Callers that ask for the same list at the same time share one fetch.
//
// A list that was fetched for one principal never goes to another principal, unless the server or its operator declares
// the list public. If the server announces a change, the cache drops the list before any client is notified. While the
// server is unavailable, the cache answers with the last lists.
//
// The cache fetches only lists that a client requests. Its fetches run in goroutines that Close stops and awaits. It
// writes nothing to disk.
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

// Cache keeps lists of one server. For a modern server it also keeps results of server/discover and of resources/read
// (protocol.md B13, D1.3). It keeps whole answers as the server sent them: filters and translations are above it.
//
// If the server announces a change, answers that are on their way may be older than the change. So each request
// is in inFlight before it is sent.
type Cache struct {
	server  Server
	options atomic.Pointer[Options] // complete: without zero values that mean a default
	ctx     context.Context         // bounds the fetches; Close cancels it
	stop    context.CancelCauseFunc
	wg      sync.WaitGroup // of the fetches

	hits, misses, joined, served atomic.Uint64 // counts of Status
	sources                      atomic.Uint64 // last id that a Source got
	stale                        atomic.Bool   // the cache has used expired answers since the server last answered

	unfollow func() // ends the announcements of changes by the adapter; nil if it makes none

	mu       sync.Mutex // guards the rest
	entries  simplelru.LRUCache[string, *entry]
	bytes    int64               // total size of entries
	fetches  map[string]*fetch   // fetches that other callers may join, by key
	inFlight map[*fetch]struct{} // fetches and calls whose answer may be stored
	closed   bool
}

// contents and greetings are kinds of answers beside the kinds of lists.
const (
	contents  = list.Kinds + iota // results of resources/read
	greetings                     // results of server/discover
)

// Limits of a cache (protocol.md F).
const (
	maxEntries = 16_384          // of one server
	maxKey     = 8 << 10         // bytes of the text of a key
	maxFresh   = 24 * time.Hour  // a modern server cannot make an answer fresh for longer
	emptyFor   = time.Second     // an empty list is fresh for at most this long: the server may be about to fill it
	maxFetch   = 5 * time.Minute // time limit of a fetch
)

// Server describes the server of a Cache.
type Server struct {
	Name    string
	Adapter bridge.Adapter   // may implement bridge.AnnouncesChanges, whose announcements the cache then obeys
	Forward []bridge.Forward // headers and claims that the server gets; its lists may depend on them
	Process bool             // a connection starts a process; a request for a list does not start one while the cache can answer
	Shared  bool             // principals share its connections
	PerCall bool             // each call to a legacy server has a connection of its own
	Log     *slog.Logger
	Tracing *tracing.Tracing // may be nil
}

// New returns the cache of a server, or nil if o switches the cache off. The caller must call Close.
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

// Set replaces the options. If they change, it drops all entries. A nil Cache stays off.
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

// On reports whether the cache keeps answers. It is false for nil.
func (c *Cache) On() bool { return c != nil && !c.options.Load().Off }

// Wrap returns up with the cache in front. It is for an up that opens a connection for each call, on behalf of from. If
// c is nil, Wrap returns up.
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

// Close stops the fetches and awaits them. Later calls go to the server.
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

// Status is the state of a cache. Counts begin with the start of the bridge.
type Status struct {
	Entries int           // cached answers
	Bytes   int64         // size of the cached answers
	Oldest  time.Duration // age of the oldest cached answer
	Stale   bool          // the cache has used expired answers since the server last answered
	Hits    uint64        // requests answered with a fresh answer
	Misses  uint64        // requests that went to the server
	Joined  uint64        // requests that waited for a fetch of another request
	Served  uint64        // requests answered with an expired answer
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
