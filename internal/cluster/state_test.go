package cluster_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

// An instance alone without the store turns clients away, loses its sessions, and finds
// that out before it serves one again (S-012, S-072). So it is if a beat comes to the store late, when nobody waits for it
// any more and the others have counted the instance out: by the next one its key is there, and its sessions are
// not (S-010). It begins no request of a session while it ends it.
func TestIsolated(t *testing.T) {
	for _, late := range []bool{false, true} {
		in(t, func(t *testing.T, w *world) {
			n, b := w.start("a"), w.start("b")
			w.start("c")
			time.Sleep(3 * lease)
			w.put(n, "taken")
			w.put(n, "kept")
			w.set(w.cut, "a", true)
			time.Sleep(lease + time.Second)
			if n.State() != cluster.Isolated || n.Ready() || n.Await(t.Context(), "taken") == nil {
				t.Errorf("state %s", n.State())
			}
			if err := takeOver(t.Context(), b, "taken"); err != nil {
				t.Errorf("take over = %v", err)
			}
			if late {
				if _, err := w.store.As("a", "", nil).Beat(t.Context(), cluster.Member{ID: "a"}, lease); err != nil {
					t.Fatal(err)
				}
			}
			w.told = func(n *cluster.Node, key string) {
				if n.Holds(key) || n.Ready() || n.Await(t.Context(), key) == nil {
					t.Error("a request may begin of a session that is being ended")
				}
			}
			w.set(w.cut, "a", false)
			if err := n.Await(t.Context(), "taken"); err == nil && n.Holds("taken") {
				t.Error("a request may begin of a session that another instance has")
			}
			time.Sleep(time.Second)
			if n.State() != cluster.Sure || n.Holds("taken") || !b.Holds("taken") || !slices.Equal(w.ended["a"], []string{"taken"}) {
				t.Errorf("a late beat: %t; state %s, ended %v", late, n.State(), w.ended["a"])
			}
			if err := n.Await(t.Context(), "kept"); err != nil || !n.Holds("kept") || !n.Ready() {
				t.Errorf("a late beat: %t; what nobody took: %v", late, err)
			}
		})
	}
}

// An instance was found dead, and is back before the other's command takes its session over: the
// two come to the store in any order, and one has the session (S-010).
func TestBackBeforeTaken(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n, b := w.start("a"), w.start("b")
		w.start("c")
		time.Sleep(3 * lease)
		w.put(n, "k")
		w.set(w.cut, "a", true)
		time.Sleep(lease + time.Second)
		served := false
		w.watch(func(id, what, key string) {
			if id == "b" && what == "take" {
				w.set(w.cut, "a", false)
				served = n.Await(t.Context(), key) == nil && n.Begins(key)
			}
		}, nil)
		err := takeOver(t.Context(), b, "k")
		if !served {
			t.Fatal("it was not back before: the test shows nothing")
		}
		time.Sleep(lease)
		if n.Begins("k") == b.Begins("k") {
			t.Errorf("served by the one that is back: %t, by the other: %t, which was told: %v", n.Begins("k"), b.Begins("k"), err)
		}
		if h, err := b.Find(t.Context(), "k"); err != nil || (h.Owner == "a") != n.Begins("k") {
			t.Errorf("the store says %q, %v", h.Owner, err)
		}
	})
}

// A process is stopped while an answer of the store is on its way to it. When it goes on, it reads
// that the session is its own, which was so before others counted it out (S-010, S-012).
func TestOldAnswer(t *testing.T) {
	home := cluster.ConnectionKey("files", "sessions\x00p")
	for _, tc := range []struct {
		name, key, what string
		act             func(t *testing.T, w *world, n *cluster.Node)
	}{
		{"taken", "k", "take", func(t *testing.T, w *world, n *cluster.Node) {
			gone := w.start("gone")
			<-gone.Joined()
			w.put(gone, "k")
			w.kill("gone")
			time.Sleep(2 * lease)
			_ = takeOver(t.Context(), n, "k")
		}},
		{"claimed", home, "put", func(t *testing.T, _ *world, n *cluster.Node) { _, _, _ = n.Claim(t.Context(), home, "files", enough) }},
		{"claimed from one that is dead", home, "take", func(t *testing.T, w *world, n *cluster.Node) {
			if _, mine, err := w.start("gone").Claim(t.Context(), home, "files", enough); !mine {
				t.Fatal(err)
			}
			w.kill("gone")
			time.Sleep(2 * lease)
			_, _, _ = n.Claim(t.Context(), home, "files", enough)
		}},
		{"settled", "k", "save", func(t *testing.T, w *world, n *cluster.Node) {
			w.put(n, "k")
			w.store.Restart()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				n, c := w.start("b"), w.start("c")
				w.start("d")
				time.Sleep(3 * lease)
				var once sync.Once
				back := make(chan struct{})
				w.watch(nil, func(id, what, key string) {
					if id != "b" || what != tc.what || key != tc.key {
						return
					}
					once.Do(func() {
						defer close(back)
						w.set(w.cut, "b", true)
						time.Sleep(lease + time.Second)
						if cluster.IsConnectionKey(key) {
							if _, mine, err := c.Claim(t.Context(), key, "files", enough); !mine || err != nil {
								t.Errorf("Claim = %t, %v", mine, err)
							}
						} else if err := takeOver(t.Context(), c, key); err != nil {
							t.Errorf("take over = %v", err)
						}
						w.set(w.cut, "b", false)
						if err := n.Beat(t.Context()); err != nil {
							t.Errorf("Beat = %v", err)
						}
					})
				})
				tc.act(t, w, n)
				<-back
				for range 30 {
					if n.Begins(tc.key) && c.Begins(tc.key) {
						t.Fatal("two instances serve it")
					}
					time.Sleep(100 * time.Millisecond)
				}
				if n.Begins(tc.key) || !c.Begins(tc.key) {
					t.Errorf("served: %t, by the one that has it: %t", n.Begins(tc.key), c.Begins(tc.key))
				}
			})
		})
	}
}

