package stateless

import (
	clist "container/list"
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// Over stdio and HTTP+SSE a legacy server does not say which call a question is
// about. So a call whose client can be asked something has its connection to
// itself, for as long as it runs or is parked: a question can only be about the
// one call, and is shown to no other client. Connections of the same clients are
// used one after the other, the oldest first. When all are taken the call waits a
// moment, since most calls are short, and then another connection is opened; when
// there is no room for one, it waits in line.

// claim is what a request without a session needs of a connection, and its place
// in the line when it has to wait for one of its own.
type claim struct {
	r      *bridge.Request
	lane   string
	legacy bool // that the server is a legacy one is known
	lonely bool // the request needs a connection of its own, if it is one
	alone  bool // it gets one
	again  bool // it had one that could not be opened, since there was no room

	// Set when it gets one of its own.
	identity   *identity
	from       *bridge.Caller
	group, key string
	until      time.Time // it waits no longer

	// In the line. Guarded by Pool.mu.
	got     chan *slot // takes one
	patient bool       // it waits for one that becomes free, no other is opened
	at      *clist.Element
}

const (
	claimPatience = 100 * time.Millisecond // before one more connection is opened for a call
	claimAgain    = time.Second            // before it is looked again whether there is room for one
)

// lonely reports whether a legacy server gets a request over a connection that
// no other call uses: those about which the client can be asked something, unless
// the wire says which call a question is about, or the client has chosen a
// connection, or share has. The caller holds p.mu.
func (p *Pool) lonely(r *bridge.Request, lane string, of profile) bool {
	return of.asked && !unasked[r.Method] && lane == "" && p.o.Sharing == Apart && !(p.told.Load() && !p.legacy.Strays())
}

// claim returns a connection that no other call uses. It returns nothing when the
// request has to wait for one. The caller holds p.mu.
func (p *Pool) claim(c *claim) (*slot, error) {
	if c.until.IsZero() {
		c.until = time.Now().Add(p.o.Queue.Wait())
	}
	if p.queue.Len() == 0 && !c.again {
		if l := p.free(c); l != nil {
			return l, nil
		}
		if len(p.slots[c.key]) == 0 {
			if l, err := p.grow(c); err == nil {
				return l, nil
			}
		}
	}
	if p.queue.Len() >= p.o.Queue.Length() {
		return nil, p.o.Queue.Refusal("all its connections are taken by calls of clients that may be asked something, and %d more wait for one (limits: queue)", p.queue.Len())
	}
	return nil, nil
}

// free returns a connection that is there and has no call, and enters the request.
// Where the server is one that asks, it is done with all calls that were cancelled.
// The caller holds p.mu.
func (p *Pool) free(c *claim) *slot {
	for _, l := range p.slots[c.key] {
		if l.calls == 0 && !(l.doubted && p.legacy.Strays()) {
			p.enter(l, c.r)
			return l
		}
	}
	return nil
}

// grow makes one more connection, and enters the request. The caller holds p.mu.
func (p *Pool) grow(c *claim) (*slot, error) {
	if err := p.room(c.from.Principal, c.group, c.key); err != nil {
		return nil, err
	}
	l := p.add(c.identity, c.from, c.group, c.key, false)
	p.enter(l, c.r)
	return l, nil
}

// await waits in line for a connection of the request's own.
func (p *Pool) await(ctx context.Context, c claim) (*slot, error) {
	c.got, c.patient = make(chan *slot, 1), true
	p.mu.Lock()
	c.at = p.queue.PushBack(&c)
	p.serve() // one may have become free meanwhile
	p.mu.Unlock()
	next := claimPatience
	if c.again {
		next = claimAgain
	}
	tick := time.NewTimer(min(next, time.Until(c.until)))
	defer tick.Stop()
	var why error
	for {
		select {
		case l := <-c.got:
			if l == nil {
				return nil, bridge.ErrShutdown
			}
			return l, nil
		case <-ctx.Done():
			p.quit(&c)
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
		if !time.Now().Before(c.until) {
			p.quit(&c)
			p.o.Legacy.Log.Debug("no connection for a call of its own", "err", why)
			return nil, p.o.Queue.Lapsed("its connections are all taken by calls of clients that may be asked something, and none became free within %v (limits: wait; max_children)", p.o.Queue.Wait())
		}
		if why = p.press(&c); why != nil {
			p.legacy.GiveWay(c.from.Principal)
		}
		tick.Reset(min(claimAgain, max(time.Until(c.until), 0)))
	}
}

// press has one more connection opened for a call that has waited for long
// enough. The error says why there is no room for one.
func (p *Pool) press(c *claim) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.patient = false
	if c.at == nil || p.closed {
		return nil
	}
	l, err := p.grow(c)
	if err == nil {
		p.hand(c, l)
	}
	return err
}

// serve gives connections to those who wait in line. The caller holds p.mu.
func (p *Pool) serve() {
	var none map[string]bool // keys of which there is no connection
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
		l := p.free(c)
		if l == nil && !c.patient {
			l, _ = p.grow(c)
		}
		if l != nil {
			p.hand(c, l)
			continue
		}
		if none == nil {
			none = map[string]bool{}
		}
		none[c.key] = true
	}
}

// hand gives a connection to one that waits, or nil when there will be none. The
// caller holds p.mu.
func (p *Pool) hand(c *claim, l *slot) {
	p.queue.Remove(c.at)
	c.at = nil
	c.got <- l
}

// quit leaves the line. What was got meanwhile is given back.
func (p *Pool) quit(c *claim) {
	p.mu.Lock()
	waits := c.at != nil
	if waits {
		p.queue.Remove(c.at)
		c.at = nil
	}
	p.mu.Unlock()
	if !waits {
		if l := <-c.got; l != nil {
			p.leave(l, true)
		}
	}
}

// forgo drops a connection that was not opened, since there was no room.
func (p *Pool) forgo(l *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.users == 1 {
		p.drop(l)
	}
}
