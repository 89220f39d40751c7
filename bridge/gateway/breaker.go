package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/mcp-bridge/bridge/bridge"
)

// breaker leaves a server alone that fails again and again: nothing is sent to
// it, and no connection to it is opened, until it is worth trying.
//
//	closed ----- too many failures ----> open ------ the pause is over,
//	   ^                                  ^  |       and somebody wants it
//	   |                                  |  v
//	   +------- the probe succeeds ---- half-open -- it fails: a longer pause
//
// Calls over connections are counted, and openings of connections. Each has a
// score of its own: calls that fail stop everything, openings that fail stop
// further openings only. A connection that is open needs nothing of what keeps
// another one from being opened.
//
// It stands below the lane, where both pass and where it is known what has
// reached the server: a connection that cannot be opened is one failure, however
// many calls wait for it.
//
// The counting is gobreaker's; open and half-open are not. It has one pause for
// all its life, and its probe is one of the calls, which may wait for a person
// for as long as that one likes. So there is a fresh one for each time that the
// server is in use, and the probe is the bridge's own. It also forgets the
// outcome of what began before its window, as a call that times out may well
// have: each is counted when it has ended.
type breaker struct {
	r     *route
	o     Breaker
	calls atomic.Pointer[score] // nil while none is let pass
	opens atomic.Pointer[score] // of openings; nil while there are none, as is always so while there are no calls
	trips atomic.Uint64         // how often the server began to be left alone, or its openings

	mu    sync.Mutex // guards the rest, and the changes of calls and opens
	why   string     // the server is left alone, for clients
	since time.Time  // it is
	pause time.Duration
	again time.Time // when the pause is over
	probe *probe    // under way, or nil
	wires map[*wire]struct{}
}

// score counts how the calls fare, or the openings, while they are let pass.
type score struct {
	*gobreaker.CircuitBreaker[struct{}]
	row   atomic.Int64 // failures in a row; gobreaker forgets those that have left its window
	turns atomic.Int64 // counts what was ever added to row
	hung  atomic.Int64 // when the last request was made of those in row that had no answer in time; Unix nanoseconds
	goods atomic.Int64 // successes
}

const (
	maxPause     = 2 * time.Minute
	probePatient = 5 * time.Second // how long after a probe has begun callers wait for its outcome
	buckets      = 10              // of a window
	apart        = time.Second     // between requests that are not made together
	never        = 100 * 365 * 24 * time.Hour
)

// newBreaker returns the breaker of a route; nil when there is none. All methods
// of nil let everything pass.
func newBreaker(r *route) *breaker {
	o := r.o.Breaker
	if o.Off {
		return nil
	}
	b := &breaker{r: r, wires: map[*wire]struct{}{}}
	b.o = Breaker{
		Failures: or(o.Failures, 5), Percent: or(o.Percent, 60), Calls: or(o.Calls, 20),
		Window: or(o.Window, 30*time.Second), Pause: or(o.Pause, 5*time.Second), Slow: o.Slow,
	}
	b.calls.Store(b.fresh())
	b.opens.Store(b.fresh())
	return b
}

func (b *breaker) fresh() *score {
	t := &score{}
	t.CircuitBreaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Interval: b.o.Window, BucketPeriod: b.o.Window / buckets, Timeout: never,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return t.row.Load() >= int64(b.o.Failures) ||
				uint64(c.Requests) >= uint64(b.o.Calls) && 100*uint64(c.TotalFailures) >= uint64(b.o.Percent)*uint64(c.Requests)
		},
	})
	return t
}

// pass returns what is told how a call fares that is about to be sent on behalf
// of from, or the error that it must not be. When the pause is over it waits a
// moment for what the probe says.
func (b *breaker) pass(ctx context.Context, from *bridge.Caller) (*score, error) {
	if b == nil {
		return nil, nil
	}
	return b.passes(ctx, from, &b.calls)
}

// passOpening is pass for a connection that is about to be opened.
func (b *breaker) passOpening(ctx context.Context, from *bridge.Caller) (*score, error) {
	if b == nil {
		return nil, nil
	}
	return b.passes(ctx, from, &b.opens)
}

