// Package sessiontest is the suite that every session.Store has to pass.
package sessiontest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
)

// Run runs the suite on stores made by open, each for at most 100 sessions.
func Run(t *testing.T, open func(t *testing.T) session.Store) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	t.Run("put, get, touch, delete", func(t *testing.T) {
		s, ctx := open(t), t.Context()
		r := session.Record{Key: session.Key("a"), Server: "files", Principal: "p", Revision: "2025-11-25", Params: []byte(`{}`), Created: at, Seen: at}
		if err := s.Put(ctx, r); err != nil {
			t.Fatal(err)
		}
		if err := s.Touch(ctx, r.Key, at.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(ctx, r.Key)
		if err != nil || got.Server != "files" || !got.Seen.Equal(at.Add(time.Hour)) || string(got.Params) != "{}" {
			t.Errorf("Get = %+v, %v", got, err)
		}
		for range 2 {
			if err := s.Delete(ctx, r.Key); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Get(ctx, r.Key); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("Get after Delete = %v, want ErrNotFound", err)
		}
		if err := s.Touch(ctx, r.Key, at); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("Touch after Delete = %v, want ErrNotFound", err)
		}
	})
	t.Run("limit", func(t *testing.T) {
		s, ctx := open(t), t.Context()
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if err := s.Put(ctx, session.Record{Key: fmt.Sprint(i)}); err != nil {
					t.Errorf("Put %d = %v", i, err)
				}
			})
		}
		wg.Wait()
		if err := s.Put(ctx, session.Record{Key: "more"}); !errors.Is(err, session.ErrFull) {
			t.Errorf("Put above the limit = %v, want ErrFull", err)
		}
		if err := s.Put(ctx, session.Record{Key: "5", Server: "again"}); err != nil {
			t.Errorf("Put of a known record = %v", err)
		}
		if err := s.Delete(ctx, "7"); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(ctx, session.Record{Key: "more"}); err != nil {
			t.Errorf("Put after Delete = %v", err)
		}
	})
}
