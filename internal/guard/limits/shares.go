package limits

import (
	"fmt"
	"sync"

	"github.com/mcp-bridge/bridge"
)

// Shares bounds how many of some places one principal may have, so that others
// find some too: three quarters of them, where there are others.
type Shares struct {
	most int64 // 0 means all

	mu sync.Mutex // guards of
	of map[string]int64
}

// NewShares returns the bound of places that so many principals have together.
// Without access rules there are no principals.
func NewShares(places int64, principals int) *Shares {
	if principals < 2 {
		return &Shares{}
	}
	return &Shares{most: max(1, places*3/4), of: map[string]int64{}}
}

// Enter takes n places for a principal. It reports false when that would have more
// than it may.
func (c *Shares) Enter(principal string, n int64) bool {
	if c.most == 0 || principal == "" {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	has := c.of[principal]
	if has+n > c.most {
		return false
	}
	if n > 0 {
		c.of[principal] = has + n
	}
	return true
}

// Force takes n places for a principal, also above what it may have.
func (c *Shares) Force(principal string, n int64) {
	if c.most == 0 || principal == "" || n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[principal] += n
}

// Leave gives n places back.
func (c *Shares) Leave(principal string, n int64) {
	if c.most == 0 || principal == "" || n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[principal] -= n; c.of[principal] == 0 {
		delete(c.of, principal)
	}
}

// Refusal says that a principal has as many connections to a server as it may.
func (c *Shares) Refusal(server string) error {
	return &bridge.Error{Server: server, Kind: bridge.ErrUnavailable, Err: bridge.ErrOverloaded,
		Public: fmt.Sprintf("one caller has too many of its connections: three quarters of max_children of the server, where others may use it too (the limit is %d)", c.most)}
}

// Most returns how many places one principal may have; 0 means all.
func (c *Shares) Most() int64 { return c.most }

// Has returns how many places a principal has, where that is counted.
func (c *Shares) Has(principal string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[principal]
}

// Idle reports whether nobody has any.
func (c *Shares) Idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.of) == 0
}
