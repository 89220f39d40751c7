package breaker

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Once calls fail, openings that began before count no more, and nor does their probe,
// whatever that finds out.
func TestGateOpenings(t *testing.T) {
	for name, end := range map[string]func(*Probe) (counts bool){
		"works":  (*Probe).Worked,
		"fails":  func(p *Probe) bool { return p.Failed("it fails still") > 0 },
		"missed": func(p *Probe) bool { p.NoResult(); return false },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := NewCircuit(Options{Failures: 1})
			fail := func(a Attempt, ok bool, why string) time.Duration {
				if !ok {
					t.Fatalf("%s: nothing is let pass", name)
				}
				return a.Bad(false, why)
			}
			a, ok := c.begin(openings)
			late, _ := c.begin(openings)
			time.Sleep(fail(a, ok, "no connection"))
			p, mine := c.try(openings)
			if !mine {
				t.Fatalf("%s: it is not probed", name)
			}
			a, ok = c.begin(calls)
			pause := fail(a, ok, "calls fail")
			if late.Bad(false, "no connection"); c.trips != 2 {
				t.Errorf("%s: it opened %d times", name, c.trips)
			}
			if end(p) {
				t.Errorf("%s: the probe counts", name)
			}
			left, _ := c.Left()
			if why, used := c.reason(); why != "calls fail" || used || left != pause {
				t.Errorf("%s: %q; calls pass: %v; %v are left", name, why, used, left)
			}
			time.Sleep(left)
			if p, mine = c.try(openings); !mine || p.g.kind != calls || !p.Worked() {
				t.Errorf("%s: then it is not probed", name)
			}
			for _, k := range []kind{calls, openings} {
				if _, ok := c.begin(k); !ok {
					t.Errorf("%s: nothing of kind %d passes", name, k)
				}
			}
		})
	}
}

// One probe at a time is under way, whatever else happens.
func TestCircuitConcurrent(t *testing.T) {
	c := NewCircuit(Options{Failures: 2, Pause: 1})
	var probes atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 2000 {
				k := kind((i + n) % 2)
				if a, ok := c.begin(k); ok {
					switch n % 5 {
					case 0:
						a.Good()
					case 1:
						a.Void()
					default:
						a.Bad(false, "it fails")
					}
				} else if p, mine := c.try(k); mine {
					if probes.Add(1) != 1 {
						t.Error("two probes at a time")
					}
					runtime.Gosched()
					probes.Add(-1)
					switch n % 4 {
					case 0:
						p.NoResult()
					case 1:
						p.Dropped()
					default:
						p.Worked()
					}
				}
				switch n % 200 {
				case 50:
					c.set(Options{Failures: 2 + n%3, Pause: 1})
				case 100:
					c.force(&Force{Open: i%2 == 0, Until: time.Now().Add(time.Microsecond)})
				case 150:
					c.force(nil)
				}
			}
		})
	}
	wg.Wait()
}
