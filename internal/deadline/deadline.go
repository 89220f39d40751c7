// Package deadline stops a time limit during waits that must not count. For example, a person signs
// in at a server before the server can get the request.
package deadline

import (
	"cmp"
	"context"
	"sync"
	"time"
)

type key struct{}

// limits are the limits of a context, the last one first.
type limits struct {
	hold func() (release func())
	more *limits
}

// With returns a context with one more limit. Hold calls hold, and calls release when the limit
// counts again.
func With(ctx context.Context, hold func() (release func())) context.Context {
	return context.WithValue(ctx, key{}, &limits{hold, of(ctx)})
}

func of(ctx context.Context) *limits {
	l, _ := ctx.Value(key{}).(*limits)
	return l
}

// Hold holds all limits of a context until end is called.
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

// WithTimeout is context.WithTimeoutCause with a time that can be held. The context has no
// deadline, since its end is unknown, and Err returns context.Canceled. No cause means
// context.DeadlineExceeded.
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
	held    int       // number of holds
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

// ended is called when the time is over. It has no effect while the clock is held.
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
