package stdio

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// maxStateless bounds the requests without a session in flight.
const maxStateless = 512

// statelessCall is a request that belongs to no session (2026-07-28, stdio). A client may make such
// requests beside its session and without one: each message shows its era (protocol.md C3).
type statelessCall struct {
	p       *peer
	id      []byte // raw
	listens bool
	stop    context.CancelCauseFunc

	mu   sync.Mutex // guards the rest
	said int        // messages
	over bool       // no message is sent for it any more
}

var _ bridge.Stream = (*statelessCall)(nil)

// Send implements bridge.Stream.
func (s *statelessCall) Send(e replay.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return false
	case s.listens && gateway.Unread(s.p.out, s.p.o.MaxMessage):
		s.stop(errUnread) // its client must not miss changes unnoticed
		return false
	}
	if e.Key != "" {
		// The events of one subscription must not replace those of others.
		e.Key = strconv.Quote(string(s.id)) + e.Key
	}
	e.Must = e.Must || s.listens && s.said == 0 // the acknowledgement
	s.said++
	return s.p.Send(e)
}

// takeStateless handles a message that belongs to no session. It reports false for messages of a
// session, and for initialize.
func (p *peer) takeStateless(a arrival) bool {
	cancels := a.m.IsNotification() && a.m.Method == "notifications/cancelled"
	switch {
	case !p.modern || !gateway.IsStateless(a.m):
		if !cancels || !p.takeBack(a.m) {
			return false
		}
	case a.m.IsRequest():
		p.callStateless(a)
		return true
	case cancels:
		p.takeBack(a.m)
	}
	a.free()
	return true
}

// hasStateless reports whether an element of a batch is of the stateless era.
func hasStateless(elements [][]byte) bool {
	return slices.ContainsFunc(elements, func(e []byte) bool {
		m, err := jsonrpc.Parse(e)
		return err == nil && gateway.IsStateless(m)
	})
}

// callStateless makes a call that belongs to no session.
func (p *peer) callStateless(a arrival) {
	s, no := gateway.NewStateless(p.server, p.o.Principal, a.m)
	if no != nil {
		p.answer(no)
		a.free()
		return
	}
	v := &statelessCall{
		p:       p,
		id:      bytes.Clone(a.m.ID),
		listens: a.m.Method == "subscriptions/listen",
	}
	// ctx is not derived from p.ctx: the cause decides the text of the answer.
	ctx, stop := context.WithCancelCause(context.WithoutCancel(p.ctx))
	v.stop = stop
	s.Back, s.Keep = v, a.keep
	p.mu.Lock()
	switch {
	case p.over:
		no = tooLate(a.m)
	case len(p.stateless) >= maxStateless:
		no = jsonrpc.NewError(a.m.ID, jsonrpc.CodeInternal, "too many requests are in flight; try again later", []byte(`{"bridge":"overloaded"}`))
	default:
		p.stateless[v] = struct{}{}
		if !v.listens {
			p.calls.Add(1) // a subscription lasts until it is ended: Serve does not wait for it
		}
		p.wg.Go(func() { v.call(ctx, a, *s) })
	}
	p.mu.Unlock()
	if no != nil {
		stop(nil)
		p.answer(no)
		a.free()
	}
}

// keep adds a reference to the line, until free is called.
func (t *text) keep() (free func()) {
	t.left.Add(1)
	return t.free
}

func (s *statelessCall) call(ctx context.Context, a arrival, g gateway.Stateless) {
	m, err := s.p.g.Call(ctx, a.m, g)
	m = s.p.forClient(m, err)
	a.free()
	s.p.mu.Lock()
	delete(s.p.stateless, s) // before its id may be reused
	s.p.mu.Unlock()
	s.answer(m, context.Cause(ctx))
	s.stop(nil)
	if !s.listens {
		s.p.calls.Add(-1)
	}
}

// answer sends the answer. A call that the client cancelled has none. For a call that the
// bridge cancelled, why is the reason.
func (s *statelessCall) answer(m *jsonrpc.Message, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		m.Release()
		return
	}
	s.over = true
	switch {
	case m != nil:
	case errors.Is(why, errUnread):
		m = jsonrpc.NewError(s.id, jsonrpc.CodeInternal, "the subscription has ended: the client did not read its events", []byte(`{"bridge":"overloaded"}`))
	default:
		m = jsonrpc.NewError(s.id, jsonrpc.CodeInternal, "the bridge is stopping; whether the server acted on the request is unknown", []byte(`{"bridge":"stopping"}`))
	}
	closing := s.listens && m.Error == nil
	s.p.answer(m)
	if closing { // one page of the specification requires the result, and another one this
		m := jsonrpc.NewCancelled(s.id, "the subscription has ended")
		s.p.Send(replay.Event{Data: m.Append(nil, nil, nil), Must: true})
	}
}

// takeBack cancels the call that a notification of the client names. It reports false when there is
// none. If several calls have the id, which is against the protocol, none is cancelled.
func (p *peer) takeBack(m *jsonrpc.Message) bool {
	id := m.RequestID()
	p.mu.Lock()
	var found []*statelessCall
	for s := range p.stateless {
		if bytes.Equal(s.id, id) {
			found = append(found, s)
		}
	}
	if len(found) == 1 {
		delete(p.stateless, found[0]) // its id may be reused
	}
	p.mu.Unlock()
	if len(found) == 1 {
		s := found[0]
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
		s.stop(bridge.TakenBack(m))
	}
	return len(found) > 0
}

// endStateless ends all calls without a session. Subscriptions end with their result, as they do
// when the bridge stops.
func (p *peer) endStateless(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.stateless {
		if s.listens {
			s.stop(bridge.ErrShutdown)
		} else {
			s.stop(reason)
		}
	}
}
