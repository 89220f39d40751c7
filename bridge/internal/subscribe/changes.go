package subscribe

import (
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// changeEvery is how often a client is told of one and the same change: the lists of
// tools, of prompts and of resources, and each resource that it has subscribed to.
const changeEvery = 100 * time.Millisecond

// maxChanges bounds the changes of one client that are held back. What is above
// that is passed on as it comes.
const maxChanges = 1024

// Changes passes on to one client that something has changed: for the first time at
// once, and then once in changeEvery. The last is never lost. Clients fetch what has
// changed each time that they hear of it, and a server may say so thousands of times
// a second.
type Changes struct {
	send func(*jsonrpc.Message)

	mu    sync.Mutex // guards the rest
	told  map[string]*change
	timer *time.Timer // nil until it is needed
	over  bool
}

// change is one that the client was told of just now.
type change struct {
	at    time.Time
	again []byte // what came since, as a message; nil for nothing
}

// NewChanges returns what passes changes on to the client that send tells. It is
// called by one at a time. End must be called.
func NewChanges(send func(*jsonrpc.Message)) *Changes { return &Changes{send: send} }

// Changed returns what has changed by a notification, or "" if it does not say so.
func Changed(n *jsonrpc.Message) string {
	switch {
	case !era.TellsChange(n.Method):
		return ""
	case n.Method == "notifications/resources/updated":
		return n.URI()
	}
	return n.Method
}

// Tell passes on that something has changed, now or in a while.
func (c *Changes) Tell(what string, n *jsonrpc.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	if t := c.told[what]; t != nil {
		t.again = n.Append(t.again[:0], nil, nil)
		return
	}
	if len(c.told) < maxChanges {
		switch {
		case c.timer == nil:
			c.told, c.timer = map[string]*change{}, time.AfterFunc(changeEvery, c.due)
		case len(c.told) == 0:
			c.timer.Reset(changeEvery)
		}
		c.told[what] = &change{at: time.Now()}
	}
	c.send(n)
}

// due passes on what was held back for long enough.
func (c *Changes) due() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	now, next := time.Now(), changeEvery
	for what, t := range c.told {
		if left := changeEvery - now.Sub(t.at); left > 0 {
			next = min(next, left)
			continue
		}
		if t.again == nil {
			delete(c.told, what)
			continue
		}
		c.pass(t)
		t.at = now
	}
	if len(c.told) > 0 {
		c.timer.Reset(next)
	}
}

// pass passes on what came again. The caller holds c.mu.
func (c *Changes) pass(t *change) {
	n, err := jsonrpc.Parse(t.again)
	t.again = nil
	if err == nil { // it was parsed before
		c.send(n)
	}
}

// End passes nothing on any more, but for what is held back, if the client is still
// there for it.
func (c *Changes) End(there bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over = true
	if c.timer != nil {
		c.timer.Stop()
	}
	for _, t := range c.told {
		if there && t.again != nil {
			c.pass(t)
		}
	}
	c.told = nil
}
