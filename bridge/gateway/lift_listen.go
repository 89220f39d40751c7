package gateway

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// When a session's subscription is made anew (protocol.md D2.5).
const (
	gatherFor   = 50 * time.Millisecond // subscriptions to resources come in crowds
	shrinkAfter = 5 * time.Second       // ending one is never urgent
	ackWithin   = 10 * time.Second
	firstWithin = 100 * time.Millisecond // for so long the client's lists wait for the first one
	longEnough  = 10 * time.Second       // one that lived for so long did not fail to begin
	maxRefusals = 3                      // of a server that may not know subscriptions at all
)

// hearing is what one session hears of the changes on a modern server: one
// subscription to all that it wants to know, which is opened again when it ends
// (protocol.md D2.5). A subscription cannot be changed. When something else is
// wanted another one is opened, and the old one ended after the new one has
// begun: what both hear is told twice, and nothing is missed.
type hearing struct {
	l       *lift
	changes map[string]bool // announced notifications of changed lists, by method
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup
	asks    chan *asking
	opened  chan struct{} // the lane has opened a connection again
	tried   chan struct{} // closed, with mu held, when the first subscription has begun or failed

	mu   sync.Mutex      // guards what follows
	want map[string]bool // URIs that the client wants to hear of; true once the server has accepted it
	owes bool            // the client is to be told that something may have changed
	seen map[string]bool // as changes, of lists that the client has asked for before it could hear of them
	deaf bool            // the server takes no subscriptions

	// What follows belongs to run.
	now, next *ear      // the subscription, and the one that is to follow it
	joining   []*asking // what waits for the one after that
	gap       bool      // something may have been missed
	failures  int       // in a row
	refusals  int
	timer     *time.Timer // when the next one is to be opened
	due       time.Time   // zero when it is not
}

// asking is a request to hear of a resource, or not to hear of it any more.
type asking struct {
	uri    string
	end    bool
	answer chan answered // takes one
}

type answered struct {
	m   *jsonrpc.Message
	err error
}

// hear returns what the session hears of the server, which begins with that; nil
// when the session has ended.
func (l *lift) hear(k *acquainted) *hearing {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hearing == nil && !l.closed {
		h := &hearing{l: l, changes: k.changes, asks: make(chan *asking), opened: make(chan struct{}, 1), tried: make(chan struct{}), want: map[string]bool{}}
		h.ctx, h.stop = context.WithCancel(context.Background())
		h.timer, h.due = time.NewTimer(0), time.Now() // to begin with, the lists
		l.hearing = h
		h.wg.Go(h.run)
	}
	return l.hearing
}

// listening returns what the session hears of the server, or nil.
func (l *lift) listening() *hearing {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hearing
}

// subscribe answers resources/subscribe when the server has acknowledged it
//
func (l *lift) subscribe(ctx context.Context, uri string) (*jsonrpc.Message, error) {
	if uri == "" {
		return jsonrpc.InvalidParams("params.uri must be a string that names a resource"), nil
	}
	return l.tell(ctx, &asking{uri: uri, answer: make(chan answered, 1)})
}

// unsubscribe answers resources/unsubscribe.
func (l *lift) unsubscribe(ctx context.Context, uri string) (*jsonrpc.Message, error) {
	return l.tell(ctx, &asking{uri: uri, end: true, answer: make(chan answered, 1)})
}

func (l *lift) tell(ctx context.Context, q *asking) (*jsonrpc.Message, error) {
	h := l.hear(l.met.Load())
	if h == nil {
		return nil, bridge.ErrEnded
	}
	select {
	case h.asks <- q:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-h.ctx.Done():
		return nil, bridge.ErrEnded
	}
	select {
	case a := <-q.answer:
		return a.m, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-h.ctx.Done():
		return nil, bridge.ErrEnded
	}
}

