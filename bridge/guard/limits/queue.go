package limits

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// Queue bounds the calls in flight at one server, over all connections. Calls beyond the limit wait
// for a slot: in order among those of a principal, and in turn among the principals. So a principal
// that floods the server delays others by one slot, not by all its calls. When the queue is full,
// the last call of the longest line is refused.
type Queue struct {
	server string

	mu      sync.Mutex       // guards the rest, and all slots
	o       Options          // with their defaults
	taken   int              // slots
	waiting int              // calls, in all lines
	parked  int              // calls in flight that gave their slot back
	lines   map[string]*line // by principal, with waiting calls
	ring    list.List        // the same lines in their turn
	counts  map[string]int   // calls in flight or waiting, by principal, if that is bounded
	refused refusals
}

// line is the waiting calls of one principal, the oldest first.
type line struct {
	principal string
	calls     list.List     // of *slot
	at        *list.Element // in the ring
}

// slot is a call's slot at a server, or its position in a line.
type slot struct {
	principal string
	of        *Slots
	counted   bool  // in the queue's counts
	taken     bool  // it has a slot
	parked    bool  // it gave its slot back
	next      *slot // of the same connection; see Places
	prev      *slot

	// For a waiting call.
	line   *line
	at     *list.Element // in the line
	called chan struct{} // closed when it gets a slot, or is refused
}

// refusals counts refused calls by the limit.
type refusals struct {
	queue        uint64 // the queue was full
	wait         uint64 // no slot in time
	perPrincipal uint64 // too many of one principal
}

// NewQueue returns the queue of the server of that name.
func NewQueue(server string, o Options) *Queue {
	q := &Queue{
		server: server,
		lines:  map[string]*line{},
		counts: map[string]int{},
	}
	q.Set(o)
	return q
}

// Set replaces the options. A lower limit ends no call that has a slot or waits.
func (q *Queue) Set(o Options) {
	o = o.Complete()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.o = o
	for q.admit() {
	}
}

// Again is when a refused caller may try again: slots become free all the time.
const Again = time.Second

// Refusal returns the error of a call without a slot. The text is for its client.
func (q *Queue) Refusal(format string, args ...any) error {
	return &bridge.Error{
		Server: q.server,
		Kind:   bridge.ErrOverloaded,
		After:  Again,
		Public: fmt.Sprintf(format, args...),
	}
}

// enter takes a slot for a call, or waits for one. Every success needs a leave.
func (q *Queue) enter(ctx context.Context, s *slot) error {
	q.mu.Lock()
	if each := q.o.PerPrincipal; each > 0 && q.counts[s.principal] >= each {
		defer q.mu.Unlock()
		q.refused.perPrincipal++
		return q.Refusal("one caller may have %d calls under way or waiting (limits: per_principal)", each)
	}
	if q.taken < q.o.Calls { // no call waits
		q.take(s)
		q.count(s)
		q.mu.Unlock()
		return nil
	}
	if q.waiting >= q.o.Queue && !q.displace(s.principal) {
		defer q.mu.Unlock()
		q.refused.queue++
		return q.full()
	}
	q.count(s)
	q.enqueue(s)
	wait := q.o.Wait
	q.mu.Unlock()

	select {
	case <-s.called:
	case <-time.After(wait):
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case (s.taken || s.parked) && ctx.Err() == nil:
		return nil
	case s.taken || s.parked:
		q.vacate(s)
	case s.line == nil:
		q.refused.queue++ // it was displaced
		return q.full()
	default:
		q.dequeue(s)
	}
	q.uncount(s)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	q.refused.wait++
	return q.Refusal("it has %d calls under way, and none of them ended within %v (limits: calls, wait)", q.o.Calls, wait)
}

// TimedOut counts a call that waited too long, and returns its refusal.
func (q *Queue) TimedOut(format string, args ...any) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refused.wait++
	return q.Refusal(format, args...)
}

