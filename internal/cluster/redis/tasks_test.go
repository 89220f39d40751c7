package redis_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
)

// Each instance knows whose a task is (S-042). The store shows neither (S-073), and what
// somebody else has written to it is nobody's (S-082).
func TestTasks(t *testing.T) {
	server := redistest.Start(t)
	c, ctx := server.Client(), t.Context()
	defer c.Close()
	var a, b bridge.Owners = redis.New(c, options("A")).Tasks(), redis.New(c, options("B")).Tasks()
	noted := func(principal string, want ...bool) {
		t.Helper()
		if got, err := b.Noted(ctx, "files", principal, []string{"task 1", "task 2"}); err != nil || !slices.Equal(got, want) {
			t.Errorf("of %s: %v, %v, want %v", principal, got, err, want)
		}
	}
	noted("alice", false, false)
	for _, step := range []struct{ task, principal string }{{"task 2", "alice"}, {"task 1", "bob"}, {"task 2", "bob"}} {
		if err := a.Note(ctx, "files", step.task, step.principal); err != nil {
			t.Fatal(err)
		}
	}
	noted("alice", false, true)
	noted("bob", true, true)
	noted("", false, false)
	if got, err := b.Noted(ctx, "other", "bob", []string{"task 1"}); err != nil || got[0] {
		t.Errorf("at another server: %v, %v", got, err)
	}
	keys, err := c.Keys(ctx, "*").Result()
	if err != nil || len(keys) != 3 {
		t.Fatalf("keys: %v, %v", keys, err)
	}
	for i, key := range keys {
		life, err := c.PTTL(ctx, key).Result()
		if err != nil || life <= 0 || life > 24*time.Hour {
			t.Errorf("%s lives for %v, %v", key, life, err)
		}
		if text := key + c.Get(ctx, key).Val(); strings.Contains(text, "task ") || strings.Contains(text, "alice") || strings.Contains(text, "bob") {
			t.Errorf("it can be read: %q", text)
		}
		c.Set(ctx, key, c.Get(ctx, keys[(i+1)%3]).Val(), time.Minute) // what stood elsewhere
	}
	noted("alice", false, false)
	noted("bob", false, false)
	o := options("C")
	o.Secrets = []string{"another secret of more than 32 characters"}
	if err := redis.New(c, o).Tasks().Note(ctx, "files", "task 1", "alice"); err != nil {
		t.Fatal(err)
	}
	noted("alice", false, false)
	server.Kill()
	if got, err := b.Noted(ctx, "files", "alice", []string{"task 1"}); err == nil {
		t.Errorf("without the store: %v", got)
	}
}
