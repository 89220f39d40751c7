package admin

import (
	"runtime"
	"sync"
	"time"
)

// memoryEvery is the interval between readings of the memory: each stops the process for a moment.
const memoryEvery = 5 * time.Second

var memory struct {
	sync.Mutex // guards the rest
	read       time.Time
	bytes      uint64
}

// Memory returns the memory of this process in bytes. The reading is at most memoryEvery old, and
// all callers share it.
func Memory() uint64 {
	memory.Lock()
	defer memory.Unlock()
	if now := time.Now(); now.Sub(memory.read) >= memoryEvery || now.Before(memory.read) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		memory.read, memory.bytes = now, m.Sys-m.HeapReleased
	}
	return memory.bytes
}
