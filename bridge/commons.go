package bridge

import (
	"context"
	"sync"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// commons is an Upstream that offers all servers as one to clients without
// sessions. Those of one principal share what is known of the servers' lists.
type commons struct {
	b *Bridge

	mu     sync.Mutex // guards the rest
	merges map[string]*merge
	closed bool
}

func newCommons(b *Bridge) *commons { return &commons{b: b, merges: map[string]*merge{}} }

// Server returns nothing: what clients are told is made for each of them.
func (c *commons) Server() *Server { return nil }

// Notify drops the notification: clients without sessions have none that are
// defined.
func (c *commons) Notify(context.Context, *Request) error { return nil }

// maxMerges bounds the principals of which it is kept what they see. Without
// access rules there is one.
const maxMerges = 256

// of returns what a principal's clients see of all servers.
func (c *commons) of(principal string) (*merge, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrShutdown
	}
	g := c.merges[principal]
	if g != nil {
		return g, nil
	}
	if len(c.merges) >= maxMerges {
		return nil, ErrOverloaded
	}
	from := &Caller{Principal: principal, Revision: era.LatestModern, Capabilities: []byte("{}"), Params: c.b.ownParams}
	ears := &listeners{all: map[*listener]struct{}{}}
	g = newMerge(c.b, from, ears)
	g.ears = ears
	c.merges[principal] = g
	return g, nil
}

// Call makes a call to the server that it is for, or to all.
func (c *commons) Call(ctx context.Context, r *Request) (*jsonrpc.Message, error) {
	g, err := c.of(r.From.Principal)
	if err != nil {
		return nil, err
	}
	g.last.Store(r.From)
	switch r.Method {
	case "server/discover":
		return g.initialize(ctx)
	case listen:
		return g.listen(ctx, r)
	case "tasks/get", "tasks/update", "tasks/cancel":
		return g.task(ctx, r)
	}
	return g.Call(ctx, r)
}

// Close ends what serves the principals.
func (c *commons) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	merges := c.merges
	c.merges = nil
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, g := range merges {
		wg.Go(func() { _ = g.Close(ctx) })
	}
	wg.Wait()
	return nil
}

// kept is an Upstream that others use too: it is not for its user to close.
type kept struct{ Upstream }

// Close does nothing.
func (kept) Close(context.Context) error { return nil }
