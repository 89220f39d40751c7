package gateway

import (
	"context"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// bounded is an Upstream whose calls need a place at the gate of their server.
type bounded struct {
	bridge.Upstream
	gate *gate
	last *place // of its calls that have one; guarded by gate.mu
}

// bounded returns up with its calls bounded by the limits of the server. What
// the connection asks without saying about which call, its lane tells to
// parkOne.
func (r *route) bounded(up bridge.Upstream) *bounded { return &bounded{Upstream: up, gate: r.gate} }

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
func (u *bounded) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if unbounded(r.Method) {
		return u.Upstream.Call(ctx, r)
	}
	c := &boundedCall{place: place{principal: r.From.Principal, of: u}, r: *r, back: r.Back}
	if err := u.gate.enter(ctx, &c.place); err != nil {
		return nil, err
	}
	defer u.gate.leave(&c.place)
	if r.Back != nil {
		c.r.Back = c
	}
	return u.Upstream.Call(ctx, &c.r)
}

// Notify passes on what the server says about the call. A subscription that is
// acknowledged has begun to listen: that is no work, and has limits of its own.
func (c *boundedCall) Notify(n *jsonrpc.Message) {
	if n.Method == acknowledged && c.r.Method == era.Listen {
		c.of.gate.park(&c.place)
	}
	c.back.Notify(n)
}

// Ask passes on a question about the call, which waits for its answer.
func (c *boundedCall) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return parking(c.back, q, reply, func() { c.of.gate.park(&c.place) })
}

// Gone is of no interest: the call itself fails.
func (c *boundedCall) Gone(error) {}

// parking puts a question to a client, and has park called when a call may wait
// for long now: a person or a model has to answer. Roots a client knows by heart.
func parking(to bridge.Client, q *jsonrpc.Message, reply func(*jsonrpc.Message), park func()) (withdraw func(why string)) {
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

// parkOne gives back the place of one of the calls of the connection: the server
// has asked something, and many do not say about which call. Places are all the
// same, so it does not matter if it was another one.
func (u *bounded) parkOne() {
	u.gate.mu.Lock()
	defer u.gate.mu.Unlock()
	if u.last != nil {
		u.gate.unplace(u.last)
	}
}

// add notes a call that has a place. The caller holds gate.mu.
func (u *bounded) add(p *place) {
	if p.next = u.last; p.next != nil {
		p.next.prev = p
	}
	u.last = p
}

// remove ends that. The caller holds gate.mu.
func (u *bounded) remove(p *place) {
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
