package breaker

import (
	"time"
)

// Force is what an operator has decided about a server, for a while.
type Force struct {
	Open  bool      // it gets no calls, and no connections; otherwise it does, however it fails
	By    string    // who has decided it; may be empty
	Since time.Time // it counts
	Until time.Time // it counts
}

// counts reports whether it counts still. Of nil it does not.
func (f *Force) counts() bool { return f != nil && time.Now().Before(f.Until) }

// Force has an operator's decision count, or with nil the breaker decide again. When that
// on an open breaker is over, the next call has the server probed. It reports false when
// there is no breaker.
func (b *Breaker) Force(f *Force) bool {
	return b != nil && b.circuit.force(f)
}

// Forced returns what an operator has decided; nil if nothing counts.
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
		c.close(openings) // those under way do not count any more, and nor does their probe
		c.leave(calls, 0) // a probe may begin when that does not count any more
		c.why, c.since, c.pause, c.again = "an operator has decided so", f.Since, c.o.Pause, f.Until
	default:
		c.close(calls)
	}
	return true
}
