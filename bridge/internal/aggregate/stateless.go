package aggregate

import (
	"context"
	"sync"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Stateless is an Upstream that offers all servers as one to stateless clients. Clients of one principal share
// one session.
type Stateless struct {
	a  *Aggregate
	wg sync.WaitGroup // awaits the sessions that drop closes

	mu     sync.Mutex // guards the rest
	each   map[string]*shared
	uses   uint64 // counts uses, for their order
	closed bool
}

// shared is the session of one principal's stateless clients.
type shared struct {
	*session
	principal string
	users     int    // requests in flight
	use       uint64 // the number of the last use
}

// Server returns nil: each client gets a greeting of its own.
func (c *Stateless) Server() *bridge.Greeting { return nil }

// Notify drops the notification: the protocol defines none from stateless clients.
func (c *Stateless) Notify(context.Context, *bridge.Request) error { return nil }

// maxShared bounds the sessions without a request in flight. Without access rules there is one.
const maxShared = 256

// enter returns the principal's session and marks it as used until leave.
func (c *Stateless) enter(principal string) (*shared, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, bridge.ErrShutdown
	}
	m := c.each[principal]
	if m == nil {
		if len(c.each) >= maxShared {
			c.evict()
		}
		from := &bridge.Caller{Principal: principal, Revision: era.LatestModern, Capabilities: []byte("{}"), Params: c.a.o.Params}
		all := &listeners{all: map[*subscribe.Listener]struct{}{}}
		m = &shared{session: newSession(c.a, from, all), principal: principal}
		m.listeners = all
		c.each[principal] = m
	}
	c.uses++
	m.users, m.use = m.users+1, c.uses
	return m, nil
}

// leave ends one use.
func (c *Stateless) leave(m *shared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.users--; m.users == 0 && len(c.each) > maxShared {
		c.drop(m)
	}
}

// evict drops the least recently used session. If all are in use, their number is bounded by that of the
// requests. The caller holds c.mu.
func (c *Stateless) evict() {
	var oldest *shared
	for _, m := range c.each {
		if m.users == 0 && (oldest == nil || m.use < oldest.use) {
			oldest = m
		}
	}
	if oldest != nil {
		c.drop(oldest)
	}
}

// drop removes and closes a session that nobody uses. The caller holds c.mu.
func (c *Stateless) drop(m *shared) {
	delete(c.each, m.principal)
	c.wg.Go(func() { _ = m.Close(c.a.o.Force) })
}

// Call passes a call to the server that it is for, or to all.
func (c *Stateless) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	g, err := c.enter(r.From.Principal)
	if err != nil {
		return nil, err
	}
	defer c.leave(g)
	g.last.Store(r.From)
	switch r.Method {
	case "server/discover":
		return g.initialize(ctx)
	case era.Listen:
		return g.listen(ctx, r)
	case "tasks/get", "tasks/update", "tasks/cancel":
		return g.task(ctx, r)
	}
	return g.Call(ctx, r)
}

// Close closes all sessions.
func (c *Stateless) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	each := c.each
	c.each = nil
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, g := range each {
		wg.Go(func() { _ = g.Close(ctx) })
	}
	wg.Wait()
	c.wg.Wait()
	return nil
}

// noClose is an Upstream whose user must not close it, because others use it.
type noClose struct{ bridge.Upstream }

// Close does nothing.
func (noClose) Close(context.Context) error { return nil }
