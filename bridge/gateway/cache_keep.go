package gateway

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// entry is an answer that is kept.
type entry struct {
	*spot
	m     *jsonrpc.Message // of its own bytes, which nobody changes
	hints bool             // it says for how long it holds
	goes  bool             // on, with a cursor that is for its connection only
	pass  bool             // there is none: what is asked here is not to be kept
	// announced says that it is fresh for as long as it is because a change would be
	// announced.
	announced bool
	got       time.Time // when it was asked for: it may be as old as that
	fresh     time.Time // until then it is given out; of one that counts on announcements guarded by the cache's mu
	until     time.Time // and until then if there is no other
	size      int64
}

// entryBytes is about what an entry takes beside its texts.
const entryBytes = 512

// entry makes an entry of an answer, on those terms.
func (c *keeper) entry(p *spot, a *jsonrpc.Message, t terms) *entry {
	if a.ID == nil { // as answers are that the bridge has made; without one it is none
		a.ID = []byte("0")
	}
	m := a.Clone()
	if t.everybody && !p.everybody {
		mine := *p
		mine.key, mine.everybody = p.public, true
		p = &mine
	}
	e := &entry{spot: p, m: m, hints: m.Found().TTL.End > 0 && c.Server().Modern(), goes: c.binds(p, m), announced: t.announced}
	e.fresh = time.Now().Add(t.fresh)
	if e.until = e.fresh.Add(c.cache.o.Stale); t.empty {
		e.until = e.fresh
	}
	e.size = int64(len(m.Result)+len(m.Error)+len(p.key)) + entryBytes
	return e
}

// binds reports whether the answer is a page that another follows, which may be
// there for the same connection only: a legacy server's cursor is its session's,
// or its process's. What is opened for each request has none that could be.
func (c *keeper) binds(p *spot, m *jsonrpc.Message) bool {
	if p.what >= list.Kinds || c.origin == nil || c.cache.r.share == ShareCall || c.Server().Modern() {
		return false
	}
	_, is := list.Next(m.Result)
	return is
}

// answer returns the answer for a request. Who gets it may change it and release
// it, and it says for how long it still holds.
func (e *entry) answer(r *bridge.Request, now time.Time) *jsonrpc.Message {
	if !e.hints || !r.From.Modern() {
		return e.m.Edited()
	}
	ttl := e.m.Found().TTL
	left := max(0, e.fresh.Sub(now).Milliseconds())
	return e.m.Edited(jsonrpc.Edit{From: ttl.Value, To: ttl.End, Text: strconv.AppendInt(nil, left, 10)})
}

// since reports whether the entry is of that time or later.
func (e *entry) since(t time.Time) bool { return !e.got.Before(t) }

// get returns what is kept for that place, or nil. The caller holds c.mu.
func (c *cache) get(p *spot) *entry {
	e, ok := c.kept.Get(p.key)
	if !ok && !p.everybody {
		e, ok = c.kept.Get(p.public)
	}
	if !ok {
		return nil
	}
	return e
}

// put keeps an entry. What there was under its key goes, and so do the pages
// that follow it, which belong to the list that it was the beginning of. The
// caller holds c.mu.
func (c *cache) put(e *entry) {
	c.kept.Remove(e.key)
	if e.what < list.Kinds && !e.paged && !e.pass {
		c.drop(e.what, func(o *entry) bool { return o.paged && o.follows(e.spot) })
	}
	c.kept.Add(e.key, e)
	c.bytes += e.size
	c.index(e)[e.key] = e
	for c.bytes > c.o.Bytes {
		c.kept.RemoveOldest()
	}
}

// follows reports whether p is a page of the list that first begins.
func (p *spot) follows(first *spot) bool {
	return p.origin == first.origin && p.within(first.principal) && p.key[:p.head] == first.key[:first.head]
}

// within reports whether what is kept in a place is given to a principal, as part
// of the list that it sees.
func (p *spot) within(principal string) bool { return p.everybody || p.principal == principal }

// index returns where an entry is found by what it is about. The caller holds
// c.mu.
func (c *cache) index(e *entry) map[string]*entry {
	if e.origin == nil {
		return c.shared[e.what]
	}
	if e.origin.kept == nil {
		e.origin.kept = map[string]*entry{}
	}
	return e.origin.kept
}

// dropped is called with what is not kept any more. The caller holds c.mu.
func (c *cache) dropped(key string, e *entry) {
	c.bytes -= e.size
	delete(c.index(e), key)
}

// drop drops entries that connections share. The caller holds c.mu.
func (c *cache) drop(what list.Kind, which func(*entry) bool) {
	for key, e := range c.shared[what] {
		if which(e) {
			c.kept.Remove(key)
		}
	}
}

// dropOwn drops entries of one connection. The caller holds c.mu.
func (c *cache) dropOwn(o *origin, which func(*entry) bool) {
	for key, e := range o.kept {
		if which(e) {
			c.kept.Remove(key)
		}
	}
}

// concerns reports whether what is kept in a place may be what the connection
// lists; nil is any.
func (o *origin) concerns(p *spot) bool {
	switch {
	case o == nil, p.origin == o:
		return true
	case p.origin != nil:
		return false
	}
	return o.all || p.everybody || p.principal == o.principal
}

// void sees to it that nothing that was asked is kept, nor given to those who ask
// from now on. The caller holds c.mu.
func (c *cache) void(which func(*spot) bool) {
	for f := range c.asked {
		if which(f.spot) {
			f.void = true
			if c.fetches[f.key] == f {
				delete(c.fetches, f.key)
			}
		}
	}
}

