package gateway

import (
	"context"
	"sync"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
)

// InFlight counts the calls in flight of all clients. Its zero value is ready to use.
type InFlight struct {
	mu     sync.Mutex // guards the rest
	n      int
	total  uint64 // calls ever admitted
	closed bool
	empty  chan struct{} // closed when n falls to 0 after Drain
}

// MaxInFlight limits the calls in flight of all clients together (protocol.md F).
const MaxInFlight = 4096

// Enter admits a call. After a nil error, Leave must be called.
func (f *InFlight) Enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return bridge.ErrShutdown
	case f.n >= MaxInFlight:
		return &bridge.Error{Kind: bridge.ErrOverloaded, After: limits.Again, Public: bridge.OverLimit("the bridge has too many calls in flight", MaxInFlight)}
	}
	f.n++
	f.total++
	return nil
}

// Leave ends a call.
func (f *InFlight) Leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n == 0 && f.empty != nil {
		close(f.empty)
		f.empty = nil
	}
}

// Shut refuses new calls.
func (f *InFlight) Shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// Draining reports whether calls are refused.
func (f *InFlight) Draining() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// Drain refuses new calls, and waits for the calls in flight or the end of ctx.
func (f *InFlight) Drain(ctx context.Context) error {
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

// Activity returns the number of calls in flight, and of all calls so far.
func (f *InFlight) Activity() (now int, all uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n, f.total
}
