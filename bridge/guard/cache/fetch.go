package cache

import (
	"context"
	"errors"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
)

// fetch is something that a server is asked for which may be kept: for one
// caller, or for all who want to know the same meanwhile.
type fetch struct {
	*key
	c     *Cached
	began time.Time
	void  bool  // it is outdated; guarded by the cache's mu
	err   error // why there is no answer, once it has ended

	// Of one that is for all who want to know. It belongs to none of them, and
	// ends when they have all gone.
	stop    context.CancelCauseFunc
	done    chan struct{} // closed when the rest is there
	waiters int           // guarded by the cache's mu
	pinned  bool          // it goes on without any; guarded by the cache's mu
	e       *entry        // the answer, whether it is kept or not
	alone   bool          // the answer is only for who asks himself
	bound   bool          // it is only for who uses the same connection
	moot    bool          // there is no answer because the connection was closed for good
}

// found is what a request for a list finds: an entry, or a fetch to wait for, or
// with neither nothing that is of use to it.
type found struct {
	e     *entry
	f     *fetch
	now   time.Time
	why   error // the entry is stale
	first bool  // for the first time since the server has answered
}

// Why what is stale is given out, beyond errors.
var (
	errAsleep = errors.New("it is not started for a list")
	errDown   = errors.New("its connection was lost")
)

// find finds out what becomes of a request for a list, which waits for no fetch
// that began before after.
func (c *Cache) find(of *Cached, p *key, r *bridge.Request, after time.Time) (v found) {
	v.now = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.get(p)
	switch {
	case e == nil || !v.now.Before(e.until):
	case e.pass:
		c.misses.Add(1)
		return v
	case !e.since(r.NotBefore):
	case v.now.Before(e.fresh):
		c.hits.Add(1)
		v.e = e
		return v
	default:
		switch of.away(of.Server()) {
		case asleep:
			v.e, v.why, v.first = e, errAsleep, c.serve()
			return v
		case down: // it is tried again, and nobody has to wait for that
			c.fetch(of, p, r, after, true)
			v.e, v.why, v.first = e, errDown, c.serve()
			return v
		}
	}
	v.f = c.fetch(of, p, r, after, false)
	return v
}

// fetch returns the fetch for what is asked, which begins now unless one is under
// way that did not begin before after; nil when the cache is closed. The caller
// holds c.mu, and leaves the fetch if it does not wait until it is done; one that
// is pinned need not be left.
func (c *Cache) fetch(of *Cached, p *key, r *bridge.Request, after time.Time, pinned bool) *fetch {
	f := c.fetches[p.text]
	if f != nil && !f.began.Before(after) {
		c.joined.Add(1)
		if pinned {
			f.pinned = true
		} else {
			f.waiters++
		}
		return f
	}
	if c.closed {
		return nil
	}
	c.misses.Add(1)
	f = &fetch{key: p, c: of, done: make(chan struct{}), pinned: pinned}
	if !pinned {
		f.waiters = 1
	}
	var ctx context.Context
	ctx, f.stop = context.WithCancelCause(c.ctx)
	inner := of.fetching(r, of.Server())
	if c.begin(f); !f.void {
		c.fetches[p.text] = f
	}
	c.wg.Go(func() { f.run(ctx, inner) })
	return f
}

// leave says that one of those who wait for a fetch waits no more.
func (c *Cache) leave(f *fetch, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.waiters--; f.waiters > 0 || f.pinned {
		return
	}
	f.stop(cause)
	if c.fetches[f.text] == f {
		delete(c.fetches, f.text)
	}
}

// run asks the server.
func (f *fetch) run(ctx context.Context, r *bridge.Request) {
	defer f.stop(nil)
	c := f.c.cache
	limited, stop := context.WithTimeoutCause(ctx, maxFetch, &bridge.Error{Server: c.server.Name, Kind: bridge.ErrTimeout,
		Public: r.Method + " had no answer within " + maxFetch.String()})
	defer stop()
	a, err := f.c.Upstream.Call(limited, r)
	if err != nil {
		f.err, f.moot = err, f.c.lane != nil && f.c.lane.State() == lane.Ended
		c.end(f, nil)
		return
	}
	var t terms
	if a.Error == nil {
		t = f.c.terms(f.key, a)
		f.alone = f.c.Server().Modern() && era.ResultType(a) != era.ResultComplete
	}
	f.e = f.c.entry(f.key, a, t)
	a.Release()
	switch {
	case t.fresh > 0:
		c.end(f, f.e)
		return
	case f.e.m.Error != nil:
		c.end(f, nil)
	default:
		c.end(f, &entry{key: f.key, pass: true, until: time.Now().Add(passFor), size: int64(len(f.text)) + entryBytes})
	}
}

// personal reports whether there is no list for a reason that may be the caller's,
// on whose behalf the server was asked.
func (f *fetch) personal() bool {
	if f.err == nil {
		return f.e.m.Error != nil
	}
	return !excused(f.err) || errors.Is(f.err, bridge.ErrRejected) || errors.Is(f.err, bridge.ErrOverloaded)
}

// begin notes that something is about to be asked for. What is asked over a
// connection whose list has just become its own is not kept for others, nor what was
// asked while other options counted. The caller holds c.mu.
func (c *Cache) begin(f *fetch) {
	f.began = time.Now()
	f.void = f.source == nil && f.c.source.differs(f.what) || f.o != c.o.Load()
	c.asked[f] = struct{}{}
}

// end notes how that went, and keeps e, unless it is nil or outdated.
func (c *Cache) end(f *fetch, e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.asked, f)
	if c.fetches[f.text] == f {
		delete(c.fetches, f.text)
	}
	if f.err == nil {
		c.old = false
	}
	if e != nil {
		e.got = f.began
	}
	if f.source == nil && (e != nil && e.goes || f.e != nil && f.e.goes) {
		f.c.source.apart[f.what].Store(true)
		f.bound = true
		if e != nil {
			e.key = f.owned(f.c.source)
		}
	}
	if e != nil && e.announced && !c.hears(f, e.key) {
		e.missesChanges(time.Now().Add(unannouncedFor))
	}
	switch {
	case e != nil && !f.void && !c.closed && (e.source == nil || f.c.lane.State() != lane.Ended) && !c.outrun(e):
		if e.text == f.public { // from now on it is everybody's: what there was stands before that
			c.entries.Remove(f.text)
		}
		c.put(e)
	case f.done != nil && f.err == nil && f.e.m.Error != nil && f.paged: // the cursor is of a list that is no more (B13)
		c.outdate(f.source, func(p *key) bool { return p.what == f.what && p.source == f.source && p.within(f.principal) })
	}
	if f.done != nil {
		close(f.done)
	}
}

// outrun reports whether what is kept in the place of an entry was asked for after
// it. The caller holds c.mu.
func (c *Cache) outrun(e *entry) bool {
	kept, ok := c.entries.Peek(e.text)
	return ok && kept.got.After(e.got)
}
