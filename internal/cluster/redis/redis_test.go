package redis_test

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/clustertest"
	"github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
)

const secret = "a secret of more than 32 characters"

func options(owner string) redis.Options {
	return redis.Options{Prefix: "b", Owner: owner, Secrets: []string{secret}, Life: time.Minute}
}

// stores returns a function that makes empty stores, which share a client: each has a prefix of its own.
func stores(c redis.Client) func(*testing.T) func(owner, secret string) clustertest.Shared {
	return func(*testing.T) func(owner, secret string) clustertest.Shared {
		prefix := "b:" + rand.Text()
		return func(owner, secret string) clustertest.Shared {
			s := redis.New(c, redis.Options{
				Prefix:  prefix,
				Owner:   owner,
				Secrets: []string{secret},
				Life:    time.Minute,
				Hooks:   func() []string { return []string{"flows", "silent"} },
			})
			return clustertest.Shared{
				Sessions: s,
				Registry: s,
				Tasks:    s.Tasks(),
				Hooks:    s.Hooks(),
			}
		}
	}
}

// open starts a store, and returns a client of it.
func open(t *testing.T) (*redistest.Server, redis.Client, context.Context) {
	server := redistest.Start(t)
	c := server.Client()
	t.Cleanup(func() { _ = c.Close() })
	return server, c, t.Context()
}

