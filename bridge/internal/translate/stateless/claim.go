package stateless

import (
	clist "container/list"
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// Over stdio and HTTP+SSE a legacy server does not say which call a question is about. So a call whose client
// can be asked has its connection to itself while it runs or is parked. No other client can see its questions.
// Clients with the same capabilities use such connections in turn, the oldest first. If all are in use, the call
// waits a moment, since most calls are short. Then another connection is opened. If the limits forbid that, the
// call waits in the queue.

// claim is a request that needs a connection, and the entry of that request in the queue for exclusive connections.
type claim struct {
	r         *bridge.Request
	lane      string
	legacy    bool // the server is known to be a legacy server
	exclusive bool // the request needs an exclusive connection if the server is a legacy server
	granted   bool // the request gets an exclusive connection
	retry     bool // its first connection could not be opened for lack of room

	// Set for an exclusive connection.
	identity   *identity
	from       *bridge.Caller
	group, key string
	until      time.Time // the end of its wait

	// The entry in the queue, guarded by Pool.mu.
	result  chan *slot // gets one connection
	patient bool       // the request waits for a free connection, and no other is opened for it
	at      *clist.Element
}

const (
	claimPatience = 100 * time.Millisecond // until one more connection is opened for a call
	claimAgain    = time.Second            // between two checks for room
)

// exclusive reports whether a request needs a connection without other calls at a legacy server. A request needs one
// if its client can be asked about the request, unless the transport shows to which call a question belongs, or a
// handle or the share setting chooses the connection. The caller holds p.mu.
func (p *Pool) exclusive(r *bridge.Request, lane string, of profile) bool {
	return of.asked && !unasked[r.Method] && lane == "" && p.o.Sharing == Apart && !(p.attributes.Load() && !p.legacy.Unattributed())
}

// claim returns a connection without other calls, or nil if the request must wait. The error says that the queue is
// full. The caller holds p.mu.
func (p *Pool) claim(c *claim) (*slot, error) {
	if c.until.IsZero() {
		c.until = time.Now().Add(p.o.Queue.Wait())
	}
	if p.queue.Len() == 0 && !c.retry {
		if s := p.free(c); s != nil {
			return s, nil
		}
		if len(p.slots[c.key]) == 0 {
			if s, err := p.grow(c); err == nil {
				return s, nil
			}
		}
	}
	if p.queue.Len() >= p.o.Queue.Length() {
		return nil, p.o.Queue.Refusal("all its connections serve calls with possible questions, and %d more calls wait (limits: queue)", p.queue.Len())
	}
	return nil, nil
}

// free returns a connection without a call and enters the request. If the server asks unattributed questions, free
// skips a connection at which a cancelled call may still run. The caller holds p.mu.
func (p *Pool) free(c *claim) *slot {
	for _, s := range p.slots[c.key] {
		if s.calls == 0 && !(s.suspect && p.legacy.Unattributed()) {
			p.enter(s, c.r)
			return s
		}
	}
	return nil
}

// grow adds a connection and enters the request at it. The error says why the limits forbid that. The caller holds p.mu.
func (p *Pool) grow(c *claim) (*slot, error) {
	if err := p.room(c.from.Principal, c.group, c.key); err != nil {
		return nil, err
	}
	s := p.add(c.identity, c.from, c.group, c.key, false)
	p.enter(s, c.r)
	return s, nil
}

// await waits in the queue for an exclusive connection.
func (p *Pool) await(ctx context.Context, c claim) (*slot, error) {
	c.result, c.patient = make(chan *slot, 1), true
	p.mu.Lock()
	c.at = p.queue.PushBack(&c)
	p.serve() // a connection may have become free meanwhile
	p.mu.Unlock()
	next := claimPatience
	if c.retry {
		next = claimAgain
	}
	tick := time.NewTimer(min(next, time.Until(c.until)))
	defer tick.Stop()
	var why error
	for {
		select {
		case s := <-c.result:
			if s == nil {
				return nil, bridge.ErrShutdown
			}
			return s, nil
		case <-ctx.Done():
			p.quit(&c)
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
		if !time.Now().Before(c.until) {
			p.quit(&c)
			p.o.Legacy.Log.Debug("no exclusive connection for a call", "err", why)
			return nil, p.o.Queue.TimedOut("all its connections serve calls with possible questions, and none became free within %v (limits: wait; max_children)", p.o.Queue.Wait())
		}
		if why = p.press(&c); why != nil {
			p.legacy.EvictStale(c.from.Principal, true)
		}
		tick.Reset(min(claimAgain, max(time.Until(c.until), 0)))
	}
}

// press opens one more connection for a call that has waited long enough. The error says why the limits forbid the
// connection.
func (p *Pool) press(c *claim) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.patient = false
	if c.at == nil || p.closed {
		return nil
	}
	s, err := p.grow(c)
	if err == nil {
		p.hand(c, s)
	}
	return err
}

// serve gives connections to the calls in the queue. The caller holds p.mu.
func (p *Pool) serve() {
	var none map[string]bool // keys without a free connection
	for e := p.queue.Front(); e != nil; {
		c := e.Value.(*claim)
		e = e.Next()
		if p.closed {
			p.hand(c, nil)
			continue
		}
		if none[c.key] {
			continue
		}
		s := p.free(c)
		if s == nil && !c.patient {
			s, _ = p.grow(c)
		}
		if s != nil {
			p.hand(c, s)
			continue
		}
		if none == nil {
			none = map[string]bool{}
		}
		none[c.key] = true
	}
}

// hand gives a connection to a waiting claim, or nil if the pool closes. The caller holds p.mu.
func (p *Pool) hand(c *claim, s *slot) {
	p.queue.Remove(c.at)
	c.at = nil
	c.result <- s
}

// quit leaves the queue and gives back a connection that came meanwhile.
func (p *Pool) quit(c *claim) {
	p.mu.Lock()
	waits := c.at != nil
	if waits {
		p.queue.Remove(c.at)
		c.at = nil
	}
	p.mu.Unlock()
	if !waits {
		if s := <-c.result; s != nil {
			p.leave(s, true)
		}
	}
}

// yield drops a connection that could not be opened for lack of room, unless other requests wait for it too.
func (p *Pool) yield(s *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.users == 1 {
		p.drop(s)
	}
}
