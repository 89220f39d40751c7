package breaker

import (
	"sync"
	"sync/atomic"
	"time"
)

// window counts how attempts have ended lately, and how many have failed in a row.
// Each is counted when it ends, also one that began before the window did: a call
// that times out may well have.
type window struct {
	o     *Options     // complete
	fails atomic.Int64 // failures that were one more in a row, ever
	goods atomic.Int64 // successes

	mu    sync.Mutex // guards the rest
	row   int        // failures in a row
	hung  time.Time  // when the last attempt of row began that had no answer in time
	start time.Time  // of part 0
	at    int64      // number of the newest part
	parts [parts]ends
	sum   ends // of all parts
}

// ends counts attempts that have ended.
type ends struct{ all, bad int }

const (
	parts = 10          // of a window
	apart = time.Second // between attempts that are not made together
)

func newWindow(o *Options) *window { return &window{o: o, start: time.Now()} }

// good counts a success.
func (w *window) good() {
	w.goods.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.row = 0
	w.count(0)
}

// bad counts the failure of an attempt, which had no answer in time if it was
// late. It reports whether there are too many.
func (w *window) bad(a *Attempt, late bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.another(a, late) {
		w.fails.Add(1)
		w.row++
		if late {
			w.hung = a.began
		}
	}
	w.count(1)
	return w.row >= w.o.Failures || w.sum.all >= w.o.Calls && 100*w.sum.bad >= w.o.Percent*w.sum.all
}

// another reports whether a failure is one more in a row: what fails together,
// such as all that is under way when a server is restarted, is one. So the attempt
// has to have begun after the one before had failed. Where there is no answer any
// more, that is to wait for a deadline each time: there it is enough that it began
// a moment after the other, and nothing has succeeded since. The caller holds w.mu.
func (w *window) another(a *Attempt, late bool) bool {
	return a.fails == w.fails.Load() || late && a.goods == w.goods.Load() && !a.began.Before(w.hung.Add(apart))
}

// count counts the end of an attempt, and forgets what is older than the window.
// The caller holds w.mu.
func (w *window) count(bad int) {
	now := int64(time.Since(w.start) / max(w.o.Window/parts, 1))
	for n := min(now-w.at, parts); n > 0; n-- {
		old := &w.parts[(now-n+1)%parts]
		w.sum.all, w.sum.bad = w.sum.all-old.all, w.sum.bad-old.bad
		*old = ends{}
	}
	w.at = max(w.at, now)
	part := &w.parts[w.at%parts]
	part.all, part.bad = part.all+1, part.bad+bad
	w.sum.all, w.sum.bad = w.sum.all+1, w.sum.bad+bad
}
