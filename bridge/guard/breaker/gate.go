package breaker

import (
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"
)

// gate lets attempts of one kind pass or stops them. It is a gobreaker with additional counts. A
// closed gate opens after too many failures. An open one lets one probe pass after its pause. A
// gate's pause never changes: another pause takes another gate. Circuit.mu guards the gate. The
// lock is held whenever the gobreaker is used.
type gate struct {
	allow func() (done func(error), err error) // of the gobreaker
	kind  kind
	o     *Options  // with their defaults
	open  bool      // only a probe passes
	goods int       // successes
	fails int       // failures, of which simultaneous ones count once
	row   int       // failures in a row; a gobreaker drops failures older than the window
	hung  time.Time // when the last attempt of row without an answer in time began
}

// kind is the kind of attempts that a gate guards.
type kind int

const (
	calls kind = iota
	openings
)

const (
	parts = 10          // of a window
	apart = time.Second // between attempts that do not count as simultaneous
)

// Outcomes beside nil, for a gobreaker.
var (
	errBad  = errors.New("failure")
	errVoid = errors.New("says nothing")
)

// gate returns a closed gate. The caller holds c.mu.
func (c *Circuit) gate(k kind, pause time.Duration) *gate {
	g := &gate{kind: k, o: c.o}
	g.allow = gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Interval:     g.o.Window,
		BucketPeriod: max(g.o.Window/parts, 1),
		Timeout:      max(pause-1, 1), // the gobreaker ends it a nanosecond later
		IsExcluded:   func(err error) bool { return errors.Is(err, errVoid) },
		// The gobreaker calls these while it and c.mu are locked.
		ReadyToTrip: func(n gobreaker.Counts) bool {
			bad, all := int(n.TotalFailures), int(n.TotalFailures+n.TotalSuccesses)
			many := g.row >= g.o.Failures || all >= g.o.Calls && 100*bad >= g.o.Percent*all
			return many && !g.o.Off && (!c.forced.counts() || c.forced.Open)
		},
		OnStateChange: func(_ string, from, to gobreaker.State) {
			g.open = to != gobreaker.StateClosed
			if c.gates[k] == g && from == gobreaker.StateClosed {
				c.tripped(k)
			}
		},
	}).Allow
	return g
}

// close replaces the gates from a kind on by closed ones without counts. The caller holds c.mu.
func (c *Circuit) close(k kind) {
	for ; k <= openings; k++ {
		c.gates[k] = c.gate(k, c.o.Pause)
	}
}

// tripped records that a gate opened. The caller holds c.mu.
func (c *Circuit) tripped(k kind) {
	if k == calls {
		c.close(openings) // openings in flight, and their probe, count no more
	}
	c.trips++
	c.since, c.pause = time.Now(), c.o.Pause
	c.again = c.since.Add(c.pause)
}

// openFor opens the gate of a kind for a pause, which may be 0. The caller holds c.mu.
func (c *Circuit) openFor(k kind, pause time.Duration) {
	g := c.gate(k, pause)
	if g.open = true; pause > 0 {
		g.row = g.o.Failures // a gobreaker opens only after a failure
		done, _ := g.allow()
		done(errBad)
	}
	c.gates[k], c.pause, c.again = g, pause, time.Now().Add(pause)
}

// isOneMore reports whether a failure is one more in a row. Simultaneous failures count once, such as those of a
// server's restart. So the attempt must have begun after the last failure. An attempt that hangs fails only at its
// deadline. Such an attempt counts if it began a moment after the last one that hung, without a success since. Openings
// always count: each costs a start.
func (g *gate) isOneMore(a *Attempt, late bool) bool {
	return g.kind == openings || a.fails == g.fails || late && a.goods == g.goods && !a.began.Before(g.hung.Add(apart))
}
