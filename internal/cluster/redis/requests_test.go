package redis_test

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster/queue"
	"github.com/mcp-bridge/bridge/internal/cluster/queue/queuetest"
	"github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
)

var quiet = slog.New(slog.DiscardHandler)

// lines returns a function that makes queues, which share a client: each has a prefix of its own.
func lines(c redis.Client) func(*testing.T) queue.Queue {
	return func(*testing.T) queue.Queue {
		o := options("A")
		o.Prefix = "b:" + rand.Text()
		return redis.New(c, o).Requests(quiet)
	}
}

// The rights that the documentation gives the user are enough.
func TestOffers(t *testing.T) {
	server := redistest.Start(t)
	queuetest.Run(t, lines(connect(t, "redis://"+allow(t, server)+server.Address+"/0")))
}

// Several lines are read in one request also where Redis is several.
func TestOffersCluster(t *testing.T) {
	queuetest.Run(t, lines(connect(t, "redis+cluster://"+addresses(redistest.Cluster(t, 3)))))
}

// What no instance has written to a line is dropped, with a line in the log; a line that
// somebody has made useless begins anew (S-082). Nothing of a request can be read (S-073).
func TestOffersGarbage(t *testing.T) {
	_, c, ctx := open(t)
	const line = "b:{q}:a"
	said := &strings.Builder{}
	r := redis.New(c, options("A")).Requests(slog.New(slog.NewTextHandler(said, nil)))
	stranger := options("B")
	stranger.Secrets = []string{"another secret of more than 32 characters"}
	add := func(id string) {
		t.Helper()
		for {
			_, err := r.Add(ctx, "a", queue.Request{ID: id, Front: "the front"}, 100)
			if err == nil {
				return
			}
			if !errors.Is(err, session.ErrUnavailable) {
				t.Fatal(err)
			}
		}
	}
	next := func(want string) {
		t.Helper()
		for {
			all, err := r.Take(ctx, []string{"a"}, 20*time.Millisecond)
			if err != nil && !errors.Is(err, session.ErrUnavailable) {
				t.Fatal(err)
			}
			for _, o := range all {
				if o.ID != want || o.Front != "the front" {
					t.Errorf("taken: %+v, want %s", o, want)
				}
				return
			}
		}
	}
	add("1")
	dump := c.Dump(ctx, line).Val()
	for _, open := range []string{"the front", `"id"`} {
		if strings.Contains(dump, open) {
			t.Errorf("the line shows %q", open)
		}
	}
	next("1")
	for _, values := range []map[string]any{{"o": "garbage"}, {"x": "y"}, {"o": ""}, {"o": strings.Repeat("z", 100_000)}} {
		c.XAdd(ctx, &goredis.XAddArgs{Stream: line, Values: values})
	}
	if _, err := redis.New(c, stranger).Requests(quiet).Add(ctx, "a", queue.Request{ID: "forged", Front: "the front"}, 100); err != nil {
		t.Fatal(err)
	}
	moved := c.XRange(ctx, line, "-", "+").Val()[0].Values // the request of another line
	if err := c.XAdd(ctx, &goredis.XAddArgs{Stream: "b:{q}:b", Values: moved}).Err(); err != nil {
		t.Fatal(err)
	}
	add("2")
	next("2")
	if n := strings.Count(said.String(), "dropped an entry"); n != 5 {
		t.Errorf("%d lines in the log about what was dropped, want 5: %s", n, said)
	}
	for range 5 {
		if all, err := r.Take(ctx, []string{"b"}, 20*time.Millisecond); err != nil || len(all) > 0 {
			t.Fatalf("the request of another line: %+v, %v", all, err)
		}
	}
	for name, spoil := range map[string]func() error{
		"another kind of key": func() error { return c.Set(ctx, line, "text", 0).Err() },
		"the last id": func() error {
			return c.XAdd(ctx, &goredis.XAddArgs{Stream: line, ID: "18446744073709551615-18446744073709551615", Values: map[string]any{"o": "x"}}).Err()
		},
		"no group":   func() error { return c.XGroupDestroy(ctx, line, "w").Err() },
		"emptied":    func() error { return c.FlushAll(ctx).Err() },
		"moved back": func() error { return c.XGroupSetID(ctx, line, "w", "0").Err() },
	} {
		said.Reset()
		if err := c.Del(ctx, line).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Take(ctx, []string{"a"}, time.Millisecond); err != nil { // it begins
			t.Fatal(err)
		}
		if err := spoil(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		add("after " + name)
		next("after " + name)
	}
}
