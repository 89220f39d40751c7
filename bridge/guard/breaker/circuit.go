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
	o     *Options            // with their defaults
	trips uint64              // how often a gate opened
	why   string              // why it is open
	since time.Time           // when it opened
	pause time.Duration
	again time.Time // when the pause ends
	probe *Probe    // in flight, or nil

	forced *Force // an operator's decision, or nil
}

// maxPause bounds the growth of pauses. A longer first pause stays as it is.
const maxPause = 2 * time.Minute

// NewCircuit returns a closed circuit. With Options.Off it never opens.
func NewCircuit(o Options) *Circuit {
	o = o.complete()
	c := &Circuit{o: &o}
	c.close(calls)
	return c
}

// at returns the gate that decides about a kind of attempt: an open gate for calls also stops openings.
// The caller holds c.mu.
func (c *Circuit) at(k kind) *gate {
	if g := c.gates[calls]; g.open {
		return g
	}
	return c.gates[k]
}

// set replaces the options. Counts begin anew. An open circuit stays open until a probe succeeds,
// unless the options switch it off.
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

// Begin begins an attempt. It reports false if the attempt must not begin.
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

// Slow reports whether the attempt has taken longer than Options.Slow.
func (a *Attempt) Slow() bool { return a.g.o.Slow > 0 && time.Since(a.began) > a.g.o.Slow }

// Good records a success.
func (a *Attempt) Good() { a.end(nil, false, "") }

// Bad records a failure. late says that the answer did not come in time. If the circuit opens, Bad
// stores the text why as the reason and returns the pause. Otherwise it returns 0.
func (a *Attempt) Bad(late bool, why string) (pause time.Duration) { return a.end(errBad, late, why) }

// Void records an outcome that says nothing about the server.
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
	// A gobreaker dates an outcome by the start of its attempt, and ignores the outcome if that
	// start was before the window. A call that times out may be that old. So a long attempt is
	// recorded as one that begins now.
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

// Left returns how long the pause lasts. During a probe it returns a second and true.
func (c *Circuit) Left() (left time.Duration, probed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probe != nil {
		return time.Second, true
	}
	return max(time.Until(c.again), time.Millisecond), false
}

// Probe is the one attempt to find out whether the server works again. One of its methods must be
// called, once.
type Probe struct {
	c     *Circuit
	g     *gate // a gate of calls covers openings, too
	pass  func(error)
	began time.Time
	done  chan struct{} // closed at the end
}

// Try begins a probe and reports true, if the pause is over and no probe is in flight. Otherwise it
// returns the probe in flight, or nil.
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

// Worked closes the circuit. It reports false if the probe does not count: other attempts began to
// fail meanwhile, or an operator decided.
func (p *Probe) Worked() (closed bool) {
	p.end(func(c *Circuit) {
		p.pass(nil)
		c.close(p.g.kind) // the first pause counts again
		closed = true
	})
	return closed
}

// Failed begins another pause, twice as long as the last one, and returns it. why is the new reason.
// If the probe does not count, Failed returns 0.
func (p *Probe) Failed(why string) (pause time.Duration) {
	p.end(func(c *Circuit) {
		pause = min(2*c.pause, max(maxPause, c.o.Pause))
		c.why = why
		c.openFor(p.g.kind, pause)
	})
	return pause
}

// NoResult begins another pause of the same length: the probe had no result.
func (p *Probe) NoResult() { p.end(func(c *Circuit) { c.openFor(p.g.kind, c.pause) }) }

// Dropped lets the next probe begin at once: this one was not made.
func (p *Probe) Dropped() { p.end(func(*Circuit) { p.pass(errVoid) }) }

// end ends the probe. It calls note if the probe still counts.
func (p *Probe) end(note func(c *Circuit)) {
	p.c.mu.Lock()
	p.c.probe = nil
	if p.c.gates[p.g.kind] == p.g {
		note(p.c)
	}
	p.c.mu.Unlock()
	close(p.done)
}

// reason returns why the circuit last opened, and whether calls still pass.
func (c *Circuit) reason() (why string, used bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why, !c.gates[calls].open
}
