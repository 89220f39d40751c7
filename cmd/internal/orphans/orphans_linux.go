// Package orphans reaps orphaned child processes in a container.
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

// After is how long an ended child may stay unreaped before it counts as an orphan. The bridge reaps its own children
// at once.
const After = 5 * time.Second

// Reap reaps orphans if this is process 1. In a container without an init process, the kernel makes process 1 the
// parent of orphans. Package stdio does not wait for orphans in another process group or session, so they would stay
// zombies.
//
// done stops Reap.
func Reap(after time.Duration) (done func()) {
	if os.Getpid() != 1 {
		return func() {}
	}
	ended, stop := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(ended, syscall.SIGCHLD)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer signal.Stop(ended)
		seen := map[zombie]bool{} // zombies of the previous search
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

// zombie identifies an ended child by pid and start time, because pids are reused.
type zombie struct {
	pid   int
	began string
}

// look reaps the zombies in before, and returns the other zombies.
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
			continue // the process is gone
		}
		// The name, in parentheses, may contain anything. After it come the state, the parent, and as 20th field the
		// start time.
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(f) < 20 || f[0] != "Z" || f[1] != "1" {
			continue
		}
		z := zombie{pid, f[19]}
		if !before[z] {
			now[z] = true
			continue
		}
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // fails if another wait was first
	}
	return now
}
