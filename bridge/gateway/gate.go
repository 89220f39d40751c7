package gateway

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// gate bounds the calls under way at one server, over whichever connection
// they go. Those that find no place wait for one: first come, first served
// among the calls of a principal, and turn by turn among the principals. So one
// of them that floods the server makes the others wait for the next place that
// becomes free, and not behind all that it has sent; and where there is no room
// left to wait, it is its last call that has to go, not theirs.
type gate struct {
	server       string
	calls, queue int
	wait         time.Duration
	each         int // under way or waiting of one principal; 0 means no limit

	mu      sync.Mutex       // guards the rest, and the places
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
	of        *bounded
	taken     bool   // it has it
	parked    bool   // it has given it back
	next      *place // of the same connection; see bounded
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

func newGate(server string, o Limits) *gate {
	g := &gate{
		server: server, calls: or(o.Calls, defaultCalls), wait: or(o.Wait, 30*time.Second), each: o.PerPrincipal,
		lines: map[string]*line{}, counts: map[string]int{},
	}
	g.queue = or(o.Queue, g.calls)
	return g
}

// defaultCalls is how many calls of one principal, and to one server, may be
// under way (protocol.md F).
const defaultCalls = 512

// again is when a caller may try again who finds no place: places become free
// all the time.
const again = time.Second

func (g *gate) refusal(format string, args ...any) error {
	return &bridge.Error{Server: g.server, Kind: bridge.ErrOverloaded, After: again, Public: fmt.Sprintf(format, args...)}
}

// enter takes a place for a call, or waits for one. Every success needs a leave.
func (g *gate) enter(ctx context.Context, p *place) error {
	g.mu.Lock()
	counted := g.each > 0 && p.principal != ""
	if counted && g.counts[p.principal] >= g.each {
		defer g.mu.Unlock()
		g.refused.perPrincipal++
		return g.refusal("one caller may have %d calls under way or waiting (limits: per_principal)", g.each)
	}
	if g.taken < g.calls { // then nobody waits
		g.take(p)
		if counted {
			g.counts[p.principal]++
		}
		g.mu.Unlock()
		return nil
	}
	if g.waiting >= g.queue && !g.displace(p.principal) {
		defer g.mu.Unlock()
		g.refused.queue++
		return g.full()
	}
	if counted {
		g.counts[p.principal]++
	}
	g.join(p)
	g.mu.Unlock()

	timer := time.NewTimer(g.wait)
	defer timer.Stop()
	select {
	case <-p.called:
	case <-timer.C:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case (p.taken || p.parked) && ctx.Err() == nil:
		return nil
	case p.taken || p.parked:
		g.vacate(p)
	case p.line == nil:
		g.refused.queue++ // it was displaced
		return g.full()
	default:
		g.part(p)
	}
	g.forget(p)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	g.refused.wait++
	return g.refusal("it has %d calls under way, and none of them ended within %v (limits: calls, wait)", g.calls, g.wait)
}

// lapsed counts a call that has waited for too long, and is its refusal.
func (g *gate) lapsed(format string, args ...any) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused.wait++
	return g.refusal(format, args...)
}

func (g *gate) full() error {
	return g.refusal("it has %d calls under way and %d more that wait (limits: calls, queue)", g.calls, g.queue)
}

// leave ends a call.
func (g *gate) leave(p *place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.vacate(p)
	g.forget(p)
}

// vacate ends a call that has or had a place. The caller holds g.mu.
func (g *gate) vacate(p *place) {
	if p.taken {
		g.free(p)
	} else {
		g.parked--
	}
}

// park gives back the place of a call that goes on without working: it waits
// for somebody, or listens. It does nothing the second time, and for a call that
// has ended.
func (g *gate) park(p *place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unplace(p)
}

// unplace is park. The caller holds g.mu.
func (g *gate) unplace(p *place) {
	if p.taken {
		p.parked = true
		g.parked++
		g.free(p)
	}
}

// take gives a call a place. The caller holds g.mu.
func (g *gate) take(p *place) {
	g.taken++
	p.taken = true
	p.of.add(p)
}

// free gives the place of a call to the next one. The caller holds g.mu.
func (g *gate) free(p *place) {
	g.taken--
	p.taken = false
	p.of.remove(p)
	first := g.ring.Front()
	if first == nil {
		return
	}
	ln := first.Value.(*line)
	next := ln.calls.Front().Value.(*place)
	g.part(next)
	if ln.calls.Len() > 0 {
		g.ring.MoveToBack(ln.at)
	}
	g.take(next)
	close(next.called)
}

// join makes a call wait. The caller holds g.mu.
func (g *gate) join(p *place) {
	ln := g.lines[p.principal]
	if ln == nil {
		ln = &line{principal: p.principal}
		ln.at = g.ring.PushBack(ln)
		g.lines[p.principal] = ln
	}
	p.line, p.at, p.called = ln, ln.calls.PushBack(p), make(chan struct{})
	g.waiting++
}

// part ends the waiting of a call. The caller holds g.mu.
func (g *gate) part(p *place) {
	ln := p.line
	ln.calls.Remove(p.at)
	p.line = nil
	g.waiting--
	if ln.calls.Len() == 0 {
		g.ring.Remove(ln.at)
		delete(g.lines, ln.principal)
	}
}

// displace makes room in the queue for one more call of a principal: the last
// call of the longest line goes, if that is longer by more than the one. The
// caller holds g.mu.
func (g *gate) displace(principal string) bool {
	mine := 0
	if ln := g.lines[principal]; ln != nil {
		mine = ln.calls.Len()
	}
	var longest *line
	for e := g.ring.Front(); e != nil; e = e.Next() {
		if ln := e.Value.(*line); longest == nil || ln.calls.Len() > longest.calls.Len() {
			longest = ln
		}
	}
	if longest == nil || longest.calls.Len() <= mine+1 {
		return false
	}
	last := longest.calls.Back().Value.(*place)
	g.part(last)
	g.forget(last)
	close(last.called)
	return true
}

// forget ends the counting of a call of a principal. The caller holds g.mu.
func (g *gate) forget(p *place) {
	if g.each == 0 || p.principal == "" {
		return
	}
	if g.counts[p.principal]--; g.counts[p.principal] == 0 {
		delete(g.counts, p.principal)
	}
}

// show enters what there is into the status.
func (g *gate) show(st *Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	st.Places, st.Queued, st.Asking = g.taken, g.waiting, g.parked
	st.Refused = map[string]uint64{"queue": g.refused.queue, "wait": g.refused.wait, "per_principal": g.refused.perPrincipal, "rate": 0}
}
