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

// backlogListener is a listener that closes without losing the connections in the kernel's backlog:
// Close alone resets them, and loses their requests. All methods may be called concurrently, except
// Accept: only one goroutine may call it.
type backlogListener struct {
	net.Listener
	setDeadline func(time.Time) error // sets the deadline of Accept; nil if the listener has none
	finishing   atomic.Bool
	finished    func() // closes done, once
	done        chan struct{}
	closed      chan struct{}
	close       func() error
}

func newBacklog(l net.Listener) *backlogListener {
	b := &backlogListener{
		Listener: l,
		done:     make(chan struct{}),
		closed:   make(chan struct{}),
	}
	if d, ok := l.(interface{ SetDeadline(time.Time) error }); ok {
		b.setDeadline = d.SetDeadline
	}
	b.finished = sync.OnceFunc(func() { close(b.done) })
	b.close = sync.OnceValue(func() error { close(b.closed); return l.Close() })
	return b
}

// Finish lets Accept return the connections of the backlog, and then closes the listener. Finish returns when that is
// done, or when ctx ends. After that, Accept blocks until Close. If the listener has no deadlines, Finish does
// nothing.
func (b *backlogListener) Finish(ctx context.Context) {
	if b.setDeadline == nil {
		return
	}
	b.finishing.Store(true)
	_ = b.setDeadline(time.Unix(1, 0)) // a waiting Accept returns
	select {
	case <-b.done:
	case <-b.closed:
	case <-ctx.Done():
	}
}

// acceptWait bounds the time of Accept for a connection that is in the backlog.
const acceptWait = time.Second

func (b *backlogListener) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err == nil || !b.finishing.Load() || !errors.Is(err, os.ErrDeadlineExceeded) {
			if err == nil && b.finishing.Load() {
				_ = b.setDeadline(time.Unix(1, 0))
			}
			return c, err
		}
		if hasBacklog(b.Listener) {
			_ = b.setDeadline(time.Now().Add(acceptWait))
			continue
		}
		_ = b.Listener.Close()
		b.finished()
		<-b.closed
		return nil, net.ErrClosed
	}
}

func (b *backlogListener) Close() error { return b.close() }
