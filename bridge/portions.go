package bridge

import "sync"

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

// enter takes a place of a principal's. It reports false when that has as many as
// it may.
func (c *portions) enter(principal string) bool {
	if c.most == 0 || principal == "" {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[principal] >= c.most {
		return false
	}
	c.of[principal]++
	return true
}

// leave gives it back.
func (c *portions) leave(principal string) {
	if c.most == 0 || principal == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[principal]--; c.of[principal] == 0 {
		delete(c.of, principal)
	}
}

// refusal says that a principal has as many connections to a server as it may.
func (c *portions) refusal(server string) error {
	return &Error{Server: server, Kind: ErrUnavailable, Err: ErrOverloaded,
		Public: limitText("one caller has too many of its connections: three quarters of max_children of the server, where others may use it too", int(c.most))}
}
