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
	m     *jsonrpc.Message // has its own bytes, which never change
	ttl   bool             // m has a ttlMs
	asked time.Time        // when it was requested: its state may be that old
	fresh time.Time        // it serves until then; zero if it is not stored
	until time.Time        // it serves until then while the server is unavailable
	size  int64
}

// entryBytes is about the memory of an entry beside its texts.
const entryBytes = 512

// entry returns the entry of an answer, without the answer. A modern server says how long it
// is fresh and for whom. A legacy one cannot.
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

// with adds the answer to the entry.
func (e *entry) with(m *jsonrpc.Message) *entry {
	if m.ID == nil { // the bridge made it; Clone needs an ID
		m.ID = []byte("0")
	}
	e.m = m.Clone()
	return e
}

// answer returns the answer for a request, with the rest of its time. The receiver may change
// and release it.
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

// since reports whether the entry was requested at t or later.
func (e *entry) since(t time.Time) bool { return !e.asked.Before(t) }

// get returns the entry of a key, or nil. The caller holds c.mu.
func (c *Cache) get(k *key) *entry {
	e, ok := c.entries.Get(k.text)
	if !ok && !k.everybody {
		e, _ = c.entries.Get(k.public)
	}
	return e
}

// store stores what f fetched, unless a newer answer is there. The caller holds c.mu.
func (c *Cache) store(f *fetch, e *entry) {
	e.asked = f.began
	if before, ok := c.entries.Peek(e.text); ok && before.asked.After(e.asked) {
		return
	}
	c.entries.Remove(f.text) // the caller's own one, if e is public now
	c.entries.Remove(e.text)
	if e.what < list.Kinds && !e.paged { // the other pages belong to the list of before
		c.drop(func(k *key) bool { return k.paged && k.sameList(e.key) })
	}
	c.entries.Add(e.text, e)
	c.bytes += e.size
	for most := c.options.Load().Bytes; c.bytes > most; {
		c.entries.RemoveOldest()
	}
}

// drop drops entries, and voids fetches in flight: their answers are not stored, and no caller
// joins them. The caller holds c.mu.
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

// Forget drops all entries and returns how many there were.
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

// Heard handles a notification of the server about changes, before any client gets the
// notification. The bridge also makes notifications when it may have missed some; Heard handles
// these too. A notification concerns the lists of all connections to the server.
func (c *Cache) Heard(m *jsonrpc.Message) {
	if c != nil {
		c.heard(nil, m)
	}
}

// heard handles a notification that came over the connection of s. A nil s stands for all
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

// changed drops the lists that a notification of that method announces as changed. If the connection
// of s announced the change, it has lists of its own from then on. s is nil for other announcements.
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

// listener is the Client of a subscription to a modern server's changes.
type listener struct {
	bridge.Client
	cache *Cache
}

// Notify informs the cache before the client.
func (l *listener) Notify(m *jsonrpc.Message) {
	l.cache.Heard(m)
	l.Client.Notify(m)
}
