// Package deadline stops the clock of a time limit during waits that must not count, such as the sign-in of a person
// before a server can get a request.
package deadline

import (
	"cmp"
	"context"
	"sync"
	"time"
)

type key struct{}

// limits are the limits of a context, as a list with the innermost first.
type limits struct {
	hold func() (release func())
	more *limits
}

// With returns a context with another limit. Hold calls hold, and the release that it returns when the limit counts
// again.
func With(ctx context.Context, hold func() (release func())) context.Context {
	return context.WithValue(ctx, key{}, &limits{hold, of(ctx)})
}

func of(ctx context.Context) *limits {
	l, _ := ctx.Value(key{}).(*limits)
	return l
}

// Hold stops all limits of a context until end is called.
func Hold(ctx context.Context) (end func()) {
	var all []func()
	for l := of(ctx); l != nil; l = l.more {
		all = append(all, l.hold())
	}
	return sync.OnceFunc(func() {
		for _, release := range all {
			release()
		}
	})
}

// WithTimeout is context.WithTimeoutCause with a limit that Hold stops. The context has no deadline, since its end is
// not known, and its Err is context.Canceled. A nil cause means context.DeadlineExceeded.
func WithTimeout(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &clock{
		left:  d,
		since: time.Now(),
		over:  func() { cancel(cmp.Or(cause, context.DeadlineExceeded)) },
	}
	c.timer = time.AfterFunc(d, c.ended)
	return With(ctx, c.hold), func() {
		c.stop()
		cancel(nil)
	}
}

// clock is the limit of WithTimeout.
type clock struct {
	over  func()
	timer *time.Timer

	mu      sync.Mutex // guards the rest
	left    time.Duration
	since   time.Time // when left was computed
	held    int       // holds whose release was not called yet
	stopped bool
}

func (c *clock) hold() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held++; c.held == 1 {
		c.timer.Stop()
		c.left -= time.Since(c.since)
	}
	return c.release
}

func (c *clock) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held--; c.held == 0 && !c.stopped {
		c.since = time.Now()
		c.timer.Reset(max(c.left, 0))
	}
}

// ended is called when the time is over. While the clock is held, it has no effect.
func (c *clock) ended() {
	c.mu.Lock()
	held := c.held > 0
	c.mu.Unlock()
	if !held {
		c.over()
	}
}

func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.timer.Stop()
}
