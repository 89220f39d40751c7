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
	if e.Key = subscribe.Changed(m); m.Method == "notifications/tasks" { // the newest state of a task replaces an older one in the queue
		e.Key = m.Method + " " + gjson.GetBytes(m.Params, "taskId").Str
	}
	return e
}

// AnswerEvent returns the event that carries an answer, and releases m. The event takes over the bytes that m has of
// MaxBytes, and frees them when it was sent.
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
	Subscription []byte             // raw id of subscriptions/listen; nil for other requests
	Changes      *subscribe.Changes // collects the change notifications of a subscription; nil for other requests
}

var _ bridge.Client = (*StatelessClient)(nil)

// Notify sends a notification. If the request is a subscription, the notification carries its id.
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

// Tell sends m with the id of the subscription.
func (s *StatelessClient) Tell(m *jsonrpc.Message) {
	s.Back.Send(NotificationEvent(subscribe.Tagged(m, s.Subscription)))
}

// Ask rejects m: a stateless client gets no requests.
func (s *StatelessClient) Ask(_ *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	reply(jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "the client has no session: it cannot be asked", nil))
	return nil
}

// Gone does nothing: Call of the chain returns the error.
func (s *StatelessClient) Gone(error) {}
