package clustertest

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
)

func TestStore(t *testing.T) {
	Run(t, func(*testing.T) func(owner, secret string) Shared {
		s := New()
		return func(owner, secret string) Shared {
			v := s.As(owner, secret, nil)
			return Shared{v, v, v, v.Hooks()}
		}
	})
}

// A store that comes back with an old file has the records that were there then, with their owners and epochs.
func TestRestore(t *testing.T) {
	s, ctx := New(), t.Context()
	a, b := s.As("a", "", nil), s.As("b", "", nil)
	old, err := a.Put(ctx, session.Held{Record: session.Record{Key: "k"}})
	if err != nil {
		t.Fatal(err)
	}
	file := s.Records()
	if _, err := b.Take(ctx, old); err != nil {
		t.Fatal(err)
	}
	s.Restore(file)
	if h, err := b.Find(ctx, "k"); err != nil || h.Owner != "a" || h.Epoch != 1 {
		t.Errorf("Find = %+v, %v", h, err)
	}
}

// Commands and answers take times of their own, and some answers are lost.
func TestLinear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		way := func(_ context.Context, _, _ string, do func() error) error {
			time.Sleep(rand.N(time.Second))
			err := do()
			time.Sleep(rand.N(time.Second))
			if rand.IntN(100) == 0 {
				err = session.ErrUnavailable
			}
			return err
		}
		Linear(t, func(owner string) session.Store { return s.As(owner, "", way) }, func(int) {})
	})
}
