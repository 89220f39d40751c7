package admin

import "sync"

// Bounds of a Feed.
const (
	maxEvents = 256
	maxBytes  = 256 << 10
)

// Event is one event of a stream.
type Event struct {
	Type string
	Data any // read only
	Size int // approximate, as JSON, in bytes
	// Call is the id of the call that begins, ends or has a mark; empty for another event.
	Call string
}

// The events of a call.
const (
	callBegin = "call.begin"
	callMark  = "call.mark"
	callEnd   = "call.end"
)

// Feed queues events until they are written. It drops and counts events that do not fit, so a slow
// page causes no delay. Its methods may be called concurrently.
type Feed struct {
	wake chan struct{}

	mu      sync.Mutex // guards the rest
	events  []Event
	begun   map[string]int // by call: the index of its callBegin, until another event of it or of no call follows
	bytes   int
	dropped int
}

// NewFeed returns an empty feed.
func NewFeed() *Feed { return &Feed{wake: make(chan struct{}, 1), begun: map[string]int{}} }

// Put adds an event. It does not block. The end of a call replaces its begin, which it repeats.
func (f *Feed) Put(e Event) {
	f.mu.Lock()
	at, replaces := f.begun[e.Call]
	delete(f.begun, e.Call)
	if e.Call == "" { // it may be about a call, such as its messages: the end must not come before it
		clear(f.begun)
	}
	switch {
	case replaces && e.Type == callEnd:
		f.bytes += e.Size - f.events[at].Size
		f.events[at] = e
	case len(f.events) >= maxEvents || f.bytes+e.Size > maxBytes:
		f.dropped++
	default:
		if e.Type == callBegin {
			f.begun[e.Call] = len(f.events)
		}
		f.events, f.bytes = append(f.events, e), f.bytes+e.Size
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Wake returns a channel that receives when there may be events.
func (f *Feed) Wake() <-chan struct{} { return f.wake }

// Take returns the queued events, and the number of dropped events.
func (f *Feed) Take() (events []Event, dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	events, dropped = f.events, f.dropped
	f.events, f.bytes, f.dropped = nil, 0, 0
	clear(f.begun)
	return events, dropped
}
