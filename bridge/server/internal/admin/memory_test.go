package admin

import (
	"testing"
	"testing/synctest"
	"time"
)

// Several who look share one reading of the memory, and it is taken again after a while.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(memoryEvery)
		if n := Memory(); n < 1<<20 {
			t.Errorf("the process has %d bytes", n)
		}
		first := memory.read
		time.Sleep(memoryEvery - 1)
		if Memory(); memory.read != first {
			t.Error("it is read again at once")
		}
		time.Sleep(time.Nanosecond)
		if Memory(); !memory.read.After(first) {
			t.Error("it is not read again")
		}
	})
}
