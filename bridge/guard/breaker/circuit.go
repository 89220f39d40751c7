package breaker

import (
	"sync"
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
// The Breaker of a server counts the openings of connections besides, with a gate of
// their own.
type Circuit struct {
	mu    sync.Mutex          // guards all
	gates [openings + 1]*gate // while that of calls is open, so are openings
	o     *Options            // complete
	trips uint64              // how often something was not let pass any more
	why   string              // it is open
	since time.Time           // it is
	pause time.Duration
	again time.Time // when the pause is over
	probe *Probe    // under way, or nil

	forced *Force // what an operator has decided, or nil
}

// maxPause is how far pauses grow, unless the first is longer.
const maxPause = 2 * time.Minute

// NewCircuit returns a circuit that is closed. With Options.Off it stays so.
func NewCircuit(o Options) *Circuit {
	o = o.complete()
	c := &Circuit{o: &o}
	c.close(calls)
	return c
}

// at returns the gate that keeps what is of a kind from passing, or else lets it pass.
// The caller holds c.mu.
func (c *Circuit) at(k kind) *gate {
	if g := c.gates[calls]; g.open {
		return g
	}
	return c.gates[k]
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
	for k, g := range c.gates {
		if o.Off || !g.open {
			c.gates[k] = c.gate(g.kind, o.Pause)
		}
	}
}

// Begin returns the attempt that begins now. It reports false when it must not.
func (c *Circuit) Begin() (Attempt, bool) { return c.begin(calls) }

func (c *Circuit) begin(k kind) (Attempt, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.at(k)
	if g.open {
		return Attempt{}, false
	}
	done, err := g.Allow()
	return Attempt{c: c, g: g, done: done, began: time.Now(), fails: g.fails, goods: g.goods}, err == nil
}

// Attempt is a use that the circuit has let pass. One of Good, Bad and Void is called,
// once. What began before the circuit opened does not count when it is closed again.
type Attempt struct {
	c            *Circuit
	g            *gate
	done         func(error)
	began        time.Time
	fails, goods int // of g, when it began
}

// Slow reports whether the attempt has taken longer by now than Options.Slow.
func (a *Attempt) Slow() bool { return a.g.o.Slow > 0 && time.Since(a.began) > a.g.o.Slow }

// Good notes a success.
func (a *Attempt) Good() { a.end(nil, false, "") }

// Bad notes a failure, which is that there was no answer in time if it was late.
// When the circuit opens for it, why is kept as the reason, and the pause is
// returned; otherwise that is 0.
func (a *Attempt) Bad(late bool, why string) (pause time.Duration) { return a.end(errBad, late, why) }

// Void notes that how it went says nothing about what was used.
func (a *Attempt) Void() { a.end(errVoid, false, "") }

func (a *Attempt) end(outcome error, late bool, why string) (pause time.Duration) {
	c, g := a.c, a.g
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case outcome == nil:
		g.goods, g.row = g.goods+1, 0
	case outcome == errBad && g.another(a, late):
		g.fails, g.row = g.fails+1, g.row+1
		if late {
			g.hung = a.began
		}
	}
	// A gobreaker dates an outcome when its attempt began, and forgets it when that was
	// before the window: a call that times out may well have. So what took long is
	// passed off as an attempt of now.
	if !g.open && time.Since(a.began) >= g.o.Window/parts {
		a.done(errVoid)
		a.done, _ = g.Allow()
	}
	trips := c.trips
	if a.done(outcome); c.trips == trips {
		return 0
	}
	c.why = why
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
	g     *gate // when that is of calls, it is about openings too
	pass  func(error)
	began time.Time
	done  chan struct{} // closed when it has ended
}

// Try begins the probe, when the pause is over and no other one is under way: that
// is when it reports true. Otherwise it returns the probe under way, or nil.
func (c *Circuit) Try() (*Probe, bool) { return c.try(calls) }

func (c *Circuit) try(k kind) (*Probe, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.at(k)
	switch {
	case !g.open:
		return nil, false
	case c.probe != nil, c.forced.counts():
		return c.probe, false
	}
	pass, err := g.Allow()
	if err != nil {
		return nil, false
	}
	c.probe = &Probe{c: c, g: g, pass: pass, began: time.Now(), done: make(chan struct{})}
	return c.probe, true
}

// Worked closes the circuit. It reports false when the probe does not count: what it
// was not about has begun to fail meanwhile, or others have decided.
func (p *Probe) Worked() (closed bool) {
	p.end(func(c *Circuit) {
		p.pass(nil)
		c.close(p.g.kind) // with the first pause again
		closed = true
	})
	return closed
}

// Failed begins another pause, twice as long as the one before, and returns it. why
// is the reason from now on. When the probe does not count it returns 0.
func (p *Probe) Failed(why string) (pause time.Duration) {
	p.end(func(c *Circuit) {
		pause = min(2*c.pause, max(maxPause, c.o.Pause))
		c.why = why
		c.leave(p.g.kind, pause)
	})
	return pause
}

// Missed begins another pause of the same length: the probe has found out nothing.
func (p *Probe) Missed() { p.end(func(c *Circuit) { c.leave(p.g.kind, c.pause) }) }

// Dropped lets the next begin at once: the probe was not made.
func (p *Probe) Dropped() { p.end(func(*Circuit) { p.pass(errVoid) }) }

// end ends the probe, and has what it says noted, if its gate counts still.
func (p *Probe) end(note func(c *Circuit)) {
	p.c.mu.Lock()
	p.c.probe = nil
	if p.c.gates[p.g.kind] == p.g {
		note(p.c)
	}
	p.c.mu.Unlock()
	close(p.done)
}

// reason returns why the circuit was opened last, and whether calls pass all the same.
func (c *Circuit) reason() (why string, used bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why, !c.gates[calls].open
}
