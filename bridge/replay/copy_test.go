package replay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/bridge/replay/replaytest"
)

func TestMemory(t *testing.T) {
	replaytest.Run(t, func(*testing.T) replay.Store { return replay.NewMemory() })
}

// slow is a store that blocks until it is released.
type slow struct {
	*replay.Memory
	let chan struct{}

	mu     sync.Mutex
	writes int
}

func (s *slow) Write(ctx context.Context, all []replay.Entry) error {
	<-s.let
	s.mu.Lock()
	s.writes++
	s.mu.Unlock()
	return s.Memory.Write(ctx, all)
}

func limits() replay.Limits { return replay.Limits{Events: 256, Bytes: 4 << 20, Hard: 64 << 20} }

func answer(id string) replay.Event {
	return replay.Event{Data: fmt.Appendf(nil, `{"id":%s}`, id), Must: true, Force: true, Answers: []byte(id)}
}

// A stream is copied asynchronously, and another instance continues it.
func TestCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := replay.NewMemory()
		c := replay.NewCopies(store, slog.New(slog.DiscardHandler))
		l := replay.New(limits())
		l.CopyTo(c.Begin("s", "pX", [][]byte{[]byte("1"), []byte(`"2"`)}))
		_ = l.Append(replay.Event{Data: []byte(`{"n":1}`)})
		_ = l.Append(answer("1"))
		synctest.Wait()
		c.Close()
		other := replay.NewCopies(store, slog.New(slog.DiscardHandler))
		defer other.Close()
		taken, copied, err := other.Take(t.Context(), "s", "pX", 1, 2<<32)
		if err != nil || len(taken.Events) != 1 || taken.Events[0].Seq != 2 || len(taken.Open) != 1 || string(taken.Open[0]) != `"2"` || taken.Finished {
			t.Fatalf("Take = %+v, %v", taken, err)
		}
		again := replay.New(limits())
		again.Restore(taken.Events, 2<<32)
		again.CopyTo(copied)
		_ = again.Append(answer(`"2"`))
		again.Finish()
		var seqs []int64
		events, _ := again.After(1)
		for _, e := range events {
			seqs = append(seqs, e.Seq)
		}
		if want := []int64{2, 2<<32 + 1}; !slices.Equal(seqs, want) {
			t.Errorf("the client gets %v, want %v", seqs, want)
		}
		synctest.Wait()
		last, _, err := other.Take(t.Context(), "s", "pX", 1, 3<<32)
		if err != nil || len(last.Events) != 2 || len(last.Open) != 0 || !last.Finished {
			t.Errorf("the next one has %+v, %v", last, err)
		}
	})
}

// Large events are not copied, and a slow store takes no more than its room. Such streams are forgotten, and the
// others continue.
func TestCopiesBounded(t *testing.T) {
	for _, c := range []struct {
		name  string
		size  int
		times int
		want  bool
	}{
		{"small", 1 << 10, 100, true},
		{"a large event", 64<<10 + 1, 1, false},
		{"a large stream", 60 << 10, 70, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := replay.NewMemory()
				copies := replay.NewCopies(store, slog.New(slog.DiscardHandler))
				defer copies.Close()
				l := replay.New(limits())
				l.CopyTo(copies.Begin("s", "pX", nil))
				for range c.times {
					_ = l.Append(replay.Event{Data: []byte(strings.Repeat("x", c.size))})
					synctest.Wait()
				}
				if _, _, err := copies.Take(t.Context(), "s", "pX", 0, 2<<32); (err == nil) != c.want {
					t.Errorf("Take = %v", err)
				}
			})
		})
	}
	t.Run("a slow store", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &slow{Memory: replay.NewMemory(), let: make(chan struct{})}
			copies := replay.NewCopies(store, slog.New(slog.DiscardHandler))
			for i := range 4 {
				l := replay.New(limits())
				l.CopyTo(copies.Begin("s", fmt.Sprint("p", i), nil))
				for range 50 {
					_ = l.Append(replay.Event{Data: []byte(strings.Repeat("x", 60<<10))})
				}
			}
			close(store.let)
			synctest.Wait()
			copies.Close()
			kept := 0
			for i := range 4 {
				if taken, err := store.Take(t.Context(), "s", fmt.Sprint("p", i), 0, 2<<32); err == nil && len(taken.Events) == 50 {
					kept++
				}
			}
			if kept != 2 {
				t.Errorf("%d of 4 streams are whole, want the 2 for which there is room", kept)
			}
		})
	})
}

// failing is a store that fails while err is set; with hangs it blocks until its callers time out.
type failing struct {
	*replay.Memory
	hangs bool
	lost  bool // what fails is only the answer

	mu  sync.Mutex // guards err
	err error
}

func (f *failing) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *failing) Write(ctx context.Context, all []replay.Entry) error {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil && f.hangs {
		<-ctx.Done()
	}
	if err != nil {
		if f.lost {
			_ = f.Memory.Write(ctx, all)
		}
		return err
	}
	return f.Memory.Write(ctx, all)
}

// If an answer could not be written, the stream is forgotten (S-031).
func TestCopiesFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failing{Memory: replay.NewMemory()}
		c := replay.NewCopies(store, slog.New(slog.DiscardHandler))
		defer c.Close()
		l := replay.New(limits())
		l.CopyTo(c.Begin("s", "pX", [][]byte{[]byte("1")}))
		_ = l.Append(replay.Event{Data: []byte(`{"n":1}`)})
		synctest.Wait()
		store.set(errors.New("away"))
		_ = l.Append(answer("1"))
		time.Sleep(2 * time.Minute)
		store.set(nil)
		l.Finish()
		synctest.Wait()
		if taken, _, err := c.Take(t.Context(), "s", "pX", 1, 2<<32); !errors.Is(err, replay.ErrForgotten) {
			t.Errorf("Take = %+v, %v", taken, err)
		}
	})
}

// Entries that failed while the store was away are written when it is back, even if only the store's answer was lost.
func TestCopiesRepeated(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &failing{Memory: replay.NewMemory(), lost: lost}
			c := replay.NewCopies(store, slog.New(slog.DiscardHandler))
			defer c.Close()
			l := replay.New(limits())
			l.CopyTo(c.Begin("s", "pX", [][]byte{[]byte("1")}))
			_ = l.Append(replay.Event{Data: []byte(`{"n":1}`)})
			synctest.Wait()
			store.set(errors.New("away"))
			_ = l.Append(replay.Event{Data: []byte(`{"n":2}`)})
			synctest.Wait()
			_ = l.Append(answer("1"))
			time.Sleep(30 * time.Second)
			store.set(nil)
			l.Finish()
			time.Sleep(time.Second)
			if taken, _, err := c.Take(t.Context(), "s", "pX", 1, 2<<32); err != nil || len(taken.Events) != 2 || !taken.Finished {
				t.Errorf("answers lost: %t; Take = %+v, %v", lost, taken, err)
			}
		})
	}
}

// Close does not wait for an unreachable store.
func TestCopiesClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replay.NewCopies(&failing{Memory: replay.NewMemory(), hangs: true, err: errors.New("away")}, slog.New(slog.DiscardHandler))
		l := replay.New(replay.Limits{Events: 10_000, Bytes: 4 << 20, Hard: 64 << 20})
		l.CopyTo(c.Begin("s", "pX", nil))
		for range 5000 {
			_ = l.Append(replay.Event{Data: []byte(`{"n":1}`)})
		}
		began := time.Now()
		c.Close()
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}
