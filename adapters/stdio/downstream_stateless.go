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

// statelessCall is a request that belongs to no session (2026-07-28, stdio). A client may send such
// requests with or without a session, since each message shows its era (protocol.md C3).
type statelessCall struct {
	p       *peer
	id      []byte                  // raw
	listens bool                    // the request is subscriptions/listen
	stop    context.CancelCauseFunc // cancels the call

	mu   sync.Mutex // guards said and over
	said int        // events sent for the call
	over bool       // no more messages are sent for the call
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
		s.stop(errUnread) // the client must not miss changes unnoticed
		return false
	}
	if e.Key != "" {
		// An event must not replace one of another subscription.
		e.Key = strconv.Quote(string(s.id)) + e.Key
	}
	e.Must = e.Must || s.listens && s.said == 0 // the acknowledgement
	s.said++
	return s.p.Send(e)
}

// takeStateless handles a message that belongs to no session. For a message of a session, and for
// initialize, it reports false.
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
	// ctx does not end with p.ctx, since its cause decides the text of the answer.
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
			p.calls.Add(1) // not for subscriptions: they do not end by themselves, so Serve does not wait for them
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

// keep adds a reference to the line, which free removes.
func (t *text) keep() (free func()) {
	t.left.Add(1)
	return t.free
}

func (s *statelessCall) call(ctx context.Context, a arrival, g gateway.Stateless) {
	m, err := s.p.g.Call(ctx, a.m, g)
	m = s.p.forClient(m, err)
	a.free()
	s.p.mu.Lock()
	delete(s.p.stateless, s) // before the answer, after which the client may reuse the id
	s.p.mu.Unlock()
	s.answer(m, context.Cause(ctx))
	s.stop(nil)
	if !s.listens {
		s.p.calls.Add(-1)
	}
}

// answer sends the answer, unless the client has cancelled the call. If the bridge has
// cancelled the call, m is nil and why is the reason.
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
	if closing { // the specification requires the result on one page, and this notification on another
		m := jsonrpc.NewCancelled(s.id, "the subscription has ended")
		s.p.Send(replay.Event{Data: m.Append(nil, nil, nil), Must: true})
	}
}

// takeBack cancels the call that a notification of the client names. It reports false if there is no
// such call. If several calls have the id, which is against the protocol, it cancels none.
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
		delete(p.stateless, found[0]) // the client may reuse the id
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

// endStateless ends all calls without a session. Subscriptions end with their result, whatever the
// reason.
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
