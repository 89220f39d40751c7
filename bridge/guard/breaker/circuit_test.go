package breaker_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
)

func begun(t *testing.T, c *breaker.Circuit) breaker.Attempt {
	t.Helper()
	a, ok := c.Begin()
	if !ok {
		t.Fatal("nothing is let pass")
	}
	return a
}

func passes(c *breaker.Circuit) bool {
	_, ok := c.Begin()
	return ok
}

// open makes attempts fail, one after the other, until the circuit is open.
func open(t *testing.T, c *breaker.Circuit) (pause time.Duration) {
	t.Helper()
	for pause == 0 {
		a := begun(t, c)
		pause = a.Bad(false, "it failed")
	}
	return pause
}

// The pause doubles with each probe that fails, up to a limit, and not with one that
// has found out nothing. After a success it begins anew.
func TestCircuitPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := breaker.NewCircuit(breaker.Options{Failures: 2})
		for range 2 {
			pause := open(t, c)
			for _, want := range []time.Duration{5, 10, 20, 40, 80, 120, 120} {
				if left, probed := c.Left(); pause != want*time.Second || left != pause || probed {
					t.Fatalf("the pause is %v, %v are left, want %d s; probed: %v", pause, left, want, probed)
				}
				time.Sleep(pause - time.Nanosecond)
				if p, mine := c.Try(); p != nil || mine || passes(c) {
					t.Fatal("tried before the pause is over")
				}
				time.Sleep(time.Nanosecond)
				p, mine := c.Try()
				if !mine {
					t.Fatal("not tried when the pause is over")
				}
				if other, again := c.Try(); other != p || again || passes(c) {
					t.Error("another one may try, too")
				}
				if left, probed := c.Left(); left != time.Second || !probed {
					t.Errorf("%v are left; probed: %v", left, probed)
				}
				pause = p.Failed("it fails still")
			}
			time.Sleep(pause)
			p, _ := c.Try()
			p.NoResult()
			if left, _ := c.Left(); left != pause {
				t.Errorf("%v after a probe that has found out nothing, want %v", left, pause)
			}
			time.Sleep(pause)
			p, _ = c.Try()
			p.Dropped()
			p, mine := c.Try()
			if !mine {
				t.Error("the next may not try although the one before was not made")
			}
			if !p.Worked() || !passes(c) {
				t.Error("it is not used again")
			}
		}
	})
}

// An attempt counts when it ends, also one that began before the window did, and is
// forgotten when that has gone by.
func TestCircuitWindow(t *testing.T) {
	for _, test := range []struct {
		goods int
		gap   time.Duration // after each of these
		bads  int           // then fail, one after the other
		open  bool
	}{
		{7, 0, 3, false},
		{5, 0, 5, true},
		{6, 0, 4, false},
		{5, time.Second, 5, true},
		{7, 7 * time.Second, 4, false}, // four of these are in the window, too few in all
		{7, 5 * time.Second, 6, true},
		{1000, 0, 9, false},
		{1000, 31 * time.Second, 10, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := breaker.NewCircuit(breaker.Options{Failures: 1000, Percent: 50, Calls: 10})
			var all []breaker.Attempt
			for range test.bads {
				all = append(all, begun(t, c))
			}
			time.Sleep(time.Hour)
			for range test.goods {
				a := begun(t, c)
				a.Good()
				time.Sleep(test.gap)
			}
			for _, a := range all {
				a.Bad(true, "no answer")
			}
			if passes(c) == test.open {
				t.Errorf("%+v: open is %v", test, !test.open)
			}
		})
	}
}

// Failures in a row count if they do not come together: each began after the one
// before was known, or where there is no answer, at another time.
func TestCircuitRow(t *testing.T) {
	for _, test := range []struct {
		name  string
		every time.Duration // between the attempts, which all end later
		late  bool
		good  bool // one succeeds meanwhile
		open  bool
	}{
		{"together", 0, false, false, false},
		{"under way together", 10 * time.Second, false, false, false},
		{"no answer, together", 0, true, false, false},
		{"no answer, nearly together", time.Second / 4, true, false, false},
		{"no answer, one after the other", 10 * time.Second, true, false, true},
		{"no answer, but an answer to another", 10 * time.Second, true, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := breaker.NewCircuit(breaker.Options{Failures: 3})
			var all []breaker.Attempt
			for range 5 {
				all = append(all, begun(t, c))
				time.Sleep(test.every)
			}
			if test.good {
				a := begun(t, c)
				a.Good()
			}
			for _, a := range all {
				a.Bad(test.late, "it failed")
			}
			if passes(c) == test.open {
				t.Errorf("%s: open is %v", test.name, !test.open)
			}
		})
	}
}

// What began before the circuit opened does not count when it is closed again, and
// opens it but once.
func TestCircuitBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := breaker.NewCircuit(breaker.Options{Failures: 1})
		var all []breaker.Attempt
		for range 10 {
			all = append(all, begun(t, c))
		}
		for i, a := range all {
			if pause := a.Bad(false, fmt.Sprint(i)); (pause > 0) != (i == 0) {
				t.Errorf("failure %d begins a pause of %v", i, pause)
			}
			if i == 0 {
				time.Sleep(5 * time.Second)
				p, _ := c.Try()
				p.Worked()
			}
		}
		if !passes(c) {
			t.Error("it is open")
		}
	})
}

// How slow is too slow is a setting.
func TestCircuitSlow(t *testing.T) {
	for slow, want := range map[time.Duration]bool{0: false, time.Second: true, 2 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			a := begun(t, breaker.NewCircuit(breaker.Options{Slow: slow}))
			time.Sleep(2 * time.Second)
			if got := a.Slow(); got != want {
				t.Errorf("with %v: %v", slow, got)
			}
		})
	}
}

// Failures are in a row however long after each other they come.
func TestCircuitRowLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := breaker.NewCircuit(breaker.Options{Failures: 3})
		for i := range 3 {
			a := begun(t, c)
			if pause := a.Bad(false, "it failed"); (pause > 0) != (i == 2) {
				t.Errorf("failure %d begins a pause of %v", i, pause)
			}
			time.Sleep(time.Hour)
		}
	})
}

// What ends while the circuit is open is no probe, also when the pause is over.
func TestCircuitLate(t *testing.T) {
	for _, end := range []func(*breaker.Attempt){
		(*breaker.Attempt).Good,
		(*breaker.Attempt).Void,
		func(a *breaker.Attempt) { a.Bad(true, "no answer") },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := breaker.NewCircuit(breaker.Options{Failures: 1})
			before, after := begun(t, c), begun(t, c)
			time.Sleep(open(t, c))
			end(&before)
			p, mine := c.Try()
			if !mine || passes(c) {
				t.Fatal("not tried when the pause is over")
			}
			end(&after)
			if other, again := c.Try(); other != p || again || passes(c) {
				t.Error("another one may try, too")
			}
			if pause := p.Failed("it fails still"); pause != 10*time.Second {
				t.Errorf("the next pause is %v", pause)
			}
		})
	}
}
