package limits

import (
	"context"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Places are those that the calls of one connection, or of one client's connections,
// have at their server.
type Places struct {
	queue *Queue
	last  *place // of the calls that have one; guarded by queue.mu
}

// Places returns the places of one connection. Client stands behind the connection,
// and Wrap before it.
func (q *Queue) Places() *Places { return &Places{queue: q} }

// Wrap returns up with its calls bounded by the queue.
func (p *Places) Wrap(up bridge.Upstream) bridge.Upstream { return &bounded{up, p} }

// Client returns to as the client of the connection: when the server asks something
// by itself, and does not say about which call, one of the calls gives its place back.
func (p *Places) Client(to bridge.Client) bridge.Client { return &asked{to, p} }

// bounded is an Upstream whose calls need a place at their server.
type bounded struct {
	bridge.Upstream
	places *Places
}

// asked is the Client of a connection whose calls are bounded.
type asked struct {
	bridge.Client
	places *Places
}

var _ bridge.Client = (*asked)(nil)

// Ask passes on a question.
func (a *asked) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return asking(a.Client, q, reply, a.places.asked)
}

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
	c := &boundedCall{place: place{principal: r.From.Principal, of: u.places}, r: *r, back: r.Back}
	if err := u.places.queue.enter(ctx, &c.place); err != nil {
		return nil, err
	}
	defer u.places.queue.leave(&c.place)
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
	return asking(c.back, q, reply, func() { c.of.queue.park(&c.place) })
}

// Gone is of no interest: the call itself fails.
func (c *boundedCall) Gone(error) {}

// asking puts a question to a client, and has park called when a call may wait
// for long now: a person or a model has to answer. Roots a client knows by heart.
func asking(to bridge.Client, q *jsonrpc.Message, reply func(*jsonrpc.Message), park func()) (withdraw func(why string)) {
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

// asked gives back the place of one of the calls of the connection: the server
// has asked something, and many do not say about which call. Places are all the
// same, so it does not matter if it was another one.
func (p *Places) asked() {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	if p.last != nil {
		p.queue.unplace(p.last)
	}
}

// add notes a call that has a place. The caller holds queue.mu.
func (s *Places) add(p *place) {
	if p.next = s.last; p.next != nil {
		p.next.prev = p
	}
	s.last = p
}

// remove ends that. The caller holds queue.mu.
func (s *Places) remove(p *place) {
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		s.last = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	}
	p.next, p.prev = nil, nil
}
