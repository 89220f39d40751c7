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

// Cached is an Upstream with a cache before it.
type Cached struct {
	bridge.Upstream
	cache  *Cache
	from   *bridge.Caller // on whose behalf the connection is opened
	lane   Lane           // nil if each call has a connection of its own, and so is source
	source *Source
}

// subject returns the subject of a request, if its answer may be cached.
func subject(method string) (list.Kind, bool) {
	switch method {
	case "resources/read":
		return contents, true
	case "server/discover":
		return greetings, true
	}
	return list.Of(method)
}

// Call answers from the cache, or makes the call.
func (u *Cached) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == era.Listen && r.Back != nil {
		inner := *r
		inner.Back = &listener{r.Back, u.cache}
		return u.Upstream.Call(ctx, &inner)
	}
	what, ok := subject(r.Method)
	if !ok {
		return u.Upstream.Call(ctx, r)
	}
	switch k, ok := u.key(r, what, u.Server()); {
	case !ok:
		return u.Upstream.Call(ctx, r)
	case what == contents:
		return u.read(ctx, r, k)
	default:
		return u.list(ctx, r, k)
	}
}

// joinPatience is how long a request waits for a fetch over another connection. That one may
// hang while the request's own connection works.
const joinPatience = 4 * time.Second

// list answers a request for a list, and joins a fetch of that list if there is one.
func (u *Cached) list(ctx context.Context, r *bridge.Request, k *key) (*jsonrpc.Message, error) {
	c := u.cache
	e, f, why := c.find(u, k, r)
	switch {
	case why != nil:
		c.server.Tracing.Note(ctx, "stale from the cache")
		return c.serveStale(e, r, why), nil
	case e != nil:
		c.server.Tracing.Note(ctx, "from the cache")
		return e.answer(r, time.Now()), nil
	case f == nil:
		return u.own(ctx, r, k)
	}
	c.server.Tracing.Note(ctx, "fetched for all who ask")
	var enough <-chan time.Time
	if f.up.lane != u.lane {
		enough = time.After(joinPatience)
	}
	select {
	case <-f.done:
		switch {
		case !f.serves(u, k):
		case f.err != nil:
			return u.instead(r, k, f.err)
		default:
			return f.e.answer(r, time.Now()), nil
		}
	case <-enough:
		c.leave(f, nil)
	case <-ctx.Done():
		c.leave(f, context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
	return u.own(ctx, r, k)
}

// own makes the call over the own connection, for no other caller.
func (u *Cached) own(ctx context.Context, r *bridge.Request, k *key) (*jsonrpc.Message, error) {
	f := &fetch{key: k, up: u}
	u.cache.mu.Lock()
	u.cache.begin(f)
	u.cache.mu.Unlock()
	a, err := u.Upstream.Call(ctx, r)
	if f.err = err; err == nil {
		if e := u.entry(k, a); !e.fresh.IsZero() {
			f.e = e.with(a)
		}
	}
	u.cache.end(f)
	if err != nil {
		return u.instead(r, k, err)
	}
	return a, nil
}

// read answers a request for a resource. It joins no fetch: the server may have questions
// for the one client that reads.
func (u *Cached) read(ctx context.Context, r *bridge.Request, k *key) (*jsonrpc.Message, error) {
	u.cache.mu.Lock()
	now, e := time.Now(), u.cache.get(k)
	u.cache.mu.Unlock()
	if e != nil && now.Before(e.fresh) {
		u.cache.hits.Add(1)
		return e.answer(r, now), nil
	}
	u.cache.misses.Add(1)
	return u.own(ctx, r, k)
}

// instead returns a stale answer in place of err, if there is one and err permits that.
func (u *Cached) instead(r *bridge.Request, k *key, err error) (*jsonrpc.Message, error) {
	if !excused(err) {
		return nil, err
	}
	u.cache.mu.Lock()
	e := u.cache.get(k)
	u.cache.mu.Unlock()
	if e == nil || !time.Now().Before(e.until) || !e.since(r.NotBefore) {
		return nil, err
	}
	return u.cache.serveStale(e, r, err), nil
}

// serveStale returns the answer of e, which may have expired, because of why. The log has the
// first one since the server last answered.
func (c *Cache) serveStale(e *entry, r *bridge.Request, why error) *jsonrpc.Message {
	c.served.Add(1)
	level := slog.LevelDebug
	if first := !c.stale.Swap(true); first && why == errStopped {
		level = slog.LevelInfo // nothing is wrong
	} else if first {
		level = slog.LevelWarn
	}
	c.server.Log.Log(context.Background(), level, "serving an old list from the cache", "age", time.Since(e.asked).Round(time.Second), "err", why)
	return e.answer(r, time.Now())
}

// Holds reports whether the cache answers a request without a connection. s is the server's
// greeting. why, if it is not nil, is why no connection can be opened. A nil Cached holds
// nothing.
func (u *Cached) Holds(r *bridge.Request, s *bridge.Greeting, why error) bool {
	if u == nil || s == nil || why != nil && !excused(why) {
		return false
	}
	what, ok := subject(r.Method)
	if !ok {
		return false
	}
	k, ok := u.key(r, what, s)
	if !ok {
		return false
	}
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	e, now := u.cache.get(k), time.Now()
	return e != nil && e.since(r.NotBefore) && (now.Before(e.fresh) || now.Before(e.until) && (why != nil || what != contents && u.absent(s) != nil))
}

// Reasons for a stale answer beside errors.
var (
	errStopped = errors.New("its process is stopped, and a list does not start it")
	errLost    = errors.New("its connection was lost")
)

// absent returns why the connection is missing to a server whose greeting is s, or nil. A
// connection that is closed and no process counts as present: opening it takes a few
// messages. So does one that is opened for each call.
func (u *Cached) absent(s *bridge.Greeting) error {
	if u.lane == nil || u.cache.server.PerCall && !s.Modern() {
		return nil
	}
	switch state := u.lane.State(); {
	case state == lane.Lost:
		return errLost
	case state == lane.Idle && u.cache.server.Process:
		return errStopped
	}
	return nil
}

// excused reports whether a stale answer may replace an error: it says that the server is
// unavailable, and nothing about the caller.
func excused(err error) bool {
	not := []error{bridge.ErrShutdown, bridge.ErrEnded, bridge.ErrIdle, bridge.ErrDenied, bridge.ErrCredentials, bridge.ErrCancelled, bridge.ErrReplaced, context.Canceled}
	return !slices.ContainsFunc(not, func(one error) bool { return errors.Is(err, one) })
}
