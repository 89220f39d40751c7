package memory

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var now, released atomic.Int64
		var all atomic.Uint64
		done := make(chan struct{})
		go func() {
			defer close(done)
			Release(ctx, func() (int, uint64) { return int(now.Load()), all.Load() }, func() { released.Add(1) })
		}()
		expect := func(after time.Duration, want int, what string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := int(released.Load()); got != want {
				t.Errorf("%s: released %d times, want %d", what, got, want)
			}
		}
		expect(time.Minute, 0, "never used")
		now.Store(1)
		all.Store(1)
		expect(time.Minute, 0, "a call is under way")
		now.Store(0)
		expect(5*time.Second, 1, "calls have ceased")
		expect(time.Hour, 3, "still quiet, and its clients may have read their answers")
		all.Store(2)
		expect(10*time.Second, 4, "used and quiet again")
		all.Store(3)
		expect(5*time.Second, 4, "too soon after the last time")
		expect(30*time.Second, 5, "later")
		stop()
		<-done
	})
}
