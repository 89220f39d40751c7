package main

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// limitMemory tells the garbage collector the container's memory limit, so
// that it works harder before the kernel kills us. GOMEMLIMIT wins.
func limitMemory(log *slog.Logger) {
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

// shrink gives memory back. A collection halves the stack of a goroutine that
// uses little of it: a few of them give back what sessions needed when they
// were opened.
func shrink() {
	for range 3 {
		runtime.GC()
	}
	debug.FreeOSMemory()
}

// releaseMemory gives memory back to the system when calls cease, a few times,
// since clients may still have answers to read; until ctx ends. A bridge is idle most of the time, as a sidecar or on a desktop, and
// the garbage collector alone would not run again for minutes.
func releaseMemory(ctx context.Context, activity func() (now int, all uint64), release func()) {
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
