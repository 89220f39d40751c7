// Package memory keeps the process small. It applies a container's memory limit to the garbage collector, tunes the
// collector, and returns unused memory to the system.
package memory

import (
	"context"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Limit applies the container's memory limit to the garbage collector, so that the kernel does not kill the process.
// GOMEMLIMIT takes precedence.
func Limit(log *slog.Logger) {
	limit, err := memlimit.Set(memlimit.WithLogger(slog.New(slog.DiscardHandler)), memlimit.WithProvider(memlimit.FromCgroup))
	if err == nil && limit > 0 {
		log.Debug("memory limit", "bytes", limit)
	}
}

// Most returns the memory in bytes that the process may use: the smaller of GOMEMLIMIT and the container's limit. 0
// means no limit.
func Most() int64 {
	most := int64(math.MaxInt64)
	if os.Getenv("GOMEMLIMIT") != "" { // without GOMEMLIMIT, Limit has set the collector's target
		most = debug.SetMemoryLimit(-1)
	}
	if limit, err := memlimit.FromCgroup(); err == nil && limit > 0 && limit < uint64(most) {
		most = int64(limit)
	}
	if most == math.MaxInt64 {
		return 0
	}
	return most
}

const (
	quietFor     = 3 * time.Second  // time without a call before a release
	releaseEvery = 30 * time.Second // minimum interval, because each release runs a collection
	releases     = 3
)

// Shrink returns memory to the system. Each collection halves unused goroutine stacks, so Shrink runs several
// collections.
func Shrink() {
	for range 3 {
		runtime.GC()
	}
	debug.FreeOSMemory()
}

// Release calls release after the last call, until ctx ends, because an idle bridge would not collect for minutes. It
// calls release several times, because clients may still be reading answers.
func Release(ctx context.Context, activity func() (now int, all uint64), release func()) {
	tick := time.NewTicker(quietFor)
	defer tick.Stop()
	var seen uint64
	var last time.Time
	left := 0 // remaining releases in this quiet period
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