// full returns the refusal of a call that cannot wait. The caller holds q.mu.
func (q *Queue) full() error {
	return q.Refusal("it has %d calls under way and %d more that wait (limits: calls, queue)", q.o.Calls, q.o.Queue)
}

// leave ends a call.
func (q *Queue) leave(s *slot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.vacate(s)
	q.uncount(s)
}

// vacate ends a call that has or had a slot. The caller holds q.mu.
func (q *Queue) vacate(s *slot) {
	if s.taken {
		q.free(s)
	} else {
		q.parked--
	}
}

// park takes the slot of a call that does no work for now: it waits for its client, or listens. park
// does nothing for a call that is parked or has ended.
func (q *Queue) park(s *slot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.parkLocked(s)
}

// parkLocked is park. The caller holds q.mu.
func (q *Queue) parkLocked(s *slot) {
	if s.taken {
		s.parked = true
		q.parked++
		q.free(s)
	}
}

// take gives a call a slot. The caller holds q.mu.
func (q *Queue) take(s *slot) {
	q.taken++
	s.taken = true
	s.of.add(s)
}

// free gives the slot of a call to the next one. The caller holds q.mu.
func (q *Queue) free(s *slot) {
	q.taken--
	s.taken = false
	s.of.remove(s)
	q.admit()
}

// admit gives a slot to the next waiting call. It reports false if there is no slot, or no such
// call. The caller holds q.mu.
func (q *Queue) admit() bool {
	first := q.ring.Front()
	if first == nil || q.taken >= q.o.Calls {
		return false
	}
	ln := first.Value.(*line)
	next := ln.calls.Front().Value.(*slot)
	q.dequeue(next)
	if ln.calls.Len() > 0 {
		q.ring.MoveToBack(ln.at)
	}
	q.take(next)
	close(next.called)
	return true
}

// enqueue makes a call wait. The caller holds q.mu.
func (q *Queue) enqueue(s *slot) {
	ln := q.lines[s.principal]
	if ln == nil {
		ln = &line{principal: s.principal}
		ln.at = q.ring.PushBack(ln)
		q.lines[s.principal] = ln
	}
	s.line, s.at, s.called = ln, ln.calls.PushBack(s), make(chan struct{})
	q.waiting++
}

// dequeue takes a call out of its line. The caller holds q.mu.
func (q *Queue) dequeue(s *slot) {
	ln := s.line
	ln.calls.Remove(s.at)
	s.line = nil
	q.waiting--
	if ln.calls.Len() == 0 {
		q.ring.Remove(ln.at)
		delete(q.lines, ln.principal)
	}
}

// displace makes room in the queue for one more call of a principal. The last call of the longest
// line leaves, if that line is longer by more than one. The caller holds q.mu.
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
	last := longest.calls.Back().Value.(*slot)
	q.dequeue(last)
	q.uncount(last)
	close(last.called)
	return true
}

// count counts a call of a principal, if that is bounded. The caller holds q.mu.
func (q *Queue) count(s *slot) {
	if s.counted = q.o.PerPrincipal > 0 && s.principal != ""; s.counted {
		q.counts[s.principal]++
	}
}

// uncount undoes count. The caller holds q.mu.
func (q *Queue) uncount(s *slot) {
	if !s.counted {
		return
	}
	if q.counts[s.principal]--; q.counts[s.principal] == 0 {
		delete(q.counts, s.principal)
	}
}

// Wait returns how long a call may wait for a slot.
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

// Status describes the calls at a server.
type Status struct {
	Slots    int // calls in flight with a slot
	Queued   int // calls that wait for a slot
	Slotless int // calls that gave their slot back: they wait for their clients, or listen
	// Refused counts the refused calls by the limit: queue, wait, per_principal.
	Refused map[string]uint64
}

func (q *Queue) Status() Status {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Status{q.taken, q.waiting, q.parked, map[string]uint64{
		"queue":         q.refused.queue,
		"wait":          q.refused.wait,
		"per_principal": q.refused.perPrincipal,
	}}
}
