package logs

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter
		for i, want := range []struct {
			after time.Duration
			more  int
			ok    bool
		}{{0, 0, true}, {0, 0, false}, {9 * time.Second, 0, false}, {time.Second, 2, true}, {time.Hour, 0, true}} {
			time.Sleep(want.after)
			if more, ok := l.Due(10 * time.Second); more != want.more || ok != want.ok {
				t.Errorf("%d: %d, %t, want %d, %t", i, more, ok, want.more, want.ok)
			}
		}
	})
}
