// Package sessiontest is the suite that every session.Store must pass.
package sessiontest

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/session"
)

// Run runs the suite. open makes an empty store, and as returns the view of an owner.
func Run(t *testing.T, open func(t *testing.T) (as func(owner string) session.Store)) {
	record := func(key string) session.Held {
		return session.Held{Record: session.Record{
			Key:       session.Key(key),
			Server:    "files",
			Principal: "p",
			Revision:  "2025-11-25",
			Params:    []byte(`{"a": "<ü>"}`),
			Header:    http.Header{"X-Tenant": {"one", "two"}},
			Level:     []byte(`{"level":"info"}`),
			Subs:      []string{"file:///a"},
			Greeting:  []byte(`{}`),
		}}
	}
	put := func(t *testing.T, s session.Store, key string) session.Held {
		t.Helper()
		h, err := s.Put(t.Context(), record(key))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	moved := func(t *testing.T, err error, owner string, epoch int64) {
		t.Helper()
		m, ok := errors.AsType[*session.Moved](err)
		if !ok || m.Owner != owner || m.Epoch != epoch || !errors.Is(err, session.ErrFenced) {
			t.Errorf("%v (%+v), want a move to %q at epoch %d", err, m, owner, epoch)
		}
	}
	t.Run("what is put is found, whole, until it is deleted", func(t *testing.T) {
		as, ctx := open(t), t.Context()
		s, b := as("a"), as("b")
		h := put(t, s, "one")
		if want := record("one"); !reflect.DeepEqual(h.Record, want.Record) || h.Owner != "a" || h.Epoch != 1 {
			t.Errorf("Put = %+v", h)
		}
		if got, err := b.Find(ctx, h.Key); err != nil || !reflect.DeepEqual(got, h) {
			t.Errorf("Find = %+v, %v, want %+v", got, err, h)
		}
		_, err := b.Put(ctx, record("one"))
		moved(t, err, "a", 1)
		for range 2 {
			if err := s.Delete(ctx, h); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.Find(ctx, h.Key); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("Find after Delete = %v", err)
		}
		if err := s.Save(ctx, h); !errors.Is(err, session.ErrFenced) {
			t.Errorf("Save after Delete = %v", err)
		}
		if _, err := b.Take(ctx, h); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("Take after Delete = %v", err)
		}
		h.Epoch = 41
		if again, err := s.Put(ctx, h); err != nil || again.Epoch != 42 {
			t.Errorf("Put again = %+v, %v, want epoch 42", again, err)
		}
	})
	// (S-011): a change of the owner increases the epoch and fences the former owner.
	t.Run("take", func(t *testing.T) {
		as, ctx := open(t), t.Context()
		s, b := as("a"), as("b")
		old := put(t, s, "one")
		h, err := b.Take(ctx, old)
		if want := record("one"); err != nil || h.Owner != "b" || h.Epoch != 2 || !reflect.DeepEqual(h.Record, want.Record) {
			t.Fatalf("Take = %+v, %v", h, err)
		}
		_, err = as("c").Take(ctx, old)
		moved(t, err, "b", 2)
		if err := s.Save(ctx, old); !errors.Is(err, session.ErrFenced) {
			t.Errorf("Save of the old owner = %v", err)
		}
		if err := s.Release(ctx, old); !errors.Is(err, session.ErrFenced) {
			t.Errorf("Release of the old owner = %v", err)
		}
		if fenced, err := s.Keep(ctx, []session.Held{old}); err != nil || len(fenced) != 1 || fenced[0].Key != old.Key {
			t.Errorf("Keep of the old owner = %v, %v", fenced, err)
		}
		if err := s.Delete(ctx, old); err != nil {
			t.Error(err)
		}
		h.Subs = append(h.Subs, "file:///b")
		if err := b.Save(ctx, h); err != nil {
			t.Error(err)
		}
		if fenced, err := b.Keep(ctx, []session.Held{h}); err != nil || len(fenced) != 0 {
			t.Errorf("Keep = %v, %v", fenced, err)
		}
		if got, err := s.Find(ctx, h.Key); err != nil || !reflect.DeepEqual(got, h) {
			t.Errorf("Find = %+v, %v, want %+v", got, err, h)
		}
	})
	t.Run("release", func(t *testing.T) {
		as, ctx := open(t), t.Context()
		s, b := as("a"), as("b")
		h := put(t, s, "one")
		if err := s.Release(ctx, h); err != nil {
			t.Fatal(err)
		}
		if err := s.Save(ctx, h); !errors.Is(err, session.ErrFenced) {
			t.Errorf("Save of what was released = %v", err)
		}
		free, err := b.Find(ctx, h.Key)
		if err != nil || free.Owner != "" || free.Epoch != 1 {
			t.Fatalf("Find = %+v, %v", free, err)
		}
		if got, err := b.Take(ctx, free); err != nil || got.Owner != "b" || got.Epoch != 2 {
			t.Errorf("Take = %+v, %v", got, err)
		}
	})
	t.Run("asked again, since an answer was lost", func(t *testing.T) {
		as, ctx := open(t), t.Context()
		s, b := as("a"), as("b")
		h := put(t, s, "one")
		if again, err := s.Put(ctx, record("one")); err != nil || !reflect.DeepEqual(again, h) {
			t.Errorf("Put = %+v, %v, want %+v", again, err, h)
		}
		taken, err := b.Take(ctx, h)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := b.Take(ctx, h); err != nil || !reflect.DeepEqual(again, taken) {
			t.Errorf("Take = %+v, %v, want %+v", again, err, taken)
		}
		_, err = s.Put(ctx, record("one"))
		moved(t, err, "b", 2)
	})
	// (S-013): if several owners call Take at once, one succeeds, and the others learn its name from the error.
	t.Run("one wins", func(t *testing.T) {
		as, ctx := open(t), t.Context()
		for round := range 20 {
			h := put(t, as("a"), fmt.Sprint(round))
			var won atomic.Int32
			var wg sync.WaitGroup
			for i := range 8 {
				me := as(fmt.Sprint("taker", i))
				wg.Go(func() {
					got, err := me.Take(ctx, h)
					if m, ok := errors.AsType[*session.Moved](err); err == nil && got.Epoch == 2 {
						won.Add(1)
					} else if !ok || m.Epoch != 2 {
						t.Errorf("Take = %+v, %v", got, err)
					}
				})
			}
			wg.Wait()
			if won.Load() != 1 {
				t.Errorf("%d have won", won.Load())
			}
		}
	})
}
