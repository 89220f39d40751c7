package redis_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/cluster/redis"
)

// The store shows neither tasks nor callers (S-073), and what somebody else has written to it is nobody's (S-082).
func TestTasks(t *testing.T) {
	server, c, ctx := open(t)
	s := redis.New(c, options("A")).Tasks()
	noted := func(principal string, want ...bool) {
		t.Helper()
		if got, err := s.Noted(ctx, "files", principal, []string{"task 1", "task 2"}); err != nil || !slices.Equal(got, want) {
			t.Errorf("of %s: %v, %v, want %v", principal, got, err, want)
		}
	}
	for _, step := range []struct{ task, principal string }{{"task 2", "alice"}, {"task 1", "bob"}, {"task 2", "bob"}} {
		if err := s.Note(ctx, "files", step.task, step.principal); err != nil {
			t.Fatal(err)
		}
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
	if got, err := s.Noted(ctx, "files", "alice", []string{"task 1"}); err == nil {
		t.Errorf("without the store: %v", got)
	}
}
