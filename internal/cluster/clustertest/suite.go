package clustertest

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/bridge/session/sessiontest"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

// Shared is a store as one instance reaches it.
type Shared struct {
	Sessions session.Store
	Registry cluster.Registry
	Tasks    Tasks
	Hooks    Webhooks // of the server "flows"
}

// Tasks knows whose the tasks of servers are.
type Tasks interface {
	Note(ctx context.Context, server, task, principal string) error
	Noted(ctx context.Context, server, principal string, tasks []string) ([]bool, error)
}

// Webhooks has the last webhook of each server.
type Webhooks interface {
	Next(ctx context.Context, server string) (int64, error)
	Put(ctx context.Context, server string, n int64, body []byte) error
	Get(ctx context.Context, server string) (n int64, body []byte, err error)
}

// Run runs the suite. open makes an empty store, and as returns the store as an instance reaches it. Two instances see each
// other if their secrets are the same.
func Run(t *testing.T, open func(t *testing.T) (as func(owner, secret string) Shared)) {
	const secret = "a secret of more than 32 characters"
	t.Run("sessions", func(t *testing.T) {
		sessiontest.Run(t, func(t *testing.T) func(string) session.Store {
			as := open(t)
			return func(owner string) session.Store { return as(owner, secret).Sessions }
		})
	})
	t.Run("members", func(t *testing.T) {
		as := open(t)
		members(t, as("A", secret).Registry, as("B", secret).Registry)
	})
	t.Run("members with another secret", func(t *testing.T) {
		as := open(t)
		if _, err := as("A", secret).Registry.Beat(t.Context(), cluster.Member{ID: "A"}, time.Minute); err != nil {
			t.Fatal(err)
		}
		seen, err := as("B", "another "+secret).Registry.Beat(t.Context(), cluster.Member{ID: "B"}, time.Minute)
		if err != nil || len(seen.Members) != 1 || !slices.Equal(seen.Sealed, []string{"A"}) {
			t.Errorf("Beat = %+v, %v", seen, err)
		}
	})
	t.Run("tasks", func(t *testing.T) {
		as := open(t)
		tasks(t, as("A", secret).Tasks, as("B", secret).Tasks)
	})
	t.Run("webhooks", func(t *testing.T) {
		as := open(t)
		webhooks(t, as("A", secret), as("B", secret).Hooks)
	})
}

// members plays two instances that beat.
func members(t *testing.T, a, b cluster.Registry) {
	ctx := t.Context()
	is := map[string]cluster.Member{
		"A": {ID: "A", Address: "a:1", Running: map[string]int{"files": 2}},
		"B": {ID: "B", Address: "b:1", Sessions: 3},
	}
	beat := func(r cluster.Registry, id string, absent bool, want ...string) cluster.Seen {
		t.Helper()
		seen, err := r.Beat(ctx, is[id], time.Minute)
		slices.SortFunc(seen.Members, func(a, b cluster.Member) int { return cmp.Compare(a.ID, b.ID) })
		var members []cluster.Member
		for _, id := range want {
			members = append(members, is[id])
		}
		if err != nil || seen.Absent != absent || !reflect.DeepEqual(seen.Members, members) || seen.Run == "" {
			t.Fatalf("Beat = %+v, %v, want absent: %t and %v", seen, err, absent, members)
		}
		return seen
	}
	present := func(id string, want bool) {
		t.Helper()
		if there, err := a.Present(ctx, id); err != nil || there != want {
			t.Errorf("Present of %s = %t, %v, want %t", id, there, err, want)
		}
	}
	first := beat(a, "A", true, "A")
	beat(b, "B", true, "A", "B")
	beat(a, "A", false, "A", "B")
	is["B"] = cluster.Member{ID: "B", Address: "b:1", Draining: true}
	beat(b, "B", false, "A", "B")
	beat(a, "A", false, "A", "B")
	present("B", true)
	if err := b.Leave(ctx, "B"); err != nil {
		t.Fatal(err)
	}
	present("B", false)
	if seen := beat(a, "A", false, "A"); seen.Run != first.Run {
		t.Error("the store is taken for another one")
	}
	if _, err := b.Beat(ctx, is["B"], 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for { // until its lease ends
		there, err := a.Present(ctx, "B")
		if err != nil {
			t.Fatal(err)
		}
		if !there {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	beat(a, "A", false, "A")
	beat(b, "B", true, "A", "B")
}

// tasks plays that one instance notes whose tasks are, and another one asks (S-042).
func tasks(t *testing.T, a, b Tasks) {
	ctx := t.Context()
	noted := func(server, principal string, want ...bool) {
		t.Helper()
		if got, err := b.Noted(ctx, server, principal, []string{"task 1", "task 2"}); err != nil || !slices.Equal(got, want) {
			t.Errorf("of %s at %s: %v, %v, want %v", principal, server, got, err, want)
		}
	}
	noted("files", "alice", false, false)
	for _, step := range []struct{ task, principal string }{{"task 2", "alice"}, {"task 1", "bob"}, {"task 2", "bob"}} {
		if err := a.Note(ctx, "files", step.task, step.principal); err != nil {
			t.Fatal(err)
		}
	}
	noted("files", "alice", false, true)
	noted("files", "bob", true, true)
	noted("files", "", false, false)
	noted("other", "bob", false, false)
}

// webhooks plays that the last webhook of a server is there for all instances, whose beats tell of it by its number (S-043).
func webhooks(t *testing.T, a Shared, b Webhooks) {
	ctx := t.Context()
	beat := func() map[string]int64 {
		t.Helper()
		seen, err := a.Registry.Beat(ctx, cluster.Member{ID: "A"}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return seen.Hooks
	}
	next := func(h Webhooks) int64 {
		t.Helper()
		n, err := h.Next(ctx, "flows")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if _, _, err := b.Get(ctx, "flows"); !errors.Is(err, session.ErrNotFound) || len(beat()) > 0 {
		t.Errorf("before any: %v", err)
	}
	first, second := next(a.Hooks), next(b)
	if second <= first || len(beat()) > 0 {
		t.Fatalf("numbers %d and %d, before a body is there", first, second)
	}
	if err := errors.Join(a.Hooks.Put(ctx, "flows", second, []byte("two")), a.Hooks.Put(ctx, "flows", first, []byte("one")), b.Put(ctx, "flows", second, []byte("two"))); err != nil {
		t.Fatal(err)
	}
	if n, body, err := b.Get(ctx, "flows"); err != nil || n != second || string(body) != "two" {
		t.Errorf("Get = %d %q %v, want the later one", n, body, err)
	}
	if seen := beat(); len(seen) != 1 || seen["flows"] != second {
		t.Errorf("beats tell of %v", seen)
	}
}