func (b *breaker) passes(ctx context.Context, from *bridge.Caller, what *atomic.Pointer[score]) (*score, error) {
	if t := what.Load(); t != nil {
		return t, nil
	}
	p, t, err := b.begin(from, what)
	if p == nil {
		return t, err
	}
	timer := time.NewTimer(probePatient - time.Since(p.began))
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return b.now(what)
}

// now returns what pass returns, without waiting.
func (b *breaker) now(what *atomic.Pointer[score]) (*score, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := what.Load(); t != nil {
		return t, nil
	}
	return nil, b.refusal()
}

// pass asks whether a connection may be opened.
func (l *lane) pass() (*score, error) {
	if l.probes {
		return nil, nil
	}
	return l.route.breaker.passOpening(l.ctx, l.caller)
}

// glance is pass without waiting: for who has what the probe may need.
func (l *lane) glance() (*score, error) {
	b := l.route.breaker
	if b == nil || l.probes {
		return nil, nil
	}
	return b.now(&b.opens)
}

// refusal is the error of what must not be sent or opened. The caller holds
// b.mu.
func (b *breaker) refusal() error {
	e := &bridge.Error{Server: b.r.o.Name, Kind: bridge.ErrOpen, After: time.Second}
	when := "right now"
	if b.probe == nil {
		e.After = max(time.Until(b.again), time.Millisecond)
		when = fmt.Sprintf("in %d s", int(math.Ceil(e.After.Seconds())))
	}
	if b.calls.Load() != nil {
		e.Public = "opening a connection to it has failed again and again (" + b.why + "); it is tried again " + when
	} else {
		e.Public = "it has failed again and again (" + b.why + ") and is left alone; it is tried again " + when
	}
	return e
}

// shut reports whether no connections are opened.
func (b *breaker) shut() bool { return b != nil && b.opens.Load() == nil }

