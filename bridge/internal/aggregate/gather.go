package aggregate

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// question is a question to several servers at once.
type question interface {
	// ask asks one server. An error means that the server cannot be used.
	ask(ctx context.Context, m *member) error
	// overdue records that a server has not answered when gather returns. after gets the outcome of that server
	// later, unless the client cancels before gather returns.
	overdue(m *member)
	after(m *member, err error)
	// patience returns how long gather waits for a server, from the beginning of the question. moved receives an item
	// when the patience for a server may have become less; nil means never.
	patience(m *member) time.Duration
	moved() <-chan struct{}
	// needsOne reports whether an empty answer would be wrong: then gather waits until one server has answered, or
	// all have failed.
	needsOne() bool
}

// collector collects the answers to a question.
type collector struct {
	question
	good     int                     // answers so far
	stop     context.CancelCauseFunc // ends the calls
	replies  chan reply              // has room for all
	inFlight atomic.Int64            // calls in flight
	late     map[*member]bool        // servers that have not answered yet
	failure  error                   // the first error

	mu        sync.Mutex // guards over and abandoned
	over      bool       // wait has returned
	abandoned bool       // the client has cancelled; after is not called
}

// reply is the outcome of one server's call.
type reply struct {
	m   *member
	err error
}

// gather asks all servers at once. good is the number of answers that are known already. gather returns when all have
// answered, or when the patience with those that have not is over; late are the servers that have not answered. gather
// leaves out each server that fails, except an overloaded one, until that server works again. If no answer is good and
// none is late, err is the first failure.
func (s *session) gather(ctx context.Context, members []*member, q question, good int) (late map[*member]bool, err error) {
	c := &collector{
		question: q,
		good:     good,
		replies:  make(chan reply, len(members)),
		late:     map[*member]bool{},
	}
	if len(members) == 0 || ctx.Err() != nil { // cancelled: nothing is sent
		return c.late, context.Cause(ctx)
	}
	var calls context.Context
	calls, c.stop = context.WithCancelCause(s.a.o.Tracing.Following(s.ctx, ctx))
	c.inFlight.Store(int64(len(members)))
	for _, m := range members {
		c.late[m] = true
	}
	for _, m := range members {
		if !s.spawn(func() { c.run(calls, m) }) {
			c.stop(bridge.ErrEnded)
			return nil, bridge.ErrEnded
		}
	}
	return c.wait(ctx)
}

// run asks one server. The reply goes to wait, or to after if wait has returned.
func (c *collector) run(ctx context.Context, m *member) {
	err := c.ask(ctx, m)
	if c.inFlight.Add(-1) == 0 {
		c.stop(nil)
	}
	c.mu.Lock()
	waits, wanted := !c.over, !c.abandoned
	if waits {
		c.replies <- reply{m, err}
	}
	c.mu.Unlock()
	if !waits && wanted {
		c.after(m, err)
	}
}

// wait takes replies until there are enough. late are the servers that have not replied. If all servers have failed,
// err is the first failure; if ctx has ended, err is its cause.
func (c *collector) wait(ctx context.Context) (late map[*member]bool, err error) {
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		left := c.left(time.Since(began))
		if left <= 0 {
			break
		}
		timer.Reset(left)
		select {
		case r := <-c.replies:
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
		case <-c.moved():
		case <-ctx.Done():
			c.mu.Lock()
			c.over, c.abandoned = true, true
			c.mu.Unlock()
			c.stop(context.Cause(ctx))
			return nil, context.Cause(ctx)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for len(c.replies) > 0 {
		c.take(<-c.replies)
	}
	for m := range c.late {
		c.overdue(m)
	}
	if c.good == 0 && len(c.late) == 0 && c.failure != nil {
		return nil, c.failure
	}
	return c.late, nil
}

// left returns the time that wait still waits if no server replies. waited is the time so far.
func (c *collector) left(waited time.Duration) (left time.Duration) {
	if len(c.late) > 0 && c.needsOne() && c.good == 0 {
		return math.MaxInt64
	}
	for m := range c.late {
		left = max(left, c.patience(m)-waited)
	}
	return left
}

// take records a server's reply.
func (c *collector) take(r reply) {
	delete(c.late, r.m)
	if r.err == nil {
		c.good++
	}
}
