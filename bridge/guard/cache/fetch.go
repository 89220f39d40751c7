package cache

import (
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// fetch is a request whose answer may be cached. It serves one caller, or all callers that request the same list
// meanwhile. Package singleflight would not do: its callers cannot leave, and a request after a change must not join.
type fetch struct {
	*key
	up    *Cached
	began time.Time
	void  bool   // the answer must not be stored: it may be older than a change; guarded by the cache's mu
	err   error  // set if there is no answer
	e     *entry // the answer, even if it is not stored
	bound bool   // the answer has a cursor that is valid only over its connection

	// The rest is zero unless callers share the fetch. When all its callers have left, the fetch is cancelled.
	stop    context.CancelCauseFunc
	done    chan struct{} // closed when the fetch ended
	waiters int           // callers that have not left; guarded by the cache's mu
}

// serves reports whether a caller with c and k may get the outcome of f. A failure may concern only the connection or
// the principal. A question of the server goes to no caller that joined.
func (f *fetch) serves(c *Cached, k *key) bool {
	failed, same := f.err != nil || f.e.m.Error != nil, f.up.lane == c.lane
	if failed {
		return same && f.principal == k.principal
	}
	return era.ResultType(f.e.m) == era.ResultComplete && (same || !f.bound && !f.void)
}

// find answers a request for a list. It returns an entry that is fresh, or a stale entry with the reason why it is
// used. Otherwise it returns a fetch, for which the caller waits. If the cache is closed, it returns nothing.
func (c *Cache) find(u *Cached, k *key, r *bridge.Request) (*entry, *fetch, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, now := c.get(k), time.Now(); e != nil && now.Before(e.until) && e.since(r.NotBefore) {
		if now.Before(e.fresh) {
			c.hits.Add(1)
			return e, nil, nil
		}
		switch why := u.absent(u.Server()); why {
		case errStopped:
			return e, nil, why
		case errLost: // the fetch reopens the connection, and the caller need not wait for that
			c.join(u, k, r)
			return e, nil, why
		}
	}
	return nil, c.join(u, k, r), nil
}

// join returns the fetch of a list, and begins one if there is none that began after r.NotBefore. If the cache is
// closed, it returns nil. A caller that stops waiting calls leave; a fetch whose callers never leave runs to its end.
// The caller holds c.mu.
func (c *Cache) join(u *Cached, k *key, r *bridge.Request) *fetch {
	if f := c.fetches[k.text]; f != nil && !f.began.Before(r.NotBefore) {
		c.joined.Add(1)
		f.waiters++
		return f
	}
	if c.closed {
		return nil
	}
	c.misses.Add(1)
	f := &fetch{
		key:     k,
		up:      u,
		done:    make(chan struct{}),
		waiters: 1,
	}
	var ctx context.Context
	ctx, f.stop = context.WithCancelCause(c.ctx)
	inner := u.impersonal(r)
	if c.begin(f); !f.void {
		c.fetches[k.text] = f
	}
	c.wg.Go(func() { f.run(ctx, inner) })
	return f
}

// leave removes one caller of a fetch. If it was the last, leave cancels the fetch with cause.
func (c *Cache) leave(f *fetch, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.waiters--; f.waiters == 0 {
		f.stop(cause)
		c.unlist(f)
	}
}

// unlist prevents further callers from joining a fetch. The caller holds c.mu.
func (c *Cache) unlist(f *fetch) {
	if c.fetches[f.text] == f {
		delete(c.fetches, f.text)
	}
}

// run makes the request of the fetch, and ends the fetch.
func (f *fetch) run(ctx context.Context, r *bridge.Request) {
	defer f.stop(nil)
	c := f.up.cache
	ctx, stop := context.WithTimeoutCause(ctx, maxFetch, &bridge.Error{Server: c.server.Name, Kind: bridge.ErrTimeout,
		Public: r.Method + " had no answer within " + maxFetch.String()})
	defer stop()
	var m *jsonrpc.Message
	if m, f.err = f.up.Upstream.Call(ctx, r); f.err == nil {
		f.e = f.up.entry(f.key, m).with(m)
		m.Release()
	}
	c.end(f)
}

// begin registers a fetch before its request is sent. If the options changed since the key was made, or the connection
// has got lists of its own, the answer is void from the beginning. The caller holds c.mu.
func (c *Cache) begin(f *fetch) {
	f.began = time.Now()
	f.void = f.options != c.options.Load() || f.source == nil && f.up.source.isApart(f.what)
	c.inFlight[f] = struct{}{}
}

// end stores the answer of a fetch, unless it is void, and wakes the callers.
func (c *Cache) end(f *fetch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.inFlight, f)
	c.unlist(f)
	if f.err == nil {
		c.stale.Store(false)
	}
	e := f.e
	if e != nil && f.source == nil && f.up.binds(e) {
		f.bound = true
		f.up.source.apart.Store(true)
		e.key = e.of(f.up.source)
	}
	switch {
	case e == nil:
	case e.m.Error != nil && f.paged: // the cursor may belong to a list that has changed (B13)
		c.drop(func(k *key) bool { return k.sameList(f.key) })
	case !e.fresh.IsZero() && !f.void && !c.closed:
		c.store(f, e)
	}
	if f.done != nil {
		close(f.done)
	}
}

// binds reports whether a list has a cursor that is valid only over its connection. A legacy server may keep cursors in
// its session or process.
func (c *Cached) binds(e *entry) bool {
	if e.what >= list.Kinds || c.source == nil || c.Server().Modern() {
		return false
	}
	_, more := list.Next(e.m.Result)
	return more
}
