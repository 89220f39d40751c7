package limits

import (
	"context"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Slots holds the slots of the calls over one connection, or of the calls of one client.
type Slots struct {
	queue *Queue
	last  *slot // the newest call with a slot; guarded by queue.mu
}

// Slots returns the slots for one connection. The caller passes the connection to Wrap, and the connection's client to
// Client.
func (q *Queue) Slots() *Slots { return &Slots{queue: q} }

// Wrap returns up with its calls bounded by the queue.
func (s *Slots) Wrap(up bridge.Upstream) bridge.Upstream { return &bounded{up, s} }

// Client returns to as the client of the connection. If the server asks a question that names no call, one of the calls
// in flight gives its slot back while the client answers.
func (s *Slots) Client(to bridge.Client) bridge.Client { return &askedClient{to, s} }

type bounded struct {
	bridge.Upstream
	slots *Slots
}

type askedClient struct {
	bridge.Client
	slots *Slots
}

var _ bridge.Client = (*askedClient)(nil)

func (a *askedClient) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return asking(a.Client, m, reply, a.slots.parkOne)
}

// unbounded reports whether a request needs no slot. The handshake needs none, since connections have limits of their
// own. Short requests that set or end something need none either, because they must not wait for the calls that they
// end.
func unbounded(method string) bool {
	switch method {
	case "initialize", "ping", "logging/setLevel", "resources/unsubscribe", "tasks/cancel":
		return true
	}
	return false
}

// boundedCall is a call with a slot. It is the Client of the call.
type boundedCall struct {
	slot
	r    bridge.Request
	back bridge.Client
}

var _ bridge.Client = (*boundedCall)(nil)

// Call waits for a slot, and makes the call.
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

// Notify passes a notification about the call on. A subscription gives its slot back when the server acknowledges it,
// since it does no work and has limits of its own.
func (b *boundedCall) Notify(m *jsonrpc.Message) {
	if m.Method == era.Acknowledged && b.r.Method == era.Listen {
		b.of.queue.park(&b.slot)
	}
	b.back.Notify(m)
}

// Ask passes a question about the call on. The call gives its slot back while the client answers.
func (b *boundedCall) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return asking(b.back, m, reply, func() { b.of.queue.park(&b.slot) })
}

func (b *boundedCall) Gone(error) {}

// asking asks a client. If a person or a model may have to answer, which can take long, asking calls park. Clients
// answer roots/list at once.
func asking(to bridge.Client, q *jsonrpc.Message, reply func(*jsonrpc.Message), park func()) (withdraw func(why string)) {
	if q.Method == "roots/list" {
		return to.Ask(q, reply)
	}
	var answered atomic.Bool
	withdraw = to.Ask(q, func(m *jsonrpc.Message) {
		answered.Store(true)
		reply(m)
	})
	if !answered.Load() { // the client's side has not refused the question at once
		park()
	}
	return withdraw
}

// parkOne takes the slot of the newest of the connection's calls, because the server asked a question that names no
// call. Slots are equal, so any call will do.
func (s *Slots) parkOne() {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if s.last != nil {
		s.queue.parkLocked(s.last)
	}
}

// add adds a call that got a slot. The caller holds s.queue.mu.
func (s *Slots) add(p *slot) {
	if p.next = s.last; p.next != nil {
		p.next.prev = p
	}
	s.last = p
}

// remove removes a call that add added. The caller holds s.queue.mu.
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
