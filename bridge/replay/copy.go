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

// Copy receives the events of a log, under its lock. It must not block or change the event.
type Copy interface {
	Append(e Event)
	Finish() // no more events follow
	Drop()   // removes the copy
}

// Entry is one line of the copy of a stream.
type Entry struct {
	Session string   // the session's key
	Stream  string   // its id within the session
	Kind    Kind     // of entry
	Seq     int64    // of the event, or of the last one
	Open    [][]byte // raw ids of the stream's requests without an answer
	Data    []byte   // of an event
}

// Kind is the kind of an entry.
type Kind int

// These are the kinds of entries.
const (
	Began Kind = iota
	Added
	Finished
	// Dropped removes the copy.
	Dropped
)

// Store stores entries for several instances.
type Store interface {
	// Write adds entries in order. It ignores entries that do not follow the stored ones, because another instance has
	// taken over the stream.
	Write(ctx context.Context, all []Entry) error
	// Take returns the stored events of a stream after seq. The store then refuses entries of the former
	// instance, which have numbers up to mark. Take fails with ErrForgotten if the stored events do not reach or
	// follow seq.
	Take(ctx context.Context, session, stream string, seq, mark int64) (Taken, error)
}

// Taken is the stored part of a stream.
type Taken struct {
	Events   []Event  // after the requested one
	Open     [][]byte // raw ids of requests without an answer
	Finished bool     // no more events follow
}

// ErrForgotten means that the store has nothing, or too little, of a stream.
var ErrForgotten = errors.New("unknown stream")

// These bound the copies.
const (
	maxCopied    = 64 << 10 // bytes of one event
	maxStream    = 4 << 20  // bytes of one stream
	maxWaiting   = 8 << 20  // bytes that wait for the store, of all streams
	maxOpen      = 4 << 10  // bytes of the ids of a stream's requests
	writeAtATime = 256      // entries
	writeWithin  = time.Second
	writeAgain   = 500 * time.Millisecond // after a failed write
	// retryFor is how long failed writes are repeated after the last good one. A store that is away for longer
	// misses entries, and the streams that they belong to.
	retryFor = time.Minute
)

// Copies copies streams to a store, so that another instance can continue them after this one ends. It writes
// asynchronously: entries that were not written by then are lost.
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

// Close writes the waiting entries and stops.
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

// Begin starts the copy of a stream of the session of that key. open holds the raw ids of the requests that the
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

// Take returns the stored events of another instance's stream, and continues the copy. New events are numbered
// above mark.
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
	if e.Kind == Dropped { // it makes room in the store
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
	var failed time.Time // when writes began to fail; zero if they do not
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

// write writes some entries, and repeats that. The store ignores those that it has already.
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

// Recorder copies one stream, under the lock of its log.
type Recorder struct {
	c               *Copies
	session, stream string
	open            [][]byte
	last            int64
	bytes           int
	over            bool // the copy has ended or was given up
	absent          bool // the store was never given any of it
}

var _ Copy = (*Recorder)(nil)

// Append implements Copy.
func (r *Recorder) Append(e Event) {
	if r.over {
		return
	}
	if i := slices.IndexFunc(r.open, func(id []byte) bool { return e.Answers != nil && bytes.Equal(id, e.Answers) }); i >= 0 {
		r.open = slices.Delete(slices.Clone(r.open), i, i+1) // queued entries use the old slice
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

// Payload returns the stored form of an entry, without its key and number.
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

// Restore adds events with their own, ascending numbers. Later events are numbered above last. Restore does not copy
// the events.
func (l *Log) Restore(events []Event, last int64) {
	for _, e := range events {
		l.mu.Lock()
		l.last = e.Seq - 1
		l.mu.Unlock()
		_ = l.Append(e) // if the room is short, the event is missed, as in any log
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = max(l.last, last)
}

// DropCopy removes the copy of the log.
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
