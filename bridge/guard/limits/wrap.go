package limits

import (
	"context"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Bounded is an Upstream whose calls need a place at their server.
type Bounded struct {
	bridge.Upstream
	queue *Queue
	last  *place // of its calls that have one; guarded by queue.mu
}

// Wrap returns up with its calls bounded by the queue. What the connection asks
// without saying about which call is told to Asked.
func (q *Queue) Wrap(up bridge.Upstream) *Bounded { return &Bounded{Upstream: up, queue: q} }

// unbounded reports whether a request needs no place: the handshake, whose
// connections have limits of their own, and what is short and sets something
// right, or makes the server do less. That must not wait for what it would end.
func unbounded(method string) bool {
	switch method {
	case "initialize", "ping", "logging/setLevel", "resources/unsubscribe", "tasks/cancel":
		return true
	}
	return false
}

// boundedCall is a call that has a place, and the Client of it.
type boundedCall struct {
	place
	r    bridge.Request
	back bridge.Client
}

var _ bridge.Client = (*boundedCall)(nil)

// Call makes a call when there is a place for it.
func (u *Bounded) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if unbounded(r.Method) {
		return u.Upstream.Call(ctx, r)
	}
	c := &boundedCall{place: place{principal: r.From.Principal, of: u}, r: *r, back: r.Back}
	if err := u.queue.enter(ctx, &c.place); err != nil {
		return nil, err
	}
	defer u.queue.leave(&c.place)
	if r.Back != nil {
		c.r.Back = c
	}
	return u.Upstream.Call(ctx, &c.r)
}

// Notify passes on what the server says about the call. A subscription that is
// acknowledged has begun to listen: that is no work, and has limits of its own.
func (c *boundedCall) Notify(n *jsonrpc.Message) {
	if n.Method == era.Acknowledged && c.r.Method == era.Listen {
		c.of.queue.park(&c.place)
	}
	c.back.Notify(n)
}

// Ask passes on a question about the call, which waits for its answer.
func (c *boundedCall) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return Asking(c.back, q, reply, func() { c.of.queue.park(&c.place) })
}

// Gone is of no interest: the call itself fails.
func (c *boundedCall) Gone(error) {}

// Asking puts a question to a client, and has park called when a call may wait
// for long now: a person or a model has to answer. Roots a client knows by heart.
func Asking(to bridge.Client, q *jsonrpc.Message, reply func(*jsonrpc.Message), park func()) (withdraw func(why string)) {
	if q.Method == "roots/list" {
		return to.Ask(q, reply)
	}
	var answered atomic.Bool
	withdraw = to.Ask(q, func(m *jsonrpc.Message) {
		answered.Store(true)
		reply(m)
	})
	if !answered.Load() { // otherwise it was refused at once
		park()
	}
	return withdraw
}

// Asked gives back the place of one of the calls of the connection: the server
// has asked something, and many do not say about which call. Places are all the
// same, so it does not matter if it was another one.
func (u *Bounded) Asked() {
	u.queue.mu.Lock()
	defer u.queue.mu.Unlock()
	if u.last != nil {
		u.queue.unplace(u.last)
	}
}

// add notes a call that has a place. The caller holds queue.mu.
func (u *Bounded) add(p *place) {
	if p.next = u.last; p.next != nil {
		p.next.prev = p
	}
	u.last = p
}

// remove ends that. The caller holds queue.mu.
func (u *Bounded) remove(p *place) {
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		u.last = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	}
	p.next, p.prev = nil, nil
}
