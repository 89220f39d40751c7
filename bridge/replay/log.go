// Package replay stores the recent events of a stream. They are the queue of a reader that is slower than its
// server. They are also the history from which a client resumes by Last-Event-ID (2025-03-26 to 2025-11-25,
// basic/transports, resumability).
//
// A log is bounded by events and bytes. A full log first drops the oldest event that may be missed. Such events are
// progress, log messages, and change notifications that a later one repeats. A log never drops questions and answers.
// After reports whether events are missing.
//
// All logs together are bounded, too: their events take bytes from a Room. Events that only wait for clients to
// come back are in a History, and are dropped when room is short.
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
	Seq  int64  // its number, from 1; assigned by Append
	Data []byte // one JSON-RPC message on one line
	Must bool   // a question or an answer: not dropped while it may be read
	Key  string // a later event of the same key replaces this one; empty for none
	// Free returns the room that the event brings with it. It is called once, when the event is dropped or
	// refused, and must not block. An event without Free takes room from the log's Room.
	Free func()
	// Force takes room even if there is none, because each call needs its answer.
	Force bool
	// Answers is the raw id of the request that the event answers; nil for none.
	Answers []byte

	unasked bool // it took room although there was none
}

// Room is the budget of many logs, in bytes. Its methods may be called concurrently and must not block. Reserve
// may drop a History.
type Room interface {
	Reserve(n int) bool // reports false if there is too little
	Force(n int)        // takes it even then
	Return(n int)
}

// unaskedRoom is the number of bytes that a log takes even without room. So a client that reads gets small
// events however short the room is.
const unaskedRoom = 64 << 10

// batch is the number of bytes that a reader gets at once.
const batch = 64 << 10

// These are the reasons to refuse an event.
var (
	ErrOver   = errors.New("the stream has ended or is full")
	ErrNoRoom = errors.New("no room for the event")
)

// Limits bounds a log.
type Limits struct {
	Events int // droppable events
	Bytes  int // of all events; undroppable ones may exceed it, up to Hard
	Hard   int // of all events; Append fails above it
	// Dropped counts events of all its logs that were dropped before a client read them. It may be nil.
	Dropped *atomic.Uint64
	Room    Room     // nil means unlimited
	History *History // for streams that can be resumed; nil for a log that drops written events
}

// Log is the history of one stream. Its methods may be called concurrently.
type Log struct {
	limits Limits
	wake   chan struct{}

	mu       sync.Mutex // guards the rest
	events   []Event
	bytes    int
	loose    int              // events that are not Must
	surplus  int              // loose events that may be dropped now: not the newest of their key
	newest   map[string]int64 // Seq of the newest event of each key
	last     int64            // Seq of the newest event
	missed   int64            // Seq of the newest dropped event
	gone     int64            // Seq of the newest Must event that was dropped for its room
	read     int64            // Seq of the newest event that was read
	hand     int64            // Seq of the newest event that the reader is writing
	written  int64            // Seq of the newest event that was written to the client
	unasked  int              // bytes of the unasked events
	drops    int
	left     bool // it has no reader
	finished bool
	shelf    *list.Element // its entry in the History, or nil
	rank     rank          // its queue there
	copy     Copy          // nil without a copy
}

// New returns an empty log.
func New(l Limits) *Log { return &Log{limits: l, wake: make(chan struct{}, 1)} }

// Append adds an event, which the log then owns. ErrOver means that the stream is finished or holds too many
// undroppable events, and must end. ErrNoRoom means that all streams together hold too much. An event that may
// be missed is then dropped without an error.
func (l *Log) Append(e Event) error {
	n := len(e.Data)
	e.unasked = false     // it may come from another log
	asked := l.reserve(e) // not under the lock: it may drop the history of this or another log
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
	case !e.Must && (e.Key == "" || l.newest[e.Key] > l.read): // in the second case an unread event of the same key is stored
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

// reserve takes room for an event. It reports false if there is none.
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

// drop records that an event is dropped early.
func (l *Log) drop(e Event) {
	l.drops++
	l.missed = max(l.missed, e.Seq)
	if e.Must {
		l.gone = max(l.gone, e.Seq)
	} else if l.limits.Dropped != nil && e.Seq > l.read {
		l.limits.Dropped.Add(1)
	}
}

// inHand reports whether the reader is writing the event, so that its memory is in use.
func (l *Log) inHand(e Event) bool { return l.written < e.Seq && e.Seq <= l.hand }

// droppable reports whether an event may be missed. The newest event of its key may not.
func (l *Log) droppable(e Event) bool {
	return !e.Must && (e.Key == "" || l.newest[e.Key] != e.Seq)
}

// forget subtracts an event from the counts. The caller removes it.
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

// remove shifts the events before it, because events leave at the front.
func (l *Log) remove(i int) {
	l.forget(l.events[i])
	copy(l.events[1:], l.events[:i])
	l.events[0] = Event{}
	l.events = l.events[1:]
}

// Remove removes the event at seq, if it is still there. It is for events that became pointless before they were
// read.
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

// After returns the events after seq, oldest first. whole reports whether none is missing. The events must not
// be changed.
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

// Next returns the first events after seq for the reader to write: some small ones or a large one. So the reader
// holds little memory beside the log. After writing them, it calls Written or Forget. The events must not be
// changed.
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

// Written records that the events up to seq are on their way to the client. They stay as history.
func (l *Log) Written(seq int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written = max(l.written, seq)
	l.settle()
}

// Attend records that a reader starts after seq.
func (l *Log) Attend(seq int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.written, l.hand = false, seq, seq
	l.settle()
}

// Leave records that the log has no reader: its events are history.
func (l *Log) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.hand = true, l.written
	l.settle()
}

// Gone reports whether an undroppable event after seq was dropped for its room.
func (l *Log) Gone(seq int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone > seq
}

// Forget drops the events up to seq: they were written and no client will request them again.
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

// Trim drops the oldest events before seq until at most size bytes are left.
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
	clear(l.events[:n]) // frees their memory
	if l.events = l.events[n:]; len(l.events) == 0 {
		l.events = nil
	}
	l.settle()
}

// Close drops all events, and refuses further ones.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished = true
	l.cut(len(l.events))
	l.signal()
}

// Finish records that no more events follow.
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

// Wake returns the channel that signals new events and the end to the one reader.
func (l *Log) Wake() <-chan struct{} { return l.wake }

// Bytes returns the size of all events.
func (l *Log) Bytes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// Drops returns the number of dropped events.
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

// ID returns an event's id for clients: the stream's name and the event's number.
func ID(stream string, seq int64) string {
	return stream + "-" + strconv.FormatInt(seq, 10)
}

// ParseID splits an event id. It reports false for an id that ID does not make.
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
