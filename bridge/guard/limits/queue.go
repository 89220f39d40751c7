package limits

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// Queue bounds the calls under way at one server, over whichever connection
// they go. Those that find no place wait for one: first come, first served
// among the calls of a principal, and turn by turn among the principals. So one
// of them that floods the server makes the others wait for the next place that
// becomes free, and not behind all that it has sent; and where there is no room
// left to wait, it is its last call that has to go, not theirs.
type Queue struct {
	server string

	mu      sync.Mutex       // guards the rest, and the places
	o       Options          // complete
	taken   int              // places
	waiting int              // calls, in all lines
	parked  int              // calls under way that have given back their place
	lines   map[string]*line // by principal, of those that wait
	ring    list.List        // of the same lines, the next one first
	counts  map[string]int   // calls under way or waiting, by principal, where that is bounded
	refused refusals
}

// line is the calls of one principal that wait, the oldest first.
type line struct {
	principal string
	calls     list.List     // of *place
	at        *list.Element // in the ring
}

// place is a call's place at a server, or in a line for one.
type place struct {
	principal string
	of        *Places
	counted   bool   // among those of its principal
	taken     bool   // it has it
	parked    bool   // it has given it back
	next      *place // of the same connection; see Places
	prev      *place

	// Of one that waits.
	line   *line
	at     *list.Element // in the line
	called chan struct{} // closed when it has a place, or never will
}

// refusals counts what was refused, by the limit that was reached.
type refusals struct {
	queue        uint64 // no place, and none to wait at
	wait         uint64 // no place in time
	perPrincipal uint64 // too much of one principal
}

// NewQueue makes the queue of the server of that name.
func NewQueue(server string, o Options) *Queue {
	q := &Queue{server: server, lines: map[string]*line{}, counts: map[string]int{}}
	q.Set(o)
	return q
}

// Set has other options count from now on. A lower limit ends nothing: calls that have
// their place, or wait for one, go on.
func (q *Queue) Set(o Options) {
	o.Calls, o.Wait = cmp.Or(o.Calls, DefaultCalls), cmp.Or(o.Wait, DefaultWait)
	o.Queue = cmp.Or(o.Queue, o.Calls)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.o = o
	for q.admit() {
	}
}

// DefaultCalls is how many calls of one principal, and to one server, may be
// under way (protocol.md F).
const DefaultCalls = 512

// DefaultWait is how long a call may wait for a place.
const DefaultWait = 30 * time.Second

// Again is when a caller may try again who finds no place: places become free
// all the time.
const Again = time.Second

// Refusal is the error of a call that finds no place; the text is for its client.
func (q *Queue) Refusal(format string, args ...any) error {
	return &bridge.Error{Server: q.server, Kind: bridge.ErrOverloaded, After: Again, Public: fmt.Sprintf(format, args...)}
}

// enter takes a place for a call, or waits for one. Every success needs a leave.
func (q *Queue) enter(ctx context.Context, p *place) error {
	q.mu.Lock()
	if each := q.o.PerPrincipal; each > 0 && q.counts[p.principal] >= each {
		defer q.mu.Unlock()
		q.refused.perPrincipal++
		return q.Refusal("one caller may have %d calls under way or waiting (limits: per_principal)", each)
	}
	if q.taken < q.o.Calls { // then nobody waits
		q.take(p)
		q.count(p)
		q.mu.Unlock()
		return nil
	}
	if q.waiting >= q.o.Queue && !q.displace(p.principal) {
		defer q.mu.Unlock()
		q.refused.queue++
		return q.full()
	}
	q.count(p)
	q.join(p)
	wait := q.o.Wait
	q.mu.Unlock()

	select {
	case <-p.called:
	case <-time.After(wait):
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case (p.taken || p.parked) && ctx.Err() == nil:
		return nil
	case p.taken || p.parked:
		q.vacate(p)
	case p.line == nil:
		q.refused.queue++ // it was displaced
		return q.full()
	default:
		q.part(p)
	}
	q.forget(p)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	q.refused.wait++
	return q.Refusal("it has %d calls under way, and none of them ended within %v (limits: calls, wait)", q.o.Calls, wait)
}

// Lapsed counts a call that has waited for too long, and is its refusal.
func (q *Queue) Lapsed(format string, args ...any) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refused.wait++
	return q.Refusal(format, args...)
}

