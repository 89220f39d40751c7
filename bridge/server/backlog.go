package server

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// backlogListener is a listener that closes without losing the connections that the kernel
// has accepted and the program has not: closing alone resets them, with the requests on
// them. Its methods may be called concurrently, Accept by one goroutine.
type backlogListener struct {
	net.Listener
	until     func(time.Time) error // sets until when Accept waits; nil where the listener cannot tell
	finishing atomic.Bool
	finished  func() // closes done, once
	done      chan struct{}
	closed    chan struct{}
	close     func() error
}

// newBacklog wraps l.
func newBacklog(l net.Listener) *backlogListener {
	b := &backlogListener{Listener: l, done: make(chan struct{}), closed: make(chan struct{})}
	if d, ok := l.(interface{ SetDeadline(time.Time) error }); ok {
		b.until = d.SetDeadline
	}
	b.finished = sync.OnceFunc(func() { close(b.done) })
	b.close = sync.OnceValue(func() error { close(b.closed); return l.Close() })
	return b
}

// Finish has Accept return the connections that wait, and then closes the listener. It
// returns when that is done, or when ctx ends. Accept waits for Close afterwards, and fails
// only then. Where the listener has no deadlines, it does nothing.
func (l *backlogListener) Finish(ctx context.Context) {
	if l.until == nil {
		return
	}
	l.finishing.Store(true)
	_ = l.until(time.Unix(1, 0)) // an Accept that waits comes back
	select {
	case <-l.done:
	case <-l.closed:
	case <-ctx.Done():
	}
}

// more is how long Accept may take for a connection that is there.
const more = time.Second

// Accept waits for a connection.
func (l *backlogListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err == nil || !l.finishing.Load() || !errors.Is(err, os.ErrDeadlineExceeded) {
			if err == nil && l.finishing.Load() {
				_ = l.until(time.Unix(1, 0))
			}
			return c, err
		}
		if waits(l.Listener) {
			_ = l.until(time.Now().Add(more))
			continue
		}
		_ = l.Listener.Close()
		l.finished()
		<-l.closed
		return nil, net.ErrClosed
	}
}

// Close closes the listener at once.
func (l *backlogListener) Close() error { return l.close() }
