// Package replay keeps the recent events of a stream: as the queue of a reader
// that is slower than its server, and as the history from which a client that
// lost its connection resumes by Last-Event-ID (2025-03-26 to 2025-11-25,
// basic/transports, resumability).
//
// A log is bounded by number and bytes. When it is full, the oldest event that
// may be missed goes first: progress and log messages, and change
// notifications that a later one repeats. Questions and answers are never
// dropped. After says when something is missing.
package replay

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Event is one message on a stream.
type Event struct {
	Seq  int64  // its place, from 1; assigned by Append
	Data []byte // one JSON-RPC message on one line
	Must bool   // a question or an answer: never dropped
	Key  string // of two events with the same key the later says all; empty for others
}

// Limits bound a log.
type Limits struct {
	Events int // that may be dropped
	Bytes  int // of all events; those that must be kept may take it over the limit, up to Hard
	Hard   int // of all events; an Append above it fails
	// Dropped counts the events, of all logs that have it, that were dropped before
	// anybody has read them. It may be nil.
	Dropped *atomic.Uint64
}

// Log is the history of one stream. Its methods may be called concurrently.
type Log struct {
	limits Limits
	wake   chan struct{}

	mu       sync.Mutex // guards the rest
	events   []Event
	bytes    int
	loose    int              // events that are not Must
	surplus  int              // of these, that may be dropped now: not the newest of their key
	newest   map[string]int64 // Seq of the newest event of each key
	last     int64            // Seq of the newest event
	missed   int64            // Seq of the newest dropped event
	read     int64            // Seq of the newest event that was read
	drops    int
	finished bool
}

// New makes an empty log.
func New(l Limits) *Log { return &Log{limits: l, wake: make(chan struct{}, 1)} }

// Append adds an event, which the log owns from now on. It reports false when
// the stream is finished or overflows with what must not be dropped: the
// stream has to be ended.
func (l *Log) Append(e Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.finished || l.bytes+len(e.Data) > l.limits.Hard {
		return false
	}
	l.last++
	e.Seq = l.last
	l.events = append(l.events, e)
	l.bytes += len(e.Data)
	if !e.Must {
		l.loose++
		if e.Key == "" || l.newest[e.Key] > 0 { // itself, or the one before it
			l.surplus++
		}
		if e.Key != "" {
			if l.newest == nil {
				l.newest = map[string]int64{}
			}
			l.newest[e.Key] = e.Seq
		}
	}
	for l.surplus > 0 && (l.loose > l.limits.Events || l.bytes > l.limits.Bytes) {
		i := slices.IndexFunc(l.events, l.droppable)
		l.drops++
		l.missed = max(l.missed, l.events[i].Seq)
		if l.limits.Dropped != nil && l.events[i].Seq > l.read {
			l.limits.Dropped.Add(1)
		}
		l.remove(i)
	}
	l.signal()
	return true
}

// droppable reports whether an event may be missed: the newest of its key may
// not.
func (l *Log) droppable(e Event) bool {
	return !e.Must && (e.Key == "" || l.newest[e.Key] != e.Seq)
}

// forget takes an event out of the account. The caller removes it.
func (l *Log) forget(e Event) {
	l.bytes -= len(e.Data)
	switch {
	case e.Must:
		return
	case l.droppable(e):
		l.surplus--
	default:
		delete(l.newest, e.Key)
	}
	l.loose--
}

// remove closes the gap from the front: there are the events that go.
func (l *Log) remove(i int) {
	l.forget(l.events[i])
	copy(l.events[1:], l.events[:i])
	l.events[0] = Event{}
	l.events = l.events[1:]
}

// Remove takes back the event at seq, if it is still there: it has become
// pointless and nobody has read it.
func (l *Log) Remove(seq int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, ok := slices.BinarySearchFunc(l.events, seq, func(e Event, seq int64) int { return cmp.Compare(e.Seq, seq) })
	if ok {
		l.remove(i)
	}
}

func (l *Log) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// After returns the events that follow the one at seq, oldest first, and
// whether they are all that followed it. The events must not be changed.
func (l *Log) After(seq int64) (events []Event, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := len(l.events)
	for i > 0 && l.events[i-1].Seq > seq {
		i--
	}
	if i < len(l.events) {
		events = append(events, l.events[i:]...)
		l.read = max(l.read, events[len(events)-1].Seq)
	}
	return events, l.missed <= seq
}

// Forget drops the events up to seq: they have been read and will not be asked
// for again.
func (l *Log) Forget(seq int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.events) && l.events[n].Seq <= seq {
		l.forget(l.events[n])
		n++
	}
	if n == len(l.events) {
		l.events = nil
		return
	}
	l.events = append(l.events[:0:0], l.events[n:]...)
}

// Finish says that nothing will be added any more.
func (l *Log) Finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished = true
	l.signal()
}

// Finished reports whether Finish was called.
func (l *Log) Finished() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finished
}

// Wake returns the channel that tells the one reader that something was added
// or the log was finished.
func (l *Log) Wake() <-chan struct{} { return l.wake }

// Bytes returns how much the events hold.
func (l *Log) Bytes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// Drops returns how many events were dropped.
func (l *Log) Drops() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drops
}

// Last returns the Seq of the newest event, 0 before the first.
func (l *Log) Last() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// ID returns the id under which a client knows an event: the stream's name and
// the place on it.
func ID(stream string, seq int64) string {
	return stream + "-" + strconv.FormatInt(seq, 10)
}

// ParseID takes an event id apart. It reports false for what ID cannot have
// made.
func ParseID(id string) (stream string, seq int64, ok bool) {
	stream, after, ok := strings.Cut(id, "-")
	if !ok || stream == "" {
		return "", 0, false
	}
	seq, err := strconv.ParseInt(after, 10, 64)
	if err != nil || seq < 0 || strconv.FormatInt(seq, 10) != after {
		return "", 0, false
	}
	return stream, seq, true
}
