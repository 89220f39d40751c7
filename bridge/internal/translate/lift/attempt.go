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
	begun chan struct{} // closed when the server acknowledges it
	ended chan struct{} // closed when it has ended

	accepted map[string]bool // uris that the server accepted; set before begun is closed
	answer   []byte          // the server's error; set before ended is closed
	err      error           // why there was no answer
	since    time.Time       // when run of the subscription saw it begin
}

var _ bridge.Client = (*attempt)(nil)

// listen requests the lists and these resources. asks wait for the outcome.
func (s *subscription) listen(uris []string, asks []*change) *attempt {
	e := &attempt{s: s, uris: uris, asks: asks, begun: make(chan struct{}), ended: make(chan struct{})}
	var ctx context.Context
	ctx, e.stop = context.WithCancelCause(s.ctx)
	limit := ackWithin
	if s.now == nil {
		limit += s.l.o.Handshake // the connection may have to be opened first
	}
	stop := e.stop
	e.late = time.AfterFunc(limit, func() {
		stop(&bridge.Error{Server: s.l.o.Server, Kind: bridge.ErrTimeout, Public: "it did not acknowledge a subscription within " + ackWithin.String()})
	})
	s.wg.Go(func() { e.run(ctx) })
	return e
}

// run makes the request, and returns when the subscription has ended.
func (e *attempt) run(ctx context.Context) {
	defer close(e.ended)
	defer e.late.Stop()
	defer e.stop(nil)
	from := e.s.l.from
	wants := subscribe.Wanted{Changes: e.s.changes, URIs: e.uris}
	a, err := e.s.l.Upstream.Call(ctx, &bridge.Request{Message: from.Request(era.Listen, []byte(`{"notifications":`+string(wants.Raw())+`}`)), From: from, Back: e})
	if err != nil {
		e.err = err
		return
	}
	if a.Error != nil {
		e.answer = a.Clone().Error // on one line
	}
	a.Release()
}

// Notify passes on a notification of the subscription.
func (e *attempt) Notify(n *jsonrpc.Message) {
	switch n.Method {
	case "notifications/subscriptions/acknowledged":
		e.acknowledged(n)
		return
	case "notifications/resources/updated":
		if e.requested(n.URI()) && !e.s.wants(n.URI()) {
			return // the client has unsubscribed
		}
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
	default:
		e.s.l.o.Log.Debug("notification dropped: not subscribed", "method", n.Method)
		return
	}
	l := e.s.l
	l.to.Notify(n.WithParams(era.Notification(n.Method, n.Params, era.LatestModern, l.from.Revision)))
}

// acknowledged stores what the server accepted. Messages of an attempt come in sequence.
func (e *attempt) acknowledged(n *jsonrpc.Message) {
	if is(e.begun) {
		return
	}
	e.accepted = map[string]bool{}
	for _, uri := range gjson.GetBytes(n.Params, "notifications.resourceSubscriptions").Array() {
		e.accepted[uri.String()] = true
	}
	e.late.Stop()
	close(e.begun)
}

// requested reports whether the attempt includes the resource.
func (e *attempt) requested(uri string) bool {
	_, ok := slices.BinarySearch(e.uris, uri)
	return ok
}

// grants reports whether the server accepted the resource. The attempt has begun.
func (e *attempt) grants(uri string) bool { return e.accepted[uri] }

// verdict returns the outcome for the asks of an attempt that did not begin.
func (e *attempt) verdict(revision string) outcome {
	switch {
	case e.err != nil:
		return outcome{err: e.err}
	case e.answer != nil:
		return outcome{m: &jsonrpc.Message{Error: era.Error(era.Listen, "", e.answer, era.LatestModern, revision)}}
	}
	return outcome{m: jsonrpc.NewError(nil, jsonrpc.CodeInternal, e.reason().Error(), nil)}
}

// reason returns why the subscription ended.
func (e *attempt) reason() error {
	switch {
	case e.err != nil:
		return e.err
	case e.answer != nil:
		return errors.New("the server answered " + string(e.answer[:min(len(e.answer), 200)]))
	}
	return errors.New("the server has ended the subscription")
}
