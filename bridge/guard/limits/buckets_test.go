package limits

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Buckets that are full again go one by one with the calls that come, too.
func TestBucketsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		of := []limit{{Rate{1, 1}, 0}}
		never := func() bool { return false }
		for i := range 3 * keptCallers {
			l.take(fmt.Sprint(i), of, never)
		}
		time.Sleep(500 * time.Millisecond)
		if wait, _ := l.take("0", of, never); wait != 500*time.Millisecond {
			t.Errorf("the first may call again in %v", wait)
		}
		time.Sleep(time.Minute)
		for range 2 * keptCallers {
			l.take("x", of, never)
		}
		if n := l.buckets.Len(); n != keptCallers {
			t.Errorf("%d buckets are left, want %d", n, keptCallers)
		}
	})
}
