package breaker

import (
	"sync"
	"sync/atomic"
	"time"
)

// Circuit says whether something is used that may fail, such as a host. Who is about
// to use it asks Begin, and tells the Attempt how it went. While Begin lets nothing
// pass, one at a time may find out whether it works again: see Try.
//
//	closed ----- too many failures ----> open ------ the pause is over,
//	   ^                                  ^  |       and somebody wants it
//	   |                                  |  v
//	   +------- the probe succeeds ---- half-open -- it fails: a longer pause
//
// Its methods, and those of its attempts and probes, may be called concurrently. It
// starts no goroutine and has no timer.
//
// The Breaker of a server counts the openings of connections besides, in a window
// of their own.
type Circuit struct {
	windows [openings + 1]atomic.Pointer[window] // nil while nothing of the kind is let pass; while no calls are, no openings are either
	trips   atomic.Uint64                        // how often something was not let pass any more

	mu    sync.Mutex // guards the rest, and the changes of windows
	o     *Options   // complete
	why   string     // it is open
	since time.Time  // it is
	pause time.Duration
	again time.Time // when the pause is over
	probe *Probe    // under way, or nil

	forced *Force // what an operator has decided, or nil
}

// kind is what a window counts.
type kind int

const (
	calls kind = iota
	openings
)

// maxPause is how far pauses grow, unless the first is longer.
const maxPause = 2 * time.Minute

// NewCircuit returns a circuit that is closed. With Options.Off it stays so.
func NewCircuit(o Options) *Circuit {
	o = o.complete()
	c := &Circuit{o: &o}
	for k := range c.windows {
		c.windows[k].Store(newWindow(c.o))
	}
	return c
}

// set has other options count. What is counted begins anew; what is left alone stays so
// until a probe succeeds, unless the circuit is off now.
func (c *Circuit) set(o Options) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *c.o == o.complete() {
		return
	}
	o = o.complete()
	c.o = &o
	if o.Off {
		c.forced = nil
	}
	for k := range c.windows {
		if o.Off || c.windows[k].Load() != nil {
			c.windows[k].Store(newWindow(c.o))
		}
	}
}

// Begin returns the attempt that begins now. It reports false when it must not.
func (c *Circuit) Begin() (Attempt, bool) { return c.begin(calls) }

func (c *Circuit) begin(k kind) (Attempt, bool) {
	w := c.windows[k].Load()
	if w == nil {
		return Attempt{}, false
	}
	return w.attempt(c), true
}

// Attempt is a use that the circuit has let pass. One of Good and Bad is called at
// most once; neither, when how it went says nothing about what was used. What began
// before the circuit opened does not count when it is closed again.
type Attempt struct {
	c            *Circuit
	w            *window
	began        time.Time
	fails, goods int64 // of w, when it began
}

func (w *window) attempt(c *Circuit) Attempt {
	return Attempt{c: c, w: w, began: time.Now(), fails: w.fails.Load(), goods: w.goods.Load()}
}

// Slow reports whether the attempt has taken longer by now than Options.Slow.
func (a *Attempt) Slow() bool { return a.w.o.Slow > 0 && time.Since(a.began) > a.w.o.Slow }

// Good notes a success.
func (a *Attempt) Good() { a.w.good() }

// Bad notes a failure, which is that there was no answer in time if it was late.
// When the circuit opens for it, why is kept as the reason, and the pause is
// returned; otherwise that is 0.
func (a *Attempt) Bad(late bool, why string) (pause time.Duration) {
	if !a.w.bad(a, late) {
		return 0
	}
	c := a.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.o.Off, c.forced.counts():
		return 0
	case c.windows[calls].CompareAndSwap(a.w, nil):
		c.windows[openings].Store(nil)
	case !c.windows[openings].CompareAndSwap(a.w, nil):
		return 0 // it is open
	}
	c.trips.Add(1)
	c.why, c.since, c.pause = why, time.Now(), c.o.Pause
	c.again = c.since.Add(c.pause)
	return c.pause
}

// Left returns how long it takes until the circuit is worth trying: a second while
// it is probed.
func (c *Circuit) Left() (left time.Duration, probed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probe != nil {
		return time.Second, true
	}
	return max(time.Until(c.again), time.Millisecond), false
}

// Probe is the one attempt to find out whether what was left alone works again. One
// of its methods has to be called, once.
type Probe struct {
	c     *Circuit
	began time.Time
	calls bool          // it is about calls too, and not only about openings
	done  chan struct{} // closed when it has ended
}

// Try begins the probe, when the pause is over and no other one is under way: that
// is when it reports true. Otherwise it returns the probe under way, or nil.
func (c *Circuit) Try() (*Probe, bool) { return c.try(calls) }

func (c *Circuit) try(k kind) (*Probe, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch now := time.Now(); {
	case c.windows[k].Load() != nil:
		return nil, false
	case c.probe != nil || now.Before(c.again):
		return c.probe, false
	default:
		c.probe = &Probe{c: c, began: now, calls: c.windows[calls].Load() == nil, done: make(chan struct{})}
	}
	return c.probe, true
}

// Worked closes the circuit. It reports false when that has begun to fail meanwhile
// which the probe was not about.
func (p *Probe) Worked() (closed bool) {
	p.end(func(c *Circuit) {
		if closed = p.calls || c.windows[calls].Load() != nil; !closed {
			c.again = time.Now().Add(c.pause)
			return
		}
		if p.calls {
			c.windows[calls].Store(newWindow(c.o))
		}
		c.windows[openings].Store(newWindow(c.o))
	})
	return closed
}

// Failed begins another pause, twice as long as the one before, and returns it. why
// is the reason from now on.
func (p *Probe) Failed(why string) (pause time.Duration) {
	p.end(func(c *Circuit) {
		c.pause = min(2*c.pause, max(maxPause, c.o.Pause))
		c.why, c.again = why, time.Now().Add(c.pause)
		pause = c.pause
	})
	return pause
}

// Missed begins another pause of the same length: the probe has found out nothing.
func (p *Probe) Missed() { p.end(func(c *Circuit) { c.again = time.Now().Add(c.pause) }) }

// Dropped lets the next begin at once: the probe was not made.
func (p *Probe) Dropped() { p.end(func(*Circuit) {}) }

// end ends the probe, and has what it says noted.
func (p *Probe) end(note func(c *Circuit)) {
	p.c.mu.Lock()
	p.c.probe = nil
	if !p.c.o.Off && !p.c.forced.counts() { // otherwise it is not for a probe to say
		note(p.c)
	}
	p.c.mu.Unlock()
	close(p.done)
}

// reason returns why the circuit was opened last.
func (c *Circuit) reason() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}
