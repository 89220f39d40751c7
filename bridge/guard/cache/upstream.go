package cache

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Cached is an Upstream with a cache in front. Its methods Call and Holds use the cache.
type Cached struct {
	bridge.Upstream
	cache  *Cache
	from   *bridge.Caller // client for which the connection is opened
	lane   Lane           // lane and source are nil if each call has a connection of its own
	source *Source
}

// subject returns the kind of the answer to a request, and reports whether that kind is cached.
func subject(method string) (list.Kind, bool) {
	switch method {
	case "resources/read":
		return contents, true
	case "server/discover":
		return greetings, true
	}
	return list.Of(method)
}

// Call answers from the cache, or calls the server.
func (c *Cached) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == era.Listen && r.Back != nil {
		inner := *r
		inner.Back = &listener{r.Back, c.cache}
		return c.Upstream.Call(ctx, &inner)
	}
	what, ok := subject(r.Method)
	if !ok {
		return c.Upstream.Call(ctx, r)
	}
	switch k, ok := c.key(r, what, c.Server()); {
	case !ok:
		return c.Upstream.Call(ctx, r)
	case what == contents:
		return c.read(ctx, r, k)
	default:
		return c.list(ctx, r, k)
	}
}

// joinPatience is how long a request waits for a fetch over another connection. That connection may hang while the
// request's own connection works.
const joinPatience = 4 * time.Second

// list answers a request for a list: from the cache, by a fetch that callers share, or by a call of its own.
func (c *Cached) list(ctx context.Context, r *bridge.Request, k *key) (*jsonrpc.Message, error) {
	one := c.cache
	e, f, why := one.find(c, k, r)
	switch {
	case why != nil:
		one.server.Tracing.Note(ctx, "stale from the cache")
		return one.serveStale(e, r, why), nil
	case e != nil:
		one.server.Tracing.Note(ctx, "from the cache")
		return e.answer(r, time.Now()), nil
	case f == nil:
		return c.own(ctx, r, k)
	}
	one.server.Tracing.Note(ctx, "fetched for all who ask")
	var enough <-chan time.Time
	if f.up.lane != c.lane {
		enough = time.After(joinPatience)
	}
	select {
	case <-f.done:
		switch {
		case !f.serves(c, k):
		case f.err != nil:
			return c.instead(r, k, f.err)
		default:
			return f.e.answer(r, time.Now()), nil
		}
	case <-enough:
		one.leave(f, nil)
	case <-ctx.Done():
		one.leave(f, context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
	return c.own(ctx, r, k)
}

// own calls the server over the caller's own connection, for no other caller.
func (c *Cached) own(ctx context.Context, r *bridge.Request, k *key) (*jsonrpc.Message, error) {
	f := &fetch{key: k, up: c}
	c.cache.mu.Lock()
	c.cache.begin(f)
	c.cache.mu.Unlock()
	m, err := c.Upstream.Call(ctx, r)
	if f.err = err; err == nil {
		if e := c.entry(k, m); !e.fresh.IsZero() {
			f.e = e.with(m)
		}
	}
	c.cache.end(f)
	if err != nil {
		return c.instead(r, k, err)
	}
	return m, nil
}

// read answers a request for a resource, from the cache or by a call of its own. It does not share a fetch, since the
// server may have questions for the one client that reads.
func (c *Cached) read(ctx context.Context, r *bridge.Request, k *key) (*jsonrpc.Message, error) {
	c.cache.mu.Lock()
	now, e := time.Now(), c.cache.get(k)
	c.cache.mu.Unlock()
	if e != nil && now.Before(e.fresh) {
		c.cache.hits.Add(1)
		return e.answer(r, now), nil
	}
	c.cache.misses.Add(1)
	return c.own(ctx, r, k)
}

// instead returns a stale answer in place of err. If there is none, or err says something about the caller, it returns
// err.
func (c *Cached) instead(r *bridge.Request, k *key, err error) (*jsonrpc.Message, error) {
	if !excused(err) {
		return nil, err
	}
	c.cache.mu.Lock()
	e := c.cache.get(k)
	c.cache.mu.Unlock()
	if e == nil || !time.Now().Before(e.until) || !e.since(r.NotBefore) {
		return nil, err
	}
	return c.cache.serveStale(e, r, err), nil
}

// serveStale returns the answer of e, which may no longer be fresh, because of why. It logs the first use of a stale
// answer since the server last answered; later ones only at level debug.
func (c *Cache) serveStale(e *entry, r *bridge.Request, why error) *jsonrpc.Message {
	c.served.Add(1)
	level := slog.LevelDebug
	if first := !c.stale.Swap(true); first && why == errStopped {
		level = slog.LevelInfo // a stopped process is normal
	} else if first {
		level = slog.LevelWarn
	}
	c.server.Log.Log(context.Background(), level, "serving an old list from the cache", "age", time.Since(e.asked).Round(time.Second), "err", why)
	return e.answer(r, time.Now())
}

// Holds reports whether the cache can answer a request without a connection. g is the server's greeting. why is the
// error that prevents a connection, or nil. A nil Cached holds nothing.
func (c *Cached) Holds(r *bridge.Request, g *bridge.Greeting, why error) bool {
	if c == nil || g == nil || why != nil && !excused(why) {
		return false
	}
	what, ok := subject(r.Method)
	if !ok {
		return false
	}
	k, ok := c.key(r, what, g)
	if !ok {
		return false
	}
	c.cache.mu.Lock()
	defer c.cache.mu.Unlock()
	e, now := c.cache.get(k), time.Now()
	return e != nil && e.since(r.NotBefore) && (now.Before(e.fresh) || now.Before(e.until) && (why != nil || what != contents && c.absent(g) != nil))
}

// errStopped and errLost are the reasons for a stale answer that are not the error of a call.
var (
	errStopped = errors.New("its process is stopped, and a request for a list does not start it")
	errLost    = errors.New("its connection was lost")
)

// absent returns why there is no connection to a server whose greeting is g, or nil. It returns nil for a closed
// connection without a process, which a few messages reopen, and where each call opens a connection.
func (c *Cached) absent(g *bridge.Greeting) error {
	if c.lane == nil || c.cache.server.PerCall && !g.Modern() {
		return nil
	}
	switch state := c.lane.State(); {
	case state == lane.Lost:
		return errLost
	case state == lane.Idle && c.cache.server.Process:
		return errStopped
	}
	return nil
}

// excused reports whether a stale answer may replace err. It may if err says that the server is unavailable, and
// nothing about the caller.
func excused(err error) bool {
	not := []error{bridge.ErrShutdown, bridge.ErrEnded, bridge.ErrIdle, bridge.ErrDenied, bridge.ErrCredentials, bridge.ErrCancelled, bridge.ErrReplaced, context.Canceled}
	return !slices.ContainsFunc(not, func(one error) bool { return errors.Is(err, one) })
}
