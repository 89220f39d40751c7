package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// crowd makes calls at a server.
type crowd struct {
	g  *Queue
	of *Slots
	mu sync.Mutex // guards in
	in []string   // who has got a place, in order
	wg sync.WaitGroup
}

func newCrowd(o Options) *crowd {
	q := NewQueue("x", o)
	return &crowd{g: q, of: q.Slots()}
}

// queuer is a call of a crowd.
type queuer struct {
	p    slot
	leap context.CancelFunc
	err  error
	done chan struct{}
}

// send makes a call of a principal. It is at the server when send returns.
func (c *crowd) send(principal, name string) *queuer {
	ctx, cancel := context.WithCancel(context.Background())
	q := &queuer{p: slot{principal: principal, of: c.of}, leap: cancel, done: make(chan struct{})}
	c.wg.Go(func() {
		defer close(q.done)
		if q.err = c.g.enter(ctx, &q.p); q.err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.in = append(c.in, name)
		}
	})
	synctest.Wait()
	return q
}

func (c *crowd) entered() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.in
	c.in = nil
	return in
}

// empty checks that nothing is left.
func (c *crowd) empty(t *testing.T) {
	t.Helper()
	synctest.Wait()
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	if q := c.g; q.taken != 0 || q.waiting != 0 || q.parked != 0 || len(q.lines) != 0 || q.ring.Len() != 0 || len(q.counts) != 0 || c.of.last != nil {
		t.Errorf("left: %d places, %d waiting, %d parked, %d lines, %d turns, %v, %v", q.taken, q.waiting, q.parked, len(q.lines), q.ring.Len(), q.counts, c.of.last)
	}
}

// A call that waits elsewhere for too long counts as one that waited here.
func TestTimedOut(t *testing.T) {
	q := NewQueue("fake", Options{Calls: 1})
	if err := q.TimedOut("none of %d became free", 2); !errors.Is(err, bridge.ErrOverloaded) || !strings.Contains(err.Error(), "none of 2 became free") || q.Status().Refused["wait"] != 1 {
		t.Errorf("%v; refused %v", err, q.Status().Refused)
	}
}

// A call that leaves as it gets the place of another gives the place back.
func TestLeapt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(Options{Calls: 1, Queue: 1})
		first, second := c.send("one", "first"), c.send("two", "second")
		second.leap()
		c.g.mu.Lock()
		c.g.vacate(&first.p)
		c.g.uncount(&first.p)
		c.g.mu.Unlock()
		if <-second.done; !errors.Is(second.err, context.Canceled) {
			t.Errorf("it left: %v", second.err)
		}
		c.empty(t)
	})
}

// What is refused, when, and in which words.
func TestQueueRefusals(t *testing.T) {
	for _, test := range []struct {
		name   string
		o      Options
		before int // calls of a that came before
		want   string
		after  time.Duration // that it takes until it is refused
	}{
		{"queue", Options{Calls: 1, Queue: 1}, 2, "server x: it has 1 calls under way and 1 more that wait (limits: calls, queue)", 0},
		{"queue as long as calls", Options{Calls: 2}, 4, "server x: it has 2 calls under way and 2 more that wait (limits: calls, queue)", 0},
		{"wait", Options{Calls: 2, Wait: 7 * time.Second}, 2, "server x: it has 2 calls under way, and none of them ended within 7s (limits: calls, wait)", 7 * time.Second},
		{"wait by default", Options{Calls: 1}, 1, "server x: it has 1 calls under way, and none of them ended within 30s (limits: calls, wait)", 30 * time.Second},
		{"per principal", Options{Calls: 9, PerPrincipal: 2}, 2, "server x: one caller may have 2 calls under way or waiting (limits: per_principal)", 0},
		{"per principal, waiting", Options{Calls: 1, PerPrincipal: 2}, 2, "server x: one caller may have 2 calls under way or waiting (limits: per_principal)", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(test.o)
				var all []*queuer
				for range test.before {
					all = append(all, c.send("a", "a"))
				}
				began := time.Now()
				last := c.send("a", "last")
				<-last.done
				if last.err == nil || last.err.Error() != test.want || !errors.Is(last.err, bridge.ErrOverloaded) || bridge.RetryAfter(last.err) != time.Second {
					t.Errorf("got %v, want %s", last.err, test.want)
				}
				if took := time.Since(began); took != test.after {
					t.Errorf("it was refused after %v, want %v", took, test.after)
				}
				for _, q := range all {
					if <-q.done; q.err == nil {
						c.g.leave(&q.p)
					}
				}
				c.wg.Wait()
				c.empty(t)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // without access rules there is no principal to be bounded
		c := newCrowd(Options{Calls: 9, PerPrincipal: 1})
		for range 9 {
			if q := c.send("", ""); q.err != nil {
				t.Error(q.err)
			}
		}
	})
}

