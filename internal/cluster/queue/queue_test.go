package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster/queue"
	"github.com/mcp-bridge/bridge/internal/cluster/queue/queuetest"
)

func TestMemory(t *testing.T) {
	queuetest.Run(t, func(*testing.T) queue.Queue { return queuetest.NewMemory() })
}

// desk is a worker with so many places.
type desk struct {
	name    string
	servers []string
	front   map[string]*queue.Front
	lost    func(t queue.Taken) error // what telling a front fails with

	mu      sync.Mutex // guards the rest
	places  int
	next    int
	changed chan struct{}
}

func (d *desk) Room() ([]string, int, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.servers, d.places, d.changed
}

func (d *desk) Reserve(string) (string, func(), bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.places == 0 {
		return "", nil, false
	}
	d.places--
	d.next++
	return fmt.Sprint(d.name, d.next), d.free, true
}

func (d *desk) free() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.places++
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *desk) tell(_ context.Context, t queue.Taken, grant string) error {
	if d.lost != nil {
		if err := d.lost(t); err != nil {
			return err
		}
	}
	f := d.front[t.Front]
	if f == nil {
		return queue.ErrOver
	}
	return f.Accept(t.ID, queue.Grant{Worker: d.name, Key: grant})
}

// work begins to take offers.
func work(q queue.Queue, d *desk) *queue.Worker {
	d.changed = make(chan struct{})
	return queue.NewWorker(queue.WorkerOptions{Queue: q, Slots: d, Grant: d.tell, Log: slog.New(slog.DiscardHandler)})
}

// fronts makes some.
func fronts(q queue.Queue, names ...string) map[string]*queue.Front {
	all := map[string]*queue.Front{}
	for _, name := range names {
		all[name] = queue.NewFront(name, q, slog.New(slog.DiscardHandler))
	}
	return all
}

// waits has a front wait for a worker.
func waits(t *testing.T, f *queue.Front, most int) <-chan queue.Grant {
	got := make(chan queue.Grant, 1)
	go func() {
		grant, err := f.Wait(t.Context(), "a", most)
		if err != nil {
			t.Error(err)
		}
		got <- grant
	}()
	return got
}

func length(t *testing.T, q queue.Queue, server string) int {
	t.Helper()
	n, err := q.Lengths(t.Context(), []string{server})
	if err != nil {
		t.Fatal(err)
	}
	return n[0]
}

// Openings of several fronts are opened in the order in which they came (S-052).
func TestFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := queuetest.NewMemory()
		f := fronts(m, "x", "y", "z")
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		d := &desk{name: "w", servers: []string{"a"}, front: f}
		var want []string
		for i := range 30 {
			front := []string{"x", "x", "x", "y", "z"}[i%5]
			want = append(want, fmt.Sprint(front, i))
			all.Go(func() {
				if _, err := f[front].Wait(t.Context(), "a", 100); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, fmt.Sprint(front, i))
				mu.Unlock()
				time.Sleep(time.Second)
				d.free()
			})
			synctest.Wait()
		}
		w := work(m, d)
		d.free() // the only place
		all.Wait()
		w.Close()
		if !slices.Equal(order, want) {
			t.Errorf("opened %v, want %v", order, want)
		}
		if n := length(t, m, "a"); n != 0 {
			t.Errorf("%d requests are left", n)
		}
	})
}

// An opening that nobody takes ends, and its request with it; beyond what may wait it is
// refused at once (S-052).
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := queuetest.NewMemory()
		f := fronts(m, "x")["x"]
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		ended := make(chan error, 2)
		begun := time.Now()
		for range 2 {
			go func() {
				_, err := f.Wait(ctx, "a", 2)
				ended <- err
			}()
		}
		synctest.Wait()
		if _, err := f.Wait(ctx, "a", 2); !errors.Is(err, session.ErrFull) || time.Since(begun) != 0 {
			t.Errorf("one too many: %v after %v", err, time.Since(begun))
		}
		if n := f.Waiting()["a"]; n != 2 {
			t.Errorf("%d wait", n)
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 30*time.Second {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
		}
		f.Close()
		if n := length(t, m, "a"); n != 0 || len(f.Waiting()) != 0 {
			t.Errorf("%d requests are left, and %v wait", n, f.Waiting())
		}
	})
}

