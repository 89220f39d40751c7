package breaker

import (
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"
)

// gate lets attempts of one kind pass, or not: it is a gobreaker, with what that does
// not count. Closed, it opens for too many failures; open, it lets one probe pass after
// its pause. A closed one has the first pause, and another pause takes another gate.
// Circuit.mu guards it, which is held whenever the gobreaker is used.
type gate struct {
	*gobreaker.TwoStepCircuitBreaker[any]
	kind  kind
	o     *Options  // complete
	open  bool      // nothing passes but a probe
	goods int       // successes
	fails int       // failures that were one more in a row, ever
	row   int       // failures in a row: gobreaker forgets those that are older than the window
	hung  time.Time // when the last attempt of row began that had no answer in time
}

// kind is what a gate is for.
type kind int

const (
	calls kind = iota
	openings
)

const (
	parts = 10          // of a window
	apart = time.Second // between attempts that are not made together
)

// Outcomes beside nil, for a gobreaker.
var (
	errBad  = errors.New("failure")
	errVoid = errors.New("says nothing")
)

// gate returns a gate that is closed. The caller holds c.mu.
func (c *Circuit) gate(k kind, pause time.Duration) *gate {
	g := &gate{kind: k, o: c.o}
	g.TwoStepCircuitBreaker = gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Interval:     g.o.Window,
		BucketPeriod: max(g.o.Window/parts, 1),
		Timeout:      max(pause-1, 1), // it is over a nanosecond later
		IsExcluded:   func(err error) bool { return errors.Is(err, errVoid) },
		// These are called with the gobreaker locked, and c.mu.
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
	})
	return g
}

// close has what is counted begin anew from a kind on. The caller holds c.mu.
func (c *Circuit) close(k kind) {
	for ; k <= openings; k++ {
		c.gates[k] = c.gate(k, c.o.Pause)
	}
}

// tripped notes that what is of a kind is not let pass any more. The caller holds c.mu.
func (c *Circuit) tripped(k kind) {
	if k == calls {
		c.close(openings) // those that began before do not count, and nor does their probe
	}
	c.trips++
	c.since, c.pause = time.Now(), c.o.Pause
	c.again = c.since.Add(c.pause)
}

// leave begins a pause, which may be none, of what is left alone. The caller holds c.mu.
func (c *Circuit) leave(k kind, pause time.Duration) {
	g := c.gate(k, pause)
	if g.open = true; pause > 0 {
		g.row = g.o.Failures // a gobreaker opens for a failure only
		done, _ := g.Allow()
		done(errBad)
	}
	c.gates[k], c.pause, c.again = g, pause, time.Now().Add(pause)
}

// another reports whether a failure is one more in a row: what fails together,
// such as all that is under way when a server is restarted, is one. So the attempt
// has to have begun after the one before had failed. Where there is no answer any
// more, that is to wait for a deadline each time: there it is enough that it began
// a moment after the other, and nothing has succeeded since. Openings each cost a
// start, also those that fail together.
func (g *gate) another(a *Attempt, late bool) bool {
	return g.kind == openings || a.fails == g.fails || late && a.goods == g.goods && !a.began.Before(g.hung.Add(apart))
}