// listing is called before the client's request for a list is sent. It waits for
// the first subscription, but not for long: of what changes before, nobody tells.
// When that takes longer, the client is told that the list may have changed.
func (h *hearing) listing(ctx context.Context, k list.Kind) {
	if is(h.tried) || !h.changes[k.Changed()] {
		return
	}
	timer := time.NewTimer(firstWithin)
	defer timer.Stop()
	select {
	case <-h.tried:
		return
	case <-timer.C:
	case <-ctx.Done():
	case <-h.ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if is(h.tried) {
		return
	}
	if h.seen == nil {
		h.seen = map[string]bool{}
	}
	h.seen[k.Changed()] = true
}

// lost notes that the connection was lost and is open again. It reports whether
// the client will be told what may have changed: when the subscription has begun
// again, and nothing more can be missed.
func (h *hearing) lost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deaf || h.ctx.Err() != nil {
		return false
	}
	h.owes = true
	select {
	case h.opened <- struct{}{}:
	default:
	}
	return true
}

// close ends the subscription and returns when nothing is left of it.
func (h *hearing) close() {
	h.stop()
	h.wg.Wait()
}

func (h *hearing) run() {
	defer h.timer.Stop()
	for {
		var begun, failed, ended chan struct{} // nil is never ready
		if h.next != nil {
			begun, failed = h.next.begun, h.next.ended
		}
		if h.now != nil {
			ended = h.now.ended
		}
		select {
		case <-h.ctx.Done():
			return // and with it the subscriptions
		case q := <-h.asks:
			h.take(q)
		case <-h.timer.C:
			h.due = time.Time{}
			h.open()
		case <-h.opened:
			if h.now == nil && h.next == nil {
				h.plan(0)
			}
		case <-begun:
			h.follow()
		case <-failed:
			if is(h.next.begun) {
				h.follow() // it has begun and ended
			} else {
				h.failed()
			}
		case <-ended:
			h.broken()
		}
	}
}