// What was found out holds by both clocks of the machine: when the wall clock was set meanwhile, or went on
// while the other one stood still, it does not (S-012, S-014).
func TestFresh(t *testing.T) {
	for by, want := range map[int64]bool{0: true, 1: true, -1: true, 40: true, -40: true, 51: false, -51: false, 3600: false, -3600: false, 86400 * 365: false, -86400 * 365: false} {
		at := setSince(t, time.Now(), by)
		if got := cluster.Fresh(time.Minute, &at); got != want {
			t.Errorf("the wall clock was set by %d s: %v", by, got)
		}
	}
	for ago, want := range map[time.Duration]bool{40 * time.Second: true, 51 * time.Second: false} {
		at := setSince(t, time.Now().Add(-ago), -int64(ago/time.Second)) // set back by as much as has passed
		if got := cluster.Fresh(time.Minute, &at); got != want {
			t.Errorf("the wall clock stands still since %v: %v", ago, got)
		}
	}
}

// When the wall clock of an instance is set, it is not sure of its lease until it has asked the
// store. Nobody is ended by that, and nothing is taken over (S-014). Whoever has waited for a session
// finds that its instance is ready.
func TestClockSet(t *testing.T) {
	in(t, func(t *testing.T, w *world) { // where there is no other clock
		a, b := w.start("a"), w.start("b")
		time.Sleep(3 * lease)
		w.put(a, "k")
		for _, by := range []time.Duration{time.Hour, -time.Hour, 30 * 24 * time.Hour, 2 * lease, -2 * lease} {
			synctest.Wait() // no beat is in flight
			for _, n := range []*cluster.Node{a, b} {
				n.SetClock(by)
				if n.State() != cluster.Isolated || n.Ready() {
					t.Errorf("set by %v: %s", by, n.State())
				}
			}
			if err := takeOver(t.Context(), b, "k"); !errors.Is(err, session.ErrFenced) {
				t.Errorf("set by %v: %v", by, err)
			}
			if err := a.Await(t.Context(), "k"); err != nil || !a.Ready() || !a.Holds("k") {
				t.Errorf("set by %v: %v", by, err)
			}
			time.Sleep(lease)
		}
		if len(w.ended["a"]) != 0 || b.Holds("k") {
			t.Errorf("ended: %v", w.ended)
		}
	})
}

// (S-060): without a store for anybody, each goes on, also with new sessions and after a moment without
// the others, and nothing is taken over; one who is back ends that.
func TestFrozen(t *testing.T) {
	for apart := time.Duration(0); apart < lease/3; apart += lease / 24 { // their beats
		in(t, func(t *testing.T, w *world) { frozen(t, w, apart) })
	}
}

// One that goes on while nobody reaches the store is not dead for whoever reaches it first
// again, emptied as it may be (S-061). If it does not follow, it is.
func TestFrozenLives(t *testing.T) {
	for _, follows := range []bool{true, false} {
		in(t, func(t *testing.T, w *world) {
			n, b := w.start("a"), w.start("b")
			w.start("c")
			time.Sleep(3 * lease)
			w.put(n, "k")
			for _, id := range []string{"a", "b", "c"} {
				w.set(w.cut, id, true)
			}
			time.Sleep(2 * lease)
			if n.State() != cluster.Frozen {
				t.Fatalf("state %s", n.State())
			}
			w.wipe(true)
			w.set(w.cut, "b", false)
			w.set(w.cut, "a", !follows)
			if err := b.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
			if dead, err := b.Dead(t.Context(), "a"); dead {
				t.Errorf("it is found dead: %v", err)
			}
			time.Sleep(2 * lease)
			if dead, err := b.Dead(t.Context(), "a"); err != nil || dead == follows || n.Holds("k") && follows != (n.Await(t.Context(), "k") == nil) {
				t.Errorf("later, dead: %t, %v; it reaches the store: %t", dead, err, follows)
			}
		})
	}
}

// An instance that lives and cannot be reached from here is seen as that, and so is its
// return.
func TestUnreached(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.start("a")
		w.start("b")
		time.Sleep(3 * lease)
		if n.Unreached("a") || n.Unreached("b") || n.UnreachedCount() != 0 {
			t.Error("one that can be reached is said not to be")
		}
		w.set(w.deaf, "b", true)
		time.Sleep(3 * lease)
		if n.Unreached("a") || !n.Unreached("b") || n.UnreachedCount() != 1 || n.State() != cluster.Sure {
			t.Errorf("one that cannot be reached is said to be; state %s", n.State())
		}
		w.set(w.deaf, "b", false)
		time.Sleep(3 * lease)
		if n.Unreached("b") {
			t.Error("one that can be reached again is said not to be")
		}
		w.set(w.deaf, "b", true)
		time.Sleep(2 * lease)
		w.kill("b")
		time.Sleep(3 * lease)
		if n.Unreached("b") || n.UnreachedCount() != 0 {
			t.Error("one that has ended is said not to be reached")
		}
	})
}
