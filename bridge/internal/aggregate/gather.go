package aggregate

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

// collector collects the answers of a gathering.
type collector struct {
	gathering
	stop    context.CancelCauseFunc // of the calls
	come    chan reply              // takes all
	left    atomic.Int64            // calls under way
	late    map[*member]bool        // those that have not answered yet
	failure error                   // the first one

	mu      sync.Mutex // guards the two
	over    bool       // nobody waits any more
	dropped bool       // and nobody wants to know
}

// reply is how the call to one server has ended.
type reply struct {
	m   *member
	err error
}

// gather asks the servers, all at once, and returns when all have answered or
// patience is over: with those that have not answered in time. A server that
// cannot be had is left out from then on; when none can be had, the error says
// so.
func (g *combined) gather(ctx context.Context, members []*member, patience time.Duration, of gathering) (late map[*member]bool, err error) {
	c := &collector{gathering: of, come: make(chan reply, len(members)), late: map[*member]bool{}}
	if len(members) == 0 || ctx.Err() != nil { // cancelled before it began: nobody is asked
		return c.late, context.Cause(ctx)
	}
	var calls context.Context
	calls, c.stop = context.WithCancelCause(g.a.o.Following(g.ctx, ctx))
	c.left.Store(int64(len(members)))
	for _, m := range members {
		c.late[m] = true
	}
	for _, m := range members {
		if !g.spawn(func() { c.ask(calls, m) }) {
			c.stop(bridge.ErrEnded)
			return nil, bridge.ErrEnded
		}
	}
	return c.wait(ctx, patience)
}

// ask asks one server.
func (c *collector) ask(ctx context.Context, m *member) {
	err := c.do(ctx, m)
	if c.left.Add(-1) == 0 {
		c.stop(nil)
	}
	c.mu.Lock()
	waits, wanted := !c.over, !c.dropped
	if waits {
		c.come <- reply{m, err}
	}
	c.mu.Unlock()
	if !waits && wanted {
		c.after(m, err)
	}
}

// wait waits for answers until there are enough.
func (c *collector) wait(ctx context.Context, patience time.Duration) (late map[*member]bool, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	moment := time.NewTimer(slowPatience)
	defer moment.Stop()
	for expired, passed := false, false; !c.enough(expired, passed); {
		select {
		case r := <-c.come:
			c.take(r)
			if r.err == nil {
				continue
			}
			if c.failure == nil {
				c.failure = r.err
			}
			if !errors.Is(r.err, bridge.ErrOverloaded) {
				r.m.leaveOut(r.err)
			}
		case <-timer.C:
			expired = true
		case <-moment.C:
			passed = true
		case <-ctx.Done():
			c.mu.Lock()
			c.over, c.dropped = true, true
			c.mu.Unlock()
			c.stop(context.Cause(ctx))
			return nil, context.Cause(ctx)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for len(c.come) > 0 {
		c.take(<-c.come)
	}
	for m := range c.late {
		c.overdue(m)
	}
	if c.good == 0 && len(c.late) == 0 && c.failure != nil {
		return nil, c.failure
	}
	return c.late, nil
}

// enough reports whether nothing is waited for any more. expired and passed say
// that patience is over, with all and with those who are slow.
func (c *collector) enough(expired, passed bool) bool {
	switch {
	case len(c.late) == 0:
		return true
	case c.needOne && c.good == 0:
		return false
	}
	return expired || passed && c.onlySlow()
}

// onlySlow reports whether nobody is waited for but those who are slow.
func (c *collector) onlySlow() bool {
	for m := range c.late {
		if c.slow == nil || !c.slow(m) {
			return false
		}
	}
	return true
}

// take notes that a server has answered.
func (c *collector) take(r reply) {
	delete(c.late, r.m)
	if r.err == nil {
		c.good++
	}
}
