package cache

import (
	"time"

	"github.com/mcp-bridge/bridge/bridge/internal/lane"
)

// A list of a legacy server is kept for longer when the server announces its
// changes. That counts on somebody who hears it: while no connection is open over
// which a change would come, a list is kept as if it were not announced.

// listeners counts the connections that are open, by who hears of changes over them.
type listeners struct {
	all    int            // connections
	shared int            // of these, those that principals share
	of     map[string]int // the others, by principal
}

func (e *listeners) add(s *Source, n int) {
	s.open += n
	e.all += n
	if s.all {
		e.shared += n
		return
	}
	if e.of == nil {
		e.of = map[string]int{}
	}
	if e.of[s.from.Principal] += n; e.of[s.from.Principal] == 0 {
		delete(e.of, s.from.Principal)
	}
}

// hear reports whether a change of what is kept in a place would be heard. It is
// what source.concerns says, of any connection that is open.
func (e *listeners) hear(p *key) bool {
	switch {
	case p.source != nil:
		return p.source.open > 0
	case p.everybody:
		return e.all > 0
	}
	return e.shared > 0 || e.of[p.principal] > 0
}

// missesChanges notes that nobody will hear of a change. The caller holds the cache's
// mu.
func (e *entry) missesChanges(end time.Time) {
	if e.announced && end.Before(e.fresh) {
		e.fresh = end
	}
}

// hears reports whether a change of what was fetched would be heard. The
// caller holds c.mu.
func (c *Cache) hears(f *fetch, p *key) bool {
	return c.announced || c.listeners.hear(p) && (f.c.lane == nil || f.c.lane.State() != lane.Deaf)
}