// left returns for how much longer there is no use in trying to open one.
func (b *breaker) left() time.Duration {
	if !b.shut() {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probe != nil {
		return 0
	}
	return max(time.Until(b.again), 0)
}

// What is told to gobreaker.
var (
	errFault = errors.New("fault")
	fine     = func() (struct{}, error) { return struct{}{}, nil }
	poor     = func() (struct{}, error) { return struct{}{}, errFault }
)

// good notes a success. What began before the server was left alone last does
// not count.
func (b *breaker) good(t *score) {
	if t == nil {
		return
	}
	t.goods.Add(1)
	if t.row.Load() != 0 {
		t.row.Store(0)
	}
	_, _ = t.Execute(fine)
}

// bad notes a failure: err, about a request of that principal's. was is how
// things were when the request was made: requests that fail together, such as
// all that are under way when a server is restarted, are one failure in a row.
func (b *breaker) bad(was before, err error, principal string) {
	t := was.score
	if t == nil {
		return
	}
	if t.another(was, err) {
		t.row.Add(1)
	}
	if _, e := t.Execute(poor); errors.Is(e, errFault) && t.State() == gobreaker.StateOpen {
		b.open(t, err, principal)
	}
}

// another reports whether a failure is one more in a row. It is when the request
// was made after the one before had failed. Where the server says nothing any
// more, that is to wait for a deadline each time: there it is enough that the
// request was made a moment after the other, and nothing has succeeded since.
func (t *score) another(was before, err error) bool {
	if !errors.Is(err, bridge.ErrTimeout) {
		return t.turns.CompareAndSwap(was.turn, was.turn+1)
	}
	at, last := was.began.UnixNano(), t.hung.Load()
	if !t.turns.CompareAndSwap(was.turn, was.turn+1) {
		if was.goods != t.goods.Load() || at < last+int64(apart) || !t.hung.CompareAndSwap(last, at) {
			return false
		}
		t.turns.Add(1)
		return true
	}
	t.hung.Store(at)
	return true
}

// open begins to leave the server alone, if t is the score of its calls, or only
// not to open connections.
func (b *breaker) open(t *score, err error, principal string) {
	b.mu.Lock()
	what := "server is left alone: it has failed again and again"
	switch {
	case b.calls.CompareAndSwap(t, nil):
		b.opens.Store(nil)
	case b.opens.CompareAndSwap(t, nil):
		what = "no more connections to the server are opened: that has failed again and again"
	default:
		b.mu.Unlock()
		return
	}
	b.pause = b.o.Pause
	b.since = time.Now()
	b.again = b.since.Add(b.pause)
	b.why = reason(err, principal)
	note := b.note()
	b.mu.Unlock()
	b.trips.Add(1)
	b.r.noted(note)
	b.r.log.Warn(what, "for", b.o.Pause.String(), "err", err)
}

// note is why the server is left alone, for /readyz. The caller holds b.mu.
func (b *breaker) note() error {
	return &bridge.Error{Server: b.r.o.Name, Kind: bridge.ErrOpen, Public: b.why}
}

// errSlow is the failure of a call that had its answer, but late.
var errSlow = errors.New("an answer took too long")

// reason is why the server is left alone, for clients. What was said to one may
// be about its call, and is not for others to know: where there are several
// principals they are told the kind only.
func reason(err error, principal string) string {
	if e, ok := errors.AsType[*bridge.Error](err); ok && principal == "" {
		public, _, _ := strings.Cut(e.Public, "; whether ") // which is about that call
		return public
	}
	switch {
	case errors.Is(err, errSlow):
		return "it answers too slowly"
	case errors.Is(err, bridge.ErrTimeout):
		return "it does not answer in time"
	case errors.Is(err, bridge.ErrUnavailable):
		return "it cannot be had"
	}
	return "it fails while it has calls to answer"
}

// judgement is what the outcome of a call, or of opening a connection, says
// about the server.
type judgement int

const (
	nothing judgement = iota
	works
	fails
)

// judge says so of an error. What the server has answered, though only by
// refusing, is no failure: nor is what has not reached it for other reasons.
// Where ctx has ended, it is for the reason of that: who ends a session closes
// its connection too, and the call may have met with either first.
func judge(ctx context.Context, err error) judgement {
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	switch {
	case err == nil, errors.Is(err, bridge.ErrTooLarge), errors.Is(err, bridge.ErrReplaced):
		return works
	case lacking(err), errors.Is(err, bridge.ErrOpen), errors.Is(err, bridge.ErrDeclined), errors.Is(err, bridge.ErrRefused), errors.Is(err, bridge.ErrUnsent),
		errors.Is(err, bridge.ErrOverloaded), errors.Is(err, bridge.ErrLimited), errors.Is(err, bridge.ErrDenied),
		errors.Is(err, bridge.ErrShutdown), errors.Is(err, bridge.ErrEnded), errors.Is(err, bridge.ErrIdle), errors.Is(err, bridge.ErrCancelled):
		return nothing
	case errors.Is(err, bridge.ErrUnavailable), errors.Is(err, bridge.ErrLost), errors.Is(err, bridge.ErrTimeout):
		return fails // a deadline of the bridge's own too
	case ctx.Err() != nil:
		return nothing
	}
	return fails // whatever else it is, it is no answer
}

// opening notes how the opening of a connection went. One that succeeds is a
// success among the calls too: a client that makes its own connections end is no
// reason to leave those of others alone as long as new ones can be opened.
func (b *breaker) opening(t *score, l *lane, err error) {
	if b == nil {
		return
	}
	switch judge(l.ctx, err) {
	case works:
		b.good(t)
		b.good(b.calls.Load())
	case fails:
		if t != nil && l.ctx.Err() == nil { // otherwise nobody wanted it any more
			b.bad(before{score: t, turn: t.turns.Load()}, err, l.caller.Principal) // each costs a start, also those that fail together
		}
	}
}

// report tells how it fares.
func (b *breaker) report(st *Status) {
	if b == nil {
		st.Breaker = "off"
		return
	}
	st.Breaker, st.Trips = "closed", b.trips.Load()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.shut():
		return
	case b.probe != nil:
		st.Breaker = "half-open"
	default:
		st.Breaker, st.RetryAt = "open", b.again
	}
	if time.Now().Before(b.again) { // from then on somebody has to try it
		st.Usable = false
	}
	if st.State != "failing" {
		st.State, st.Reason = "failing", b.note().Error()
	}
	if st.Since.IsZero() || b.since.Before(st.Since) {
		st.Since = b.since
	}
}
