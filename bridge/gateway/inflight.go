package gateway

import (
	"context"
	"sync"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
)

// InFlight counts the calls in flight of all clients. Its zero value counts none.
type InFlight struct {
	mu     sync.Mutex // guards the rest
	n      int
	total  uint64        // calls that Enter admitted
	closed bool          // new calls are refused
	empty  chan struct{} // closed and set to nil when n falls to 0; nil while Drain does not wait
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

// Leave ends a call that Enter admitted.
func (i *InFlight) Leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.n--; i.n == 0 && i.empty != nil {
		close(i.empty)
		i.empty = nil
	}
}

// Shut makes Enter refuse new calls.
func (i *InFlight) Shut() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
}

// Draining reports whether Shut or Drain was called.
func (i *InFlight) Draining() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.closed
}

// Drain makes Enter refuse new calls, and waits until no call is in flight. If ctx ends first, it returns the cause.
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

// Activity returns the number of calls in flight, and the number of calls since the start.
func (i *InFlight) Activity() (now int, all uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.n, i.total
}
