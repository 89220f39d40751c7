package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// heapFloor is the heap size in bytes below which no collection starts. The live heap is small and calls make much
// garbage, but Go collects at twice the live heap, which would delay all calls dozens of times per second.
const heapFloor = 64 << 20

// leastGrowth and mostGrowth bound the growth in percent. The lower bound is Go's default; the upper bound keeps an
// idle bridge small.
const (
	leastGrowth = 100
	mostGrowth  = 400
)

// growth returns the allowed growth of the heap in percent, for a number of live bytes.
func growth(live uint64) int {
	if live == 0 {
		return mostGrowth
	}
	return min(max(int(heapFloor*100/live)-100, leastGrowth), mostGrowth)
}

// RaiseFloor delays collections until stop is called. The heap may grow to heapFloor, but at least to twice and at most
// to five times the live heap. If the user has set GOGC, RaiseFloor does nothing.
func RaiseFloor() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	t := &tuner{
		live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}},
		was:  debug.SetGCPercent(mostGrowth),
		is:   mostGrowth,
	}
	t.tune()
	return t.stop
}

// tuner sets the target of the next collection after each collection.
type tuner struct {
	live []metrics.Sample
	was  int // percent before the tuner started

	mu      sync.Mutex // guards the rest
	is      int        // current percent
	stopped bool
}

// mark is an unreferenced object, whose cleanup runs after the next collection. It has 16 bytes, because the cleanup of
// a smaller object may never run: the runtime puts several small objects into one block.
type mark struct{ _ [16]byte }

func (t *tuner) tune() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	metrics.Read(t.live)
	if next := growth(t.live[0].Value.Uint64()); 5*next < 4*t.is || 4*next > 5*t.is { // SetGCPercent stops all goroutines for a moment
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
