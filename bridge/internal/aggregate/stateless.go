package aggregate

import (
	"context"
	"sync"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Stateless is an Upstream that offers all servers as one to clients without
// sessions. Those of one principal share what is known of the servers' lists.
type Stateless struct {
	a  *Aggregate
	wg sync.WaitGroup // those that are being closed

	mu     sync.Mutex // guards the rest
	each   map[string]*shared
	uses   uint64 // numbers uses in their order
	closed bool
}

// shared is what one principal's clients see of all servers.
type shared struct {
	*combined
	principal string
	users     int    // requests under way
	use       uint64 // the last one
}

// Server returns nothing: what clients are told is made for each of them.
func (c *Stateless) Server() *bridge.Greeting { return nil }

// Notify drops the notification: clients without sessions have none that are
// defined.
func (c *Stateless) Notify(context.Context, *bridge.Request) error { return nil }

// maxCombined bounds the principals of which it is kept what they see while they
// have no request under way. Without access rules there is one.
const maxCombined = 256

// enter returns what a principal's clients see of all servers, and counts it as
// in use until leave.
func (c *Stateless) enter(principal string) (*shared, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, bridge.ErrShutdown
	}
	m := c.each[principal]
	if m == nil {
		if len(c.each) >= maxCombined {
			c.evict()
		}
		from := &bridge.Caller{Principal: principal, Revision: era.LatestModern, Capabilities: []byte("{}"), Params: c.a.o.Params}
		all := &listeners{all: map[*subscribe.Listener]struct{}{}}
		m = &shared{combined: newCombined(c.a, from, all), principal: principal}
		m.listeners = all
		c.each[principal] = m
	}
	c.uses++
	m.users, m.use = m.users+1, c.uses
	return m, nil
}

// leave counts a use less.
func (c *Stateless) leave(m *shared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.users--; m.users == 0 && len(c.each) > maxCombined {
		c.drop(m)
	}
}

// evict drops what was not used for longest, unless all are in use: those are
// as many as there are requests. The caller holds c.mu.
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

// drop forgets what nobody uses: it is made again when it is needed. The caller
// holds c.mu.
func (c *Stateless) drop(m *shared) {
	delete(c.each, m.principal)
	c.wg.Go(func() { _ = m.Close(c.a.o.Force) })
}

// Call makes a call to the server that it is for, or to all.
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

// Close ends what serves the principals.
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

// kept is an Upstream that others use too: it is not for its user to close.
type kept struct{ bridge.Upstream }

// Close does nothing.
func (kept) Close(context.Context) error { return nil }
