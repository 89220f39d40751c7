package report

import (
	"context"
	"slices"
	"sync/atomic"
)

// round counts the calls that began between two changes of the servers and have not found their server yet. Such a
// call may still find a server that was removed, so the removed server waits for it.
type round struct {
	looking atomic.Int64
	ended   atomic.Bool   // no further call begins in this round
	done    chan struct{} // closed when the round has ended and none of its calls looks for its server
	closed  atomic.Bool   // done is closed, or is being closed
}

func newRound() *round { return &round{done: make(chan struct{})} }

// leave removes a call from the count: it has found its server, or has ended.
func (r *round) leave() {
	if r.looking.Add(-1) == 0 {
		r.check()
	}
}

// check closes done if the round has ended and none of its calls looks for its server.
func (r *round) check() {
	if r.ended.Load() && r.looking.Load() == 0 && r.closed.CompareAndSwap(false, true) {
		close(r.done)
	}
}

// Rounds hold the calls that began before a change of the servers and had not found their server then.
type Rounds []*round

// await waits until each call of these rounds has found its server or has ended, or until ctx ends.
func (r Rounds) await(ctx context.Context) {
	for _, round := range r {
		select {
		case <-round.done:
		case <-ctx.Done():
			return
		}
	}
}

// Look counts a call that looks for its server. The caller reads the table of servers afterwards, and calls
// Found at the end.
func (r *Reporter) Look(a *Arrival) {
	for {
		o := r.round.Load()
		o.looking.Add(1)
		if r.round.Load() == o {
			a.looks.Store(o)
			return
		}
		o.leave() // Changed may have found no call that looks for its server
	}
}

// Found removes a call from its round: the call has found its server, which counts it from now on, or has ended.
// Further calls of Found do nothing.
func (a *Arrival) Found() {
	if r := a.looks.Swap(nil); r != nil {
		r.leave()
	}
}

// Changed ends the current round after a change of the servers. Changed returns the calls that may still use the
// former table: see Server.Drain.
func (r *Reporter) Changed() Rounds {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.round.Swap(newRound())
	was.ended.Store(true)
	was.check()
	r.ended = slices.DeleteFunc(append(r.ended, was), func(r *round) bool { return r.closed.Load() })
	return slices.Clone(r.ended)
}