// Other limits count at once: a higher one lets those pass that wait, a lower one ends
// nothing, and what was not counted before does not count.
func TestQueueSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(Options{Calls: 1, Queue: 5})
		one := c.send("a", "1")
		all := []*queuer{c.send("a", "2"), c.send("b", "3"), c.send("a", "4")}
		c.g.Set(Options{Calls: 3, Queue: 5, PerPrincipal: 1})
		if got := c.entered(); len(got) != 3 {
			t.Errorf("with more places: %v", got)
		}
		if five := c.send("c", "5"); five.err != nil {
			t.Error(five.err)
		} else {
			all = append(all, five)
		}
		if more := c.send("c", "6"); more.err == nil || !errors.Is(more.err, bridge.ErrOverloaded) {
			t.Errorf("a second one of a caller: %v", more.err)
		}
		c.g.Set(Options{Calls: 1, Queue: 1, Wait: time.Second})
		if got := c.g.Status(); got.Slots != 3 || got.Queued != 2 || c.g.Length() != 1 || c.g.Wait() != time.Second {
			t.Errorf("with fewer: %+v", got)
		}
		c.g.leave(&one.p)
		if got := c.entered(); len(got) != 0 {
			t.Errorf("with fewer places than are taken, one is given away: %v", got)
		}
		c.g.Set(Options{Calls: 9})
		for _, q := range all {
			if <-q.done; q.err != nil {
				t.Error(q.err)
			}
			c.g.leave(&q.p)
		}
		c.wg.Wait()
		c.empty(t)
	})
}

// Calls of one principal get their places in the order in which they came, and a
// caller that leaves the queue leaves it at once, and without a place.
func TestQueueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(Options{Calls: 1, Queue: 10})
		var all []*queuer
		for i := range 6 {
			all = append(all, c.send("", fmt.Sprint(i)))
		}
		all[3].leap()
		if <-all[3].done; !errors.Is(all[3].err, context.Canceled) || c.g.waiting != 4 {
			t.Errorf("the one that leaves got %v, %d wait", all[3].err, c.g.waiting)
		}
		for _, i := range []int{0, 1, 2, 4, 5} {
			if got := c.entered(); !slices.Equal(got, []string{fmt.Sprint(i)}) {
				t.Errorf("%v came in, want %d", got, i)
			}
			c.g.leave(&all[i].p)
		}
		c.empty(t)
	})
}

// A principal that floods a server makes others wait for one of its calls to
// end, and not for its whole queue; where the queue is full, it is its own last
// call that is refused.
func TestQueueFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(Options{Calls: 2, Queue: 5})
		var flood []*queuer
		for i := range 7 {
			flood = append(flood, c.send("flood", fmt.Sprint("f", i)))
		}
		if q := c.send("flood", "one more"); q.err == nil {
			t.Error("the queue has no bound")
		}
		c.entered()
		other := c.send("other", "other")
		<-flood[6].done
		if !errors.Is(flood[6].err, bridge.ErrOverloaded) || other.err != nil {
			t.Errorf("with a full queue: the last of many got %v, the first of another %v", flood[6].err, other.err)
		}
		second := c.send("other", "other2")
		if <-flood[5].done; flood[5].err == nil {
			t.Error("the second of the other has no place in the queue")
		}
		third := c.send("other", "other3")
		if third.p.line != nil { // 3 and 2 in the queue: it is not longer by more than one
			t.Error("the third of the other is in the queue although the lines are even")
		}
		for _, want := range []string{"f2", "other", "f3", "other2", "f4"} {
			c.g.leave(&flood[0].p) // whose place it is does not matter here
			flood[0].p.taken = true
			c.of.add(&flood[0].p)
			if got := c.entered(); !slices.Equal(got, []string{want}) {
				t.Errorf("%v came in, want %s", got, want)
			}
		}
		if second.err != nil || c.g.refused.queue != 4 {
			t.Errorf("%v; %d were refused", second.err, c.g.refused.queue)
		}
	})
}

// Whatever comes of calls, in whatever order, their places come back.
func TestQueueLeaksNothing(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			o := Options{Calls: 1 + rnd.IntN(4), Queue: 1 + rnd.IntN(8), Wait: 50 * time.Millisecond, PerPrincipal: rnd.IntN(6)}
			c := newCrowd(o)
			most := make(chan int, 1)
			most <- 0
			for i := range 300 {
				principal := fmt.Sprint(rnd.IntN(4))
				arrives, works := time.Duration(rnd.IntN(1000))*time.Millisecond, time.Duration(rnd.IntN(40))*time.Millisecond
				var gives, parks time.Duration = time.Hour, time.Hour
				if rnd.IntN(3) == 0 {
					gives = time.Duration(rnd.IntN(40)) * time.Millisecond
				}
				if rnd.IntN(3) == 0 {
					parks = time.Duration(rnd.IntN(40)) * time.Millisecond
				}
				c.wg.Go(func() {
					time.Sleep(arrives)
					ctx, cancel := context.WithTimeout(context.Background(), gives)
					defer cancel()
					s := &slot{principal: principal, of: c.of}
					if c.g.enter(ctx, s) != nil {
						return
					}
					c.g.mu.Lock()
					most <- max(<-most, c.g.taken)
					c.g.mu.Unlock()
					park := time.AfterFunc(parks, func() {
						if i%2 == 0 {
							c.of.parkOne()
						} else {
							c.g.park(s)
							c.g.park(s)
						}
					})
					defer park.Stop()
					select {
					case <-time.After(works):
					case <-ctx.Done():
					}
					c.g.leave(s)
					c.g.park(s)
				})
			}
			c.wg.Wait()
			c.empty(t)
			if n := <-most; n > o.Calls || n == 0 {
				t.Errorf("%d calls were under way at once, want 1 to %d", n, o.Calls)
			}
		})
	}
}
