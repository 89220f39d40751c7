package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Copy receives the events of a Log. The Log calls it with its own lock held, so Copy must not block. It must not
// change the events.
type Copy interface {
	Append(e Event)
	Finish() // no more events follow
	Drop()   // removes the copy
}

// Entry is one entry in the copy of a stream.
type Entry struct {
	Session string   // the session's key
	Stream  string   // id of the stream within the session
	Kind    Kind     // of entry
	Seq     int64    // number of the event; in other entries, of the last event before the entry
	Open    [][]byte // raw ids of the stream's requests that have no answer yet
	Data    []byte   // the event; nil in other entries
}

// Kind is the kind of an entry.
type Kind int

// The kinds of entries.
const (
	Began Kind = iota
	Added
	Finished
	// Dropped removes the copy from the store.
	Dropped
)

// Store stores the copies of streams for all instances.
type Store interface {
	// Write adds entries in order. If another instance has taken over a stream, Write ignores the former owner's
	// entries.
	Write(ctx context.Context, all []Entry) error
	// Take returns the stored events of a stream after seq. From then on the store refuses the former owner's entries,
	// whose numbers are up to mark. If the store does not know all events after seq, the error is ErrForgotten.
	Take(ctx context.Context, session, stream string, seq, mark int64) (Taken, error)
}

// Taken is the stored part of a stream.
type Taken struct {
	Events   []Event  // events after seq
	Open     [][]byte // raw ids of requests that have no answer yet
	Finished bool     // no more events follow
}

// ErrForgotten means that the store has nothing of a stream, or not all that is needed.
var ErrForgotten = errors.New("unknown stream")

// Limits of the copies.
const (
	maxCopied    = 64 << 10               // bytes of one event
	maxStream    = 4 << 20                // bytes of one stream
	maxWaiting   = 8 << 20                // bytes that wait for the store, of all streams
	maxOpen      = 4 << 10                // bytes of the ids of a stream's requests
	writeAtATime = 256                    // entries in one write
	writeWithin  = time.Second            // time limit of one write
	writeAgain   = 500 * time.Millisecond // pause after a failed write
	// retryFor is how long failed writes are repeated, counted from the first failure. After that, entries are lost,
	// and with them the copies of their streams.
	retryFor = time.Minute
)

// Copies copies streams to a store, so that another instance can continue them after this instance has ended. It writes
// in the background, so entries that wait when the process dies are lost.
type Copies struct {
	store Store
	log   *slog.Logger
	wake  chan struct{}
	stop  chan struct{} // closed by Close
	done  chan struct{}

	mu      sync.Mutex // guards the rest
	waiting []Entry
	bytes   int
	closed  bool
}

// NewCopies returns Copies that write until Close.
func NewCopies(store Store, log *slog.Logger) *Copies {
	c := &Copies{
		store: store,
		log:   log,
		wake:  make(chan struct{}, 1),
		stop:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	go c.writes()
	return c
}

// Close writes the waiting entries, unless the store is unreachable, and stops.
func (c *Copies) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	close(c.stop)
	c.signal()
	<-c.done
}

func (c *Copies) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Begin starts the copy of a stream. session is the key of its session. open are the raw ids of the requests that the
// stream answers.
func (c *Copies) Begin(session, stream string, open [][]byte) *Recorder {
	r := &Recorder{
		c:       c,
		session: session,
		stream:  stream,
		open:    open,
	}
	size := 0
	for _, id := range open {
		size += len(id)
	}
	if size > maxOpen {
		r.over = true
		return r
	}
	r.put(Began, nil)
	return r
}

// Take returns the stored events of a stream that another instance copied, and continues the copy. The numbers of new
// events are above mark.
func (c *Copies) Take(ctx context.Context, session, stream string, seq, mark int64) (Taken, *Recorder, error) {
	t, err := c.store.Take(ctx, session, stream, seq, mark)
	return t, &Recorder{
		c:       c,
		session: session,
		stream:  stream,
		open:    t.Open,
		last:    mark,
	}, err
}

// put queues an entry. It reports false if there is no room.
func (c *Copies) put(e Entry) bool {
	n := len(e.Data) + 256
	c.mu.Lock()
	defer c.mu.Unlock()
	room := maxWaiting
	if e.Kind == Dropped { // Dropped frees room in the store
		room *= 2
	}
	if c.closed || c.bytes+n > room {
		return false
	}
	c.waiting = append(c.waiting, e)
	c.bytes += n
	c.signal()
	return true
}

