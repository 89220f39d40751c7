package report

import (
	"context"
	"slices"
	"sync/atomic"
)

// round holds the calls that began between two changes of the servers and look for their server. They may
// find one that has left: it waits for them, and not for a time.
type round struct {
	looking atomic.Int64
	ended   atomic.Bool   // no call begins in it any more
	done    chan struct{} // closed when the round has ended and none of its calls looks for its server
	closed  atomic.Bool   // done is closed, or is being closed
}

func newRound() *round { return &round{done: make(chan struct{})} }

// leave says that a call has found its server, or has ended.
func (r *round) leave() {
	if r.looking.Add(-1) == 0 {
		r.check()
	}
}

// check closes done once there is no observer.
func (r *round) check() {
	if r.ended.Load() && r.looking.Load() == 0 && r.closed.CompareAndSwap(false, true) {
		close(r.done)
	}
}

// Rounds are the calls that began before a change of the servers and looked for their server then.
type Rounds []*round

// await waits until each of them has found its server, or has ended; not beyond ctx.
func (r Rounds) await(ctx context.Context) {
	for _, round := range r {
		select {
		case <-round.done:
		case <-ctx.Done():
			return
		}
	}
}

// Look notes that a call begins to look for its server. It comes before the servers are looked at. Found
// has to follow.
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

// Found notes that a call has found its server, and is counted there, or has ended. It may be called more
// than once.
func (a *Arrival) Found() {
	if o := a.looks.Swap(nil); o != nil {
		o.leave()
	}
}

// Changed notes that the servers have changed, and returns the calls that may not have seen that: see
// Server.Drain.
func (r *Reporter) Changed() Rounds {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.round.Swap(newRound())
	was.ended.Store(true)
	was.check()
	r.ended = slices.DeleteFunc(append(r.ended, was), func(o *round) bool { return o.closed.Load() })
	return slices.Clone(r.ended)
}
