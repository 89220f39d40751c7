package server

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// put exchanges the key in a file as operators should.
func put(t *testing.T, path, key string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// holdings is one of everything that a caller can have open.
type holdings struct {
	session string
	calls   map[string]*wiretest.Reply // which are answered
	streams map[string]*wiretest.Reply // which end
}

func (r *rig) hold(key string) *holdings {
	r.t.Helper()
	h := &holdings{calls: map[string]*wiretest.Reply{}, streams: map[string]*wiretest.Reply{}}
	h.session = r.Do("POST", "/one/mcp", initialize, as(key)...).Wait().Header("Mcp-Session-Id")
	mine := append(as(key), "Mcp-Session-Id", h.session)
	h.streams["GET"] = r.Do("GET", "/one/mcp", "", mine...)
	h.calls["POST"] = r.Do("POST", "/one/mcp", call("5", "wait"), mine...)

	h.streams["SSE without a session"] = r.Do("GET", "/one/sse", "", as(key)...)
	sse := r.Do("GET", "/one/sse", "", as(key)...)
	synctest.Wait()
	endpoint := sse.Events()[0].Data
	r.Do("POST", endpoint, initialize, as(key)...).Wait()
	synctest.Wait()
	r.Do("POST", endpoint, call("6", "wait"), as(key)...).Wait()
	h.calls["SSE"] = sse

	body, header := modernCall("tools/call", `"name":"wait",`)
	h.calls["stateless"] = r.Do("POST", "/one/mcp", body, append(append(as(key), header...), "Mcp-Name", "wait")...)
	body, header = modernCall("subscriptions/listen", `"notifications":{"toolsListChanged":true},`)
	h.calls["subscription"] = r.Do("POST", "/one/mcp", body, append(as(key), header...)...)
	wiretest.Advance(1500 * time.Millisecond) // so that calls have streams
	synctest.Wait()
	return h
}

// all has what answers and what ends.
func (h *holdings) all() []*wiretest.Reply {
	return slices.AppendSeq(slices.Collect(maps.Values(h.calls)), maps.Values(h.streams))
}

// open says how much of it is open.
func (h *holdings) open() (open int) {
	synctest.Wait()
	for _, r := range h.all() {
		if !r.Over() {
			open++
		}
	}
	return open
}

// N-52: what a caller has open ends when its key is taken away, with the reason, and
// when the files are read again, not when somebody calls next. Others are not
// disturbed, nor is a caller that gets another key.
func TestAccessTakenAway(t *testing.T) {
	const fresh = "fresh-0123456789abcdef"
	path := filepath.Join(t.TempDir(), "alice.key")
	rules := func(c *config.Config) {
		c.Access = []config.Access{{Name: "alice", TokenFile: path}, {Name: "bob", Token: bobKey}}
	}
	put(t, path, aliceKey)
	run(t, rules, []string{"one"}, func(t *testing.T, r *rig) {
		alice, bob := r.hold(aliceKey), r.hold(bobKey)
		const all = 6
		if a, b := alice.open(), bob.open(); a != all || b != all {
			t.Fatalf("%d and %d are open, want %d", a, b, all)
		}

		put(t, path, fresh)
		wiretest.Advance(10 * time.Second)
		if a, b := alice.open(), bob.open(); a != all || b != all {
			t.Errorf("with another key of the same name, %d and %d are open, want %d", a, b, all)
		}
		if a := r.Do("POST", "/one/mcp", call("9", "echo"), append(as(fresh), "Mcp-Session-Id", alice.session)...).Wait(); a.Status() != 200 {
			t.Errorf("the session with the new key: %d %s", a.Status(), a.Body())
		}

		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		wiretest.Advance(2 * time.Second)
		if a := r.Do("POST", "/one/mcp", call("9", "echo"), append(as(fresh), "Mcp-Session-Id", alice.session)...).Wait(); a.Status() != 401 {
			t.Errorf("the key that was taken away: %d %s", a.Status(), a.Body())
		}
		if a, b := alice.open(), bob.open(); a != 0 || b != all {
			t.Errorf("without a key, %d and %d are open, want 0 and %d", a, b, all)
		}
		const reason = `"message":"the caller's key is no longer valid","data":{"bridge":"unauthorized"}`
		for name, r := range alice.calls {
			if got := r.Body(); strings.Count(got, reason) != 1 {
				t.Errorf("%s ended with %s", name, got)
			}
		}
		if st := r.s.g.Totals(); st.Sessions != 2 || st.Calls != 3 || st.Subscriptions != 1 {
			t.Errorf("what is left: %+v", st)
		}
		for range 6 { // those that were cancelled, too
			r.f.Answer(`{"done":true}`)
		}
		synctest.Wait()
		for name, r := range bob.calls {
			if done := strings.Contains(r.Body(), `"done":true`); done != (name != "subscription") || strings.Contains(r.Body(), "key") {
				t.Errorf("bob's %s has %s", name, r.Body())
			}
		}

		put(t, path, fresh)
		wiretest.Advance(2 * time.Second)
		if a := r.Do("POST", "/one/mcp", call("9", "echo"), append(as(fresh), "Mcp-Session-Id", alice.session)...).Wait(); a.Status() != 404 {
			t.Errorf("the session that has ended: %d %s", a.Status(), a.Body())
		}
		back := r.hold(fresh)
		if n := back.open(); n != all {
			t.Errorf("%d are open, want %d", n, all)
		}
		for _, r := range append(bob.all(), back.all()...) {
			r.Leave()
		}
	})
}

// A key may be taken away at any moment of whatever its caller begins: nothing
// of that is left.
func TestAccessTakenAwayMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "alice.key")
	rules := func(c *config.Config) {
		c.Access = []config.Access{{Name: "alice", TokenFile: path}}
	}
	for n := range 30 {
		put(t, path, aliceKey)
		run(t, rules, []string{"one"}, func(t *testing.T, r *rig) {
			body, header := modernCall("subscriptions/listen", `"notifications":{"toolsListChanged":true},`)
			var all []*wiretest.Reply
			for i := range 10 {
				switch (i + n) % 3 {
				case 0:
					all = append(all, r.Do("POST", "/one/mcp", strings.Replace(initialize, `"id":0`, fmt.Sprint(`"id":`, i), 1), as(aliceKey)...))
				case 1:
					all = append(all, r.Do("POST", "/one/mcp", body, append(as(aliceKey), header...)...))
				default:
					all = append(all, r.Do("GET", "/one/sse", "", as(aliceKey)...))
				}
				if i == n%10 {
					go func() {
						r.s.g.Revoke("alice")
						r.s.sse.Revoke("alice")
					}()
				}
			}
			wiretest.Advance(time.Second)
			synctest.Wait()
			if st := r.s.g.Totals(); st.Sessions != 0 || st.Subscriptions != 0 {
				t.Errorf("what is left: %+v", st)
			}
			for _, r := range all {
				if !r.Over() {
					t.Errorf("a stream is open: %d %s", r.Status(), r.Body())
				}
				r.Leave()
			}
		})
	}
}
