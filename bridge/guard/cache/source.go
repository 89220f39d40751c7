package cache

import (
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Source observes a lane for the cache. A nil Source belongs to no cache and does nothing.
//
// Connections share lists until one announces a change. Its list may then differ from those of the
// others (share: session), so from then on it has lists of its own. The same holds for lists of
// several pages: another connection need not accept the cursors.
type Source struct {
	cache *Cache
	from  *bridge.Caller
	id    uint64
	apart atomic.Bool // its lists are its own; set with the cache's mu
}

var _ lane.Observer = (*Source)(nil)

// Source returns the observer of a lane for the caller from.
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

// Lane is the connection that a Source observes.
type Lane interface{ State() lane.State }

// Wrap returns up, which calls over the observed lane, with the cache before it.
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

// isApart reports whether answers of that subject are the connection's own.
func (s *Source) isApart(what list.Kind) bool {
	return s != nil && what < list.Kinds && s.apart.Load()
}

// concerns reports whether the answer of a key may have come over the connection. A nil
// Source stands for all connections.
func (s *Source) concerns(k *key) bool {
	switch {
	case s == nil, k.source == s:
		return true
	case k.source != nil:
		return false
	}
	return s.cache.server.Shared || k.everybody || k.principal == s.from.Principal
}

// drop drops answers that may have come over the connection.
func (s *Source) drop(which func(*key) bool) {
	if s == nil {
		return
	}
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	s.cache.drop(func(k *key) bool { return s.concerns(k) && which(k) })
}

// Notified handles a notification of the server about changes.
func (s *Source) Notified(m *jsonrpc.Message) {
	if s != nil {
		s.cache.heard(s, m)
	}
}

// Reopened drops the connection's own lists, which came from its former process. After a loss
// Reopened drops all lists that may have come over the connection.
func (s *Source) Reopened(lost bool) {
	s.drop(func(k *key) bool { return lost || k.source == s })
}

// Replaced drops all entries: another server has answered.
func (s *Source) Replaced() {
	if s != nil {
		s.cache.Forget()
	}
}

// Ended drops the connection's own lists.
func (s *Source) Ended() { s.drop(func(k *key) bool { return k.source == s }) }
