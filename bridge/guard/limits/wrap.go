package limits

import (
	"context"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Slots holds the slots of the calls over one connection, or over one client's connections.
type Slots struct {
	queue *Queue
	last  *slot // the newest call with a slot; guarded by queue.mu
}

// Slots returns the slots of one connection. Wrap stands before the connection, and Client behind
// it.
func (q *Queue) Slots() *Slots { return &Slots{queue: q} }

// Wrap returns up with its calls bounded by the queue.
func (s *Slots) Wrap(up bridge.Upstream) bridge.Upstream { return &bounded{up, s} }

// Client returns to as the client of the connection. If the server asks a question that names no
// call, one of the calls gives its slot back.
func (s *Slots) Client(to bridge.Client) bridge.Client { return &askedClient{to, s} }

// bounded is an Upstream whose calls need a slot.
type bounded struct {
	bridge.Upstream
	slots *Slots
}

// askedClient is the Client of a connection whose calls need slots.
type askedClient struct {
	bridge.Client
	slots *Slots
}

var _ bridge.Client = (*askedClient)(nil)

// Ask passes a question on.
func (a *askedClient) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return asking(a.Client, m, reply, a.slots.parkOne)
}

// unbounded reports whether a request needs no slot. The handshake needs none: connections have
// limits of their own. Nor do short requests that set something or end something: they must not wait
// for the calls that they end.
func unbounded(method string) bool {
	switch method {
	case "initialize", "ping", "logging/setLevel", "resources/unsubscribe", "tasks/cancel":
		return true
	}
	return false
}

// boundedCall is a call with a slot, and its Client.
type boundedCall struct {
	slot
	r    bridge.Request
	back bridge.Client
}

var _ bridge.Client = (*boundedCall)(nil)

// Call makes a call once it has a slot.
func (b *bounded) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if unbounded(r.Method) {
		return b.Upstream.Call(ctx, r)
	}
	c := &boundedCall{
		slot: slot{principal: r.From.Principal, of: b.slots},
		r:    *r,
		back: r.Back,
	}
	if err := b.slots.queue.enter(ctx, &c.slot); err != nil {
		return nil, err
	}
	defer b.slots.queue.leave(&c.slot)
	if r.Back != nil {
		c.r.Back = c
	}
	return b.Upstream.Call(ctx, &c.r)
}

// Notify passes a notification about the call on. An acknowledged subscription gives its slot back:
// it does no work, and has limits of its own.
func (b *boundedCall) Notify(m *jsonrpc.Message) {
	if m.Method == era.Acknowledged && b.r.Method == era.Listen {
		b.of.queue.park(&b.slot)
	}
	b.back.Notify(m)
}

// Ask passes a question about the call on. The call waits for its answer without a slot.
func (b *boundedCall) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return asking(b.back, m, reply, func() { b.of.queue.park(&b.slot) })
}

// Gone does nothing: the call itself fails.
func (b *boundedCall) Gone(error) {}

// asking asks a client. It calls park if the answer may take long, because a person or a model
// gives it. Clients answer roots/list at once.
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

// parkOne takes the slot of one of the connection's calls: the server asked a question, and many do
// not name the call. It does not matter which call it is, since slots are equal.
func (s *Slots) parkOne() {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if s.last != nil {
		s.queue.parkLocked(s.last)
	}
}

// add adds a call with a slot. The caller holds s.queue.mu.
func (s *Slots) add(p *slot) {
	if p.next = s.last; p.next != nil {
		p.next.prev = p
	}
	s.last = p
}

// remove removes a call. The caller holds s.queue.mu.
func (s *Slots) remove(p *slot) {
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
