package cache

import (
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Source is a connection as the cache sees it: what was kept of it, and whether
// it may be what others are given, too. A connection that has said that its list
// has changed may have another one than others have (share: session), so that
// from then on its lists are its own. So are those of a connection whose list has
// pages: it need not know the cursors that another one has given.
//
// It is the observer of its lane. Of nil, that is where nothing is kept, nobody
// takes note.
type Source struct {
	c       *Cache
	from    *bridge.Caller
	id      uint64
	all     bool                    // principals share it
	apart   [list.Kinds]atomic.Bool // that it has changed, or goes on; set with the cache's mu
	entries map[string]*entry       // its own; guarded by the cache's mu
	open    int                     // 1 while it is open, 2 while it is exchanged; guarded by the cache's mu
}

var _ lane.Observer = (*Source)(nil)

// Source returns the observer of a lane on behalf of from.
func (c *Cache) Source(from *bridge.Caller) *Source {
	if c == nil {
		return nil
	}
	return &Source{c: c, id: c.numbers.Add(1), from: from, all: c.server.Shared}
}

// Lane is the connection that a source observes.
type Lane interface{ State() lane.State }

// Wrap returns up, which calls over the lane that the source observes, with its lists
// kept.
func (s *Source) Wrap(up bridge.Upstream, l Lane) bridge.Upstream {
	if s == nil {
		return up
	}
	return &Cached{Upstream: up, cache: s.c, from: s.from, lane: l, source: s}
}

// differs reports whether what the connection lists is its own.
func (s *Source) differs(what list.Kind) bool {
	return s != nil && what < list.Kinds && s.apart[what].Load()
}

// concerns reports whether what is kept in a place may be what the connection
// lists; nil is any.
func (s *Source) concerns(p *key) bool {
	switch {
	case s == nil, p.source == s:
		return true
	case p.source != nil:
		return false
	}
	return s.all || p.everybody || p.principal == s.from.Principal
}

// locked calls f with the cache locked, unless nothing is kept.
func (s *Source) locked(f func(c *Cache)) {
	if s == nil {
		return
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	f(s.c)
}

// Opened notes that a connection is open.
func (s *Source) Opened() { s.locked(func(c *Cache) { c.listeners.add(s, 1) }) }

// Closed notes that a connection is not open any more. Of what it was the last to
// hear of, the time begins to run.
func (s *Source) Closed() {
	s.locked(func(c *Cache) {
		c.listeners.add(s, -1)
		if c.announced || s.open > 0 {
			return
		}
		end := time.Now().Add(unannouncedFor)
		for _, e := range s.entries {
			e.missesChanges(end)
		}
		if c.listeners.shared > 0 || c.listeners.of[s.from.Principal] > 0 {
			return
		}
		for _, kept := range c.shared {
			for _, e := range kept {
				if !c.listeners.hear(e.key) {
					e.missesChanges(end)
				}
			}
		}
	})
}

// Deaf notes that a connection does not hear of changes for now. That another
// one may is not counted on.
func (s *Source) Deaf() {
	s.locked(func(c *Cache) {
		if c.announced {
			return
		}
		end := time.Now().Add(unannouncedFor)
		for _, e := range s.entries {
			e.missesChanges(end)
		}
		for _, kept := range c.shared {
			for _, e := range kept {
				if s.concerns(e.key) {
					e.missesChanges(end)
				}
			}
		}
	})
}

// Heard notes what the server says of changes over the connection.
func (s *Source) Heard(n *jsonrpc.Message) {
	if s != nil {
		s.c.heard(s, n)
	}
}

// Reopened notes that a connection was opened anew. What it had listed before was
// its process's, and after a loss so was what it shared with others.
func (s *Source) Reopened(lost bool) {
	s.locked(func(c *Cache) { c.outdate(s, func(p *key) bool { return lost || p.source == s }) })
}

// Replaced notes that the server is not the one that it was.
func (s *Source) Replaced() {
	s.locked(func(c *Cache) {
		c.entries.Purge()
		c.void(func(*key) bool { return true })
	})
}

// Ended drops what only this connection has listed.
func (s *Source) Ended() {
	s.locked(func(c *Cache) { c.dropOwn(s, func(*entry) bool { return true }) })
}
