package cache

import (
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// entry is a cached answer.
type entry struct {
	*key
	m     *jsonrpc.Message // a copy with its own bytes, which never change
	ttl   bool             // m has a ttlMs
	asked time.Time        // when the fetch began: the answer is at least as new as that
	fresh time.Time        // until then the answer is fresh; zero if it must not be stored
	until time.Time        // until then the answer is used while the server is unavailable
	size  int64            // bytes, for Options.Bytes
}

// entryBytes estimates the memory of an entry beside its texts.
const entryBytes = 512

// entry returns an entry for the answer m, but without m. A modern server says how long m is fresh and whether it is
// public. For a legacy server Options decide.
func (c *Cached) entry(k *key, m *jsonrpc.Message) *entry {
	e := &entry{key: k, size: int64(len(m.Result)+len(m.Error)+len(k.text)) + entryBytes}
	g, fresh, everybody, empty := c.Server(), min(k.options.Lists, maxFresh), k.everybody, false
	if m.Error != nil || g == nil || g.Revision != k.revision || int64(len(m.Result)) > k.options.Bytes/4 {
		return e
	}
	if g.Modern() {
		f := m.Found()
		ms, err := strconv.ParseInt(string(f.TTL.Of(m.Result)), 10, 64)
		if e.ttl = f.TTL.End > 0; err != nil || ms <= 0 || f.Twice || era.ResultType(m) != era.ResultComplete {
			return e
		}
		fresh = time.Duration(min(ms, maxFresh.Milliseconds())) * time.Millisecond
		everybody = everybody || string(f.Scope.Of(m.Result)) == `"public"`
	}
	if k.what < list.Kinds {
		items := gjson.GetBytes(m.Result, k.what.Member())
		if !items.IsArray() {
			return e
		}
		if empty = items.Get("0").Raw == ""; empty {
			fresh = min(fresh, emptyFor)
		}
	}
	if everybody && !k.everybody {
		public := *k
		public.text, public.everybody = k.public, true
		e.key = &public
	}
	e.fresh = time.Now().Add(fresh)
	if e.until = e.fresh; !empty {
		e.until = e.fresh.Add(k.options.Stale)
	}
	return e
}

// with sets a copy of m as the answer of the entry.
func (e *entry) with(m *jsonrpc.Message) *entry {
	if m.ID == nil { // an answer that the bridge made has no ID, and Clone needs one
		m.ID = []byte("0")
	}
	e.m = m.Clone()
	return e
}

// answer returns a copy of the answer for a request. The copy has the remaining time in ttlMs, if both sides are
// modern. The caller may change and release it.
func (e *entry) answer(r *bridge.Request, now time.Time) *jsonrpc.Message {
	if !e.ttl || !r.From.Modern() {
		return e.m.Edited()
	}
	ttl := e.m.Found().TTL
	left := max(0, e.fresh.Sub(now).Milliseconds())
	return e.m.Edited(jsonrpc.Edit{
		From: ttl.Value,
		To:   ttl.End,
		Text: strconv.AppendInt(nil, left, 10),
	})
}

// since reports whether the fetch began at t or later.
func (e *entry) since(t time.Time) bool { return !e.asked.Before(t) }

// get returns the entry of a key, or nil. It may be out of date. The caller holds c.mu.
func (c *Cache) get(k *key) *entry {
	e, ok := c.entries.Get(k.text)
	if !ok && !k.everybody {
		e, _ = c.entries.Get(k.public)
	}
	return e
}

// store stores the answer of f, unless the cache has a newer one. The caller holds c.mu.
func (c *Cache) store(f *fetch, e *entry) {
	e.asked = f.began
	if before, ok := c.entries.Peek(e.text); ok && before.asked.After(e.asked) {
		return
	}
	c.entries.Remove(f.text) // if e is public now, the caller's private entry is out of date
	c.entries.Remove(e.text)
	if e.what < list.Kinds && !e.paged { // the other pages belong to the former list
		c.drop(func(k *key) bool { return k.paged && k.sameList(e.key) })
	}
	c.entries.Add(e.text, e)
	c.bytes += e.size
	for most := c.options.Load().Bytes; c.bytes > most; {
		c.entries.RemoveOldest()
	}
}

// drop removes the entries whose key which selects. Fetches in flight with such keys become void: their answers are not
// stored, and no caller joins them. The caller holds c.mu.
func (c *Cache) drop(which func(*key) bool) {
	for _, e := range c.entries.Values() {
		if which(e.key) {
			c.entries.Remove(e.text)
		}
	}
	for f := range c.inFlight {
		if which(f.key) {
			f.void = true
			c.unlist(f)
		}
	}
}

// Forget removes all entries and returns how many there were. Fetches in flight become void.
func (c *Cache) Forget() int {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.entries.Len()
	c.drop(func(*key) bool { return true })
	return n
}

// Heard drops what a notification of the server announces as changed, whichever connection it came over. It must run
// before any client gets the notification. The bridge also calls Heard with notifications that it makes itself when it
// may have missed some.
func (c *Cache) Heard(m *jsonrpc.Message) {
	if c != nil {
		c.heard(nil, m)
	}
}

// heard is Heard for a notification over the connection of s. If s is nil, the notification concerns the lists of all
// connections.
func (c *Cache) heard(s *Source, m *jsonrpc.Message) {
	if m.Method != "notifications/resources/updated" {
		c.changed(s, m.Method)
		return
	}
	uri := m.URI()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(func(k *key) bool {
		return k.what == contents && (subscribe.Within(uri, k.uri) || subscribe.Within(k.uri, uri))
	})
}

// changed drops the lists that a notification of that method announces as changed. If s is not nil, the connection of s
// announced the change, and from now on has lists of its own.
func (c *Cache) changed(s *Source, method string) {
	for kind := range list.Kinds {
		if kind.Changed() != method {
			continue
		}
		c.mu.Lock()
		if s != nil {
			s.apart.Store(true)
		}
		c.drop(func(k *key) bool { return k.what == kind && s.concerns(k) })
		c.mu.Unlock()
	}
}

// listener is the Client of a subscription to changes at a modern server.
type listener struct {
	bridge.Client
	cache *Cache
}

// Notify passes m to the cache before the client.
func (l *listener) Notify(m *jsonrpc.Message) {
	l.cache.Heard(m)
	l.Client.Notify(m)
}
