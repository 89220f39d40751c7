package breaker

import (
	"sync"
	"time"
)

// Circuit decides whether something that may fail is used, such as a host. A user calls Begin, and
// reports the outcome to the Attempt. While Begin lets nothing pass, Try admits one probe at a time.
//
//	closed ----- too many failures ----> open ------ the pause is over,
//	   ^                                  ^  |       and somebody wants it
//	   |                                  |  v
//	   +------- the probe succeeds ---- half-open -- it fails: a longer pause
//
// The methods of a Circuit, of its attempts and of its probes may be called concurrently. A Circuit
// starts no goroutine and has no timer.
//
// The Breaker of a server also counts openings of connections, with a gate of their own.
type Circuit struct {
	mu    sync.Mutex          // guards the rest
	gates [openings + 1]*gate // an open gate of calls stops openings, too
	o     *Options            // complete: without zero values that mean a default
	trips uint64              // how often a gate opened
	why   string              // why the circuit opened
	since time.Time           // when the circuit opened
	pause time.Duration       // length of the current pause
	again time.Time           // when the pause ends
	probe *Probe              // in flight, or nil

	forced *Force // an operator's order, perhaps expired; nil without an order
}

// maxPause bounds the doubling of pauses. If Options.Pause is longer, pauses do not grow.
const maxPause = 2 * time.Minute

// NewCircuit returns a closed circuit. With Options.Off the circuit never opens.
func NewCircuit(o Options) *Circuit {
	o = o.complete()
	c := &Circuit{o: &o}
	c.close(calls)
	return c
}

// at returns the gate that decides about attempts of kind k. An open gate of calls decides about openings, too. The
// caller holds c.mu.
func (c *Circuit) at(k kind) *gate {
	if g := c.gates[calls]; g.open {
		return g
	}
	return c.gates[k]
}

// set replaces the options. If they change, counts start at 0. An open circuit stays open until a probe succeeds,
// unless o has Off.
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

// Begin begins an attempt. If it reports false, the user must not make the attempt, and ignores the Attempt.
func (c *Circuit) Begin() (Attempt, bool) { return c.begin(calls) }

func (c *Circuit) begin(k kind) (Attempt, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.at(k)
	if g.open {
		return Attempt{}, false
	}
	done, err := g.allow()
	return Attempt{
		c:     c,
		g:     g,
		done:  done,
		began: time.Now(),
		fails: g.fails,
		goods: g.goods,
	}, err == nil
}

// Attempt is a use that the circuit has let pass. The user calls one of Good, Bad and Void, once. An
// attempt that began before the circuit opened does not count.
type Attempt struct {
	c            *Circuit
	g            *gate
	done         func(error)
	began        time.Time
	fails, goods int // of g when it began
}

// Slow reports whether more than Options.Slow has passed since the attempt began.
func (a *Attempt) Slow() bool { return a.g.o.Slow > 0 && time.Since(a.began) > a.g.o.Slow }

// Good records that the attempt succeeded.
func (a *Attempt) Good() { a.end(nil, false, "") }

// Bad records that the attempt failed. late says that it ran into a time limit. If that opens the circuit, Bad stores
// why as the reason and returns the pause. Otherwise it returns 0.
func (a *Attempt) Bad(late bool, why string) (pause time.Duration) { return a.end(errBad, late, why) }

// Void records that the outcome says nothing about the server.
func (a *Attempt) Void() { a.end(errVoid, false, "") }

func (a *Attempt) end(outcome error, late bool, why string) (pause time.Duration) {
	c, g := a.c, a.g
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case outcome == nil:
		g.goods, g.row = g.goods+1, 0
	case outcome == errBad && g.isOneMore(a, late):
		g.fails, g.row = g.fails+1, g.row+1
		if late {
			g.hung = a.began
		}
	}
	// A gobreaker dates an outcome by the start of its attempt, and ignores the outcome if the start is before the
	// window. The start of a call that times out may be that old, so a long attempt is recorded as one that began now.
	if !g.open && time.Since(a.began) >= g.o.Window/parts {
		a.done(errVoid)
		a.done, _ = g.allow()
	}
	trips := c.trips
	if a.done(outcome); c.trips == trips {
		return 0
	}
	c.why = why
	return c.pause
}

// Left returns the rest of the pause, at least 1 ms. During a probe it returns 1 s and true.
func (c *Circuit) Left() (left time.Duration, probed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probe != nil {
		return time.Second, true
	}
	return max(time.Until(c.again), time.Millisecond), false
}

// Probe is the one attempt that tests whether the server works again. The user calls one of its methods, once.
type Probe struct {
	c     *Circuit
	g     *gate // the gate that the probe can close
	pass  func(error)
	began time.Time
	done  chan struct{} // closed when the probe ended
}

// Try begins a probe if the circuit is open, its pause is over and no probe is in flight. Then it returns the probe and
// true. Otherwise it returns the probe in flight, or nil, and false.
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
	pass, err := g.allow()
	if err != nil {
		return nil, false
	}
	c.probe = &Probe{
		c:     c,
		g:     g,
		pass:  pass,
		began: time.Now(),
		done:  make(chan struct{}),
	}
	return c.probe, true
}

// Worked closes the circuit. It reports false if the probe does not count, because calls began to fail or an operator
// gave an order after the probe began.
func (p *Probe) Worked() (closed bool) {
	p.end(func(c *Circuit) {
		p.pass(nil)
		c.close(p.g.kind) // and the next pause is Options.Pause again
		closed = true
	})
	return closed
}

// Failed begins another pause, twice as long as the last one, and returns it. why is the new reason. If the probe does
// not count (see Worked), Failed does nothing and returns 0.
func (p *Probe) Failed(why string) (pause time.Duration) {
	p.end(func(c *Circuit) {
		pause = min(2*c.pause, max(maxPause, c.o.Pause))
		c.why = why
		c.openFor(p.g.kind, pause)
	})
	return pause
}

// NoResult begins another pause of the same length, because the probe said nothing about the server.
func (p *Probe) NoResult() { p.end(func(c *Circuit) { c.openFor(p.g.kind, c.pause) }) }

// Dropped lets the next probe begin at once, because this probe was not made.
func (p *Probe) Dropped() { p.end(func(*Circuit) { p.pass(errVoid) }) }

// end ends the probe, and calls note with c.mu held if the probe counts.
func (p *Probe) end(note func(c *Circuit)) {
	p.c.mu.Lock()
	p.c.probe = nil
	if p.c.gates[p.g.kind] == p.g {
		note(p.c)
	}
	p.c.mu.Unlock()
	close(p.done)
}

// reason returns why the circuit last opened, and whether only openings are stopped.
func (c *Circuit) reason() (why string, used bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why, !c.gates[calls].open
}
