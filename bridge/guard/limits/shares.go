package limits

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
)

// Shares bounds how many of some slots one principal may have: three quarters of them, if there are
// other principals.
type Shares struct {
	most atomic.Int64 // of one principal; 0 means all

	mu     sync.Mutex // guards the rest
	places int64
	users  int
	of     map[string]int64
}

// NewShares returns the bound for slots that a number of principals share. Without access rules
// there are no principals.
func NewShares(places int64, principals int) *Shares {
	c := &Shares{places: places, of: map[string]int64{}}
	c.Set(principals)
	return c
}

// Set changes the number of principals. A principal that exceeds the new bound loses nothing.
func (c *Shares) Set(principals int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users = principals
	c.settle()
}

// Resize changes the number of slots. A principal that exceeds the new bound loses nothing.
func (c *Shares) Resize(places int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places = places
	c.settle()
}

// settle computes the bound of one principal. The caller holds c.mu.
func (c *Shares) settle() {
	if c.users < 2 {
		c.most.Store(0)
		return
	}
	c.most.Store(max(1, c.places*3/4))
}

// Enter takes n slots for a principal. It reports false if they exceed its bound.
func (c *Shares) Enter(principal string, n int64) bool {
	if principal == "" {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	has := c.of[principal]
	if most := c.most.Load(); most > 0 && has+n > most {
		return false
	}
	if n > 0 {
		c.of[principal] = has + n
	}
	return true
}

// Force takes n slots for a principal, also above its bound.
func (c *Shares) Force(principal string, n int64) {
	if principal == "" || n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[principal] += n
}

// Leave gives n slots back.
func (c *Shares) Leave(principal string, n int64) {
	if principal == "" || n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[principal] -= n; c.of[principal] == 0 {
		delete(c.of, principal)
	}
}

// Refusal returns the error of a principal that has as many connections to a server as it may.
func (c *Shares) Refusal(server string) error {
	return &bridge.Error{Server: server, Kind: bridge.ErrUnavailable, Err: bridge.ErrOverloaded,
		Public: fmt.Sprintf("one caller has too many of its connections: three quarters of max_children of the server, where others may use it too (the limit is %d)", c.most.Load())}
}

// Most returns how many slots one principal may have. 0 means all.
func (c *Shares) Most() int64 { return c.most.Load() }

// Has returns how many slots a principal has, if that is counted.
func (c *Shares) Has(principal string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[principal]
}

// Idle reports whether no principal has any slot.
func (c *Shares) Idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.of) == 0
}
