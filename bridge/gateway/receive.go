package gateway

import (
	"errors"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// receiver is the bridge.Client of a session's binding.
type receiver struct {
	s       *sitting
	binding *binding
}

var (
	_ bridge.Client = receiver{}
	_ bridge.Client = (*call)(nil)
)

// Notify sends a notification that names no call. If exactly one call is in flight, a log message goes on the stream of
// that call.
func (r receiver) Notify(m *jsonrpc.Message) {
	s := r.s
	if what := subscribe.Changed(m); what != "" {
		s.changes.Notify(what, m)
		return
	}
	s.g.calls.Passed(s.server, s.shortID(), s.caller, false, nil, m)
	e := NotificationEvent(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return
	}
	if m.Method == "notifications/message" {
		if c := s.onlyCall(); c != nil && c.back != nil && c.back.Send(e) {
			return
		}
	}
	s.put(e)
}

// tell sends a notification of a changed list or resource to the client.
func (s *sitting) tell(m *jsonrpc.Message) {
	if m.Method == list.Tools.Changed() && s.g.constant(s.address(s.bindings.Current(), *s.tools.Load())) {
		return
	}
	s.g.calls.Passed(s.server, s.shortID(), s.caller, false, nil, m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending {
		s.put(NotificationEvent(m))
	}
}

// Ask sends a question that names no call. If exactly one call is in flight, the question counts as one about that
// call.
func (r receiver) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	r.s.mu.Lock()
	c := r.s.onlyCall()
	r.s.mu.Unlock()
	return r.s.ask(m, reply, c)
}

// Gone ends the session: its connection ended, and the lane does not open another.
func (r receiver) Gone(err error) {
	if r.binding.Current() { // a former binding does not end the session
		r.s.End(err)
	}
}

var errNobodyWaits = errors.New("no request of the bridge has this id")
