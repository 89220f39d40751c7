package redis_test

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/oauth/front"
	"github.com/mcp-bridge/bridge/internal/oauth/front/disk"
)

// A value takes the place of another once over all instances, and ends (S-045). The memory
// of one process does the same, and so does its folder.
func TestValues(t *testing.T) {
	server, c, ctx := open(t)
	var a, b front.Store = redis.New(c, options("A")).Values(), redis.New(c, options("B")).Values()
	kept := disk.New(t.TempDir())
	t.Cleanup(func() { _ = kept.Close() })
	for name, both := range map[string][2]front.Store{"redis": {a, b}, "memory": {front.NewMemory()}, "disk": {kept}} {
		if both[1] == nil {
			both[1] = both[0]
		}
		a, b := both[0], both[1]
		swap := func(s front.Store, old, value string, life time.Duration, want bool) {
			t.Helper()
			var o, v []byte
			if old != "" {
				o = []byte(old)
			}
			if value != "" {
				v = []byte(value)
			}
			if got, err := s.Swap(ctx, "one", o, v, life); err != nil || got != want {
				t.Errorf("%s: %q by %q: %t %v", name, old, value, got, err)
			}
		}
		is := func(s front.Store, want string) {
			t.Helper()
			if got, err := s.Get(ctx, "one"); err != nil || string(got) != want || (got == nil) != (want == "") {
				t.Errorf("%s: it is %q %v, want %q", name, got, err, want)
			}
		}
		is(a, "")
		swap(a, "x", "y", time.Minute, false)
		swap(a, "", "x\x00y", time.Minute, true)
		swap(a, "", "x\x00y", time.Minute, true) // the answer was lost
		swap(b, "", "z", time.Minute, false)
		is(b, "x\x00y")
		swap(b, "x\x00y", "z", time.Minute, true)
		swap(a, "x\x00y", "w", time.Minute, false)
		swap(a, "z", "", 0, true)
		is(b, "")
		swap(a, "", "short", 20*time.Millisecond, true)
		for ; ; time.Sleep(5 * time.Millisecond) { // until it has ended
			if got, err := b.Get(ctx, "one"); err != nil {
				t.Fatalf("%s: %v", name, err)
			} else if got == nil {
				break
			}
		}
		swap(b, "", "0", time.Minute, true)
		var wg sync.WaitGroup
		var won atomic.Int32
		for i := range 40 {
			wg.Go(func() {
				ok, err := both[i%2].Swap(ctx, "one", []byte("0"), bytes.Repeat([]byte("x"), i+1), time.Minute)
				if err != nil {
					t.Error(err)
				} else if ok {
					won.Add(1)
				}
			})
		}
		if wg.Wait(); won.Load() != 1 {
			t.Errorf("%s: %d of 40 at once have put their value", name, won.Load())
		}
	}
	ends(t, "redis", true, a, b)
	memory := front.NewMemory()
	ends(t, "memory", true, memory, memory)
	ends(t, "disk", false, kept, kept)
	server.Kill()
	if _, err := a.Get(ctx, "one"); err == nil {
		t.Error("without Redis there is no error")
	}
	if _, err := a.Swap(ctx, "one", nil, []byte("x"), time.Minute); err == nil {
		t.Error("without Redis a value is put")
	}
	if err := a.End(ctx, "1", time.Minute); err == nil {
		t.Error("without Redis an end is noted")
	}
	if _, _, err := a.Ended(ctx, ""); err == nil {
		t.Error("without Redis it is known what has ended")
	}
}

// ends plays that logins end at a, and b hears of them. Of a store that only one uses, it
// does so at its start.
func ends(t *testing.T, name string, shared bool, s, b front.Store) {
	t.Helper()
	ctx := t.Context()
	end := func(id string, life time.Duration) {
		t.Helper()
		if err := s.End(ctx, id, life); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	ended := func(mark, want string) (next string) {
		t.Helper()
		ids, next, err := b.Ended(ctx, mark)
		slices.Sort(ids)
		if got := strings.Join(slices.Compact(ids), " "); err != nil || got != want {
			t.Errorf("%s: since %q there are %q %v, want %q", name, mark, got, err, want)
		}
		return next
	}
	none := ended("", "")
	end("1", time.Minute)
	end("2", time.Minute)
	end("2", time.Minute) // the answer was lost
	two := ended("", "1 2")
	if !shared {
		ended(two, "")
		return
	}
	ended(none, "1 2")
	again := func(ids string) string { // Redis has those of the last minute again
		if name == "redis" {
			return ids
		}
		return ""
	}
	if next := ended(two, again("1 2")); next != two {
		t.Errorf("%s: after nothing, the mark is %q, not %q", name, next, two)
	}
	end("3", time.Minute)
	ended(two, strings.TrimSpace(again("1 2")+" 3"))
	ended("", "1 2 3")
}

// After a failover, ends are noted by another clock: one that is behind hides none of them.
func TestEndedFailover(t *testing.T) {
	_, c, ctx := open(t)
	v := redis.New(c, options("A")).Values()
	if err := v.End(ctx, "1", time.Minute); err != nil {
		t.Fatal(err)
	}
	_, mark, err := v.Ended(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	ms, _, _ := strings.Cut(mark, "-")
	at, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	// The one that takes over has not got the last note, and is 30 seconds behind.
	if err := c.Del(ctx, "b:ended").Err(); err != nil {
		t.Fatal(err)
	}
	for i, id := range []string{"long ago", "2"} {
		note := strconv.FormatInt(at-int64(120-i*90)*1000, 10) + "-1"
		if err := c.XAdd(ctx, &goredis.XAddArgs{Stream: "b:ended", ID: note, Values: []string{"i", id}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if ids, _, err := v.Ended(ctx, mark); err != nil || !slices.Equal(ids, []string{"2"}) {
		t.Errorf("there are %q %v, want 2", ids, err)
	}
}
