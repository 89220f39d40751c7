package breaker

import (
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"
)

// gate lets attempts of one kind pass, or stops them. It is a gobreaker with additional counts. A closed gate opens
// after too many failures, and an open gate lets one probe pass after its pause. The pause of a gate never changes;
// Circuit replaces the gate instead. Circuit.mu guards the gate, and is held in each call of the gobreaker.
type gate struct {
	allow func() (done func(error), err error) // begins an attempt at the gobreaker; done ends it
	kind  kind
	o     *Options  // complete: without zero values that mean a default
	open  bool      // only a probe may pass
	goods int       // successes
	fails int       // failures; simultaneous ones count once
	row   int       // failures in a row, since a gobreaker forgets failures older than the window
	hung  time.Time // start of the last attempt in row that ran into a time limit
}

// kind is what an attempt does: a call, or the opening of a connection.
type kind int

const (
	calls kind = iota
	openings
)

const (
	parts = 10          // Options.Window has this many buckets, the steps in which counts expire
	apart = time.Second // attempts that begin within this time may fail for the same reason
)

// errBad and errVoid are the outcomes other than success that a gobreaker gets.
var (
	errBad  = errors.New("failure")
	errVoid = errors.New("says nothing")
)

// gate returns a closed gate that opens for pause. The caller holds c.mu.
func (c *Circuit) gate(k kind, pause time.Duration) *gate {
	g := &gate{kind: k, o: c.o}
	g.allow = gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Interval:     g.o.Window,
		BucketPeriod: max(g.o.Window/parts, 1),
		Timeout:      max(pause-1, 1), // a gobreaker lets the probe pass only after Timeout
		IsExcluded:   func(err error) bool { return errors.Is(err, errVoid) },
		// The gobreaker calls these functions with its own lock and c.mu held.
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

// close replaces the gates of kind k and of later kinds by closed gates without counts. The caller holds c.mu.
func (c *Circuit) close(k kind) {
	for ; k <= openings; k++ {
		c.gates[k] = c.gate(k, c.o.Pause)
	}
}

// tripped records that the gate of kind k opened. The caller holds c.mu.
func (c *Circuit) tripped(k kind) {
	if k == calls {
		c.close(openings) // openings and probes in flight count no more
	}
	c.trips++
	c.since, c.pause = time.Now(), c.o.Pause
	c.again = c.since.Add(c.pause)
}

// openFor replaces the gate of kind k by one that is open for pause. After a pause of 0, a probe passes at once. The
// caller holds c.mu.
func (c *Circuit) openFor(k kind, pause time.Duration) {
	g := c.gate(k, pause)
	if g.open = true; pause > 0 {
		g.row = g.o.Failures // so that the failure below opens the gobreaker
		done, _ := g.allow()
		done(errBad)
	}
	c.gates[k], c.pause, c.again = g, pause, time.Now().Add(pause)
}

// isOneMore reports whether the failure of a adds to the failures in a row. Simultaneous failures, such as those of a
// server's restart, count once: a must have begun after the last counted failure. But attempts that hang fail only at
// their time limit. Such an attempt counts if it began at least apart after the last counted one that hung, and no
// attempt succeeded since. A failed opening always counts, since each costs a start of the server.
func (g *gate) isOneMore(a *Attempt, late bool) bool {
	return g.kind == openings || a.fails == g.fails || late && a.goods == g.goods && !a.began.Before(g.hung.Add(apart))
}