// is reports whether a channel is closed.
func is(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// plan has a subscription opened after that time, or sooner if that was planned.
func (h *hearing) plan(after time.Duration) {
	at := time.Now().Add(after)
	if h.due.IsZero() || at.Before(h.due) {
		h.due = at
		h.timer.Reset(after)
	}
}

// again plans the next attempt after one that came to nothing: not all sessions
// at once, nor too often.
func (h *hearing) again() {
	pause := min(time.Second<<min(h.failures, 6), maxBackOff)
	h.failures++
	h.plan(pause/2 + rand.N(pause/2))
}

// take takes a request of the client.
func (h *hearing) take(q *asking) {
	h.mu.Lock()
	defer h.mu.Unlock()
	done := answered{m: jsonrpc.NewResult(nil, []byte("{}"))}
	accepted, had := h.want[q.uri]
	switch {
	case q.end:
		if delete(h.want, q.uri); had && h.now != nil {
			h.plan(shrinkAfter)
		}
	case h.now != nil && !is(h.now.ended) && h.now.honours(q.uri) && (h.next == nil || h.next.asked(q.uri)):
		h.want[q.uri] = true
	case !had && len(h.want) >= list.MaxSubscriptions:
		done.m = jsonrpc.NewError(nil, jsonrpc.CodeInternal, bridge.OverLimit("too many subscriptions", list.MaxSubscriptions), nil)
	default:
		h.want[q.uri] = accepted
		h.joining = append(h.joining, q)
		if h.next == nil {
			h.plan(gatherFor)
		}
		return
	}
	q.answer <- done
}

// open opens the subscription that is wanted now, unless there is one already or
// another one is about to begin.
func (h *hearing) open() {
	if h.next != nil {
		return // when that is settled, this is looked at again
	}
	h.mu.Lock()
	uris := slices.Sorted(maps.Keys(h.want))
	h.mu.Unlock()
	joining := h.joining
	h.joining = nil
	switch {
	case len(uris)+len(h.changes) == 0:
		if h.now != nil {
			h.now.stop(nil)
			h.now = nil
		}
	case h.now != nil && slices.Equal(h.now.uris, uris) && !slices.ContainsFunc(joining, func(q *asking) bool { return h.wants(q.uri) }):
	default:
		h.next = h.listen(uris, joining)
		return
	}
	for _, q := range joining { // ended again meanwhile
		q.answer <- answered{m: jsonrpc.NewResult(nil, []byte("{}"))}
	}
}

// follow puts the subscription that has begun in the place of the one before.
func (h *hearing) follow() {
	e := h.next
	if h.now != nil {
		h.gap = h.gap || is(h.now.ended)
		h.now.stop(nil)
	}
	h.now, h.next, h.refusals = e, nil, 0
	e.since = time.Now()
	h.mu.Lock()
	missed, seen := h.gap || h.owes, h.seen
	h.gap, h.owes, h.deaf, h.seen = false, false, false, nil
	h.settle()
	answers := make([]*jsonrpc.Message, len(e.asks))
	for i, q := range e.asks {
		answers[i] = jsonrpc.NewResult(nil, []byte("{}"))
		switch _, wanted := h.want[q.uri]; {
		case wanted && e.honours(q.uri):
			h.want[q.uri] = true
		case wanted:
			h.unwant(q.uri)
			answers[i] = jsonrpc.NewError(nil, jsonrpc.CodeInvalidParams, "the server does not tell of changes of this resource", []byte(`{"uri":`+rawjson.Quote(q.uri)+`}`))
		}
	}
	h.mu.Unlock()
	if missed {
		h.changed(h.changes, e.uris)
	} else { // of what changed between the client's list and the acknowledgement, nobody was told
		h.changed(seen, nil)
	}
	for i, q := range e.asks {
		q.answer <- answered{m: answers[i]}
	}
	h.review()
}

// settle notes that the first subscription has begun or failed. The caller holds
// h.mu.
func (h *hearing) settle() {
	if !is(h.tried) {
		close(h.tried)
	}
}

// review plans another subscription if what is wanted has changed since this one
// was opened.
func (h *hearing) review() {
	h.mu.Lock()
	same := h.now != nil && len(h.want) == len(h.now.uris)
	for uri := range h.want {
		same = same && h.now.asked(uri)
	}
	h.mu.Unlock()
	switch {
	case len(h.joining) > 0:
		h.plan(gatherFor)
	case h.now != nil && !same:
		h.plan(shrinkAfter)
	}
}

// unwant notes that a resource cannot be heard of, unless somebody waits for the
// next subscription with it. The caller holds h.mu.
func (h *hearing) unwant(uri string) {
	if !slices.ContainsFunc(h.joining, func(q *asking) bool { return q.uri == uri }) {
		delete(h.want, uri)
	}
}

// failed sees to a subscription that has not begun. What it was to add is not
// wanted any more; what there was before goes on.
func (h *hearing) failed() {
	e := h.next
	h.next = nil
	h.mu.Lock()
	for _, q := range e.asks {
		if !h.want[q.uri] {
			h.unwant(q.uri)
		}
	}
	done := h.deaf || len(h.want)+len(h.changes) == 0
	h.settle()
	h.mu.Unlock()
	h.gap = h.gap || h.now == nil && !done // also if it was the first
	for _, q := range e.asks {
		q.answer <- e.verdict(h.l.from.Revision)
	}
	h.l.r.log.Debug("subscription not opened", "err", e.reason())
	switch {
	case h.now != nil || done:
	case e.err == nil && len(e.asks) == 0:
		if h.refusals++; h.refusals >= maxRefusals {
			h.giveUp(e)
			break
		}
		h.again()
	default:
		h.again()
	}
	h.review()
}

// giveUp leaves it at that: the client goes on without news of changes.
func (h *hearing) giveUp(e *ear) {
	h.l.r.log.Warn("the server accepts no subscription: clients are not told of changes", "err", e.reason())
	h.mu.Lock()
	owes := h.owes
	h.deaf, h.owes = true, false
	h.mu.Unlock()
	if owes {
		h.changed(h.changes, nil)
	}
}

// broken sees to a subscription that has ended by itself.
func (h *hearing) broken() {
	e := h.now
	h.now, h.gap = nil, true
	if time.Since(e.since) >= longEnough {
		h.failures = 0
	}
	h.l.r.log.Debug("subscription ended", "err", e.reason())
	if h.next == nil {
		h.again()
	}
}

// changed tells the client that it may have missed something.
func (h *hearing) changed(lists map[string]bool, uris []string) {
	uris = slices.DeleteFunc(slices.Clone(uris), func(uri string) bool { return !h.wants(uri) })
	missed := list.Wanted{Changes: lists, URIs: uris}
	missed.Missed(func(n *jsonrpc.Message) {
		h.l.r.cache.heard(nil, n)
		h.l.rest.Notify(n)
	})
}

func (h *hearing) wants(uri string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.want[uri]
	return ok
}