// What two workers take, or one worker twice, is handed out once (S-051): also if the
// answer of the front is lost.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := queuetest.NewMemory()
		f := fronts(m, "x")
		d := &desk{name: "w", servers: []string{"a"}, front: f, places: 10}
		var asked atomic.Int64
		d.lost = func(o queue.Taken) error {
			if asked.Add(1) > 1 {
				return nil
			}
			if err := f["x"].Accept(o.ID, queue.Grant{Worker: "w", Key: "the one whose answer is lost"}); err != nil {
				t.Error(err)
			}
			return errors.New("no answer")
		}
		w := work(m, d)
		grant, err := f["x"].Wait(t.Context(), "a", 10)
		if err != nil || grant.Key != "the one whose answer is lost" {
			t.Fatalf("%+v, %v", grant, err)
		}
		time.Sleep(10 * time.Second) // the request is overdue, and over
		w.Close()
		if asked.Load() != 2 || length(t, m, "a") != 0 {
			t.Errorf("the front was asked %d times, and %d requests are left", asked.Load(), length(t, m, "a"))
		}
		if d.places != 9 { // the grant whose answer was lost may be used yet
			t.Errorf("%d places are free, want 9", d.places)
		}
	})
}

// A request that a worker has taken and not done, because it was killed, goes to another
// one. Nothing else is lost by that (S-051). It is found, though others stand before it whose front cannot be reached.
func TestKilledWorker(t *testing.T) {
	for before, within := range map[int]time.Duration{0: 5 * time.Second, 4: 15 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			m := queuetest.NewMemory()
			f := fronts(m, "far", "near")
			d := &desk{name: "w", servers: []string{"a"}, front: f, places: 1, lost: func(t queue.Taken) error {
				if t.Front == "far" {
					return queue.ErrUnreached
				}
				return nil
			}}
			ctx, cancel := context.WithCancel(t.Context())
			var far sync.WaitGroup
			for range before {
				far.Go(func() { _, _ = f["far"].Wait(ctx, "a", 10) })
			}
			synctest.Wait()
			begun, got := time.Now(), waits(t, f["near"], 10)
			synctest.Wait()
			for range before + 1 {
				if taken, err := m.Take(t.Context(), []string{"a"}, time.Second); err != nil || len(taken) != 1 {
					t.Fatalf("%v, %v", taken, err) // by one that is killed now
				}
			}
			w := work(m, d)
			grant := <-got
			if took := time.Since(begun); grant.Worker != "w" || took < 3*time.Second || took > within {
				t.Errorf("behind %d others: %+v after %v", before, grant, took)
			}
			cancel()
			far.Wait()
			w.Close()
		})
	}
}

// A request whose front has died is dropped, and its place is free again.
func TestDeadFront(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := queuetest.NewMemory()
		d := &desk{name: "w", servers: []string{"a"}, places: 1}
		if _, err := m.Add(t.Context(), "a", queue.Request{ID: "1", Front: "dead"}, 10); err != nil {
			t.Fatal(err)
		}
		w := work(m, d)
		time.Sleep(time.Second)
		w.Close()
		if d.places != 1 || length(t, m, "a") != 0 {
			t.Errorf("%d places are free, and %d requests are left", d.places, length(t, m, "a"))
		}
	})
}

