package conn

import (
	"context"
	"errors"
	"sync"
)

// Backlog bounds the bytes that wait to be sent to a server. The lock of its owner guards it.
type Backlog struct {
	Limit int // bytes above which senders wait

	bytes int
	room  Signal // wakes senders after Remove
}

// Overflows reports whether there is no room for an urgent message either, so that the connection must end. An urgent
// message is mostly an answer, and cannot be dropped (protocol.md D0.11). So a connection ends if its server keeps
// asking and does not read the answers.
func (b *Backlog) Overflows(urgent bool) bool { return urgent && b.bytes > 2*b.Limit }

// Add counts a message of size bytes. If it reports false, the sender must call Await and try again.
func (b *Backlog) Add(urgent bool, size int) bool {
	if !urgent && b.bytes > 0 && b.bytes+size > b.Limit {
		return false
	}
	b.bytes += size
	return true
}

// Bytes returns how many bytes wait to be sent.
func (b *Backlog) Bytes() int { return b.bytes }

// Remove ends the count of size bytes, and wakes senders.
func (b *Backlog) Remove(size int) {
	b.bytes -= size
	b.room.Wake()
}

// Await unlocks mu, and waits for Remove or Wake. If ctx ends first, Await returns its cause. It does not lock mu
// again.
func (b *Backlog) Await(ctx context.Context, mu *sync.Mutex) error { return b.room.Await(ctx, mu) }

// Wake wakes the senders in Await, so that they check their condition.
func (b *Backlog) Wake() { b.room.Wake() }

// Queue holds the messages that a server has not read yet. It is the [Sender] of a transport that carries one message
// after the other: one goroutine takes the messages and writes them.
type Queue struct {
	full func()

	mu    sync.Mutex // guards the rest
	wait  Backlog
	lines []Outgoing
	some  Signal // wakes the reader after a message was added
	err   error  // error of Send after Stop
	last  error  // error of Take after Stop
}

var _ Sender = (*Queue)(nil)

// ErrFull is the reason for the end of a connection whose server does not read the answers to its own requests.
var ErrFull = errors.New("it has too many messages that it has not read")

// NewQueue returns a queue in which Send waits while more than limit bytes are queued. When an urgent message finds
// twice that, Send calls full, which must call Stop. full is called from any goroutine, without a lock.
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

// Take waits for the next message, and returns it. The caller owns its Line. After Stop, Take returns the error last.
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

// Stop ends the queue, and drops the messages in it. From now on Send returns err, and Take returns last. Only the
// first call has an effect.
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