// changed notes that a list has changed, as the connection says whose origin it
// is; nil stands for all of a modern server's.
func (c *cache) changed(o *origin, method string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range list.Kinds {
		if k.Changed() != method {
			continue
		}
		if o != nil {
			o.said[k].Store(true)
		}
		c.outdate(o, func(p *spot) bool { return p.what == k })
	}
}

// outdate drops what concerns a connection. The caller holds c.mu.
func (c *cache) outdate(o *origin, which func(*spot) bool) {
	which = both(o.concerns, which)
	kept := func(e *entry) bool { return which(e.spot) }
	for what := range c.shared {
		c.drop(list.Kind(what), kept)
	}
	if o != nil {
		c.dropOwn(o, kept)
	} else {
		for _, e := range c.kept.Values() {
			if e.origin != nil && kept(e) {
				c.kept.Remove(e.key)
			}
		}
	}
	c.void(which)
}

func both(a, b func(*spot) bool) func(*spot) bool {
	return func(p *spot) bool { return a(p) && b(p) }
}

// updated notes that a resource has changed.
func (c *cache) updated(uri string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outdate(nil, func(p *spot) bool {
		return p.what == contents && (list.Within(uri, p.uri) || list.Within(p.uri, uri))
	})
}

// Heard notes what the server says of changes over the connection.
func (o *origin) Heard(n *jsonrpc.Message) {
	if o != nil {
		o.c.heard(o, n)
	}
}

// heard notes what a server says of changes, before anybody else hears of it. o
// is nil for what a modern server says in a subscription, which is true of all
// that it lists.
func (c *cache) heard(o *origin, n *jsonrpc.Message) {
	if c == nil {
		return
	}
	switch n.Method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		c.changed(o, n.Method)
	case "notifications/resources/updated":
		c.updated(n.URI())
	}
}

// overheard is the Client of a subscription to a modern server's changes.
type overheard struct {
	bridge.Client
	c *cache
}

// Notify notes the change, and passes it on.
func (o *overheard) Notify(n *jsonrpc.Message) {
	o.c.heard(nil, n)
	o.Client.Notify(n)
}

// Reopened notes that a connection was opened anew. What it had listed before was
// its process's, and after a loss so was what it shared with others.
func (o *origin) Reopened(lost bool) {
	if o == nil {
		return
	}
	c := o.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outdate(o, func(p *spot) bool { return lost || p.origin == o })
}

// Replaced notes that the server is not the one that it was.
func (o *origin) Replaced() {
	if o == nil {
		return
	}
	c := o.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.Purge()
	c.void(func(*spot) bool { return true })
}

// Ended drops what only this connection has listed.
func (o *origin) Ended() {
	if o == nil {
		return
	}
	c := o.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropOwn(o, func(*entry) bool { return true })
}

// doubt drops the lists in which the connection's clients find something that
// the server denies, so that the next list is what the server says.
func (c *cache) doubt(o *origin, principal string, k list.Kind, key string) {
	now := time.Now()
	wrong := func(e *entry) bool {
		if e.what != k || e.pass || now.Sub(e.got) < doubtEvery || e.origin == nil && !e.everybody && e.principal != principal {
			return false
		}
		has := false
		k.Each(e.m.Result, func(_ []byte, listed string) { has = has || listed == key })
		return has
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(k, wrong)
	if o != nil {
		c.dropOwn(o, wrong)
	}
}

// stale returns what is kept although it is not fresh any more, for want of an
// answer; nil when there is nothing that will do. first says that it is the
// first time since the server has answered.
func (c *cache) stale(p *spot, since time.Time) (e *entry, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e = c.get(p)
	if e == nil || e.pass || !time.Now().Before(e.until) || !e.since(since) {
		return nil, false
	}
	return e, c.serve()
}

// serve counts that an entry is given out although it may not be fresh. It
// reports whether it is the first since the server has answered. The caller
// holds c.mu.
func (c *cache) serve() (first bool) {
	c.served.Add(1)
	first = !c.old
	c.old = true
	return first
}

// tell says in the log that what is kept is given out, and why.
func (c *cache) tell(e *entry, why error, first bool) {
	level := slog.LevelDebug
	switch {
	case first && why == errAsleep:
		level = slog.LevelInfo // nothing is wrong with that
	case first:
		level = slog.LevelWarn
	}
	c.r.log.Log(context.Background(), level, "what the server has listed before is given out", "age", time.Since(e.got).Round(time.Second), "err", why)
}

// CacheStatus says what is kept of a server, and how much that was of use.
type CacheStatus struct {
	Entries int
	Bytes   int64
	Oldest  time.Duration // the age of what is kept for longest
	Stale   bool          // what is not fresh any more is given out, since the server cannot be asked
	// Requests that were answered from what is kept, that were not, that waited
	// for the answer to another one, and that got something stale.
	Hits, Misses, Joined, Served uint64
}

func (c *cache) status() (s CacheStatus) {
	if c == nil {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, e := range c.kept.Values() {
		if !e.pass {
			s.Entries++
			s.Oldest = max(s.Oldest, now.Sub(e.got))
		}
	}
	s.Bytes, s.Stale = c.bytes, c.old
	s.Hits, s.Misses, s.Joined, s.Served = c.hits.Load(), c.misses.Load(), c.joined.Load(), c.served.Load()
	return s
}
