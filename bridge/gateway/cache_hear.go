package gateway

import (
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/lane"
)

// A list of a legacy server is kept for longer when the server announces its
// changes. That counts on somebody who hears it: while no connection is open over
// which a change would come, a list is kept as if it were not announced.

// ears counts the connections that are open, by who hears of changes over them.
type ears struct {
	all    int            // connections
	shared int            // of these, those that principals share
	of     map[string]int // the others, by principal
}

func (e *ears) add(o *origin, n int) {
	o.open += n
	e.all += n
	if o.all {
		e.shared += n
		return
	}
	if e.of == nil {
		e.of = map[string]int{}
	}
	if e.of[o.principal] += n; e.of[o.principal] == 0 {
		delete(e.of, o.principal)
	}
}

// hear reports whether a change of what is kept in a place would be heard. It is
// what origin.concerns says, of any connection that is open.
func (e *ears) hear(p *spot) bool {
	switch {
	case p.origin != nil:
		return p.origin.open > 0
	case p.everybody:
		return e.all > 0
	}
	return e.shared > 0 || e.of[p.principal] > 0
}

// follow has the adapter say what has changed, if it can. stop ends that.
func (c *cache) follow(a bridge.Adapter) (stop func()) {
	known, ok := a.(bridge.AnnouncesChanges)
	if c == nil || !ok {
		return func() {}
	}
	c.announced = true
	return known.AnnounceChanges(func(method string) { c.changed(nil, method) })
}

// Opened notes that a connection is open.
func (o *origin) Opened() {
	if o == nil {
		return
	}
	c := o.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ears.add(o, 1)
}

// Closed notes that a connection is not open any more. Of what it was the last to
// hear of, the time begins to run.
func (o *origin) Closed() {
	if o == nil {
		return
	}
	c := o.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ears.add(o, -1)
	if c.announced || o.open > 0 {
		return
	}
	end := time.Now().Add(unannouncedFor)
	for _, e := range o.kept {
		e.unheard(end)
	}
	if c.ears.shared > 0 || c.ears.of[o.principal] > 0 {
		return
	}
	for _, kept := range c.shared {
		for _, e := range kept {
			if !c.ears.hear(e.spot) {
				e.unheard(end)
			}
		}
	}
}

// Deaf notes that a connection does not hear of changes for now. That another
// one may is not counted on.
func (o *origin) Deaf() {
	if o == nil || o.c.announced {
		return
	}
	c := o.c
	c.mu.Lock()
	defer c.mu.Unlock()
	end := time.Now().Add(unannouncedFor)
	for _, e := range o.kept {
		e.unheard(end)
	}
	for _, kept := range c.shared {
		for _, e := range kept {
			if o.concerns(e.spot) {
				e.unheard(end)
			}
		}
	}
}

// unheard notes that nobody will hear of a change. The caller holds the cache's
// mu.
func (e *entry) unheard(end time.Time) {
	if e.announced && end.Before(e.fresh) {
		e.fresh = end
	}
}

// overhears reports whether a change of what was fetched would be heard. The
// caller holds c.mu.
func (c *cache) overhears(f *fetch, p *spot) bool {
	return c.announced || c.ears.hear(p) && (f.c.lane == nil || f.c.lane.State() != lane.Deaf)
}
