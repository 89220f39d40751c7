package admin

import "sync"

// Bounds of a Feed.
const (
	maxEvents = 512
	maxBytes  = 256 << 10
)

// Event is one event of a stream.
type Event struct {
	Type string
	Data any // read only
	Size int // approximate, as JSON, in bytes
}

// Feed queues events until they are written. It drops and counts events that do not fit, so a slow
// page causes no delay. Its methods may be called concurrently.
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

// Wake returns a channel that receives when there may be events.
func (f *Feed) Wake() <-chan struct{} { return f.wake }

// Take returns the queued events, and the number of dropped events.
func (f *Feed) Take() (events []Event, dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	events, dropped = f.events, f.dropped
	f.events, f.bytes, f.dropped = nil, 0, 0
	return events, dropped
}
