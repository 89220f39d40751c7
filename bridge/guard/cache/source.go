package cache

import (
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Source tells the cache what happens at one lane. A nil Source is for a server without a cache, and does nothing.
//
// Connections share lists until one of them announces a change. Then that connection gets lists of its own, since with
// share: session its lists may differ from those of the others. The same holds for a list of several pages: the server
// may accept its cursors only on the same connection.
type Source struct {
	cache *Cache
	from  *bridge.Caller
	id    uint64
	apart atomic.Bool // the connection has lists of its own; set with the cache's mu held
}

var _ lane.Observer = (*Source)(nil)

// Source returns the observer of a lane that serves from.
func (c *Cache) Source(from *bridge.Caller) *Source {
	if c == nil {
		return nil
	}
	return &Source{
		cache: c,
		id:    c.sources.Add(1),
		from:  from,
	}
}

// Lane is the lane that a Source observes.
type Lane interface{ State() lane.State }

// Wrap returns up with the cache in front. up makes its calls over l, the observed lane. A nil Source returns up.
func (s *Source) Wrap(up bridge.Upstream, l Lane) bridge.Upstream {
	if s == nil {
		return up
	}
	return &Cached{
		Upstream: up,
		cache:    s.cache,
		from:     s.from,
		lane:     l,
		source:   s,
	}
}

// isApart reports whether answers of that kind belong to the connection alone.
func (s *Source) isApart(what list.Kind) bool {
	return s != nil && what < list.Kinds && s.apart.Load()
}

// concerns reports whether the answer of a key may have come over the connection. It is true for a nil Source.
func (s *Source) concerns(k *key) bool {
	switch {
	case s == nil, k.source == s:
		return true
	case k.source != nil:
		return false
	}
	return s.cache.server.Shared || k.everybody || k.principal == s.from.Principal
}

// drop removes the entries that which selects and that may have come over the connection.
func (s *Source) drop(which func(*key) bool) {
	if s == nil {
		return
	}
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	s.cache.drop(func(k *key) bool { return s.concerns(k) && which(k) })
}

// Notified drops what a notification of the server announces as changed.
func (s *Source) Notified(m *jsonrpc.Message) {
	if s != nil {
		s.cache.heard(s, m)
	}
}

// Reopened drops the connection's own lists, which came from the former process. If the former connection was lost, it
// drops all lists that may have come over it.
func (s *Source) Reopened(lost bool) {
	s.drop(func(k *key) bool { return lost || k.source == s })
}

// Replaced drops all entries, because another server answers at this address now.
func (s *Source) Replaced() {
	if s != nil {
		s.cache.Forget()
	}
}

// Ended drops the connection's own lists.
func (s *Source) Ended() { s.drop(func(k *key) bool { return k.source == s }) }
