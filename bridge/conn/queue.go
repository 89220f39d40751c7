package conn

import (
	"context"
	"errors"
	"sync"
)

// A Backlog bounds the bytes that wait to be sent to a server. The lock of its owner
// guards it.
type Backlog struct {
	Limit int // bytes above which senders wait

	bytes int
	room  Signal // woken when bytes were removed
}

// Overflows reports whether an urgent message must end the connection. An urgent message is a
// response as a rule, and cannot be dropped (protocol.md D0.11). The connection of a server that
// keeps asking and does not take the answers ends here.
func (b *Backlog) Overflows(urgent bool) bool { return urgent && b.bytes > 2*b.Limit }

// Add counts a message of size bytes. It reports false if its sender must Await room.
func (b *Backlog) Add(urgent bool, size int) bool {
	if !urgent && b.bytes > 0 && b.bytes+size > b.Limit {
		return false
	}
	b.bytes += size
	return true
}

// Bytes returns how many bytes wait.
func (b *Backlog) Bytes() int { return b.bytes }

// Remove ends the counting of size bytes.
func (b *Backlog) Remove(size int) {
	b.bytes -= size
	b.room.Wake()
}

// Await unlocks mu, and waits for Remove or Wake. If ctx ends first, Await returns its
// cause. mu stays unlocked.
func (b *Backlog) Await(ctx context.Context, mu *sync.Mutex) error { return b.room.Await(ctx, mu) }

// Wake lets waiting senders look again.
func (b *Backlog) Wake() { b.room.Wake() }

// Queue holds the messages that a server has not read yet. It is the [Sender] of a wire
// that carries one message after the other: one goroutine takes them and writes.
type Queue struct {
	full func()

	mu    sync.Mutex // guards the rest
	wait  Backlog
	lines []Outgoing
	some  Signal // woken when a message was added
	err   error  // the error for senders once the queue was stopped
	last  error  // the error for the reader then
}

var _ Sender = (*Queue)(nil)

// ErrFull is the cause of an error about a server that does not read the answers to its
// own requests.
var ErrFull = errors.New("it has too many messages that it has not read")

// NewQueue makes a queue in which senders wait for room above limit bytes. full is called,
// without a lock and by any goroutine, when far too much waits: it must stop the queue.
func NewQueue(limit int, full func()) *Queue { return &Queue{wait: Backlog{Limit: limit}, full: full} }

// Send implements Sender.
func (q *Queue) Send(ctx context.Context, o Outgoing) error {
	size := len(o.Line.B)
	for {
		q.mu.Lock()
		if q.err != nil {
			defer q.mu.Unlock()
			o.Line.Free()
			return q.err
		}
		if q.wait.Overflows(o.Urgent) {
			q.mu.Unlock()
			q.full()
			continue
		}
		if q.wait.Add(o.Urgent, size) {
			q.lines = append(q.lines, o)
			q.some.Wake()
			q.mu.Unlock()
			return nil
		}
		if err := q.wait.Await(ctx, &q.mu); err != nil {
			o.Line.Free()
			return err
		}
	}
}

// Take waits for the next message and returns it. The caller owns its line. The error is the one
// that Stop set for the reader.
func (q *Queue) Take() (Outgoing, error) {
	for {
		q.mu.Lock()
		if q.err != nil {
			defer q.mu.Unlock()
			return Outgoing{}, q.last
		}
		if len(q.lines) > 0 {
			o := q.lines[0]
			q.lines[0] = Outgoing{}
			q.lines = q.lines[1:]
			q.wait.Remove(len(o.Line.B))
			q.mu.Unlock()
			return o, nil
		}
		_ = q.some.Await(context.Background(), &q.mu)
	}
}

// Stop ends the queue, once: senders get err from now on, the reader gets last, and waiting
// messages are dropped.
func (q *Queue) Stop(err, last error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return
	}
	q.err, q.last, q.lines = err, last, nil
	q.wait.Wake()
	q.some.Wake()
}