// writes writes until Close.
func (c *Copies) writes() {
	defer close(c.done)
	var failed time.Time // when writes began to fail; zero while they succeed
	for {
		c.mu.Lock()
		n := min(len(c.waiting), writeAtATime)
		some := slices.Clone(c.waiting[:n])
		clear(c.waiting[:n]) // frees their memory
		if c.waiting = c.waiting[n:]; len(c.waiting) == 0 {
			c.waiting = nil
		}
		closed := c.closed
		c.mu.Unlock()
		if n == 0 {
			if closed {
				return
			}
			<-c.wake
			continue
		}
		if c.write(some, &failed); closed && !failed.IsZero() { // an instance that stops does not wait for an unreachable store
			return
		}
		c.mu.Lock()
		for _, e := range some {
			c.bytes -= len(e.Data) + 256
		}
		c.mu.Unlock()
	}
}

// write writes some entries, and repeats a failed write until retryFor. The store ignores entries that it already has.
func (c *Copies) write(some []Entry, failed *time.Time) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), writeWithin)
		err := c.store.Write(ctx, some)
		cancel()
		switch {
		case err == nil:
			*failed = time.Time{}
			return
		case failed.IsZero():
			c.log.Warn("streams are not copied: clients cannot resume them if this instance ends now", "err", err)
			*failed = time.Now()
		case time.Since(*failed) > retryFor:
			return
		}
		select {
		case <-time.After(writeAgain):
		case <-c.stop:
			return
		}
	}
}

// Recorder copies one stream. The stream's Log calls it with its lock held.
type Recorder struct {
	c               *Copies
	session, stream string
	open            [][]byte
	last            int64
	bytes           int
	over            bool // no further entry is copied
	absent          bool // the store has nothing of the stream
}

var _ Copy = (*Recorder)(nil)

// Append implements Copy.
func (r *Recorder) Append(e Event) {
	if r.over {
		return
	}
	if i := slices.IndexFunc(r.open, func(id []byte) bool { return e.Answers != nil && bytes.Equal(id, e.Answers) }); i >= 0 {
		r.open = slices.Delete(slices.Clone(r.open), i, i+1) // entries in the queue refer to the old slice
	}
	r.last = e.Seq
	if r.bytes += len(e.Data); len(e.Data) > maxCopied || r.bytes > maxStream {
		r.Drop()
		return
	}
	r.put(Added, e.Data)
}

// Finish implements Copy.
func (r *Recorder) Finish() {
	if !r.over {
		r.put(Finished, nil)
		r.over = true
	}
}

func (r *Recorder) put(kind Kind, data []byte) {
	switch {
	case r.c.put(Entry{r.session, r.stream, kind, r.last, r.open, data}):
	case kind == Began:
		r.over, r.absent = true, true
	default:
		r.Drop()
	}
}

// Drop implements Copy.
func (r *Recorder) Drop() {
	r.over = true
	if r.absent {
		return
	}
	r.c.put(Entry{
		Session: r.session,
		Stream:  r.stream,
		Kind:    Dropped,
	})
}

// Payload returns the stored form of an entry: Open and Data.
func (e *Entry) Payload() []byte {
	out := append([]byte{'['}, bytes.Join(e.Open, []byte{','})...)
	return append(append(out, "]\n"...), e.Data...)
}

// ParsePayload reads the result of Payload.
func ParsePayload(b []byte) (open [][]byte, data []byte, ok bool) {
	ids, data, ok := bytes.Cut(b, []byte{'\n'})
	var raw []json.RawMessage
	if !ok || json.Unmarshal(ids, &raw) != nil {
		return nil, nil, false
	}
	for _, id := range raw {
		open = append(open, id)
	}
	return open, data, true
}

// Restore adds events with the numbers that they have, in ascending order, and does not copy them. The numbers of later
// events are above last.
func (l *Log) Restore(events []Event, last int64) {
	for _, e := range events {
		l.mu.Lock()
		l.last = e.Seq - 1
		l.mu.Unlock()
		_ = l.Append(e) // without room the event is missing, as in any log
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = max(l.last, last)
}

// DropCopy removes the copy of the log from the store.
func (l *Log) DropCopy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.copy != nil {
		l.copy.Drop()
		l.copy = nil
	}
}

// CopyTo copies all further events to c.
func (l *Log) CopyTo(c Copy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.copy = c
}
