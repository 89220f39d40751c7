package gateway

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// gathering is something that is asked of several servers at once.
type gathering struct {
	good int // answers that are there already
	// do asks one. An error means that the server cannot be had.
	do func(context.Context, *member) error
	// overdue is told of each that has not answered when patience is over, and
	// after of the outcome, when it comes. after is called later than overdue.
	overdue func(*member)
	after   func(*member, error)
	// needOne makes patience last until one has answered: nothing would be the
	// wrong answer.
	needOne bool
	// slow says who is waited for no longer than slowPatience beside the others. It
	// may be nil.
	slow func(*member) bool
}

// only reports whether nobody is waited for but those who are slow.
func (g *gathering) only(late map[*member]bool) bool {
	for m := range late {
		if g.slow == nil || !g.slow(m) {
			return false
		}
	}
	return true
}

// gather asks the servers, all at once, and returns when all have answered or
// patience is over: with those that have not answered in time. A server that
// cannot be had is left out from then on; when none can be had, the error says
// so.
func (g *merge) gather(ctx context.Context, members []*member, patience time.Duration, of gathering) (late map[*member]bool, err error) {
	type outcome struct {
		m   *member
		err error
	}
	come := make(chan outcome, len(members))
	calls, cancel := context.WithCancelCause(g.b.tracing.Following(g.ctx, ctx))
	stop := context.CancelCauseFunc(func(why error) { cancel(why) }) // called by whoever is last
	var left atomic.Int64
	left.Store(int64(len(members)))
	var mu sync.Mutex // guards the two
	over := false     // nobody waits any more
	dropped := false  // and nobody wants to know
	late = map[*member]bool{}
	for _, m := range members {
		late[m] = true
		if !g.spawn(func() {
			err := of.do(calls, m)
			if left.Add(-1) == 0 {
				stop(nil)
			}
			mu.Lock()
			waits, wanted := !over, !dropped
			if waits {
				come <- outcome{m, err}
			}
			mu.Unlock()
			if !waits && wanted {
				of.after(m, err)
			}
		}) {
			stop(bridge.ErrEnded)
			return nil, bridge.ErrEnded
		}
	}
	if len(members) == 0 {
		stop(nil)
		return late, nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	moment := time.NewTimer(slowPatience)
	defer moment.Stop()
	expired, passed, good := false, false, of.good
	var failure error
	for len(late) > 0 && !((expired || passed && of.only(late)) && (good > 0 || !of.needOne)) {
		select {
		case o := <-come:
			delete(late, o.m)
			if o.err == nil {
				good++
				continue
			}
			if failure == nil {
				failure = o.err
			}
			if !errors.Is(o.err, bridge.ErrOverloaded) {
				o.m.leaveOut(o.err)
			}
		case <-timer.C:
			expired = true
		case <-moment.C:
			passed = true
		case <-ctx.Done():
			mu.Lock()
			over, dropped = true, true
			mu.Unlock()
			stop(context.Cause(ctx))
			return nil, context.Cause(ctx)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	over = true
	for len(come) > 0 {
		o := <-come
		delete(late, o.m)
		if o.err == nil {
			good++
		}
	}
	for m := range late {
		of.overdue(m)
	}
	if good == 0 && len(late) == 0 && failure != nil {
		return nil, failure
	}
	return late, nil
}
