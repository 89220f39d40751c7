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
func (i *InFlight) Enter() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.closed:
		return bridge.ErrShutdown
	case i.n >= MaxInFlight:
		return &bridge.Error{
			Kind:   bridge.ErrOverloaded,
			After:  limits.Again,
			Public: bridge.OverLimit("the bridge has too many calls in flight", MaxInFlight),
		}
	}
	i.n++
	i.total++
	return nil
}

// Leave ends a call.
func (i *InFlight) Leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.n--; i.n == 0 && i.empty != nil {
		close(i.empty)
		i.empty = nil
	}
}

// Shut refuses new calls.
func (i *InFlight) Shut() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
}

// Draining reports whether calls are refused.
func (i *InFlight) Draining() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.closed
}

// Drain refuses new calls, and waits for the calls in flight or the end of ctx.
func (i *InFlight) Drain(ctx context.Context) error {
	i.mu.Lock()
	i.closed = true
	if i.n == 0 {
		i.mu.Unlock()
		return nil
	}
	if i.empty == nil {
		i.empty = make(chan struct{})
	}
	empty := i.empty
	i.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Activity returns the number of calls in flight, and of all calls so far.
func (i *InFlight) Activity() (now int, all uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.n, i.total
}
