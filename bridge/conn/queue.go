package conn

import (
	"context"
	"errors"
	"sync"
)

// Queue holds what waits to be read by a server, bounded in bytes. It is the [Sender] of
// a wire that carries one message after the other: one goroutine takes them and writes.
type Queue struct {
	limit int // bytes above which senders wait
	full  func()

	mu    sync.Mutex // guards the rest
	lines []Outgoing
	bytes int
	room  Signal // woken when something was taken
	some  Signal // woken when something has come
	err   error  // what senders get once the queue was stopped
	last  error  // what the reader gets then
}

var _ Sender = (*Queue)(nil)

// ErrFull says that a server leaves unread what it has asked for.
var ErrFull = errors.New("too much waits to be read by it")

// NewQueue makes a queue in which senders wait for room above limit bytes. full is called,
// without a lock and by any goroutine, when far too much waits: it must stop the queue.
func NewQueue(limit int, full func()) *Queue { return &Queue{limit: limit, full: full} }

// Send implements Sender.
func (q *Queue) Send(ctx context.Context, m Outgoing) error {
	size := len(m.Line.B)
	for {
		q.mu.Lock()
		if q.err != nil {
			defer q.mu.Unlock()
			m.Line.Free()
			return q.err
		}
		if m.Urgent && q.bytes > 2*q.limit {
			// A response as a rule, so it cannot be dropped (protocol.md D0.11). A
			// server that goes on asking without reading ends here.
			q.mu.Unlock()
			q.full()
			continue
		}
		if m.Urgent || q.bytes == 0 || q.bytes+size <= q.limit {
			q.lines = append(q.lines, m)
			q.bytes += size
			q.some.Wake()
			q.mu.Unlock()
			return nil
		}
		if err := q.room.Await(ctx, &q.mu); err != nil {
			m.Line.Free()
			return err
		}
	}
}

// Take returns the next message, whose line is the caller's, and waits until
// there is one. Its error is the one that Stop was given for the reader.
func (q *Queue) Take() (Outgoing, error) {
	for {
		q.mu.Lock()
		if q.err != nil {
			defer q.mu.Unlock()
			return Outgoing{}, q.last
		}
		if len(q.lines) > 0 {
			m := q.lines[0]
			q.lines[0] = Outgoing{}
			q.lines = q.lines[1:]
			q.bytes -= len(m.Line.B)
			q.room.Wake()
			q.mu.Unlock()
			return m, nil
		}
		_ = q.some.Await(context.Background(), &q.mu)
	}
}

// Stop ends the queue, once: senders get err from now on, the reader gets
// last, and what waits is dropped.
func (q *Queue) Stop(err, last error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return
	}
	q.err, q.last, q.lines = err, last, nil
	q.room.Wake()
	q.some.Wake()
}
