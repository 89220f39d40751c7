package admin

import (
	"runtime"
	"sync"
	"time"
)

// memoryEvery is for how long one reading of the memory is good: each stops the process for
// a moment.
const memoryEvery = 5 * time.Second

var memory struct {
	sync.Mutex // guards the rest
	read       time.Time
	bytes      uint64
}

// Memory returns how many bytes this process has of the machine, of some seconds ago at
// most. All who look share a reading.
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