// connect returns a client of a store, which is closed when the test ends.
func connect(t *testing.T, url string) redis.Client {
	t.Helper()
	c, err := redis.Connect(url, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// allow makes the user that docs/cluster.md describes, and returns what stands before the address in its URL.
func allow(t *testing.T, servers ...*redistest.Server) (user string) {
	t.Helper()
	command := []any{"ACL", "SETUSER", "bridge", "on", ">password", "~b:*"}
	for r := range strings.FieldsSeq("+@connection +@read +@write +@scripting -@dangerous +info +time +command +cluster|slots +cluster|shards +cluster|nodes") {
		command = append(command, r)
	}
	for _, s := range servers {
		admin := s.Client()
		err := admin.Do(t.Context(), command...).Err()
		_ = admin.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	return "bridge:password@"
}

// The rights that the documentation gives the user are enough.
func TestStore(t *testing.T) {
	server := redistest.Start(t)
	clustertest.Run(t, stores(connect(t, "redis://"+allow(t, server)+server.Address+"/0")))
}

// A session and an instance: what is where, how long it lives, and that nothing of it is
// readable (S-073), and that what somebody else has written counts as missing (S-082).
func TestKeys(t *testing.T) {
	_, c, ctx := open(t)
	s := redis.New(c, options("A"))
	r := session.Record{Key: session.Key("an id"), Server: "files", Principal: "alice", Revision: "2025-11-25", Params: []byte(`{"clientInfo":{"name":"claude"}}`)}
	h, err := s.Put(ctx, session.Held{Record: r})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Beat(ctx, cluster.Member{ID: "A", Address: "10.0.0.1:8809"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"b:s:" + r.Key, "b:{m}:A"} {
		life, err := c.PTTL(ctx, key).Result()
		if err != nil || life <= 0 || life > time.Minute {
			t.Errorf("%s lives for %v, %v", key, life, err)
		}
		dump, err := c.Dump(ctx, key).Result()
		for _, open := range []string{"an id", "alice", "files", "claude", "2025", "10.0.0.1"} {
			if err != nil || strings.Contains(dump, open) {
				t.Errorf("%s shows %q: %v", key, open, err)
			}
		}
	}
	if size := c.MemoryUsage(ctx, "b:s:"+r.Key).Val(); size > 1300 {
		t.Errorf("a session takes %d bytes of the store", size)
	}
	other := session.Key("another id")
	sealed := c.HGet(ctx, "b:s:"+r.Key, "b").Val()
	c.HSet(ctx, "b:s:"+other, "o", "A", "e", "1", "b", sealed) // a record moved to another key
	if _, err := s.Find(ctx, other); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Find of a record of another session = %v", err)
	}
	for _, forged := range [][]any{{"o", "A", "e", "x", "b", sealed}, {"o", "A", "e", "1", "b", "junk"}, {"o", "A", "e", "1"}} {
		c.Del(ctx, "b:s:"+r.Key)
		c.HSet(ctx, "b:s:"+r.Key, forged...)
		if _, err := s.Find(ctx, r.Key); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("Find of %v = %v", forged[:4], err)
		}
	}
	c.Set(ctx, "b:{m}:X", c.Get(ctx, "b:{m}:A").Val(), time.Minute)
	c.ZAdd(ctx, "b:{m}:all", c.ZRangeWithScores(ctx, "b:{m}:all", 0, -1).Val()[0])
	c.Do(ctx, "ZADD", "b:{m}:all", time.Now().UnixMilli(), "X")
	if seen, err := s.Beat(ctx, cluster.Member{ID: "A", Address: "10.0.0.1:8809"}, time.Minute); err != nil || len(seen.Members) != 1 {
		t.Errorf("Beat with a forged member = %+v, %v", seen, err)
	}
	_ = h
}

// A store that was emptied, is away, or is another process.
func TestRegistry(t *testing.T) {
	server, c, ctx := open(t)
	s := redis.New(c, options("A"))
	beat := func(absent bool) string {
		t.Helper()
		seen, err := s.Beat(ctx, cluster.Member{ID: "A"}, time.Minute)
		if err != nil || seen.Absent != absent || len(seen.Members) != 1 {
			t.Fatalf("Beat = %+v, %v, want absent: %t", seen, err, absent)
		}
		return seen.Run
	}
	first := beat(true)
	c.FlushAll(ctx)
	beat(true)
	server.Kill()
	soon, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	if _, err := s.Beat(soon, cluster.Member{ID: "A"}, time.Second); !errors.Is(err, session.ErrUnavailable) {
		t.Errorf("Beat without a store = %v", err)
	}
	if _, err := s.Find(soon, "x"); !errors.Is(err, session.ErrUnavailable) {
		t.Errorf("Find without a store = %v", err)
	}
	server.Run()
	if beat(true) == first {
		t.Error("another process is taken for the same store")
	}
}

// (S-063): when the memory is full, what is there lives on.
func TestFull(t *testing.T) {
	_, c, ctx := open(t)
	s, me := redis.New(c, options("A")), cluster.Member{ID: "A"}
	h, err := s.Put(ctx, session.Held{Record: session.Record{Key: "k"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Beat(ctx, me, time.Minute); err != nil {
		t.Fatal(err)
	}
	c.ConfigSet(ctx, "maxmemory", "1mb")
	if _, err := s.Put(ctx, session.Held{Record: session.Record{Key: "more"}}); !errors.Is(err, session.ErrUnavailable) {
		t.Errorf("Put = %v", err)
	}
	if seen, err := s.Beat(ctx, me, time.Minute); err != nil || seen.Absent || len(seen.Members) != 1 {
		t.Errorf("Beat = %+v, %v", seen, err)
	}
	me.Sessions = 5 // which cannot be written
	for range 2 {
		if seen, err := s.Beat(ctx, me, time.Minute); err != nil || seen.Absent || len(seen.Members) != 1 || seen.Members[0].Sessions != 0 {
			t.Errorf("Beat of one that has changed = %+v, %v", seen, err)
		}
	}
	c.ConfigSet(ctx, "maxmemory", "0")
	if seen, err := s.Beat(ctx, me, time.Minute); err != nil || seen.Members[0].Sessions != 5 {
		t.Errorf("Beat with room again = %+v, %v", seen, err)
	}
	if fenced, err := s.Keep(ctx, []session.Held{h}); err != nil || len(fenced) > 0 {
		t.Errorf("Keep = %v, %v", fenced, err)
	}
}

// A beat takes as long as two answers of the store, whatever has changed (S-065).
func TestBeatAnswers(t *testing.T) {
	_, c, ctx := open(t)
	count := &counting{}
	c.(goredis.UniversalClient).AddHook(count)
	s := redis.New(c, options("A"))
	for sessions := range 4 {
		count.n.Store(0)
		if _, err := s.Beat(ctx, cluster.Member{ID: "A", Sessions: sessions}, time.Minute); err != nil {
			t.Fatal(err)
		}
		if n := count.n.Load(); sessions > 0 && n != 3 { // one of them beside another
			t.Errorf("a beat waits for %d answers", n)
		}
	}
}

// counting counts what is sent to a store, one by one and as pipelines.
type counting struct{ n atomic.Int64 }

func (*counting) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (c *counting) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counting) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmds)
	}
}

// Whatever has failed while a store was away, the first command after it succeeds; and a
// crowd of commands makes no crowd of connections.
func TestConnectTries(t *testing.T) {
	server := redistest.Start(t)
	c := connect(t, "redis://"+server.Address+"/0")
	server.Kill()
	crowd := func(do func()) {
		var all sync.WaitGroup
		for range 50 * runtime.GOMAXPROCS(0) {
			all.Go(do)
		}
		all.Wait()
	}
	crowd(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := c.Ping(ctx).Err(); err == nil {
			t.Error("a store that is gone answers")
		}
		if _, err := c.Pipelined(ctx, func(p goredis.Pipeliner) error { return p.Ping(ctx).Err() }); err == nil {
			t.Error("a store that is gone answers several commands")
		}
	})
	server.Run()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the store is back: %v", err)
	}
	crowd(func() {
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	})
	if n, most := int(c.(goredis.UniversalClient).PoolStats().TotalConns), 10*runtime.GOMAXPROCS(0); n > most {
		t.Errorf("%d connections, want at most %d", n, most)
	}
}
