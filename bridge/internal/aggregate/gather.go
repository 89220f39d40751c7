package aggregate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// question is a question to several servers at once.
type question interface {
	// ask asks one server. An error means that the server cannot be used.
	ask(ctx context.Context, m *member) error
	// overdue records that a server has not answered when the wait ends. after gets the outcome of that server later.
	overdue(m *member)
	after(m *member, err error)
	// slow reports whether a server gets only slowPatience.
	slow(m *member) bool
	// needsOne reports whether an empty answer would be wrong: then patience lasts until one server has answered.
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

	mu        sync.Mutex // guards over and dropped
	over      bool       // wait has returned
	abandoned bool       // the client has cancelled; after is not called
}

// reply is the outcome of one server's call.
type reply struct {
	m   *member
	err error
}

// gather asks the servers, all at once. good answers are known already. gather returns the late servers, when all have
// answered or patience is over. A server that fails is left out from then on. If all fail, gather returns the first
// error.
func (s *session) gather(ctx context.Context, members []*member, patience time.Duration, q question, good int) (late map[*member]bool, err error) {
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
	return c.wait(ctx, patience)
}

// run asks one server, and takes its reply.
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

// wait takes replies until there are enough. late are the servers that have not replied. err is the first failure
// if all servers have failed, or the cause of ctx if ctx ended.
func (c *collector) wait(ctx context.Context, patience time.Duration) (late map[*member]bool, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	moment := time.NewTimer(slowPatience)
	defer moment.Stop()
	for expired, passed := false, false; !c.enough(expired, passed); {
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
			expired = true
		case <-moment.C:
			passed = true
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

// enough reports whether wait may return. expired reports that patience is over, and passed reports the same of
// slowPatience.
func (c *collector) enough(expired, passed bool) bool {
	switch {
	case len(c.late) == 0:
		return true
	case c.needsOne() && c.good == 0:
		return false
	}
	return expired || passed && c.onlySlow()
}

// onlySlow reports whether only slow servers are awaited.
func (c *collector) onlySlow() bool {
	for m := range c.late {
		if !c.slow(m) {
			return false
		}
	}
	return true
}

// take records a server's reply.
func (c *collector) take(r reply) {
	delete(c.late, r.m)
	if r.err == nil {
		c.good++
	}
}
