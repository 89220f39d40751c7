package breaker

import (
	"testing"
	"testing/synctest"
	"time"
)

// What an operator has decided counts for a while, however the server fares; then the
// circuit decides again (O-042).
func TestForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCircuit(Options{Failures: 2})
		decide := func(open bool) *Force {
			return &Force{Open: open, By: "ops", Since: time.Now(), Until: time.Now().Add(time.Minute)}
		}
		fail := func() (pause time.Duration) {
			a, ok := c.Begin()
			if !ok {
				t.Fatal("nothing is let pass")
			}
			return a.Bad(false, "it fails")
		}
		passes := func() bool { _, ok := c.Begin(); return ok }

		c.force(decide(true))
		if passes() {
			t.Error("open: a call passes")
		}
		if p, mine := c.Try(); p != nil || mine {
			t.Error("open: it is probed")
		}
		time.Sleep(61 * time.Second)
		p, mine := c.Try()
		if !mine || passes() {
			t.Fatal("after its time it is not probed")
		}
		if !p.Worked() || !passes() {
			t.Error("a probe that succeeds does not close it")
		}

		c.force(decide(false))
		for range 10 {
			if fail() != 0 {
				t.Fatal("closed: it opens")
			}
		}
		time.Sleep(61 * time.Second)
		for range 3 {
			if passes() {
				fail()
			}
		}
		if passes() {
			t.Error("after its time it does not open any more")
		}
		p, _ = c.Try()
		for p == nil {
			time.Sleep(time.Second)
			p, _ = c.Try()
		}
		c.force(decide(true)) // while a probe is under way
		if p.Worked(); passes() {
			t.Error("a probe that began before closes it")
		}
		c.force(nil)
		if p, mine := c.Try(); !mine || !p.Worked() || !passes() {
			t.Error("given back, it is not probed at once")
		}
		c.force(decide(true))
		c.force(decide(false))
		if !passes() {
			t.Error("closed after open: nothing passes")
		}
	})
}

// An opening that began before an operator opens the circuit says nothing any more: neither
// its failure nor a probe changes when the operator's word ends.
func TestForceOpenings(t *testing.T) {
	word := func() *Force {
		return &Force{Open: true, By: "ops", Since: time.Now(), Until: time.Now().Add(time.Hour)}
	}
	left := func(t *testing.T, c *Circuit) {
		if got, _ := c.Left(); got != time.Hour || c.trips > 1 {
			t.Errorf("%v are left after %d trips, want an hour", got, c.trips)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := NewCircuit(Options{Failures: 1})
		a, _ := c.begin(openings)
		c.force(word())
		if pause := a.Bad(false, "no connection"); pause != 0 || c.trips != 0 {
			t.Errorf("an opening fails: a pause of %v, %d trips", pause, c.trips)
		}
		left(t, c)
	})
	for _, works := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := NewCircuit(Options{Failures: 1})
			a, _ := c.begin(openings)
			time.Sleep(a.Bad(false, "no connection"))
			p, mine := c.try(openings)
			if !mine {
				t.Fatal("no probe")
			}
			c.force(word())
			if works && p.Worked() || !works && p.Failed("still") > 0 {
				t.Errorf("a probe (works: %t) counts", works)
			}
			left(t, c)
		})
	}
}
