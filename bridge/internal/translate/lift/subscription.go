package lift

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// These constants govern when a session subscribes again (protocol.md D2.5).
const (
	gatherFor   = 50 * time.Millisecond // subscriptions to resources often come together
	shrinkAfter = 5 * time.Second       // a smaller subscription is never urgent
	ackWithin   = 10 * time.Second
	firstWithin = 100 * time.Millisecond // the client's lists wait so long for the first subscription
	longEnough  = 10 * time.Second       // a subscription that lasts longer is no failure
	maxRefusals = 3                      // after which the server counts as one without subscriptions
	maxPause    = time.Minute            // between attempts
)

// subscription holds a session's one subscription at a modern server, and renews it when it ends (protocol.md D2.5).
// Subscriptions are immutable. For other topics, run opens another subscription, and ends the old one after the new
// one has begun: some changes come twice, but none is lost.
type subscription struct {
	l       *Lift
	changes map[string]bool // announced notifications of changed lists, by method
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup
	asks    chan *change
	opened  chan struct{} // receives when the lane has reconnected
	tried   chan struct{} // closed, with mu held, when the first attempt has begun or failed

	mu       sync.Mutex      // guards want, missed, seen and declined
	want     map[string]bool // wanted URIs; true when the server has accepted the URI
	missed   bool            // the client needs notifications of possible changes
	seen     map[string]bool // lists that the client read before the first attempt began, by notification
	declined bool            // the server accepts no subscriptions

	// run owns the rest.
	now, next *attempt  // the subscription, and its replacement
	joining   []*change // asks for an attempt that has not started
	gap       bool      // changes may have been missed
	failures  int       // failed attempts in a row
	refusals  int
	timer     *time.Timer // until the next attempt
	due       time.Time   // when timer fires; zero if it is not set
}

// change is a request to subscribe to a resource or to unsubscribe.
type change struct {
	uri    string
	end    bool
	answer chan outcome // gets one outcome
}

// outcome is the result of a client's request.
type outcome struct {
	m   *jsonrpc.Message
	err error
}

// listen returns the session's subscription, which it starts if necessary. listen returns nil if the session has
// ended.
func (l *Lift) listen(c *capabilities) *subscription {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subscription == nil && !l.closed {
		s := &subscription{
			l:       l,
			changes: c.changes,
			asks:    make(chan *change),
			opened:  make(chan struct{}, 1),
			tried:   make(chan struct{}),
			want:    map[string]bool{},
		}
		s.ctx, s.stop = context.WithCancel(context.Background())
		s.timer, s.due = time.NewTimer(0), time.Now() // at once, for the lists
		l.subscription = s
		s.wg.Go(s.run)
	}
	return l.subscription
}

// listening returns the session's subscription, or nil.
func (l *Lift) listening() *subscription {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.subscription
}

// subscribe answers resources/subscribe after the server's acknowledgement.
func (l *Lift) subscribe(ctx context.Context, uri string) (*jsonrpc.Message, error) {
	if uri == "" {
		return jsonrpc.InvalidParams("params.uri must be a string that names a resource"), nil
	}
	return l.change(ctx, &change{uri: uri, answer: make(chan outcome, 1)})
}

func (l *Lift) change(ctx context.Context, c *change) (*jsonrpc.Message, error) {
	s := l.listen(l.caps.Load())
	if s == nil {
		return nil, bridge.ErrEnded
	}
	select {
	case s.asks <- c:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.ctx.Done():
		return nil, bridge.ErrEnded
	}
	select {
	case o := <-c.answer:
		return o.m, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.ctx.Done():
		return nil, bridge.ErrEnded
	}
}

