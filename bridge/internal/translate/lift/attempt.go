package lift

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// attempt is one subscriptions/listen request, which lasts as long as its subscription (2026-07-28,
// Subscriptions). It is the Client of that request.
type attempt struct {
	bridge.Nobody
	s     *subscription
	uris  []string // requested, sorted
	asks  []*change
	stop  context.CancelCauseFunc
	late  *time.Timer
	begun chan struct{} // closed when the server acknowledges the request
	ended chan struct{} // closed when the request has ended

	accepted map[string]bool // uris that the server accepted; set before begun is closed
	answer   []byte          // the server's error; set before ended is closed
	err      error           // why there was no answer
	since    time.Time       // when subscription.run received from begun
}

var _ bridge.Client = (*attempt)(nil)

// listen starts an attempt for the announced lists and these resources. asks wait for its outcome.
func (s *subscription) listen(uris []string, asks []*change) *attempt {
	a := &attempt{
		s:     s,
		uris:  uris,
		asks:  asks,
		begun: make(chan struct{}),
		ended: make(chan struct{}),
	}
	var ctx context.Context
	ctx, a.stop = context.WithCancelCause(s.ctx)
	limit := ackWithin
	if s.now == nil {
		limit += s.l.o.Handshake // the connection may have to be opened first
	}
	stop := a.stop
	a.late = time.AfterFunc(limit, func() {
		stop(&bridge.Error{
			Server: s.l.o.Server,
			Kind:   bridge.ErrTimeout,
			Public: "it did not acknowledge a subscription within " + ackWithin.String(),
		})
	})
	s.wg.Go(func() { a.run(ctx) })
	return a
}

// run makes the request, and returns when the subscription has ended.
func (a *attempt) run(ctx context.Context) {
	defer close(a.ended)
	defer a.late.Stop()
	defer a.stop(nil)
	from := a.s.l.from
	wants := subscribe.Wanted{Changes: a.s.changes, URIs: a.uris}
	message, err := a.s.l.Upstream.Call(ctx, &bridge.Request{
		Message: from.Request(era.Listen, []byte(`{"notifications":`+string(wants.Raw())+`}`)),
		From:    from,
		Back:    a,
	})
	if err != nil {
		a.err = err
		return
	}
	if message.Error != nil {
		a.answer = message.Clone().Error // on one line
	}
	message.Release()
}

// Notify passes on a notification of the subscription.
func (a *attempt) Notify(m *jsonrpc.Message) {
	switch m.Method {
	case "notifications/subscriptions/acknowledged":
		a.acknowledged(m)
		return
	case "notifications/resources/updated":
		if a.requested(m.URI()) && !a.s.wants(m.URI()) {
			return // the client has unsubscribed
		}
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
	default:
		a.s.l.o.Log.Debug("notification dropped: not subscribed", "method", m.Method)
		return
	}
	l := a.s.l
	l.to.Notify(m.WithParams(era.Notification(m.Method, m.Params, era.LatestModern, l.from.Revision)))
}

// acknowledged stores the parts that the server accepted. Messages of an attempt come in sequence.
func (a *attempt) acknowledged(m *jsonrpc.Message) {
	if is(a.begun) {
		return
	}
	a.accepted = map[string]bool{}
	for _, uri := range gjson.GetBytes(m.Params, "notifications.resourceSubscriptions").Array() {
		a.accepted[uri.String()] = true
	}
	a.late.Stop()
	close(a.begun)
}

// requested reports whether the attempt includes the resource.
func (a *attempt) requested(uri string) bool {
	_, ok := slices.BinarySearch(a.uris, uri)
	return ok
}

// grants reports whether the server accepted the resource. The attempt must have begun.
func (a *attempt) grants(uri string) bool { return a.accepted[uri] }

// verdict returns the outcome for the asks of an attempt that did not begin.
func (a *attempt) verdict(revision string) outcome {
	switch {
	case a.err != nil:
		return outcome{err: a.err}
	case a.answer != nil:
		return outcome{m: &jsonrpc.Message{Error: era.Error(era.Listen, "", a.answer, era.LatestModern, revision)}}
	}
	return outcome{m: jsonrpc.NewError(nil, jsonrpc.CodeInternal, a.reason().Error(), nil)}
}

// reason returns why the subscription ended.
func (a *attempt) reason() error {
	switch {
	case a.err != nil:
		return a.err
	case a.answer != nil:
		return errors.New("the server answered " + string(a.answer[:min(len(a.answer), 200)]))
	}
	return errors.New("the server has ended the subscription")
}
