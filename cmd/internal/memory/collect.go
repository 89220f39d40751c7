package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// heapFloor is the size in bytes up to which the heap may grow before it is
// collected, though little of it is in use. What the bridge keeps is small, and
// what a call needs is garbage soon: Go's rule, to collect whenever the heap has
// doubled, would hold up all calls dozens of times a second for a few megabytes.
const heapFloor = 64 << 20

// Bounds on the growth that is allowed, in percent. The least is Go's default;
// the most keeps a bridge small that has little to do.
const (
	leastGrowth = 100
	mostGrowth  = 400
)

// growth returns how much the heap may grow, in percent, when live bytes of it
// are in use.
func growth(live uint64) int {
	if live == 0 {
		return mostGrowth
	}
	return min(max(int(heapFloor*100/live)-100, leastGrowth), mostGrowth)
}

// RaiseFloor has the heap collected when it reaches heapFloor, or five times
// what is in use if that is less, or twice if that is more; until stop. A GOGC of the user's stays.
func RaiseFloor() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	t := &tuner{live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}, was: debug.SetGCPercent(mostGrowth), is: mostGrowth}
	t.tune()
	return t.stop
}

// tuner says after each collection when the next one is to come.
type tuner struct {
	live []metrics.Sample
	was  int // percent, before

	mu      sync.Mutex // guards the rest
	is      int        // percent, now
	stopped bool
}

// mark is what nobody refers to: its cleanup follows the next collection.
type mark struct{ _ [16]byte }

func (t *tuner) tune() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	metrics.Read(t.live)
	if next := growth(t.live[0].Value.Uint64()); 5*next < 4*t.is || 4*next > 5*t.is { // it stops everything for a moment to say so
		debug.SetGCPercent(next)
		t.is = next
	}
	runtime.AddCleanup(&mark{}, (*tuner).tune, t)
}

func (t *tuner) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	debug.SetGCPercent(t.was)
}
