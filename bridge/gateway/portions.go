package gateway

import (
	"sync"

	"github.com/mcp-bridge/bridge/bridge"
)

// portions bounds how many of some places one principal may have, so that others
// find some too: three quarters of them, where there are others.
type portions struct {
	most int64 // 0 means all

	mu sync.Mutex // guards of
	of map[string]int64
}

// newPortions returns the bound of places that so many principals have together.
// Without access rules there are no principals.
func newPortions(places int64, principals int) *portions {
	if principals < 2 {
		return &portions{}
	}
	return &portions{most: max(1, places*3/4), of: map[string]int64{}}
}

// enter takes n places for a principal. It reports false when that would have more
// than it may.
func (c *portions) enter(principal string, n int64) bool {
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

// force takes n places for a principal, also above what it may have.
func (c *portions) force(principal string, n int64) {
	if c.most == 0 || principal == "" || n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[principal] += n
}

// leave gives n places back.
func (c *portions) leave(principal string, n int64) {
	if c.most == 0 || principal == "" || n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[principal] -= n; c.of[principal] == 0 {
		delete(c.of, principal)
	}
}

// refusal says that a principal has as many connections to a server as it may.
func (c *portions) refusal(server string) error {
	return &bridge.Error{Server: server, Kind: bridge.ErrUnavailable, Err: bridge.ErrOverloaded,
		Public: limitText("one caller has too many of its connections: three quarters of max_children of the server, where others may use it too", int(c.most))}
}
