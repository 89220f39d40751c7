package gateway

import (
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// NotificationEvent returns the event that carries a notification.
func NotificationEvent(m *jsonrpc.Message) replay.Event {
	e := replay.Event{Data: m.Append(make([]byte, 0, m.Len()), nil, nil)}
	if e.Key = subscribe.Changed(m); m.Method == "notifications/tasks" { // a newer one replaces it: it carries the whole state
		e.Key = m.Method + " " + gjson.GetBytes(m.Params, "taskId").Str
	}
	return e
}

// AnswerEvent returns the event that carries an answer, and releases the answer. The event
// takes over its share of MaxBytes.
func AnswerEvent(m *jsonrpc.Message) replay.Event {
	e := replay.Event{
		Data:    m.Append(make([]byte, 0, m.Len()), m.ID, nil),
		Must:    true,
		Force:   true,
		Answers: m.ID,
	}
	e.Free = m.TakeRelease()
	m.Release()
	return e
}

// StatelessClient is the bridge.Client of a stateless client's call.
type StatelessClient struct {
	Back         bridge.Stream      // of the response
	Subscription []byte             // the raw id of the request, if it is a subscription
	Changes      *subscribe.Changes // of a subscription
}

var _ bridge.Client = (*StatelessClient)(nil)

// Notify sends a notification of the call. One of a subscription carries its id.
func (s *StatelessClient) Notify(m *jsonrpc.Message) {
	if s.Subscription == nil {
		s.Back.Send(NotificationEvent(m))
		return
	}
	if what := subscribe.Changed(m); what != "" {
		s.Changes.Notify(what, m)
		return
	}
	s.Tell(m)
}

// Tell sends a notification of the subscription, with its id.
func (s *StatelessClient) Tell(m *jsonrpc.Message) {
	s.Back.Send(NotificationEvent(subscribe.Tagged(m, s.Subscription)))
}

// Ask refuses: a stateless client gets no requests.
func (s *StatelessClient) Ask(_ *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	reply(jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "the client has no session: it cannot be asked", nil))
	return nil
}

// Gone does nothing: the call itself fails.
func (s *StatelessClient) Gone(error) {}
