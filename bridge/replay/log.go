// Package replay keeps the recent events of a stream: as the queue of a reader
// that is slower than its server, and as the history from which a client that
// lost its connection resumes by Last-Event-ID (2025-03-26 to 2025-11-25,
// basic/transports, resumability).
//
// A log is bounded by number and bytes. When it is full, the oldest event that
// may be missed goes first: progress and log messages, and change
// notifications that a later one repeats. Questions and answers are not
// dropped. After says when something is missing.
//
// All logs together are bounded too: they take the bytes of their events from a
// Room, and give them back when the events go. What is kept only for clients that
// may come back is in a History, and goes whenever its room is needed.
package replay

import (
	"cmp"
	"container/list"
	"errors"
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
	Must bool   // a question or an answer: not dropped while it may be read
	Key  string // of two events with the same key the later says all; empty for others
	// Free gives back the room that the event brings with it. It is called once,
	// when the event is dropped or refused, and must not block. An event without it
	// takes its room from the log's.
	Free func()
	// Force has the event take its room though there is none: it is the answer to
	// a call, which has to have one.
	Force bool
	// Answers is the id of the request that it is the answer to, raw; nil for what is none.
	Answers []byte

	unasked bool // it has its room though there was none
}

// Room is what the events of many logs may take together, in bytes. Its methods
// may be called concurrently and must not block. Reserve may drop what is in a
// History.
type Room interface {
	Reserve(n int) bool // reports false when there is too little
	Force(n int)        // takes it all the same
	Return(n int)
}

// unaskedRoom is how many bytes of events a log takes though there is no room for
// them: what is small reaches a client that reads, however short the room is.
const unaskedRoom = 64 << 10

// batch is how many bytes of events a reader is given at once.
const batch = 64 << 10

// Why an event is not added to a log.
var (
	ErrOver   = errors.New("the stream has ended, or too much waits on it")
	ErrNoRoom = errors.New("no room for the event")
)

// Limits bound a log.
type Limits struct {
	Events int // that may be dropped
	Bytes  int // of all events; those that must be kept may take it over the limit, up to Hard
	Hard   int // of all events; an Append above it fails
	// Dropped counts the events, of all logs that have it, that were dropped before
	// anybody has read them. It may be nil.
	Dropped *atomic.Uint64
	Room    Room     // nil means that there is always enough
	History *History // where clients may come back for events; nil for a log that forgets what was written
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
	gone     int64            // Seq of the newest that had to be kept, and was dropped for its room
	read     int64            // Seq of the newest event that was read
	hand     int64            // Seq of the newest that the reader has in hand
	written  int64            // Seq of the newest that was written to the client
	unasked  int              // bytes of the events that have their room unasked
	drops    int
	left     bool // nobody reads it
	finished bool
	shelf    *list.Element // where it stands in the History, or nil
	rank     rank          // in which queue
	copy     Copy          // nil means that nobody copies it
}

// New makes an empty log.
func New(l Limits) *Log { return &Log{limits: l, wake: make(chan struct{}, 1)} }

// Append adds an event, which the log owns from now on. ErrOver says that the
// stream is finished or overflows with what must not be dropped: it has to be
// ended. ErrNoRoom says that all streams together hold too much. What may be missed
// is dropped then, and that is no error.
func (l *Log) Append(e Event) error {
	n := len(e.Data)
	e.unasked = false     // it may have been in another log
	asked := l.reserve(e) // not under the lock: it may drop what another log has, or this one
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.finished || l.bytes+n > l.limits.Hard:
		if asked {
			l.giveBack(e)
		}
		return ErrOver
	case asked:
	case l.unasked+n <= unaskedRoom:
		e.unasked = true
		l.unasked += n
		l.limits.Room.Force(n)
	case !e.Must && (e.Key == "" || l.newest[e.Key] > l.read): // in the second case one that says the same is still to be read
		l.drops++
		if l.limits.Dropped != nil {
			l.limits.Dropped.Add(1)
		}
		return nil
	default:
		return ErrNoRoom
	}
	l.last++
	e.Seq = l.last
	l.events = append(l.events, e)
	l.bytes += n
	if l.copy != nil {
		l.copy.Append(e)
	}
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
		i := slices.IndexFunc(l.events, func(e Event) bool { return l.droppable(e) && !l.inHand(e) })
		if i < 0 {
			break
		}
		l.drop(l.events[i])
		l.remove(i)
	}
	l.settle()
	l.signal()
	return nil
}

