package gateway

import (
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// NotificationEvent makes the event of a notification.
func NotificationEvent(n *jsonrpc.Message) replay.Event {
	e := replay.Event{Data: n.Append(make([]byte, 0, n.Len()), nil, nil)}
	if e.Key = subscribe.Changed(n); n.Method == "notifications/tasks" { // which says all of the task
		e.Key = n.Method + " " + gjson.GetBytes(n.Params, "taskId").Str
	}
	return e
}

// AnswerEvent makes the event of an answer, and releases it: its room is the event's now.
func AnswerEvent(a *jsonrpc.Message) replay.Event {
	e := replay.Event{Data: a.Append(make([]byte, 0, a.Len()), a.ID, nil), Must: true, Force: true, Answers: a.ID}
	e.Free = a.TakeRelease()
	a.Release()
	return e
}

// StatelessClient is the Client of a call of a client without a session.
type StatelessClient struct {
	Back         bridge.Stream      // of the response
	Subscription []byte             // the id of the request, raw, if it is a subscription
	Changes      *subscribe.Changes // that it is told of, if it is a subscription
}

var _ bridge.Client = (*StatelessClient)(nil)

// Notify passes on what belongs to the call. What belongs to a subscription says so.
func (c *StatelessClient) Notify(n *jsonrpc.Message) {
	if c.Subscription == nil {
		c.Back.Send(NotificationEvent(n))
		return
	}
	if what := subscribe.Changed(n); what != "" {
		c.Changes.Notify(what, n)
		return
	}
	c.Tell(n)
}

// Tell passes on what belongs to the subscription.
func (c *StatelessClient) Tell(n *jsonrpc.Message) {
	c.Back.Send(NotificationEvent(subscribe.Tagged(n, c.Subscription)))
}

// Ask refuses: nobody asks a client without a session.
func (c *StatelessClient) Ask(_ *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	reply(jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "the client has no session: it cannot be asked", nil))
	return nil
}

// Gone is of no interest: the call itself fails.
func (c *StatelessClient) Gone(error) {}
