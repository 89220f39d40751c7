package gateway

import (
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/lane"
	"github.com/mcp-bridge/bridge/bridge/pause"
)

// waiter is somebody who wants to know when a server works again.
type waiter struct {
	from *bridge.Caller // on whose behalf the server is tried
	tell func()
}

// await has tell called once, when a connection to the server has been opened,
// by whomever. Until then the server is tried again and again: nobody may need
// it before it is seen. stop ends the waiting.
func (r *route) await(from *bridge.Caller, tell func()) (stop func()) {
	w := &waiter{from, tell}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiters[w] = struct{}{}
	if !r.probing && r.b.goes(func() { r.probe() }) {
		r.probing = true
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiters, w)
	}
}

// goes runs f in a goroutine that Close awaits. It reports false when the
// bridge has been closed.
func (b *Gateway) goes(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Go(f)
	return true
}

// probe tries the server until it works or nobody waits for it.
func (r *route) probe() {
	for wait := time.Second; ; wait = min(2*wait, r.lane.MaxPause) {
		if pause.For(r.b.life, max(wait, r.breaker.Left())) != nil {
			return
		}
		from, wanted := r.waiting()
		if !wanted {
			return
		}
		if !r.lane.Budget.Opening() { // otherwise somebody is trying already
			r.retry(from)
		}
	}
}

// waiting returns one of those who wait. When there is none it ends the probing.
func (r *route) waiting() (*bridge.Caller, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.waiters {
		return w.from, true
	}
	r.probing = false
	return nil, false
}

// retry opens a connection to see whether the server works, and closes it. When
// the server is left alone that is up to the breaker, which says it when the
// server works.
func (r *route) retry(from *bridge.Caller) {
	if r.breaker.Shut() {
		_ = r.breaker.Pass(r.b.life, from)
		return
	}
	done, _ := r.try(r.b.life, from, gate{r.breaker, false})
	done()
}

// try opens a connection if g lets it; nil lets it in any case. done closes it.
func (r *route) try(ctx context.Context, from *bridge.Caller, g lane.Gate) (done func(), err error) {
	l := lane.New(&r.lane, from, lane.Ends{Client: bridge.Nobody{}, Observer: r.cache.Source(from), Gate: g})
	_, _, err = l.Known(ctx)
	return func() { _ = l.Close(r.b.force) }, err
}

// Learned notes what a handshake on behalf of a principal said: the server
// works.
func (r *route) Learned(principal string, s *bridge.Greeting) {
	r.mu.Lock()
	r.known = s
	r.told[r.whose(principal)] = s
	r.mu.Unlock()
	r.works()
}

// said returns what the last handshake on behalf of a principal said, or nil.
// What others were told may be about them.
func (r *route) said(principal string) *bridge.Greeting {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[r.whose(principal)]
}

// whose returns whom the server takes a principal for: where all share one
// connection, for nobody in particular.
func (r *route) whose(principal string) string {
	if r.share == ShareAll {
		return ""
	}
	return principal
}

// speaks returns the revision that the last handshake agreed on; empty before
// the first.
func (r *route) speaks() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		return ""
	}
	return r.known.Revision
}