// A front that cannot be reached takes no places, and its requests go to other workers at
// once; nor does a worker that its fronts cannot reach.
func TestUnreached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := queuetest.NewMemory()
		f := fronts(m, "far", "near")
		var told atomic.Int64
		d := &desk{name: "w", servers: []string{"a"}, front: f, places: 2}
		d.lost = func(t queue.Taken) error {
			if t.Front != "far" {
				return nil
			}
			told.Add(1)
			return queue.ErrUnreached
		}
		w := work(m, d)
		var far sync.WaitGroup
		begun := time.Now()
		for range 10 {
			far.Go(func() {
				if grant, err := f["far"].Wait(t.Context(), "a", 100); err != nil || grant.Worker != "other" {
					t.Errorf("%+v, %v", grant, err)
				}
			})
		}
		synctest.Wait()
		for range 20 {
			at := time.Now()
			if _, err := f["near"].Wait(t.Context(), "a", 100); err != nil || time.Since(at) > 100*time.Millisecond {
				t.Errorf("the front that is reached waited for %v: %v", time.Since(at), err)
			}
			d.free()
			time.Sleep(time.Second)
		}
		if d.places != 2 {
			t.Errorf("%d places are free, want 2", d.places)
		}
		if n, most := told.Load(), int64(time.Since(begun)/(3*time.Second))+4; n < 2 || n > most {
			t.Errorf("the front was tried %d times in %v, want 2 to %d", n, time.Since(begun), most)
		}
		at := time.Now()
		other := work(m, &desk{name: "other", servers: []string{"a"}, front: f, places: 10})
		far.Wait()
		if took := time.Since(at); took > 30*time.Second {
			t.Errorf("another worker has opened them after %v", took)
		}
		other.Close()
		w.Close()
	})
	synctest.Test(t, func(t *testing.T) {
		m := queuetest.NewMemory()
		f := fronts(m, "x")["x"]
		hands := func(worker string, want error) {
			t.Helper()
			taken, err := m.Overdue(t.Context(), []string{"a"}, 0, 1)
			if len(taken) == 0 {
				taken, err = m.Take(t.Context(), []string{"a"}, time.Second)
			}
			if err != nil || len(taken) != 1 {
				t.Fatal(taken, err)
			}
			if err := f.Accept(taken[0].ID, queue.Grant{Worker: worker, Key: "k"}); !errors.Is(err, want) {
				t.Errorf("a grant of %s: %v, want %v", worker, err, want)
			}
			if want == nil {
				_ = m.Done(t.Context(), "a", taken[0].Entry)
			}
		}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if _, err := f.Wait(t.Context(), "a", 10); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		f.Reached("w", false)
		f.Reached("w", false)
		hands("w", queue.ErrUnreached)
		hands("other", nil)
		time.Sleep(4 * time.Second)
		hands("w", nil) // one attempt
		all.Wait()
	})
}

// A worker with one place serves several lines.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := queuetest.NewMemory()
		f := fronts(m, "x")
		d := &desk{name: "w", servers: []string{"a", "b", "c", "d"}, front: f, places: 1}
		w := work(m, d)
		for range 3 {
			for _, server := range d.servers {
				begun := time.Now()
				if _, err := f["x"].Wait(t.Context(), server, 10); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took > time.Second {
					t.Errorf("%s waited for %v", server, took)
				}
				d.free()
			}
		}
		w.Close()
	})
}

// broken is a queue whose store is away.
type broken struct {
	queue.Queue
	mu   sync.Mutex // guards away
	away bool
}

func (b *broken) is(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

func (b *broken) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		return session.ErrUnavailable
	}
	return nil
}

func (b *broken) Add(ctx context.Context, server string, r queue.Request, most int) (string, error) {
	if err := b.err(); err != nil {
		return "", err
	}
	return b.Queue.Add(ctx, server, r, most)
}

// While the store is away openings wait; when it was emptied they are offered anew.
func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := queuetest.NewMemory()
		b := &broken{Queue: memory, away: true}
		f := fronts(b, "x")
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := f["x"].Wait(short, "a", 10); !errors.Is(err, session.ErrUnavailable) {
			t.Errorf("a store that stays away: %v", err)
		}
		got := waits(t, f["x"], 10)
		time.Sleep(10 * time.Second)
		b.is(false)
		time.Sleep(time.Second)
		if n := length(t, b, "a"); n != 1 {
			t.Fatalf("%d requests when the store is back", n)
		}
		taken, err := memory.Take(t.Context(), []string{"a"}, 0)
		if err == nil && len(taken) == 1 {
			err = memory.Done(t.Context(), "a", taken[0].Entry) // somebody has emptied it
		}
		if err != nil || length(t, b, "a") != 0 {
			t.Fatal(taken, err)
		}
		f["x"].RequestAgain()
		w := work(b, &desk{name: "w", servers: []string{"a"}, front: f, places: 1})
		<-got
		w.Close()
		f["x"].Close()
	})
}

