// Package orphans reaps processes that are nobody's.
package orphans

import (
	"bytes"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// After is how long a child may have ended before it counts as an orphan. Our
// own children are waited for as soon as they end.
const After = 5 * time.Second

// Reap waits for children that are nobody's, if this is process 1. In a
// container that has no init of its own, the kernel hands processes to us whose
// parents have ended. Those that a server has put into another process group or
// session are not among what package stdio waits for: they would stay as zombies.
//
// The result is called to end that.
func Reap(after time.Duration) (done func()) {
	if os.Getpid() != 1 {
		return func() {}
	}
	ended, stop := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(ended, syscall.SIGCHLD)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer signal.Stop(ended)
		seen := map[zombie]bool{} // at the last look, which was that long ago
		for {
			if len(seen) == 0 {
				select {
				case <-stop:
					return
				case <-ended:
				}
			}
			seen = look(seen)
			select {
			case <-stop:
				return
			case <-time.After(after):
			}
		}
	})
	return func() {
		close(stop)
		wg.Wait()
	}
}

// zombie is a child that has ended, by its number and the time of its start: numbers
// are used again.
type zombie struct {
	pid   int
	began string
}

// look reaps children that had ended before, too, and returns the others that have
// ended.
func look(before map[zombie]bool) map[zombie]bool {
	now := map[zombie]bool{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return now
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it is gone
		}
		// The name, in parentheses, may have anything in it. Behind it: state, parent,
		// and as the 20th the time of the start.
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(f) < 20 || f[0] != "Z" || f[1] != "1" {
			continue
		}
		z := zombie{pid, f[19]}
		if !before[z] {
			now[z] = true
			continue
		}
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // if it fails, somebody was faster
	}
	return now
}