// full is the refusal of a call for which there is no room. The caller holds q.mu.
func (q *Queue) full() error {
	return q.Refusal("it has %d calls under way and %d more that wait (limits: calls, queue)", q.o.Calls, q.o.Queue)
}

// leave ends a call.
func (q *Queue) leave(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.vacate(p)
	q.forget(p)
}

// vacate ends a call that has or had a place. The caller holds q.mu.
func (q *Queue) vacate(p *place) {
	if p.taken {
		q.free(p)
	} else {
		q.parked--
	}
}

// park gives back the place of a call that goes on without working: it waits
// for somebody, or listens. It does nothing the second time, and for a call that
// has ended.
func (q *Queue) park(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unplace(p)
}

// unplace is park. The caller holds q.mu.
func (q *Queue) unplace(p *place) {
	if p.taken {
		p.parked = true
		q.parked++
		q.free(p)
	}
}

// take gives a call a place. The caller holds q.mu.
func (q *Queue) take(p *place) {
	q.taken++
	p.taken = true
	p.of.add(p)
}

// free gives the place of a call to the next one. The caller holds q.mu.
func (q *Queue) free(p *place) {
	q.taken--
	p.taken = false
	p.of.remove(p)
	q.admit()
}

// admit gives a place to the next call that waits for one. It reports false when there is
// no place, or nobody waits. The caller holds q.mu.
func (q *Queue) admit() bool {
	first := q.ring.Front()
	if first == nil || q.taken >= q.o.Calls {
		return false
	}
	ln := first.Value.(*line)
	next := ln.calls.Front().Value.(*place)
	q.part(next)
	if ln.calls.Len() > 0 {
		q.ring.MoveToBack(ln.at)
	}
	q.take(next)
	close(next.called)
	return true
}

// join makes a call wait. The caller holds q.mu.
func (q *Queue) join(p *place) {
	ln := q.lines[p.principal]
	if ln == nil {
		ln = &line{principal: p.principal}
		ln.at = q.ring.PushBack(ln)
		q.lines[p.principal] = ln
	}
	p.line, p.at, p.called = ln, ln.calls.PushBack(p), make(chan struct{})
	q.waiting++
}

// part ends the waiting of a call. The caller holds q.mu.
func (q *Queue) part(p *place) {
	ln := p.line
	ln.calls.Remove(p.at)
	p.line = nil
	q.waiting--
	if ln.calls.Len() == 0 {
		q.ring.Remove(ln.at)
		delete(q.lines, ln.principal)
	}
}

// displace makes room in the queue for one more call of a principal: the last
// call of the longest line goes, if that is longer by more than the one. The
// caller holds q.mu.
func (q *Queue) displace(principal string) bool {
	mine := 0
	if ln := q.lines[principal]; ln != nil {
		mine = ln.calls.Len()
	}
	var longest *line
	for e := q.ring.Front(); e != nil; e = e.Next() {
		if ln := e.Value.(*line); longest == nil || ln.calls.Len() > longest.calls.Len() {
			longest = ln
		}
	}
	if longest == nil || longest.calls.Len() <= mine+1 {
		return false
	}
	last := longest.calls.Back().Value.(*place)
	q.part(last)
	q.forget(last)
	close(last.called)
	return true
}

// count counts a call of a principal, where that is bounded. The caller holds q.mu.
func (q *Queue) count(p *place) {
	if p.counted = q.o.PerPrincipal > 0 && p.principal != ""; p.counted {
		q.counts[p.principal]++
	}
}

// forget ends that. The caller holds q.mu.
func (q *Queue) forget(p *place) {
	if !p.counted {
		return
	}
	if q.counts[p.principal]--; q.counts[p.principal] == 0 {
		delete(q.counts, p.principal)
	}
}

// Wait returns how long a call may wait for a place.
func (q *Queue) Wait() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.o.Wait
}

// Length returns how many calls may wait.
func (q *Queue) Length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.o.Queue
}

// Status says what is under way at a server.
type Status struct {
	Places int // calls under way that have a place
	Queued int // calls that wait for one
	Asking int // calls that have given theirs back: they wait for their clients, or listen
	// Refused counts the calls that were refused, by the limit: queue, wait,
	// per_principal.
	Refused map[string]uint64
}

// Status returns what is under way.
func (q *Queue) Status() Status {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Status{q.taken, q.waiting, q.parked, map[string]uint64{"queue": q.refused.queue, "wait": q.refused.wait, "per_principal": q.refused.perPrincipal}}
}
