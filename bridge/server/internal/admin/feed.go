package admin

import "sync"

// What a stream of events holds at most for a page that reads too slowly.
const (
	maxEvents = 512
	maxBytes  = 256 << 10
)

// Event is something that has happened.
type Event struct {
	Type string
	Data any // it is not changed any more
	Size int // about how many bytes it has as JSON
}

// Feed holds events until they are written. What does not fit is dropped, and counted: who
// looks slows nobody down. Its methods may be called concurrently.
type Feed struct {
	wake chan struct{}

	mu      sync.Mutex // guards the rest
	events  []Event
	bytes   int
	dropped int
}

// NewFeed returns an empty feed.
func NewFeed() *Feed { return &Feed{wake: make(chan struct{}, 1)} }

// Put adds an event. It does not block.
func (f *Feed) Put(e Event) {
	f.mu.Lock()
	if len(f.events) >= maxEvents || f.bytes+e.Size > maxBytes {
		f.dropped++
	} else {
		f.events, f.bytes = append(f.events, e), f.bytes+e.Size
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Wake is where a sign comes when there may be events.
func (f *Feed) Wake() <-chan struct{} { return f.wake }

// Take returns what was put since, and how many events were dropped.
func (f *Feed) Take() (events []Event, dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	events, dropped = f.events, f.dropped
	f.events, f.bytes, f.dropped = nil, 0, 0
	return events, dropped
}
