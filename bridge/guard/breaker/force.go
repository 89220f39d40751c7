package breaker

import (
	"time"
)

// Force is an operator's decision about a server, for a while.
type Force struct {
	Open  bool      // true stops calls and openings; false lets them pass, however many fail
	By    string    // the operator; may be empty
	Since time.Time // begin
	Until time.Time // end
}

// counts reports whether the decision is in force. A nil one is not.
func (f *Force) counts() bool { return f != nil && time.Now().Before(f.Until) }

// Force puts an operator's decision in force. nil ends it. After a decision that stopped the server,
// the next call starts a probe. Force reports false if there is no breaker.
func (b *Breaker) Force(f *Force) bool {
	return b != nil && b.circuit.force(f)
}

// Forced returns the decision in force, or nil.
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
		c.close(openings)   // openings in flight, and their probe, count no more
		c.openFor(calls, 0) // a probe may begin when the decision ends
		c.why, c.since, c.pause, c.again = "forced open by an operator", f.Since, c.o.Pause, f.Until
	default:
		c.close(calls)
	}
	return true
}
