package gateway

import (
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// NotificationEvent returns the event that carries a notification.
func NotificationEvent(n *jsonrpc.Message) replay.Event {
	e := replay.Event{Data: n.Append(make([]byte, 0, n.Len()), nil, nil)}
	if e.Key = subscribe.Changed(n); n.Method == "notifications/tasks" { // a newer one replaces it: it carries the whole state
		e.Key = n.Method + " " + gjson.GetBytes(n.Params, "taskId").Str
	}
	return e
}

// AnswerEvent returns the event that carries an answer, and releases the answer. The event
// takes over its share of MaxBytes.
func AnswerEvent(a *jsonrpc.Message) replay.Event {
	e := replay.Event{Data: a.Append(make([]byte, 0, a.Len()), a.ID, nil), Must: true, Force: true, Answers: a.ID}
	e.Free = a.TakeRelease()
	a.Release()
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
func (s *StatelessClient) Notify(n *jsonrpc.Message) {
	if s.Subscription == nil {
		s.Back.Send(NotificationEvent(n))
		return
	}
	if what := subscribe.Changed(n); what != "" {
		s.Changes.Notify(what, n)
		return
	}
	s.Tell(n)
}

// Tell sends a notification of the subscription, with its id.
func (s *StatelessClient) Tell(n *jsonrpc.Message) {
	s.Back.Send(NotificationEvent(subscribe.Tagged(n, s.Subscription)))
}

// Ask refuses: a stateless client gets no requests.
func (s *StatelessClient) Ask(_ *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	reply(jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "the client has no session: it cannot be asked", nil))
	return nil
}

// Gone does nothing: the call itself fails.
func (s *StatelessClient) Gone(error) {}
