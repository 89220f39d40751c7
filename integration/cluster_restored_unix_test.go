//go:build unix

package integration

import (
	"net/http"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// TestClusterRestored has Redis come back with a file that is older than what it had: since
// then a session has begun, one has ended, and one has moved to another instance. The calls
// that are made meanwhile succeed, and no session ends or moves (S-061); the one that has ended
// does not come back (S-036). Then an instance is killed: what the store says of its session is
// right again (S-030).
func TestClusterRestored(t *testing.T) {
	t.Parallel()
	scaletest.Large(t)
	l := startLedger(t)
	f := newFleet(t, l.servers())
	for range 3 {
		f.add()
	}
	p := f.instances
	for _, i := range p {
		f.sees(i, 3)
	}
	redis := f.store.Client()
	defer redis.Close()
	ctx := t.Context()
	whatever := func(session.Record) bool { return true }
	stays, ended, moved := f.begin(p[0].base), f.begin(p[0].base), f.begin(p[2].base)
	for _, s := range []*legacyClient{stays, ended, moved} {
		f.kept(s, whatever)
		if how := l.call(f, ctx, s.session, p[1].base, p[0].base, work{Tag: "before " + s.session}); how != succeeded {
			t.Fatal(how)
		}
	}
	if err := redis.Set(ctx, "of the file", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := redis.Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if err := redis.Del(ctx, "of the file").Err(); err != nil {
		t.Fatal(err)
	}
	fresh := f.begin(p[1].base)
	if status := (&legacyClient{base: p[1].base, session: ended.session}).end(t); status != http.StatusNoContent {
		t.Fatalf("DELETE = %d", status)
	}
	p[2].stop(t) // which gives its session away
	if how := l.call(f, ctx, moved.session, p[1].base, p[0].base, work{Tag: "moved"}); how != succeeded {
		t.Fatal(how)
	}
	f.instances = p[:2:2]
	third := f.add()
	for _, p := range f.instances {
		f.sees(p, 3)
	}
	f.seesOnly(p[0], 3)
	var crowds []*crowd
	for _, s := range []*legacyClient{stays, fresh, moved} {
		crowds = append(crowds, f.crowd(l, 2, s.session, third.base, p[1].base))
	}
	all := func(what string, more int32) {
		t.Helper()
		for _, c := range crowds {
			c.goesOn(t, what, more)
		}
	}
	all("begun", 3)
	f.store.Kill()
	all("without Redis", 3)
	f.store.Run()
	if n, ok := eventually(func() (int64, bool) {
		n, err := redis.Exists(ctx, "of the file").Result()
		return n, err == nil
	}); !ok || n != 1 {
		t.Fatal("Redis has not read its file")
	}
	all("Redis is back", 10)
	if n, ok := eventually(func() (int64, bool) {
		n, err := redis.Exists(ctx, "bridge:s:"+session.Key(ended.session)).Result()
		return n, err == nil && n == 0
	}); !ok {
		t.Errorf("the session that has ended has %d records", n)
	}
	for _, p := range f.instances {
		f.sees(p, 3)
		if status, ok := eventually(func() (int, bool) { // for one lease it is 503
			status := (&legacyClient{base: p.base, session: ended.session}).end(t)
			return status, status != http.StatusServiceUnavailable
		}); !ok || status != http.StatusNotFound {
			t.Errorf("the session that has ended = %d", status)
		}
	}
	for _, l := range []*legacyClient{stays, fresh, moved} {
		f.kept(l, whatever)
	}
	for _, c := range crowds[1:] {
		c.end(t, l)
	}
	p[0].cmd.Process.Kill()
	killed := time.Now()
	crowds[0].goesOn(t, "the owner is killed", 4)
	t.Logf("the session went on after %v", time.Since(killed))
	crowds[0].end(t, l, lost)
	<-p[0].exited
}
