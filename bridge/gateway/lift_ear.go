package gateway

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// ear is one subscription (2026-07-28, subscriptions), and the Client of the
// request that opened it and lasts as long.
type ear struct {
	bridge.Nobody
	h     *hearing
	uris  []string // asked for, sorted
	asks  []*asking
	stop  context.CancelCauseFunc
	late  *time.Timer
	begun chan struct{} // closed when the server has acknowledged it
	ended chan struct{} // closed when it has ended, for whatever reason

	kept   map[string]bool // what of uris the server has accepted; before begun is closed
	answer []byte          // the error that answered it; before ended is closed
	err    error           // or why there was no answer
	since  time.Time       // of the hearing's: when it was seen to have begun
}

var _ bridge.Client = (*ear)(nil)

// listen opens a subscription to the lists and these resources, for the sake of
// those who ask.
func (h *hearing) listen(uris []string, asks []*asking) *ear {
	e := &ear{h: h, uris: uris, asks: asks, begun: make(chan struct{}), ended: make(chan struct{})}
	var ctx context.Context
	ctx, e.stop = context.WithCancelCause(h.ctx)
	limit := ackWithin
	if h.now == nil {
		limit += h.l.r.handshake // the connection may have to be opened first
	}
	stop := e.stop
	e.late = time.AfterFunc(limit, func() {
		stop(&bridge.Error{Server: h.l.r.o.Name, Kind: bridge.ErrTimeout, Public: "it did not acknowledge a subscription within " + ackWithin.String()})
	})
	h.wg.Go(func() { e.run(ctx) })
	return e
}

// run makes the request. It returns when the subscription has ended.
func (e *ear) run(ctx context.Context) {
	defer close(e.ended)
	defer e.late.Stop()
	defer e.stop(nil)
	from := e.h.l.from
	wants := list.Wanted{Changes: e.h.changes, URIs: e.uris}
	a, err := e.h.l.Upstream.Call(ctx, &bridge.Request{Message: from.Request(era.Listen, []byte(`{"notifications":`+string(wants.Raw())+`}`)), From: from, Back: e})
	if err != nil {
		e.err = err
		return
	}
	if a.Error != nil {
		e.answer = a.Clone().Error // on one line
	}
	a.Release()
}

// Notify takes what the server says in the course of the subscription.
func (e *ear) Notify(n *jsonrpc.Message) {
	switch n.Method {
	case "notifications/subscriptions/acknowledged":
		e.acknowledged(n)
		return
	case "notifications/resources/updated":
		if e.asked(n.URI()) && !e.h.wants(n.URI()) {
			return // the client has ended that
		}
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
	default:
		e.h.l.r.log.Debug("notification not passed on: it was not asked for", "method", n.Method)
		return
	}
	l := e.h.l
	l.rest.Notify(n.WithParams(era.Notification(n.Method, n.Params, era.LatestModern, l.from.Revision)))
}

// acknowledged notes what the server has accepted. Its messages come one after
// the other.
func (e *ear) acknowledged(n *jsonrpc.Message) {
	if is(e.begun) {
		return
	}
	e.kept = map[string]bool{}
	for _, uri := range gjson.GetBytes(n.Params, "notifications.resourceSubscriptions").Array() {
		e.kept[uri.String()] = true
	}
	e.late.Stop()
	close(e.begun)
}

// asked reports whether the subscription was opened for that resource too.
func (e *ear) asked(uri string) bool {
	_, ok := slices.BinarySearch(e.uris, uri)
	return ok
}

// honours reports whether the server tells of changes of that resource. The
// subscription has begun.
func (e *ear) honours(uri string) bool { return e.kept[uri] }

// verdict is the answer to those for whose sake a subscription was opened that
// has not begun.
func (e *ear) verdict(revision string) answered {
	switch {
	case e.err != nil:
		return answered{err: e.err}
	case e.answer != nil:
		return answered{m: &jsonrpc.Message{Error: era.Error(era.Listen, "", e.answer, era.LatestModern, revision)}}
	}
	return answered{m: jsonrpc.NewError(nil, jsonrpc.CodeInternal, e.reason().Error(), nil)}
}

// reason says why the subscription has ended.
func (e *ear) reason() error {
	switch {
	case e.err != nil:
		return e.err
	case e.answer != nil:
		return errors.New("the server answered " + string(e.answer[:min(len(e.answer), 200)]))
	}
	return errors.New("the server has ended the subscription")
}
