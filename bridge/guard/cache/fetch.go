package cache

import (
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// fetch is a request whose answer may be cached. It serves one caller, or all callers that request
// the same list meanwhile. (singleflight has no callers that leave, and cannot exclude requests
// after a change.)
type fetch struct {
	*key
	up    *Cached
	began time.Time
	void  bool   // its answer is out of date; guarded by the cache's mu
	err   error  // why there is no answer
	e     *entry // the answer, whether it is stored or not
	bound bool   // the answer has a cursor that is valid over its connection only

	// The rest belongs to a fetch that callers share. The fetch is cancelled when all its callers have left.
	stop    context.CancelCauseFunc
	done    chan struct{} // closed at the end
	waiters int           // guarded by the cache's mu
}

// serves reports whether the answer may go to a caller of c. A failure may be due to the
// connection or the principal. A question of the server is for the one caller that asks.
func (f *fetch) serves(c *Cached, k *key) bool {
	failed, same := f.err != nil || f.e.m.Error != nil, f.up.lane == c.lane
	if failed {
		return same && f.principal == k.principal
	}
	return era.ResultType(f.e.m) == era.ResultComplete && (same || !f.bound && !f.void)
}

// find returns the entry or the fetch for a request for a list. An entry is fresh, or stale with
// the reason for its use. Otherwise the caller waits for the fetch. find returns nothing if the
// cache is closed.
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
		case errLost: // the fetch reopens the connection, and no caller has to wait for that
			c.join(u, k, r)
			return e, nil, why
		}
	}
	return nil, c.join(u, k, r), nil
}

// join returns the fetch of a list, and begins one if there is none. It returns nil if the cache is
// closed. The caller holds c.mu. A caller that stops waiting must leave the fetch. If its only
// caller never leaves it, a fetch runs to its end.
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

// leave removes one caller of a fetch.
func (c *Cache) leave(f *fetch, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.waiters--; f.waiters == 0 {
		f.stop(cause)
		c.unlist(f)
	}
}

// unlist keeps further callers from joining a fetch. The caller holds c.mu.
func (c *Cache) unlist(f *fetch) {
	if c.fetches[f.text] == f {
		delete(c.fetches, f.text)
	}
}

// run asks the server.
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

// begin registers a fetch before it is sent. The caller holds c.mu. The answer is void from
// the beginning if the options or the connection's lists changed since the key was made.
func (c *Cache) begin(f *fetch) {
	f.began = time.Now()
	f.void = f.options != c.options.Load() || f.source == nil && f.up.source.isApart(f.what)
	c.inFlight[f] = struct{}{}
}

// end stores the answer of a fetch unless it is void, and wakes the callers.
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
	case e.m.Error != nil && f.paged: // the cursor belongs to a list that is no more (B13)
		c.drop(func(k *key) bool { return k.sameList(f.key) })
	case !e.fresh.IsZero() && !f.void && !c.closed:
		c.store(f, e)
	}
	if f.done != nil {
		close(f.done)
	}
}

// binds reports whether a list has a cursor that is valid over its connection only. The cursor of a
// legacy server belongs to its session, or to its process.
func (c *Cached) binds(e *entry) bool {
	if e.what >= list.Kinds || c.source == nil || c.Server().Modern() {
		return false
	}
	_, more := list.Next(e.m.Result)
	return more
}
