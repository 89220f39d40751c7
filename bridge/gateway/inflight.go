package gateway

import (
	"context"
	"sync"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
)

// InFlight is the calls under way. The zero value has none.
type InFlight struct {
	mu     sync.Mutex // guards the rest
	n      int
	total  uint64 // calls ever admitted
	closed bool
	empty  chan struct{} // closed when n falls to 0 after closing
}

// MaxInFlight is how many calls may be under way, whoever makes them (protocol.md F).
const MaxInFlight = 4096

// Enter admits a call. Every nil needs a Leave.
func (f *InFlight) Enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return bridge.ErrShutdown
	case f.n >= MaxInFlight:
		return &bridge.Error{Kind: bridge.ErrOverloaded, After: limits.Again, Public: bridge.OverLimit("the bridge has too many calls under way", MaxInFlight)}
	}
	f.n++
	f.total++
	return nil
}

// Leave ends what Enter began.
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

// Drain refuses new calls, and waits until those under way have ended, or ctx.
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

// Activity returns the number of calls under way, and of all calls so far.
func (f *InFlight) Activity() (now int, all uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n, f.total
}
