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

// Copy is told what is added to a log, under its lock: it must neither block nor change
// the event.
type Copy interface {
	Append(e Event)
	Finish() // nothing will be added any more
}

// Entry is one line of the copy of a stream.
type Entry struct {
	Session string   // its key
	Stream  string   // its id within the session
	Kind    Kind     // of entry
	Seq     int64    // of the event, or of the last before
	Open    [][]byte // ids of the requests that the stream has not answered by then, raw
	Data    []byte   // of an event
}

// Kind says what an entry is.
type Kind int

// The kinds of entries.
const (
	Began Kind = iota
	Added
	Finished
	// Dropped says that the copy is given up: what is there of it goes.
	Dropped
)

// Store keeps entries for several instances.
type Store interface {
	// Write adds entries, in their order. Those that do not follow what is there are left
	// out: another instance has taken the stream over.
	Write(ctx context.Context, all []Entry) error
	// Take returns what is there of a stream, and has the store refuse what its instance
	// still adds: that has numbers up to mark. It fails with ErrForgotten when nothing is
	// there that follows the event at seq, and reaches it.
	Take(ctx context.Context, session, stream string, seq, mark int64) (Taken, error)
}

// Taken is what there is of a stream.
type Taken struct {
	Events   []Event  // that follow
	Open     [][]byte // ids of the requests without an answer, raw
	Finished bool     // nothing follows them
}

// ErrForgotten: nothing is known of a stream, or too little.
var ErrForgotten = errors.New("nothing is known of the stream")

// Bounds of the copies.
const (
	maxCopied    = 64 << 10 // bytes of one event
	maxStream    = 4 << 20  // bytes of one stream
	maxWaiting   = 8 << 20  // bytes that wait to be written, of all streams
	maxOpen      = 4 << 10  // bytes of the ids of a stream's requests
	writeAtATime = 256      // entries
	writeWithin  = time.Second
)

// Copies keeps copies of streams, from which another instance goes on when this one
// ends. Writing is behind: what has not been written by then is not known there.
type Copies struct {
	store Store
	log   *slog.Logger
	wake  chan struct{}
	done  chan struct{}

	mu      sync.Mutex // guards the rest
	waiting []Entry
	bytes   int
	closed  bool
}

// NewCopies makes Copies, which write until Close.
func NewCopies(store Store, log *slog.Logger) *Copies {
	c := &Copies{store: store, log: log, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go c.writes()
	return c
}

// Close writes what waits, and ends.
func (c *Copies) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.signal()
	<-c.done
}

func (c *Copies) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Begin returns what copies a stream of the session of that key. open are the ids of the
// requests that it answers, raw.
func (c *Copies) Begin(session, stream string, open [][]byte) *Recorder {
	r := &Recorder{c: c, session: session, stream: stream, open: open}
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

// Take returns what another instance has kept of a stream, and goes on with the copy:
// events are added above mark.
func (c *Copies) Take(ctx context.Context, session, stream string, seq, mark int64) (Taken, *Recorder, error) {
	t, err := c.store.Take(ctx, session, stream, seq, mark)
	return t, &Recorder{c: c, session: session, stream: stream, open: t.Open, last: mark}, err
}

// put adds an entry to those that wait. It reports whether there is room for it.
func (c *Copies) put(e Entry) bool {
	n := len(e.Data) + 256
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.bytes+n > maxWaiting && e.Kind != Dropped {
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
	failed := false
	for {
		c.mu.Lock()
		n := min(len(c.waiting), writeAtATime)
		some := slices.Clone(c.waiting[:n])
		clear(c.waiting[:n]) // nothing is to hold their memory
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
		ctx, cancel := context.WithTimeout(context.Background(), writeWithin)
		err := c.store.Write(ctx, some)
		cancel()
		if err != nil && !failed {
			c.log.Warn("streams are not copied: clients cannot go on with them if this instance ends now", "err", err)
		}
		failed = err != nil
		if failed && closed { // an instance that ends does not wait for a store that is away
			return
		}
		c.mu.Lock()
		for _, e := range some {
			c.bytes -= len(e.Data) + 256
		}
		c.mu.Unlock()
	}
}

// Recorder copies one stream. It is used under the lock of the stream's log.
type Recorder struct {
	c               *Copies
	session, stream string
	open            [][]byte
	last            int64
	bytes           int
	over            bool // the copy was given up
}

var _ Copy = (*Recorder)(nil)

// Append implements Copy.
func (r *Recorder) Append(e Event) {
	if r.over {
		return
	}
	if i := slices.IndexFunc(r.open, func(id []byte) bool { return e.Answers != nil && bytes.Equal(id, e.Answers) }); i >= 0 {
		r.open = slices.Delete(slices.Clone(r.open), i, i+1) // entries that wait have the others
	}
	r.last = e.Seq
	if r.bytes += len(e.Data); len(e.Data) > maxCopied || r.bytes > maxStream {
		r.drop()
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
	if !r.c.put(Entry{r.session, r.stream, kind, r.last, r.open, data}) {
		r.drop()
	}
}

// drop gives the copy up.
func (r *Recorder) drop() {
	r.over = true
	r.c.put(Entry{Session: r.session, Stream: r.stream, Kind: Dropped})
}

// Payload returns what is kept of an entry, beside its place.
func (e *Entry) Payload() []byte {
	out := append([]byte{'['}, bytes.Join(e.Open, []byte{','})...)
	return append(append(out, "]\n"...), e.Data...)
}

// ParsePayload reads what Payload has made.
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

// Restore adds events with the numbers that they have, which rise, and has the next one
// follow last. They are not copied.
func (l *Log) Restore(events []Event, last int64) {
	for _, e := range events {
		l.mu.Lock()
		l.last = e.Seq - 1
		l.mu.Unlock()
		_ = l.Append(e) // the room may be short: then it is missed, as in any log
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = max(l.last, last)
}

// CopyTo has what is added from now on copied.
func (l *Log) CopyTo(c Copy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.copy = c
}