// A request that has vanished from its line, with the line or alone, is made again: nobody
// else knows that it waits.
func TestVanished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := queuetest.NewMemory()
		f := fronts(m, "x")
		begun, got := time.Now(), waits(t, f["x"], 10)
		synctest.Wait()
		taken, err := m.Take(t.Context(), []string{"a"}, 0)
		if err == nil && len(taken) == 1 {
			err = m.Done(t.Context(), "a", taken[0].Entry) // somebody has removed the line
		}
		if err != nil || length(t, m, "a") != 0 {
			t.Fatal(taken, err)
		}
		w := work(m, &desk{name: "w", servers: []string{"a"}, front: f, places: 1})
		if <-got; time.Since(begun) > 10*time.Second {
			t.Errorf("after %v", time.Since(begun))
		}
		w.Close()
		f["x"].Close()
		if n := length(t, m, "a"); n != 0 {
			t.Errorf("%d requests are left", n)
		}
	})
}

// A line that is full of what waits in it already refuses none of that: requests that are
// made again, or of which nobody knows whether they came.
func TestFullOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := queuetest.NewMemory()
		f := fronts(m, "x")
		var all []<-chan queue.Grant
		for range 3 {
			all = append(all, waits(t, f["x"], 3))
		}
		synctest.Wait()
		f["x"].RequestAgain()
		time.Sleep(5 * time.Second)
		w := work(m, &desk{name: "w", servers: []string{"a"}, front: f, places: 3})
		for _, got := range all {
			<-got
		}
		time.Sleep(5 * time.Second)
		w.Close()
		f["x"].Close()
		if n := length(t, m, "a"); n != 0 {
			t.Errorf("%d requests are left", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		m := queuetest.NewMemory()
		f := fronts(&deaf{Queue: m}, "x")
		got := waits(t, f["x"], 1)
		time.Sleep(5 * time.Second)
		w := work(m, &desk{name: "w", servers: []string{"a"}, front: f, places: 1})
		<-got
		w.Close()
	})
}

// deaf is a queue that loses the answer to each request.
type deaf struct{ queue.Queue }

func (d *deaf) Add(ctx context.Context, server string, r queue.Request, most int) (string, error) {
	if _, err := d.Queue.Add(ctx, server, r, most); err != nil {
		return "", err
	}
	return "", session.ErrUnavailable
}

// A worker that stops gives back what it takes at that moment, and others have it at once.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := queuetest.NewMemory()
		f := fronts(m, "x")
		d := &desk{name: "old", servers: []string{"a"}, front: f, places: 1}
		late := &slow{Queue: m}
		w := work(late, d)
		synctest.Wait()
		closed := make(chan struct{})
		go func() {
			w.Close()
			close(closed)
		}()
		synctest.Wait()
		begun, got := time.Now(), waits(t, f["x"], 10)
		<-closed
		other := work(m, &desk{name: "new", servers: []string{"a"}, front: f, places: 1})
		if grant := <-got; grant.Worker != "new" || time.Since(begun) > 2*time.Second {
			t.Errorf("%+v after %v", grant, time.Since(begun))
		}
		other.Close()
		if d.places != 1 {
			t.Errorf("%d places are free", d.places)
		}
	})
}

// slow is a queue whose Take cannot be broken off.
type slow struct{ queue.Queue }

func (s *slow) Take(ctx context.Context, servers []string, wait time.Duration) ([]queue.Taken, error) {
	return s.Queue.Take(context.WithoutCancel(ctx), servers, wait)
}
