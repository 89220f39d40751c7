package memory

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestGrowth(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		live uint64
		want int
	}{
		{0, mostGrowth}, {1, mostGrowth}, {mb, mostGrowth}, // not for ever, even so
		{12 * mb, mostGrowth}, {16 * mb, 300}, {20 * mb, 220},
		{32 * mb, leastGrowth}, {33 * mb, leastGrowth}, {1 << 40, leastGrowth},
	} {
		if got := growth(c.live); got != c.want {
			t.Errorf("growth(%d MB) = %d, want %d", c.live/mb, got, c.want)
		}
	}
}

// The growth follows what is in use, both ways, and is what it was in the end.
func TestHeapFloor(t *testing.T) {
	t.Setenv("GOGC", "")
	percent := func() uint64 {
		s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	before := percent()
	stop := RaiseFloor()
	follow := func(want func(uint64) bool, what string) {
		t.Helper()
		for range 1000 { // a cleanup comes some time after its collection
			runtime.GC()
			if want(percent()) {
				return
			}
			runtime.Gosched()
		}
		t.Errorf("%s: growth is %d %%", what, percent())
	}
	follow(func(p uint64) bool { return p > 200 }, "little is in use")
	much := make([]byte, 2*heapFloor)
	follow(func(p uint64) bool { return p == leastGrowth }, "much is in use")
	runtime.KeepAlive(much)
	much = nil
	follow(func(p uint64) bool { return p > 200 }, "little again")
	stop()
	if got := percent(); got != before {
		t.Errorf("afterwards the growth is %d %%, want %d", got, before)
	}

	t.Setenv("GOGC", "77")
	defer RaiseFloor()()
	if got := percent(); got != before {
		t.Errorf("with a GOGC of the user's the growth is %d %%, want %d", got, before)
	}
	debug.SetGCPercent(int(before))
}
