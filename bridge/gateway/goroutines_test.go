package gateway

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Everything that is given to a Workers is done once, whoever gives it and
// whenever the Workers ends; goroutines are used again, and no more than maxIdle wait.
func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newGoroutines()
		var done atomic.Int64
		hold := make(chan struct{})
		for range 3 * maxIdle {
			c.Run(func() {
				<-hold
				done.Add(1)
			})
		}
		synctest.Wait() // nobody waits for another
		close(hold)
		synctest.Wait()
		if got, idle := done.Load(), c.idle.Load(); got != 3*maxIdle || idle != maxIdle {
			t.Errorf("%d done and %d idle, want %d and %d", got, idle, 3*maxIdle, maxIdle)
		}
		for range maxIdle {
			c.Run(func() { done.Add(1) })
			synctest.Wait()
		}
		if got, idle := done.Load(), c.idle.Load(); got != 4*maxIdle || idle != maxIdle {
			t.Errorf("%d done and %d idle, want %d and %d", got, idle, 4*maxIdle, maxIdle)
		}
		time.Sleep(idleFor - time.Millisecond)
		c.Run(func() { done.Add(1) })
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got, idle := done.Load(), c.idle.Load(); got != 4*maxIdle+1 || idle != 1 {
			t.Errorf("after a while %d done and %d idle, want %d and the one that had something to do", got, idle, 4*maxIdle+1)
		}
		c.Stop()
		c.Stop()
		c.Run(func() { done.Add(1) })
		synctest.Wait()
		if got := done.Load(); got != 4*maxIdle+2 {
			t.Errorf("what came after the end was done %d times", got-4*maxIdle-1)
		}
	})
}

func TestWorkersEndsAtWork(t *testing.T) {
	for range 100 {
		c := newGoroutines()
		var done atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 50 {
					wg.Add(1)
					c.Run(func() {
						defer wg.Done()
						done.Add(1)
					})
				}
			})
		}
		c.Stop()
		wg.Wait()
		if got := done.Load(); got != 8*50 {
			t.Fatalf("%d done, want %d", got, 8*50)
		}
	}
}