// listing waits, before a request for a list, until the first subscription has begun, because earlier changes
// are not reported. If that takes too long, the client is notified later that the list may have changed.
func (s *subscription) listing(ctx context.Context, k list.Kind) {
	if is(s.tried) || !s.changes[k.Changed()] {
		return
	}
	select {
	case <-s.tried:
		return
	case <-time.After(firstWithin):
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if is(s.tried) {
		return
	}
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[k.Changed()] = true
}

// lost records that the lane has reconnected. lost reports whether the subscription will notify the client of
// possible changes, after the subscription has begun again.
func (s *subscription) lost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.declined || s.ctx.Err() != nil {
		return false
	}
	s.missed = true
	select {
	case s.opened <- struct{}{}:
	default:
	}
	return true
}

func (s *subscription) run() {
	defer s.timer.Stop()
	for {
		var begun, failed, ended chan struct{} // nil is never ready
		if s.next != nil {
			begun, failed = s.next.begun, s.next.ended
		}
		if s.now != nil {
			ended = s.now.ended
		}
		select {
		case <-s.ctx.Done():
			return // the attempts end with s.ctx
		case c := <-s.asks:
			s.take(c)
		case <-s.timer.C:
			s.due = time.Time{}
			s.open()
		case <-s.opened:
			if s.now == nil && s.next == nil {
				s.plan(0)
			}
		case <-begun:
			s.follow()
		case <-failed:
			if is(s.next.begun) {
				s.follow() // the attempt began and ended
			} else {
				s.failed()
			}
		case <-ended:
			s.broken()
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

// plan schedules the next attempt after that time, unless one is due earlier.
func (s *subscription) plan(after time.Duration) {
	at := time.Now().Add(after)
	if s.due.IsZero() || at.Before(s.due) {
		s.due = at
		s.timer.Reset(after)
	}
}

// again schedules the next attempt after a failure. Jitter spreads the sessions.
func (s *subscription) again() {
	pause := min(time.Second<<min(s.failures, 6), maxPause)
	s.failures++
	s.plan(pause/2 + rand.N(pause/2))
}

// take handles a request of the client.
func (s *subscription) take(c *change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := outcome{m: jsonrpc.NewResult(nil, []byte("{}"))}
	accepted, had := s.want[c.uri]
	switch {
	case c.end:
		if delete(s.want, c.uri); had && s.now != nil {
			s.plan(shrinkAfter)
		}
	case s.now != nil && !is(s.now.ended) && s.now.grants(c.uri) && (s.next == nil || s.next.requested(c.uri)):
		s.want[c.uri] = true
	case !had && len(s.want) >= subscribe.MaxSubscriptions:
		done.m = jsonrpc.NewError(nil, jsonrpc.CodeInternal, bridge.OverLimit("too many subscriptions", subscribe.MaxSubscriptions), nil)
	default:
		s.want[c.uri] = accepted
		s.joining = append(s.joining, c)
		if s.next == nil {
			s.plan(gatherFor)
		}
		return
	}
	c.answer <- done
}

// open starts the next attempt, unless one is starting or nothing has changed.
func (s *subscription) open() {
	if s.next != nil {
		return // follow() or failed() calls review()
	}
	s.mu.Lock()
	uris := slices.Sorted(maps.Keys(s.want))
	s.mu.Unlock()
	joining := s.joining
	s.joining = nil
	switch {
	case len(uris)+len(s.changes) == 0:
		if s.now != nil {
			s.now.stop(nil)
			s.now = nil
		}
	case s.now != nil && slices.Equal(s.now.uris, uris) && !slices.ContainsFunc(joining, func(c *change) bool { return s.wants(c.uri) }):
	default:
		s.next = s.listen(uris, joining)
		return
	}
	for _, c := range joining { // unsubscribed meanwhile
		c.answer <- outcome{m: jsonrpc.NewResult(nil, []byte("{}"))}
	}
}

// follow replaces the subscription by the attempt that has begun.
func (s *subscription) follow() {
	a := s.next
	if s.now != nil {
		s.gap = s.gap || is(s.now.ended)
		s.now.stop(nil)
	}
	s.now, s.next, s.refusals = a, nil, 0
	a.since = time.Now()
	s.mu.Lock()
	missed, seen := s.gap || s.missed, s.seen
	s.gap, s.missed, s.declined, s.seen = false, false, false, nil
	s.settle()
	answers := make([]*jsonrpc.Message, len(a.asks))
	for i, c := range a.asks {
		answers[i] = jsonrpc.NewResult(nil, []byte("{}"))
		switch _, wanted := s.want[c.uri]; {
		case wanted && a.grants(c.uri):
			s.want[c.uri] = true
		case wanted:
			s.unwant(c.uri)
			answers[i] = jsonrpc.NewError(nil, jsonrpc.CodeInvalidParams, "the server does not report changes of this resource", subscribe.Params(c.uri))
		}
	}
	s.mu.Unlock()
	if missed {
		s.changed(s.changes, a.uris)
	} else { // changes between the client's list and the acknowledgement were not reported
		s.changed(seen, nil)
	}
	for i, c := range a.asks {
		c.answer <- outcome{m: answers[i]}
	}
	s.review()
}

// settle records that the first attempt has begun or failed. The caller holds s.mu.
func (s *subscription) settle() {
	if !is(s.tried) {
		close(s.tried)
	}
}

// review schedules another attempt if the wanted resources differ from those of the current subscription.
func (s *subscription) review() {
	s.mu.Lock()
	same := s.now != nil && len(s.want) == len(s.now.uris)
	for uri := range s.want {
		same = same && s.now.requested(uri)
	}
	s.mu.Unlock()
	switch {
	case len(s.joining) > 0:
		s.plan(gatherFor)
	case s.now != nil && !same:
		s.plan(shrinkAfter)
	}
}

// unwant removes a resource, unless an ask for it waits. The caller holds s.mu.
func (s *subscription) unwant(uri string) {
	if !slices.ContainsFunc(s.joining, func(c *change) bool { return c.uri == uri }) {
		delete(s.want, uri)
	}
}

// failed handles an attempt that did not begin. Its asks fail, and earlier subscriptions stay.
func (s *subscription) failed() {
	a := s.next
	s.next = nil
	s.mu.Lock()
	for _, c := range a.asks {
		if !s.want[c.uri] {
			s.unwant(c.uri)
		}
	}
	done := s.declined || len(s.want)+len(s.changes) == 0
	s.settle()
	s.mu.Unlock()
	s.gap = s.gap || s.now == nil && !done // also if the first attempt failed
	for _, c := range a.asks {
		c.answer <- a.verdict(s.l.from.Revision)
	}
	s.l.o.Log.Debug("subscription not opened", "err", a.reason())
	switch {
	case s.now != nil || done:
	case a.err == nil && len(a.asks) == 0:
		if s.refusals++; s.refusals >= maxRefusals {
			s.giveUp(a)
			break
		}
		s.again()
	default:
		s.again()
	}
	s.review()
}

// giveUp stops the attempts. The client gets no notifications of changes.
func (s *subscription) giveUp(a *attempt) {
	s.l.o.Log.Warn("the server accepts no subscription: clients get no change notifications", "err", a.reason())
	s.mu.Lock()
	owes := s.missed
	s.declined, s.missed = true, false
	s.mu.Unlock()
	if owes {
		s.changed(s.changes, nil)
	}
}

// broken handles a subscription that ended by itself.
func (s *subscription) broken() {
	a := s.now
	s.now, s.gap = nil, true
	if time.Since(a.since) >= longEnough {
		s.failures = 0
	}
	s.l.o.Log.Debug("subscription ended", "err", a.reason())
	if s.next == nil {
		s.again()
	}
}

// changed notifies the client of changes that it may have missed.
func (s *subscription) changed(lists map[string]bool, uris []string) {
	uris = slices.DeleteFunc(slices.Clone(uris), func(uri string) bool { return !s.wants(uri) })
	missed := subscribe.Wanted{Changes: lists, URIs: uris}
	missed.Missed(func(m *jsonrpc.Message) {
		s.l.o.Cache.Heard(m)
		s.l.to.Notify(m)
	})
}

func (s *subscription) wants(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.want[uri]
	return ok
}
