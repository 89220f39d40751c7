package redis_test

import (
	"errors"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster/redis"
)

// The last webhook of a server stays. What somebody else has written is none (S-043, S-082).
func TestHooks(t *testing.T) {
	_, c, ctx := open(t)
	h := redis.New(c, options("A")).Hooks()
	n, err := h.Next(ctx, "flows")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Put(ctx, "flows", n, []byte("body")); err != nil {
		t.Fatal(err)
	}
	if life := c.TTL(ctx, "b:{m}:hook:flows").Val(); life != -1 {
		t.Errorf("it lives for %v", life)
	}
	c.HSet(ctx, "b:{m}:hook:flows", "n", n+1) // an old body under another number
	if number, body, err := h.Get(ctx, "flows"); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("forged: %d %q %v", number, body, err)
	}
	// An emptied store gets it again, and goes on from its number.
	if err := errors.Join(c.FlushAll(ctx).Err(), h.Put(ctx, "flows", n, []byte("body"))); err != nil {
		t.Fatal(err)
	}
	if next, err := h.Next(ctx, "flows"); err != nil || next != n+1 {
		t.Errorf("the next number is %d, %v", next, err)
	}
}
