package subscribe_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
)

// The server gets a request for the first subscriber of a resource and for the last. A subscriber that comes
// during a request waits for its result.
func TestWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w subscribe.Watched[string]
		ctx, told := t.Context(), 0
		tell := func() bool { told++; return true }
		if !w.Add(ctx, "a:", "x", tell) || !w.Add(ctx, "a:", "y", tell) || told != 1 {
			t.Errorf("told %d times of the first", told)
		}
		var who []string
		w.Of("a:/part", func(s string) { who = append(who, s) })
		w.Of("b:", func(s string) { who = append(who, s) })
		if slices.Sort(who); !slices.Equal(who, []string{"x", "y"}) {
			t.Errorf("a part is heard of by %q", who)
		}
		told = 0
		for _, who := range []string{"x", "y"} {
			w.Remove(ctx, "a:", who, func() { told++ })
		}
		if told != 1 || w.Len() != 0 {
			t.Errorf("told %d times of the last, %d resources left", told, w.Len())
		}

		begun, end := make(chan struct{}), make(chan struct{})
		go w.Add(ctx, "a:", "x", func() bool {
			close(begun)
			<-end
			return false // the request failed
		})
		<-begun
		short, stop := context.WithCancelCause(ctx)
		stop(errors.New("too late"))
		if w.Add(short, "a:", "z", tell) {
			t.Error("one is in that did not wait")
		}
		done := make(chan bool)
		go func() { done <- w.Add(ctx, "a:", "y", tell) }()
		synctest.Wait()
		close(end)
		if !<-done {
			t.Error("the second is not in")
		}
		if w.Remove(ctx, "a:", "y", func() {}); w.Len() != 0 {
			t.Errorf("%d resources left", w.Len())
		}
	})
}
