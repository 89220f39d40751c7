// Package replay stores the recent events of a stream. They are a queue for a reader that is slower than the server,
// and the history from which a client resumes by Last-Event-ID (2025-03-26 to 2025-11-25, basic/transports,
// resumability).
//
// The events and bytes of a log are bounded. A full log first drops the oldest event that may be missing: progress, a
// log message, or a change notification that a later one repeats. It never drops questions and answers. After reports
// whether events are missing.
//
// The bytes of all logs together are bounded, too, by a Room. Events that are stored only for clients that may come
// back are in a History, and are dropped when there is no room.
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
	Seq  int64  // number of the event, from 1; Append sets it
	Data []byte // one JSON-RPC message on one line
	Must bool   // a question or an answer: a full log does not drop it
	Key  string // a later event with the same key replaces this one; empty for an event that none replaces
	// Free returns the room that the event already has. It is called once, when the log drops or refuses the event, and
	// must not block. An event without Free takes its room from the log's Room.
	Free func()
	// Force means that the event takes room even if there is none, since each call needs its answer.
	Force bool
	// Answers is the raw id of the request that the event answers, or nil.
	Answers []byte

	unasked bool // the event got a part of unaskedRoom
}

// Room is a budget of bytes that many logs share. Its methods may be called concurrently, and must not block. Reserve
// may drop events of a History.
type Room interface {
	Reserve(n int) bool // reports false if too few bytes are left
	Force(n int)        // takes n bytes even if too few are left
	Return(n int)
}

// unaskedRoom is how many bytes a log may take although there is no room. So a client that reads its stream still gets
// small events.
const unaskedRoom = 64 << 10

// batch is the most bytes that Next returns at once, unless one event is larger.
const batch = 64 << 10

// ErrOver and ErrNoRoom are the reasons why Append refuses an event.
var (
	ErrOver   = errors.New("the stream has ended or is full")
	ErrNoRoom = errors.New("no room for the event")
)

// Limits bounds a Log.
type Limits struct {
	Events int // most events without Must
	Bytes  int // most bytes of all events; events that must not be dropped may exceed it, up to Hard
	Hard   int // most bytes of all events; beyond it Append fails
	// Dropped counts the events that were dropped before a client read them. Several logs may share it. It may be nil.
	Dropped *atomic.Uint64
	Room    Room     // nil means no bound
	History *History // for a stream that can be resumed; nil for a log that forgets written events
}

// Log holds the recent events of one stream. Its methods may be called concurrently.
type Log struct {
	limits Limits
	wake   chan struct{}

	mu       sync.Mutex // guards the rest
	events   []Event
	bytes    int
	loose    int              // number of events without Must
	surplus  int              // number of events without Must that may be dropped: all but the newest of each key
	newest   map[string]int64 // Seq of the newest event of each key
	last     int64            // Seq of the last event
	missed   int64            // highest Seq of a dropped event
	gone     int64            // highest Seq of an event with Must that shed dropped
	read     int64            // highest Seq that After or Next returned
	hand     int64            // highest Seq that the reader is writing
	written  int64            // highest Seq that was written to the client
	unasked  int              // bytes of events that took unaskedRoom
	drops    int              // number of dropped events
	left     bool             // the log has no reader
	finished bool
	shelf    *list.Element // entry in the History; nil if the log is not in it
	rank     rank          // queue of shelf
	copy     Copy          // nil without a copy
}

// New returns an empty log.
func New(l Limits) *Log { return &Log{limits: l, wake: make(chan struct{}, 1)} }

// Append adds an event, and takes the event over. ErrOver means that the stream is finished, or has too many events
// that must not be dropped; the stream must end. ErrNoRoom means that all streams together have too many bytes. If an
// event without Must finds no room, Append drops it and returns nil.
func (l *Log) Append(e Event) error {
	n := len(e.Data)
	e.unasked = false     // another log may have set it
	asked := l.reserve(e) // without the lock, since Reserve may drop events of this log
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
	case !e.Must && (e.Key == "" || l.newest[e.Key] > l.read): // in the second case, the log has an unread event of the same key
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
		if e.Key == "" || l.newest[e.Key] > 0 { // this event, or the one that it replaces
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

// reserve takes room for an event. If there is none, it reports false.
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

// drop counts an event that is dropped before all clients could read it.
func (l *Log) drop(e Event) {
	l.drops++
	l.missed = max(l.missed, e.Seq)
	if e.Must {
		l.gone = max(l.gone, e.Seq)
	} else if l.limits.Dropped != nil && e.Seq > l.read {
		l.limits.Dropped.Add(1)
	}
}

// inHand reports whether the reader is writing the event, and so uses its memory.
func (l *Log) inHand(e Event) bool { return l.written < e.Seq && e.Seq <= l.hand }

// droppable reports whether the event may be missing: it has no Must, and is not the newest of its key.
func (l *Log) droppable(e Event) bool {
	return !e.Must && (e.Key == "" || l.newest[e.Key] != e.Seq)
}

// forget subtracts an event from the counts, and returns its room. The caller removes the event.
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

// remove removes the event at index i. It moves the events before i, because most events leave at the front.
func (l *Log) remove(i int) {
	l.forget(l.events[i])
	copy(l.events[1:], l.events[:i])
	l.events[0] = Event{}
	l.events = l.events[1:]
}

// Remove removes the event with number seq, if the log still has it. It is for events that became pointless before a
// client read them.
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

// After returns the events after seq, the oldest first. whole reports whether none is missing. The caller must not
// change the events.
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

// Next returns the first events after seq, for the reader to write: several small ones, or a large one. So the reader
// needs little memory besides the log. When it has written them, it calls Written or Forget. It must not change the
// events.
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

// Written records that the events up to seq were written to the client. They stay as history.
func (l *Log) Written(seq int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written = max(l.written, seq)
	l.settle()
}

// Attend records that a reader starts, and writes the events after seq.
func (l *Log) Attend(seq int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.written, l.hand = false, seq, seq
	l.settle()
}

// Leave records that the log has no reader any more, so that its events are history.
func (l *Log) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.hand = true, l.written
	l.settle()
}

// Gone reports whether an event with Must after seq was dropped to make room.
func (l *Log) Gone(seq int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone > seq
}

// Forget removes the events up to seq, which were written and which no client will request again.
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

// Trim removes the oldest events before seq until at most size bytes are left.
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

// Wake returns the channel that signals new events, and the end of the log, to its one reader.
func (l *Log) Wake() <-chan struct{} { return l.wake }

// Bytes returns the size of the events that wait for the client.
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

// Last returns the number of the last event, or 0 before the first.
func (l *Log) Last() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// ID returns the id by which clients know an event: the name of the stream and the number of the event.
func ID(stream string, seq int64) string {
	return stream + "-" + strconv.FormatInt(seq, 10)
}

// ParseID splits the result of ID. It reports false for other texts.
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
