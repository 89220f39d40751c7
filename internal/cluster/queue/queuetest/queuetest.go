// Package queuetest is the suite that every queue.Queue must pass.
package queuetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster/queue"
)

// Run runs the suite. open returns an empty queue.
func Run(t *testing.T, open func(t *testing.T) queue.Queue) {
	const soon, long = 50 * time.Millisecond, time.Hour
	add := func(t *testing.T, q queue.Queue, server string, ids ...string) (entries []string) {
		t.Helper()
		for _, id := range ids {
			entry, err := q.Add(t.Context(), server, queue.Request{ID: id, Front: "front of " + id}, 100)
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, entry)
		}
		return entries
	}
	ids := func(all []queue.Taken) string {
		var out []string
		for _, t := range all {
			if t.Front != "front of "+t.ID {
				out = append(out, "not whole:")
			}
			out = append(out, t.Server+" "+t.ID)
		}
		return strings.Join(out, ", ")
	}
	take := func(t *testing.T, q queue.Queue, wait time.Duration, servers ...string) []queue.Taken {
		t.Helper()
		for begun := time.Now(); ; {
			all, err := q.Take(t.Context(), servers, wait)
			if err != nil {
				t.Fatal(err)
			}
			if len(all) > 0 || time.Since(begun) >= wait { // the first call may only create the lines
				return all
			}
		}
	}
	is := func(t *testing.T, what string, all []queue.Taken, want string) {
		t.Helper()
		if got := ids(all); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	t.Run("in order of arrival, each once", func(t *testing.T) {
		q := open(t)
		add(t, q, "a", "1", "2", "3")
		for _, want := range []string{"a 1", "a 2", "a 3"} {
			is(t, "taken", take(t, q, long, "a"), want)
		}
		is(t, "then", take(t, q, soon, "a"), "")
	})
	t.Run("one of each line", func(t *testing.T) {
		q := open(t)
		add(t, q, "a", "1", "2")
		add(t, q, "b", "3")
		add(t, q, "c", "4")
		is(t, "first", take(t, q, long, "a", "b"), "a 1, b 3")
		is(t, "second", take(t, q, long, "a", "b"), "a 2")
		is(t, "another line", take(t, q, long, "c"), "c 4")
	})
	t.Run("waits for a request", func(t *testing.T) {
		q := open(t)
		is(t, "before", take(t, q, soon, "a", "b"), "")
		var all sync.WaitGroup
		all.Go(func() {
			time.Sleep(soon) // at any time: the request may come before the wait or during it
			add(t, q, "b", "1")
		})
		defer all.Wait()
		is(t, "taken", take(t, q, long, "a", "b"), "b 1")
	})
	t.Run("as long as it may be", func(t *testing.T) {
		q := open(t)
		entries := add(t, q, "a", "1", "2")
		one := func() error {
			_, err := q.Add(t.Context(), "a", queue.Request{ID: "3", Front: "front of 3"}, 2)
			return err
		}
		if err := one(); !errors.Is(err, session.ErrFull) {
			t.Errorf("one too many: %v", err)
		}
		take(t, q, long, "a")
		if err := one(); !errors.Is(err, session.ErrFull) { // no worker has sent a grant to the front
			t.Errorf("Add to a full line with one taken request = %v", err)
		}
		if n, err := q.Lengths(t.Context(), []string{"a", "b"}); err != nil || !slices.Equal(n, []int{2, 0}) {
			t.Errorf("lengths %v, %v", n, err)
		}
		if err := q.Done(t.Context(), "a", entries[0]); err != nil {
			t.Fatal(err)
		}
		if err := one(); err != nil {
			t.Errorf("with room: %v", err)
		}
		is(t, "taken", take(t, q, long, "a"), "a 2")
	})
	t.Run("taken back before it is taken", func(t *testing.T) {
		q := open(t)
		entries := add(t, q, "a", "1", "2")
		if err := q.Done(t.Context(), "a", entries[0]); err != nil {
			t.Fatal(err)
		}
		is(t, "taken", take(t, q, long, "a"), "a 2")
	})
	t.Run("there until it is done", func(t *testing.T) {
		q := open(t)
		entries := add(t, q, "a", "1", "2")
		has := func(server, entry string) bool {
			t.Helper()
			there, err := q.Has(t.Context(), server, entry)
			if err != nil {
				t.Fatal(err)
			}
			return there
		}
		take(t, q, long, "a")
		if !has("a", entries[0]) || !has("a", entries[1]) || has("b", entries[0]) {
			t.Error("what was taken, or what was not, is missing, or it is in another line")
		}
		if err := q.Done(t.Context(), "a", entries[0]); err != nil {
			t.Fatal(err)
		}
		if has("a", entries[0]) || !has("a", entries[1]) {
			t.Error("what is done is there, or what is not done is missing")
		}
	})
	t.Run("not done, others get it", func(t *testing.T) {
		q, ctx := open(t), t.Context()
		add(t, q, "a", "1", "2")
		first := take(t, q, long, "a")
		overdue := func(after time.Duration) []queue.Taken {
			t.Helper()
			all, err := q.Overdue(ctx, []string{"a", "b"}, after, 1)
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		is(t, "at once", overdue(long), "")
		time.Sleep(20 * time.Millisecond) // stores measure time in milliseconds
		is(t, "later", overdue(10*time.Millisecond), "a 1")
		is(t, "it has another now", overdue(long), "")
		if err := q.Return(ctx, first[0]); err != nil {
			t.Fatal(err)
		}
		is(t, "given back", overdue(long), "a 1")
		if err := q.Done(ctx, "a", first[0].Entry); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		is(t, "done", overdue(time.Millisecond), "")
		is(t, "the next", take(t, q, long, "a"), "a 2")
	})
	t.Run("the first ones that are not done", func(t *testing.T) {
		q, ctx := open(t), t.Context()
		add(t, q, "a", "1", "2", "3", "4")
		for range 3 {
			for _, o := range take(t, q, long, "a") {
				if err := q.Return(ctx, o); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, want := range []string{"a 1, a 2", "a 3", ""} {
			all, err := q.Overdue(ctx, []string{"a", "b"}, long, 2)
			if err != nil {
				t.Fatal(err)
			}
			is(t, "overdue", all, want)
		}
	})
	t.Run("many at once, each once", func(t *testing.T) {
		q := open(t)
		const n = 200
		var mu sync.Mutex
		seen, last := map[string]int{}, map[string]int{}
		var all sync.WaitGroup
		for front := range 4 {
			all.Go(func() {
				for i := range n / 4 {
					if _, err := q.Add(t.Context(), "a", queue.Request{ID: fmt.Sprint(front, " ", i), Front: fmt.Sprint(front)}, n); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		for range 4 {
			all.Go(func() {
				for {
					mine, err := q.Take(t.Context(), []string{"a"}, soon)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, t := range mine {
						seen[t.ID]++
						last[t.Front]++
					}
					whole := len(seen)
					mu.Unlock()
					if whole >= n {
						return
					}
				}
			})
		}
		all.Wait()
		for id, times := range seen {
			if times != 1 {
				t.Errorf("%s was taken %d times", id, times)
			}
		}
		if len(last) != 4 {
			t.Errorf("%v", last)
		}
	})
}
