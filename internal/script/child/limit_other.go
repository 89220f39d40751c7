//go:build !linux

package child

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/mcp-bridge/bridge/internal/script"
)

// limit bounds the process as far as a process can bound itself: it ends when it has used too much memory, or too much
// time. On Windows, the bridge also runs it in a job with limits. Elsewhere, one large allocation may exceed the bound
// of memory for a moment.
func limit() error {
	debug.SetMaxStack(script.MaxMemory / 4)
	go watch()
	return nil
}

// watch ends the process when it exceeds a bound.
func watch() {
	used := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/cpu/classes/user:cpu-seconds"},
	}
	for range time.Tick(20 * time.Millisecond) {
		metrics.Read(used)
		if used[0].Value.Uint64()-used[1].Value.Uint64() > script.MaxMemory || used[2].Value.Float64() > script.MaxProcessor.Seconds() {
			os.Exit(1)
		}
	}
}
