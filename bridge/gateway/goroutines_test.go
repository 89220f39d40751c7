package gateway

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Each function runs once; goroutines are used again, and no more than maxIdle wait.
// After Stop, none runs: nobody would await it.
func TestGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGoroutines()
		var done atomic.Int64
		hold := make(chan struct{})
		for range 3 * maxIdle {
			g.Run(func() {
				<-hold
				done.Add(1)
			})
		}
		synctest.Wait() // nobody waits for another
		close(hold)
		synctest.Wait()
		if got, idle := done.Load(), g.idle.Load(); got != 3*maxIdle || idle != maxIdle {
			t.Errorf("%d done and %d idle, want %d and %d", got, idle, 3*maxIdle, maxIdle)
		}
		for range maxIdle {
			g.Run(func() { done.Add(1) })
			synctest.Wait()
		}
		if got, idle := done.Load(), g.idle.Load(); got != 4*maxIdle || idle != maxIdle {
			t.Errorf("%d done and %d idle, want %d and %d", got, idle, 4*maxIdle, maxIdle)
		}
		time.Sleep(idleFor - time.Millisecond)
		g.Run(func() { done.Add(1) })
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got, idle := done.Load(), g.idle.Load(); got != 4*maxIdle+1 || idle != 1 {
			t.Errorf("after a while %d done and %d idle, want %d and the one that had something to do", got, idle, 4*maxIdle+1)
		}
		g.Stop()
		g.Stop()
		ran := g.Run(func() { done.Add(1) })
		synctest.Wait()
		if got := done.Load(); ran || got != 4*maxIdle+1 {
			t.Errorf("after Stop, Run = %v and %d ran, want none", ran, got-4*maxIdle-1)
		}
	})
}

// Each function runs before Stop returns, or Run reports false.
func TestGoroutinesStopAtWork(t *testing.T) {
	for range 100 {
		g := newGoroutines()
		var done, refused atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 50 {
					if !g.Run(func() { done.Add(1) }) {
						refused.Add(1)
					}
				}
			})
		}
		g.Stop()
		ran := done.Load()
		wg.Wait()
		if got := done.Load(); got != ran || got+refused.Load() != 8*50 {
			t.Fatalf("%d ran, %d of them before Stop returned; %d were refused, of %d", got, ran, refused.Load(), 8*50)
		}
	}
}
