// Package memory keeps what the process has of memory small: the garbage collector heeds
// the limit of a container, works no more than it has to, and what is not used goes back
// to the system.
package memory

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Limit tells the garbage collector the container's memory limit, so
// that it works harder before the kernel kills us. GOMEMLIMIT wins.
func Limit(log *slog.Logger) {
	limit, err := memlimit.Set(memlimit.WithLogger(slog.New(slog.DiscardHandler)), memlimit.WithProvider(memlimit.FromCgroup))
	if err == nil && limit > 0 {
		log.Debug("memory limit", "bytes", limit)
	}
}

const (
	quietFor     = 3 * time.Second  // without a call: then memory is given back
	releaseEvery = 30 * time.Second // at most, since it takes a garbage collection
	releases     = 3
)

// Shrink gives memory back. A collection halves the stack of a goroutine that
// uses little of it: a few of them give back what sessions needed when they
// were opened.
func Shrink() {
	for range 3 {
		runtime.GC()
	}
	debug.FreeOSMemory()
}

// Release gives memory back to the system by release when calls cease, a few times,
// since clients may still have answers to read; until ctx ends. A bridge is idle most of the time, as a sidecar or on a desktop, and
// the garbage collector alone would not run again for minutes.
func Release(ctx context.Context, activity func() (now int, all uint64), release func()) {
	tick := time.NewTicker(quietFor)
	defer tick.Stop()
	var seen uint64
	var last time.Time
	left := 0 // releases, since the last call
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, all := activity()
		if now > 0 || all != seen {
			left = releases
		} else if left > 0 && time.Since(last) >= releaseEvery {
			release()
			last = time.Now()
			left--
		}
		seen = all
	}
}
