package subscribe

import (
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// changeEvery is the shortest time between two notifications of the same change: a list, or a subscribed
// resource.
const changeEvery = 100 * time.Millisecond

// maxChanges bounds the changes of one client whose rate is limited. Notifications of further changes are sent at
// once.
const maxChanges = 1024

// Changes limits the change notifications of one client. It sends the first notification of a change at once, and
// further ones at most once in changeEvery. It never loses the last notification. Clients fetch the data after each
// notification, and a server may send thousands a second.
type Changes struct {
	send func(*jsonrpc.Message)

	mu    sync.Mutex // guards the rest
	sent  map[string]*change
	timer *time.Timer // nil before the first change
	ended bool
}

// change is a change that the client was notified of recently.
type change struct {
	at    time.Time
	again []byte // the last notification since, as a message; nil for none
}

// NewChanges returns a Changes that notifies a client with send, one call at a time. End must be called.
func NewChanges(send func(*jsonrpc.Message)) *Changes { return &Changes{send: send} }

// Changed returns the key of the change that a notification reports, or "" for other notifications.
func Changed(m *jsonrpc.Message) string {
	switch {
	case !era.ReportsChange(m.Method):
		return ""
	case m.Method == "notifications/resources/updated":
		return m.URI()
	}
	return m.Method
}

// Notify sends the notification of a change, now or later. After End it drops the notification.
func (c *Changes) Notify(what string, m *jsonrpc.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	if t := c.sent[what]; t != nil {
		t.again = m.Append(t.again[:0], nil, nil)
		return
	}
	if len(c.sent) < maxChanges {
		switch {
		case c.timer == nil:
			c.sent, c.timer = map[string]*change{}, time.AfterFunc(changeEvery, c.due)
		case len(c.sent) == 0:
			c.timer.Reset(changeEvery)
		}
		c.sent[what] = &change{at: time.Now()}
	}
	c.send(m)
}

// due sends the waiting notifications whose time has come.
func (c *Changes) due() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	now, next := time.Now(), changeEvery
	for what, t := range c.sent {
		if left := changeEvery - now.Sub(t.at); left > 0 {
			next = min(next, left)
			continue
		}
		if t.again == nil {
			delete(c.sent, what)
			continue
		}
		c.pass(t)
		t.at = now
	}
	if len(c.sent) > 0 {
		c.timer.Reset(next)
	}
}

// pass sends a waiting notification. The caller holds c.mu.
func (c *Changes) pass(t *change) {
	m, err := jsonrpc.Parse(t.again)
	t.again = nil
	if err == nil { // always, because the message was parsed before
		c.send(m)
	}
}

// End sends no more notifications. If flush is set, End first sends the waiting notifications.
func (c *Changes) End(flush bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	if c.timer != nil {
		c.timer.Stop()
	}
	for _, t := range c.sent {
		if flush && t.again != nil {
			c.pass(t)
		}
	}
	c.sent = nil
}
