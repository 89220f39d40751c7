package redis_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/seal"
)

var update = flag.Bool("update", false, "write what this version keeps; only when the last minor version would understand it too")

// During an update, instances of two versions use one store. What an older one has written,
// this one understands: testdata/older.json is that. What it does not know in the records of
// a newer one, it passes over (S-071).
func TestOlder(t *testing.T) {
	_, c, ctx := open(t)
	o := options("new")
	o.Hooks = func() []string { return []string{"flows"} }
	s := redis.New(c, o)
	file := filepath.Join("testdata", "older.json")
	if *update {
		old := redis.New(c, options("old"))
		if _, err := old.Put(ctx, session.Held{Record: session.Record{Key: "k", Server: "files", Principal: "alice", Revision: "2025-11-25", Params: []byte(`{"a":1}`), Header: map[string][]string{"X-Tenant": {"1"}}, Level: []byte(`{"level":"info"}`), Subs: []string{"file:///a"}, Greeting: []byte(`{}`), Carry: map[string][]byte{"files": []byte("carry")}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := old.Beat(ctx, cluster.Member{ID: "old", Address: "10.0.0.1:8809", Version: "v0.9.0", Draining: true, Sessions: 3, Servers: "hash"}, time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := old.Streams().Write(ctx, []replay.Entry{{Session: "k", Stream: "pX", Kind: replay.Began, Open: [][]byte{[]byte("1")}}, {Session: "k", Stream: "pX", Kind: replay.Added, Seq: 1, Open: [][]byte{[]byte("1")}, Data: []byte(`{"n":1}`)}}); err != nil {
			t.Fatal(err)
		}
		if err := old.Tasks().Note(ctx, "files", "task", "alice"); err != nil {
			t.Fatal(err)
		}
		if err := old.Hooks().Put(ctx, "flows", 7, []byte("body")); err != nil {
			t.Fatal(err)
		}
		all := map[string]kept{}
		for _, key := range c.Keys(ctx, "*").Val() {
			var k kept
			switch c.Type(ctx, key).Val() {
			case "string":
				k.String = []byte(c.Get(ctx, key).Val())
			case "hash":
				k.Hash = map[string][]byte{}
				for name, value := range c.HGetAll(ctx, key).Val() {
					k.Hash[name] = []byte(value)
				}
			case "stream":
				for _, e := range c.XRange(ctx, key, "-", "+").Val() {
					k.Stream = append(k.Stream, entry{e.ID, []byte(e.Values["b"].(string))})
				}
			default: // the list of members, which has times
				continue
			}
			all[key] = k
		}
		text, err := json.MarshalIndent(all, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		c.FlushAll(ctx)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]kept
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 5 {
		t.Fatalf("%d keys, %v", len(all), err)
	}
	for key, k := range all {
		if k.String != nil {
			c.Set(ctx, key, k.String, time.Hour)
		}
		for name, value := range k.Hash {
			c.HSet(ctx, key, name, value)
		}
		for _, e := range k.Stream {
			c.XAdd(ctx, &goredis.XAddArgs{Stream: key, ID: e.ID, Values: []any{"b", e.B}})
		}
	}
	c.ZAdd(ctx, "b:{m}:all", goredis.Z{Score: float64(time.Now().UnixMilli()), Member: "old"})
	h, err := s.Find(ctx, "k")
	if err != nil || h.Owner != "old" || h.Epoch != 1 || h.Server != "files" || h.Principal != "alice" || h.Revision != "2025-11-25" || string(h.Params) != `{"a":1}` ||
		h.Header.Get("X-Tenant") != "1" || string(h.Level) != `{"level":"info"}` || len(h.Subs) != 1 || string(h.Greeting) != "{}" || string(h.Carry["files"]) != "carry" {
		t.Errorf("a session: %+v, %v", h, err)
	}
	seen, err := s.Beat(ctx, cluster.Member{ID: "new"}, time.Minute)
	if err != nil || len(seen.Members) != 2 || !reflect.DeepEqual(seen.Members[1], cluster.Member{ID: "old", Address: "10.0.0.1:8809", Version: "v0.9.0", Draining: true, Sessions: 3, Servers: "hash"}) || seen.Hooks["flows"] != 7 {
		t.Errorf("members: %+v, %v", seen, err)
	}
	if taken, err := s.Streams().Take(ctx, "k", "pX", 0, 2<<32); err != nil || len(taken.Events) != 1 || string(taken.Events[0].Data) != `{"n":1}` || len(taken.Open) != 1 {
		t.Errorf("a stream: %+v, %v", taken, err)
	}
	if noted, err := s.Tasks().Noted(ctx, "files", "alice", []string{"task"}); err != nil || !noted[0] {
		t.Errorf("a task: %v, %v", noted, err)
	}
	if n, body, err := s.Hooks().Get(ctx, "flows"); err != nil || n != 7 || string(body) != "body" {
		t.Errorf("a webhook: %d %q %v", n, body, err)
	}

	newer := func(purpose, key, text string) string {
		return string(seal.NewShared(purpose, secret).Seal(key, []byte(strings.TrimSuffix(text, "}")+`,"Newer":{"x":[1]}}`)))
	}
	c.HSet(ctx, "b:s:n", "o", "newer", "e", "3", "x", "1", "b", newer("cluster record", "b:s:n", `{"Server":"files","Principal":"alice"}`))
	if h, err := s.Find(ctx, "n"); err != nil || h.Server != "files" || h.Principal != "alice" || h.Epoch != 3 {
		t.Errorf("a session of a newer version: %+v, %v", h, err)
	}
	if h, err := s.Take(ctx, session.Held{Record: session.Record{Key: "n"}, Owner: "newer", Epoch: 3}); err != nil || h.Principal != "alice" {
		t.Errorf("Take of it: %+v, %v", h, err)
	}
	c.Set(ctx, "b:{m}:old", newer("cluster member", "b:{m}:old", `{"ID":"old","Address":"10.0.0.1:8809"}`), time.Minute)
	if seen, err := s.Beat(ctx, cluster.Member{ID: "new"}, time.Minute); err != nil || len(seen.Members) != 2 || seen.Members[1].Address != "10.0.0.1:8809" {
		t.Errorf("a member of a newer version: %+v, %v", seen, err)
	}
}

// kept is what is at one key.
type kept struct {
	String []byte            `json:",omitempty"`
	Hash   map[string][]byte `json:",omitempty"`
	Stream []entry           `json:",omitempty"`
}

type entry struct {
	ID string
	B  []byte
}
