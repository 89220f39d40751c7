package deadline_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/internal/deadline"
)

// A limit counts only the time in which nobody has it stand still.
func TestWithTimeout(t *testing.T) {
	type stay struct{ from, to time.Duration }
	for _, tc := range []struct {
		name  string
		stays []stay
		want  time.Duration
	}{
		{"nobody", nil, time.Minute},
		{"once", []stay{{10 * time.Second, time.Hour}}, time.Hour + 50*time.Second},
		{"twice", []stay{{10 * time.Second, 20 * time.Second}, {30 * time.Second, 50 * time.Second}}, 90 * time.Second},
		{"two at once", []stay{{10 * time.Second, 30 * time.Second}, {20 * time.Second, 50 * time.Second}}, 100 * time.Second},
		{"at its end", []stay{{time.Minute - 1, time.Hour}}, time.Hour + 1},
		{"too late", []stay{{2 * time.Minute, time.Hour}}, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				why := errors.New("it took too long")
				ctx, cancel := deadline.WithTimeout(t.Context(), time.Minute, why)
				defer cancel()
				inner, stop := context.WithCancel(ctx)
				defer stop()
				began := time.Now()
				for _, s := range tc.stays {
					time.AfterFunc(s.from, func() {
						end := deadline.Hold(inner)
						time.AfterFunc(s.to-s.from, func() { end(); end() })
					})
				}
				<-ctx.Done()
				if took := time.Since(began); took != tc.want || context.Cause(ctx) != why {
					t.Errorf("it ended after %v with %v, want %v", took, context.Cause(ctx), tc.want)
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// All limits that a context is under stand still, and none that was ended begins again.
func TestStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer, stop := deadline.WithTimeout(t.Context(), time.Minute, nil)
		defer stop()
		inner, cancel := deadline.WithTimeout(outer, time.Second, nil)
		held := 0
		end := deadline.Hold(deadline.With(context.WithoutCancel(inner), func() func() { held++; return func() { held-- } }))
		time.Sleep(time.Hour)
		if outer.Err() != nil || inner.Err() != nil || held != 1 {
			t.Errorf("outer %v, inner %v, held %d", outer.Err(), inner.Err(), held)
		}
		cancel()
		end()
		if held != 0 || !errors.Is(context.Cause(inner), context.Canceled) {
			t.Errorf("held %d, inner %v", held, context.Cause(inner))
		}
		time.Sleep(time.Minute + 1)
		if outer.Err() == nil {
			t.Error("the outer limit does not count again")
		}
		deadline.Hold(t.Context())() // without a limit there is nothing to do
	})
}
