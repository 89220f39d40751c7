package breaker

import (
	"time"
)

// Force is an operator's order to the circuit breaker, for a time.
type Force struct {
	Open  bool   // true stops calls and openings; false lets them pass, even if they fail
	By    string // name of the operator; may be empty
	Since time.Time
	Until time.Time
}

// counts reports whether the order is not nil and has not expired.
func (f *Force) counts() bool { return f != nil && time.Now().Before(f.Until) }

// Force puts an operator's order in force, or ends it if f is nil. After an order that stopped the server, the next
// call starts a probe. Force reports false if the breaker is off.
func (b *Breaker) Force(f *Force) bool {
	return b != nil && b.circuit.force(f)
}

// Forced returns the operator's order in force, or nil.
func (b *Breaker) Forced() *Force {
	if b == nil {
		return nil
	}
	b.circuit.mu.Lock()
	defer b.circuit.mu.Unlock()
	if f := b.circuit.forced; f.counts() {
		return f
	}
	return nil
}

func (c *Circuit) force(f *Force) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.o.Off {
		return false
	}
	was := c.forced
	c.forced = f
	switch {
	case f == nil && was.counts() && was.Open:
		c.again = time.Now()
	case f == nil:
	case f.Open:
		c.close(openings)   // openings and probes in flight count no more
		c.openFor(calls, 0) // a probe may begin when the order expires
		c.why, c.since, c.pause, c.again = "forced open by an operator", f.Since, c.o.Pause, f.Until
	default:
		c.close(calls)
	}
	return true
}
