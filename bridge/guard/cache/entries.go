package cache

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// entry is an answer that is kept.
type entry struct {
	*key
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
func (u *Cached) entry(p *key, a *jsonrpc.Message, t terms) *entry {
	if a.ID == nil { // as answers are that the bridge has made; without one it is none
		a.ID = []byte("0")
	}
	m := a.Clone()
	if t.everybody && !p.everybody {
		mine := *p
		mine.text, mine.everybody = p.public, true
		p = &mine
	}
	e := &entry{key: p, m: m, hints: m.Found().TTL.End > 0 && u.Server().Modern(), goes: u.binds(p, m), announced: t.announced}
	e.fresh = time.Now().Add(t.fresh)
	if e.until = e.fresh.Add(p.o.Stale); t.empty {
		e.until = e.fresh
	}
	e.size = int64(len(m.Result)+len(m.Error)+len(p.text)) + entryBytes
	return e
}

// binds reports whether the answer is a page that another follows, which may be
// there for the same connection only: a legacy server's cursor is its session's,
// or its process's. What is opened for each request has none that could be.
func (u *Cached) binds(p *key, m *jsonrpc.Message) bool {
	if p.what >= list.Kinds || u.source == nil || u.cache.server.PerCall || u.Server().Modern() {
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
func (c *Cache) get(p *key) *entry {
	e, ok := c.entries.Get(p.text)
	if !ok && !p.everybody {
		e, ok = c.entries.Get(p.public)
	}
	if !ok {
		return nil
	}
	return e
}

// put keeps an entry. What there was under its key goes, and so do the pages
// that follow it, which belong to the list that it was the beginning of. The
// caller holds c.mu.
func (c *Cache) put(e *entry) {
	c.entries.Remove(e.text)
	if e.what < list.Kinds && !e.paged && !e.pass {
		c.drop(e.what, func(o *entry) bool { return o.paged && o.follows(e.key) })
	}
	c.entries.Add(e.text, e)
	c.bytes += e.size
	c.index(e)[e.text] = e
	for most := c.o.Load().Bytes; c.bytes > most; {
		c.entries.RemoveOldest()
	}
}

// follows reports whether p is a page of the list that first begins.
func (p *key) follows(first *key) bool {
	return p.source == first.source && p.within(first.principal) && p.text[:p.head] == first.text[:first.head]
}

// within reports whether what is kept in a place is given to a principal, as part
// of the list that it sees.
func (p *key) within(principal string) bool { return p.everybody || p.principal == principal }

// index returns where an entry is found by what it is about. The caller holds
// c.mu.
func (c *Cache) index(e *entry) map[string]*entry {
	if e.source == nil {
		return c.shared[e.what]
	}
	if e.source.entries == nil {
		e.source.entries = map[string]*entry{}
	}
	return e.source.entries
}

// dropped is called with what is not kept any more. The caller holds c.mu.
func (c *Cache) dropped(key string, e *entry) {
	c.bytes -= e.size
	delete(c.index(e), key)
}

// drop drops entries that connections share. The caller holds c.mu.
func (c *Cache) drop(what list.Kind, which func(*entry) bool) {
	for key, e := range c.shared[what] {
		if which(e) {
			c.entries.Remove(key)
		}
	}
}

// dropOwn drops entries of one connection. The caller holds c.mu.
func (c *Cache) dropOwn(o *Source, which func(*entry) bool) {
	for key, e := range o.entries {
		if which(e) {
			c.entries.Remove(key)
		}
	}
}

// void sees to it that nothing that was asked is kept, nor given to those who ask
// from now on. The caller holds c.mu.
func (c *Cache) void(which func(*key) bool) {
	for f := range c.asked {
		if which(f.key) {
			f.void = true
			if c.fetches[f.text] == f {
				delete(c.fetches, f.text)
			}
		}
	}
}

// changed notes that a list has changed, as the connection says whose source it
// is; nil stands for all of a modern server's.
func (c *Cache) changed(o *Source, method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range list.Kinds {
		if k.Changed() != method {
			continue
		}
		if o != nil {
			o.apart[k].Store(true)
		}
		c.outdate(o, func(p *key) bool { return p.what == k })
	}
}

// Forget drops all that is kept, so that it is fetched again. It returns how many answers
// these were.
func (c *Cache) Forget() int {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.entries.Len()
	c.outdate(nil, func(*key) bool { return true })
	return before - c.entries.Len()
}

// outdate drops what concerns a connection. The caller holds c.mu.
func (c *Cache) outdate(o *Source, which func(*key) bool) {
	concerned := func(p *key) bool { return o.concerns(p) && which(p) }
	kept := func(e *entry) bool { return concerned(e.key) }
	for what := range c.shared {
		c.drop(list.Kind(what), kept)
	}
	if o != nil {
		c.dropOwn(o, kept)
	} else {
		for _, e := range c.entries.Values() {
			if e.source != nil && kept(e) {
				c.entries.Remove(e.text)
			}
		}
	}
	c.void(concerned)
}

// updated notes that a resource has changed.
func (c *Cache) updated(uri string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outdate(nil, func(p *key) bool {
		return p.what == contents && (subscribe.Within(uri, p.uri) || subscribe.Within(p.uri, uri))
	})
}

// Heard notes what a server says of changes, or what has to be fetched again since it
// may have been missed, before anybody else hears of it. It is true of all that the
// server lists.
func (c *Cache) Heard(n *jsonrpc.Message) {
	if c != nil {
		c.heard(nil, n)
	}
}

// heard is Heard, of what one connection says; nil stands for all of the server.
func (c *Cache) heard(o *Source, n *jsonrpc.Message) {
	switch n.Method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		c.changed(o, n.Method)
	case "notifications/resources/updated":
		c.updated(n.URI())
	}
}

// listener is the Client of a subscription to a modern server's changes.
type listener struct {
	bridge.Client
	c *Cache
}

// Notify notes the change, and passes it on.
func (o *listener) Notify(n *jsonrpc.Message) {
	o.c.Heard(n)
	o.Client.Notify(n)
}

// doubt drops the lists in which the connection's clients find something that
// the server denies, so that the next list is what the server says.
func (c *Cache) doubt(o *Source, principal string, k list.Kind, key string) {
	now := time.Now()
	wrong := func(e *entry) bool {
		if e.what != k || e.pass || now.Sub(e.got) < doubtEvery || e.source == nil && !e.everybody && e.principal != principal {
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
func (c *Cache) stale(p *key, since time.Time) (e *entry, first bool) {
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
func (c *Cache) serve() (first bool) {
	c.served.Add(1)
	first = !c.old
	c.old = true
	return first
}

// tell says in the log that what is kept is given out, and why.
func (c *Cache) tell(e *entry, why error, first bool) {
	level := slog.LevelDebug
	switch {
	case first && why == errAsleep:
		level = slog.LevelInfo // nothing is wrong with that
	case first:
		level = slog.LevelWarn
	}
	c.server.Log.Log(context.Background(), level, "serving an old list from the cache", "age", time.Since(e.got).Round(time.Second), "err", why)
}
