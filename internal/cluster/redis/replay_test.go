package redis_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/bridge/replay/replaytest"
	"github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
)

func TestStreams(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client()
	defer c.Close()
	replaytest.Run(t, func(t *testing.T) replay.Store {
		if err := c.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		return redis.New(c, options("A")).Streams()
	})
}

// Nothing of a stream is readable (S-073), what somebody else has written reaches no
// client (S-082), and it goes by itself.
func TestStreamKeys(t *testing.T) {
	server, c, ctx := open(t)
	s := redis.New(c, options("A")).Streams()
	e := replay.Entry{Session: "S", Stream: "pX", Kind: replay.Added, Seq: 1, Open: [][]byte{[]byte(`"an id"`)}, Data: []byte(`{"a":"payload"}`)}
	if err := s.Write(ctx, []replay.Entry{e}); err != nil {
		t.Fatal(err)
	}
	if life, err := c.PTTL(ctx, "b:r:S:pX").Result(); err != nil || life <= 0 || life > 10*time.Minute {
		t.Errorf("it lives for %v, %v", life, err)
	}
	list, err := c.XRange(ctx, "b:r:S:pX", "-", "+").Result()
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	sealed := list[0].Values["b"].(string)
	for _, open := range []string{"an id", "payload"} {
		if strings.Contains(sealed, open) {
			t.Errorf("%q can be read", open)
		}
	}
	for _, place := range []string{"1-2", "2-0"} { // the same text at another place
		if err := c.Do(ctx, "XADD", "b:r:S:pX", place, "b", sealed).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Take(ctx, "S", "pX", 0, 2<<32); err == nil {
			t.Errorf("with a forged entry: %+v", got)
		}
		if err := c.Del(ctx, "b:r:S:pX").Err(); err != nil {
			t.Fatal(err)
		}
		if err := s.Write(ctx, []replay.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	server.Kill()
	if err := s.Write(ctx, []replay.Entry{e}); err == nil {
		t.Error("Write without a store succeeded")
	}
}