// reserve takes room for an event. It reports false when there is none.
func (l *Log) reserve(e Event) bool {
	switch {
	case l.limits.Room == nil || e.Free != nil:
	case e.Force:
		l.limits.Room.Force(len(e.Data))
	default:
		return l.limits.Room.Reserve(len(e.Data))
	}
	return true
}

func (l *Log) giveBack(e Event) {
	switch {
	case e.Free != nil:
		e.Free()
	case l.limits.Room != nil:
		l.limits.Room.Return(len(e.Data))
	}
}

// drop notes that an event is dropped before its time.
func (l *Log) drop(e Event) {
	l.drops++
	l.missed = max(l.missed, e.Seq)
	if e.Must {
		l.gone = max(l.gone, e.Seq)
	} else if l.limits.Dropped != nil && e.Seq > l.read {
		l.limits.Dropped.Add(1)
	}
}

// inHand reports whether the reader is writing an event: its memory is in use.
func (l *Log) inHand(e Event) bool { return l.written < e.Seq && e.Seq <= l.hand }

// droppable reports whether an event may be missed: the newest of its key may
// not.
func (l *Log) droppable(e Event) bool {
	return !e.Must && (e.Key == "" || l.newest[e.Key] != e.Seq)
}

// forget takes an event out of the account. The caller removes it.
func (l *Log) forget(e Event) {
	l.bytes -= len(e.Data)
	if e.unasked {
		l.unasked -= len(e.Data)
	}
	l.giveBack(e)
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
		l.settle()
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

// Next returns the first of the events that follow the one at seq, for the reader
// to write: some small ones or a large one, so that what it has in hand is little
// beside what the log holds. It says with Written or Forget that it has written
// them. The events must not be changed.
func (l *Log) Next(seq int64) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := len(l.events)
	for from > 0 && l.events[from-1].Seq > seq {
		from--
	}
	to, size := from, 0
	for to < len(l.events) && (to == from || size+len(l.events[to].Data) <= batch) {
		size += len(l.events[to].Data)
		to++
	}
	if from == to {
		return nil
	}
	l.hand = l.events[to-1].Seq
	l.read = max(l.read, l.hand)
	return slices.Clone(l.events[from:to])
}

// Written says that the events up to seq are on their way to the client. They are
// kept as history.
func (l *Log) Written(seq int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written = max(l.written, seq)
	l.settle()
}

// Attend says that somebody begins to read what follows the event at seq.
func (l *Log) Attend(seq int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.written, l.hand = false, seq, seq
	l.settle()
}

// Leave says that nobody reads the log any more: what it holds is history.
func (l *Log) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.hand = true, l.written
	l.settle()
}

// Gone reports whether something that had to be kept, and follows the event at seq,
// was dropped for its room.
func (l *Log) Gone(seq int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone > seq
}

// Forget drops the events up to seq: they have been written and will not be asked
// for again.
func (l *Log) Forget(seq int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written = max(l.written, seq)
	n := 0
	for n < len(l.events) && l.events[n].Seq <= seq {
		n++
	}
	l.cut(n)
}

// Trim drops the oldest of the events before the one at seq until no more than size
// bytes are left.
func (l *Log) Trim(seq int64, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, left := 0, l.bytes
	for n < len(l.events) && left > size && l.events[n].Seq < seq {
		left -= len(l.events[n].Data)
		n++
	}
	l.cut(n)
}

// cut removes the first n events.
func (l *Log) cut(n int) {
	for _, e := range l.events[:n] {
		l.forget(e)
	}
	clear(l.events[:n]) // nothing is to hold their memory
	if l.events = l.events[n:]; len(l.events) == 0 {
		l.events = nil
	}
	l.settle()
}

// Close drops all events, and takes no more.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished = true
	l.cut(len(l.events))
	l.signal()
}

// Finish says that nothing will be added any more.
func (l *Log) Finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.copy != nil && !l.finished {
		l.copy.Finish()
	}
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
