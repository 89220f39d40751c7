package gateway

import (
	"context"
	"sync"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// flight counts the calls under way, so that a stop can wait for them.
type flight struct {
	mu     sync.Mutex // guards the rest
	n      int
	total  uint64 // calls ever admitted
	closed bool
	empty  chan struct{} // closed when n falls to 0 after closing
}

// enter admits a call. Every nil needs a leave.
func (f *flight) enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return bridge.ErrShutdown
	case f.n >= maxCalls:
		return &bridge.Error{Kind: bridge.ErrOverloaded, After: limits.Again, Public: bridge.OverLimit("the bridge has too many calls under way", maxCalls)}
	}
	f.n++
	f.total++
	return nil
}

func (f *flight) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n == 0 && f.empty != nil {
		close(f.empty)
		f.empty = nil
	}
}

func (f *flight) shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

func (f *flight) draining() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

func (f *flight) drain(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	if f.n == 0 {
		f.mu.Unlock()
		return nil
	}
	if f.empty == nil {
		f.empty = make(chan struct{})
	}
	empty := f.empty
	f.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Activity returns the number of calls under way, and of all calls so far.
func (b *Gateway) Activity() (now int, all uint64) {
	b.flight.mu.Lock()
	defer b.flight.mu.Unlock()
	return b.flight.n, b.flight.total
}

// enter admits a call, whatever kind of client makes it. Every success needs a
// leave.
func (b *Gateway) enter(from *bridge.Caller, m *jsonrpc.Message) error {
	if err := b.flight.enter(); err != nil {
		return err
	}
	if err := b.quota.Enter(from, m); err != nil {
		b.flight.leave()
		return err
	}
	return nil
}

// leave ends what enter began.
func (b *Gateway) leave(from *bridge.Caller) {
	b.quota.Leave(from)
	b.flight.leave()
}
