package wiretest

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Pipe returns the two ends of a connection in memory. Unlike net.Pipe, it has buffers, as TCP does. With net.Pipe, TLS
// holds its lock and waits until the other end reads, and the time of a bubble stands still while a goroutine waits for
// a lock.
func Pipe() (*End, *End) {
	there, back := newWay(), newWay()
	return &End{in: back, out: there}, &End{in: there, out: back}
}

// End is an end of a Pipe.
type End struct{ in, out *way }

var _ net.Conn = (*End)(nil)

// way is one direction of a Pipe.
type way struct {
	mu        sync.Mutex // guards the rest
	changed   *sync.Cond
	data      []byte
	held      bool // nothing arrives
	over      bool // closed for writing
	left      bool // closed for reading
	readBy    deadline
	writtenBy deadline
}

// deadline is a deadline that SetDeadline sets.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

// buffered bounds the bytes in one direction.
const buffered = 256 << 10

func newWay() *way {
	w := &way{}
	w.changed = sync.NewCond(&w.mu)
	return w
}

// change modifies the way, and wakes the goroutines that wait for a change.
func (w *way) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	w.changed.Broadcast()
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// set sets a deadline of the way.
func (w *way) set(d *deadline, at time.Time) {
	w.change(func() {
		if d.timer != nil {
			d.timer.Stop()
		}
		d.at, d.timer = at, nil
		if left := time.Until(at); !at.IsZero() && left > 0 {
			d.timer = time.AfterFunc(left, func() { w.change(func() {}) })
		}
	})
}

// Read implements net.Conn.
func (e *End) Read(b []byte) (int, error) {
	w := e.in
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case w.left:
			return 0, net.ErrClosed
		case w.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case !w.held && len(w.data) > 0:
			n := copy(b, w.data)
			w.data = w.data[n:]
			w.changed.Broadcast()
			return n, nil
		case !w.held && w.over:
			return 0, io.EOF
		}
		w.changed.Wait()
	}
}

// Write implements net.Conn.
func (e *End) Write(b []byte) (n int, err error) {
	w := e.out
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case w.over:
			return n, net.ErrClosed
		case w.writtenBy.passed():
			return n, os.ErrDeadlineExceeded
		case w.left && !w.held:
			return n, io.ErrClosedPipe
		case n == len(b):
			return n, nil
		case len(w.data) < buffered:
			part := b[n:min(len(b), n+buffered-len(w.data))]
			w.data = append(w.data, part...)
			n += len(part)
			w.changed.Broadcast()
			continue
		}
		w.changed.Wait()
	}
}

// Close implements net.Conn. The other end can still read the bytes that were written before.
func (e *End) Close() error {
	e.in.change(func() { e.in.left = true })
	e.out.change(func() { e.out.over = true })
	var no time.Time
	e.in.set(&e.in.readBy, no)
	e.out.set(&e.out.writtenBy, no)
	return nil
}

// Hold keeps everything from arriving at either end, even the end of the connection, until it is called with false.
func (e *End) Hold(on bool) {
	for _, w := range []*way{e.in, e.out} {
		w.change(func() { w.held = on })
	}
}

// LocalAddr implements net.Conn.
func (e *End) LocalAddr() net.Addr { return pipeAddr{} }

// RemoteAddr implements net.Conn.
func (e *End) RemoteAddr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// SetDeadline implements net.Conn.
func (e *End) SetDeadline(at time.Time) error {
	_ = e.SetReadDeadline(at)
	return e.SetWriteDeadline(at)
}

// SetReadDeadline implements net.Conn.
func (e *End) SetReadDeadline(at time.Time) error {
	e.in.set(&e.in.readBy, at)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (e *End) SetWriteDeadline(at time.Time) error {
	e.out.set(&e.out.writtenBy, at)
	return nil
}
