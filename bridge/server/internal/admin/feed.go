package admin

import "sync"

// These constants bound the events of a Feed: their number, and their size in bytes.
const (
	maxEvents = 256
	maxBytes  = 256 << 10
)

// Event is one event of a stream.
type Event struct {
	Type string
	Data any // read only
	Size int // approximate, as JSON, in bytes
	// Call is the id of the call, if Type is callBegin, callMark or callEnd; otherwise empty.
	Call string
}

// These are the types of the events of a call.
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
	begun   map[string]int  // by call, the index of its callBegin in events, until another event of the call, or an event of no call, follows
	active  map[string]bool // calls whose begin is in events, or that the page shows as active
	bytes   int
	dropped int
}

// NewFeed returns an empty feed.
func NewFeed() *Feed {
	return &Feed{
		wake:   make(chan struct{}, 1),
		begun:  map[string]int{},
		active: map[string]bool{},
	}
}

// Shown records that the page shows a call as active: Put then has more room for the call's end.
func (f *Feed) Shown(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active[call] = true
}

// Full reports whether there is no room until the next Take. If Full reports true, it has counted a dropped event,
// and the caller need not make the event.
func (f *Feed) Full() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	full := f.full()
	if full {
		f.dropped++
	}
	return full
}

// full reports whether there is no room until the next Take. The caller holds f.mu.
func (f *Feed) full() bool { return f.dropped > 0 || len(f.events) >= maxEvents }

// Put adds an event. Put does not block. The end of a call replaces the begin in the queue, because the end repeats
// its data. For the ends of active calls, the bounds are twice as high: without its end, the page would show a call
// as active for ever.
func (f *Feed) Put(e Event) {
	f.mu.Lock()
	f.put(e)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// put is Put without the wake-up. The caller holds f.mu.
func (f *Feed) put(e Event) {
	if e.Type == callEnd {
		if at, replaces := f.begun[e.Call]; replaces {
			delete(f.begun, e.Call)
			delete(f.active, e.Call)
			f.bytes += e.Size - f.events[at].Size
			f.events[at] = e
			return
		}
	}
	drop := f.full() || f.bytes+e.Size > maxBytes
	if e.Type == callEnd && f.active[e.Call] {
		delete(f.active, e.Call)
		drop = len(f.events) >= 2*maxEvents || f.bytes+e.Size > 2*maxBytes
	}
	if drop {
		f.dropped++
		return
	}
	switch e.Type {
	case callBegin:
		f.begun[e.Call], f.active[e.Call] = len(f.events), true
	case callMark, callEnd:
		delete(f.begun, e.Call)
	default: // the event may be about a call, such as a message: the call's end must not come before it
		clear(f.begun)
	}
	f.events, f.bytes = append(f.events, e), f.bytes+e.Size
}

// Wake returns a channel that receives when there may be events.
func (f *Feed) Wake() <-chan struct{} { return f.wake }

// Take removes and returns the queued events. dropped is the number of events dropped since the last Take.
func (f *Feed) Take() (events []Event, dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	events, dropped = f.events, f.dropped
	f.events, f.bytes, f.dropped = nil, 0, 0
	clear(f.begun)
	return events, dropped
}
