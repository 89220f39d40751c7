package redis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
)

// The last webhook of each server is there for all instances, whose beats tell of it, by its
// number. What somebody else has written is none (S-043, S-082).
func TestHooks(t *testing.T) {
	server := redistest.Start(t)
	c, ctx := server.Client(), t.Context()
	defer c.Close()
	o := options("A")
	o.Hooks = func() []string { return []string{"flows", "silent"} }
	s := redis.New(c, o)
	h := s.Hooks()
	beat := func() map[string]int64 {
		t.Helper()
		seen, err := s.Beat(ctx, cluster.Member{ID: "A", Address: "10.0.0.1:8809"}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return seen.Hooks
	}
	if seen := beat(); len(seen) != 0 {
		t.Errorf("before any: %v", seen)
	}
	if _, _, err := h.Get(ctx, "flows"); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("before any: %v", err)
	}
	first, err := h.Next(ctx, "flows")
	if err != nil {
		t.Fatal(err)
	}
	second, err := h.Next(ctx, "flows")
	if err != nil || second <= first {
		t.Fatalf("numbers %d and %d, %v", first, second, err)
	}
	if seen := beat(); len(seen) != 0 {
		t.Errorf("before a body is there: %v", seen)
	}
	if err := errors.Join(h.Put(ctx, "flows", second, []byte("two")), h.Put(ctx, "flows", first, []byte("one")), h.Put(ctx, "flows", second, []byte("two"))); err != nil {
		t.Fatal(err)
	}
	if n, body, err := h.Get(ctx, "flows"); err != nil || n != second || string(body) != "two" {
		t.Errorf("Get = %d %q %v, want the later one", n, body, err)
	}
	if seen := beat(); len(seen) != 1 || seen["flows"] != second {
		t.Errorf("beats tell of %v", seen)
	}
	if life := c.TTL(ctx, "b:{m}:hook:flows").Val(); life != -1 {
		t.Errorf("it lives for %v", life)
	}
	c.HSet(ctx, "b:{m}:hook:flows", "n", second+1) // an old body under another number
	if n, body, err := h.Get(ctx, "flows"); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("forged: %d %q %v", n, body, err)
	}
	// An emptied store gets it again, and goes on from its number.
	if err := errors.Join(c.FlushAll(ctx).Err(), h.Put(ctx, "flows", second, []byte("two"))); err != nil {
		t.Fatal(err)
	}
	if n, err := h.Next(ctx, "flows"); err != nil || n != second+1 {
		t.Errorf("the next number is %d, %v", n, err)
	}
}
