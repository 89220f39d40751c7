package cluster_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/clustertest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

const lease = 6 * time.Second

// world is a store in memory with faults, and the instances that use it.
type world struct {
	t     testing.TB
	store *clustertest.Store

	mu     sync.Mutex // guards the rest
	nodes  map[string]*cluster.Node
	cut    map[string]bool // from the store
	deaf   map[string]bool // does not answer the others
	mute   map[string]bool // the store puts what it asks, and its answers are lost
	slow   time.Duration   // that each command takes
	most   int             // sessions of an instance
	ended  map[string][]string
	told   func(n *cluster.Node, key string) // in Lost; may be nil
	before func(id, what, key string)        // sees each command of an instance on its way to the store; may be nil
	after  func(id, what, key string)        // sees its answer on the way back; may be nil
}

func newWorld(t testing.TB) *world {
	return &world{
		t:     t,
		store: clustertest.New(),
		nodes: map[string]*cluster.Node{},
		cut:   map[string]bool{},
		deaf:  map[string]bool{},
		mute:  map[string]bool{},
		most:  100,
		ended: map[string][]string{},
	}
}

// way is that of an instance to the store, and to the others.
type way struct {
	w  *world
	id string
}

// goes is the way there. Whoever was killed sends nothing more.
func (v way) goes(what, key string) error {
	v.w.mu.Lock()
	before, lives := v.w.before, v.w.nodes[v.id] != nil
	v.w.mu.Unlock()
	if !lives {
		return session.ErrUnavailable
	}
	if before != nil {
		before(v.id, what, key)
	}
	return nil
}

// back is the way of an answer.
func (v way) back(what, key string) {
	v.w.mu.Lock()
	after := v.w.after
	v.w.mu.Unlock()
	if after != nil {
		after(v.id, what, key)
	}
}

// command is the way of a command to the store, which may be cut off.
func (v way) command(_ context.Context, what, key string, do func() error) error {
	if err := v.goes(what, key); err != nil {
		return err
	}
	v.w.mu.Lock()
	slow := v.w.slow
	v.w.mu.Unlock()
	if slow > 0 {
		time.Sleep(slow)
	}
	if v.is(v.w.cut) {
		return session.ErrUnavailable
	}
	err := do()
	v.back(what, key)
	if what == "put" && v.is(v.w.mute) {
		return session.ErrUnavailable
	}
	return err
}

func (v way) is(which map[string]bool) bool {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	return which[v.id]
}

func (v way) Hello(_ context.Context, to cluster.Member, h cluster.Hello) (cluster.Hello, error) {
	if err := v.goes("hello", to.ID); err != nil {
		return cluster.Hello{}, err
	}
	defer v.back("hello", to.ID)
	v.w.mu.Lock()
	n, deaf := v.w.nodes[to.ID], v.w.deaf[to.ID] || v.w.deaf[v.id]
	v.w.mu.Unlock()
	if n == nil || deaf {
		return cluster.Hello{}, errors.New("refused")
	}
	return n.Answer(h), nil
}

func (way) Disconnect(string) {}

// start starts an instance.
func (w *world) start(id string) *cluster.Node {
	v := way{w, id}
	store := w.store.As(id, "", v.command)
	n := cluster.New(cluster.Options{Self: cluster.Member{ID: id}, Store: store, Registry: store, Peers: v, Lease: lease, Life: time.Hour, MaxSessions: w.most, Log: slog.New(slog.DiscardHandler),
		Lost: func(key string) {
			w.mu.Lock()
			w.ended[id] = append(w.ended[id], key)
			n, told := w.nodes[id], w.told
			w.mu.Unlock()
			if told != nil {
				told(n, key)
			}
		}})
	w.mu.Lock()
	w.nodes[id] = n
	w.mu.Unlock()
	n.Start(id + ":1")
	return n
}

// kill ends an instance without a word.
func (w *world) kill(id string) {
	w.mu.Lock()
	n := w.nodes[id]
	delete(w.nodes, id)
	w.mu.Unlock()
	n.Kill()
}

func (w *world) set(which map[string]bool, id string, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	which[id] = on
}

func (w *world) watch(before, after func(id, what, key string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before, w.after = before, after
}

// wipe empties the store. With restart it is another process, too.
func (w *world) wipe(restart bool) {
	w.store.Wipe()
	if restart {
		w.store.Restart()
	}
}

func (w *world) close() {
	for id := range w.nodes {
		w.kill(id)
	}
}

func (w *world) put(n *cluster.Node, key string) session.Held {
	w.t.Helper()
	h, err := n.Put(w.t.Context(), session.Held{Record: session.Record{Key: key}})
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// takeOver does what an instance does that gets a request for a session of another one.
func takeOver(ctx context.Context, n *cluster.Node, key string) error {
	if n.Holds(key) {
		return n.Await(ctx, key)
	}
	if err := n.Await(ctx, key); err != nil {
		return err
	}
	h, err := n.Find(ctx, key)
	if err != nil {
		return err
	}
	if h.Owner != "" && h.Owner != n.ID() {
		if dead, err := n.Dead(ctx, h.Owner); err != nil || !dead {
			return errors.Join(err, session.ErrFenced)
		}
	}
	_, err = n.Take(ctx, h)
	return err
}

func in(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		f(t, w)
	})
}

// (S-030, S-011): the sessions of an instance that was killed are there for the others
// after a lease, and not before. (S-013): one of two gets it.
func TestTakeOver(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n, b, c := w.start("a"), w.start("b"), w.start("c")
		time.Sleep(3 * lease)
		w.put(n, "k")
		if err := takeOver(t.Context(), b, "k"); !errors.Is(err, session.ErrFenced) {
			t.Errorf("of a living one: %v", err)
		}
		w.kill("a")
		killed := time.Now()
		for takeOver(t.Context(), b, "k") != nil {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(killed); took > lease+time.Second || took < lease/2 {
			t.Errorf("taken over after %v", took)
		}
		if err := takeOver(t.Context(), c, "k"); !errors.Is(err, session.ErrFenced) {
			t.Errorf("by another too: %v", err)
		}
	})
}

// (S-061, S-064): a store that is emptied, or lost and back, ends nobody's session, and
// what lives is not taken over. Nor does another instance take the place of an owner of a shared connection (S-040).
func TestWiped(t *testing.T) {
	for _, restart := range []bool{false, true} {
		in(t, func(t *testing.T, w *world) {
			n, b := w.start("a"), w.start("b")
			time.Sleep(3 * lease)
			w.put(n, "k")
			home := cluster.ConnectionKey("files", "sessions\x00p")
			if _, mine, err := n.Claim(t.Context(), home, "files", enough); !mine || err != nil {
				t.Fatalf("Claim = %t, %v", mine, err)
			}
			w.wipe(restart)
			if err := takeOver(t.Context(), b, "k"); err == nil {
				t.Error("a session was taken over that lives")
			}
			if b.Beat(t.Context()) != nil || !b.Grace() { // (S-027)
				t.Error("what is missing is taken for gone")
			}
			for since := time.Now(); time.Since(since) < lease; time.Sleep(50 * time.Millisecond) {
				if at, mine, err := b.Claim(t.Context(), home, "files", enough); mine || err == nil && at.ID != "a" {
					t.Fatalf("the owner is %+v, after %v", at, time.Since(since))
				}
			}
			if at, _, err := b.Claim(t.Context(), home, "files", enough); err != nil || at.ID != "a" {
				t.Errorf("afterwards the owner is %+v, %v", at, err)
			}
			if h, err := b.Find(t.Context(), "k"); err != nil || h.Owner != "a" || !n.Holds("k") || n.Await(t.Context(), "k") != nil {
				t.Errorf("Find = %+v, %v", h, err)
			}
			if n.Grace() && b.Grace() {
				t.Error("the grace does not end")
			}
		})
	}
}

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

// An instance that is cut off from the store may have sessions that the store knows nothing of. Where it
// answers, they are not said to be gone (S-027); where it has ended, they are.
func TestHidden(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n, b := w.start("a"), w.start("b")
		w.start("c")
		time.Sleep(3 * lease)
		if b.AnswersUnlisted(t.Context(), "a") || b.AnswersUnlisted(t.Context(), "") || b.AnswersUnlisted(t.Context(), "stranger") {
			t.Error("one that lives is hidden, or a stranger is")
		}
		w.set(w.cut, "a", true)
		time.Sleep(lease / 2)
		w.put(n, "new")
		time.Sleep(lease)
		if _, lives := b.Tagged("a"); lives || n.State() != cluster.Isolated || !b.AnswersUnlisted(t.Context(), "a") {
			t.Errorf("one that answers is not hidden; it is %s", n.State())
		}
		w.kill("a")
		time.Sleep(2 * time.Second)
		if b.AnswersUnlisted(t.Context(), "a") {
			t.Error("one that was killed is hidden")
		}
	})
}

// setSince returns a time as one that was read before the wall clock was set by so many
// seconds: since then, the two clocks of the machine do not agree.
func setSince(t *testing.T, at time.Time, by int64) time.Time {
	t.Helper()
	was := at
	*(*uint64)(unsafe.Pointer(&at)) -= uint64(by) << 30 // of package time: the wall clock, in seconds
	if wall, other := was.Round(0).Sub(at.Round(0)), was.Sub(at); wall != time.Duration(by)*time.Second || other != 0 {
		t.Fatalf("the wall clock is set by %v, the other one by %v", wall, other)
	}
	return at
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

// A store that comes back with an old file may know a session by a lower epoch than its owner: the owner goes on
// by that, and the session's end reaches the store (S-061).
func TestOlderEpoch(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a := w.start("a")
		time.Sleep(3 * lease)
		h := w.put(a, "k")
		epoch := func() int64 {
			t.Helper()
			found, err := a.Find(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			return found.Epoch
		}
		w.set(w.cut, "a", true)
		time.Sleep(2 * lease)
		w.set(w.cut, "a", false)
		time.Sleep(lease)
		if epoch() <= h.Epoch {
			t.Fatal("the session was not taken again after the lease")
		}
		w.store.Restore([]session.Held{h})
		w.store.Restart()
		time.Sleep(lease)
		if n := epoch(); n != h.Epoch || !a.Holds("k") {
			t.Errorf("the store has epoch %d, want that of its file, %d", n, h.Epoch)
		}
		if err := a.Delete(t.Context(), h); err != nil || len(w.store.Records()) != 0 {
			t.Errorf("Delete = %v, and %d records are left", err, len(w.store.Records()))
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

func frozen(t *testing.T, w *world, apart time.Duration) {
	n := w.start("a")
	time.Sleep(apart)
	b := w.start("b")
	time.Sleep(apart)
	w.start("c")
	time.Sleep(3*lease + apart/2)
	w.put(n, "k")
	for _, id := range []string{"a", "b", "c"} {
		w.set(w.cut, id, true)
	}
	for second := range 60 {
		w.set(w.deaf, "a", second == 30 || second == 31) // several beats fail in a lease
		time.Sleep(time.Second)
		if !n.Ready() && n.Await(t.Context(), "k") != nil {
			t.Fatalf("a session is not served while beats are %s apart", apart)
		}
	}
	if n.State() != cluster.Frozen {
		t.Errorf("state %s", n.State())
	}
	w.put(b, "new")
	if err := takeOver(t.Context(), b, "k"); err == nil {
		t.Error("taken over without a store")
	}
	for _, id := range []string{"a", "b", "c"} {
		w.set(w.cut, id, false)
	}
	time.Sleep(lease)
	for key, owner := range map[string]string{"k": "a", "new": "b"} {
		if h, err := b.Find(t.Context(), key); err != nil || h.Owner != owner {
			t.Errorf("%s: %+v, %v", key, h, err)
		}
	}
	w.set(w.cut, "a", true)
	w.set(w.deaf, "a", true)
	time.Sleep(2 * lease)
	if n.State() != cluster.Isolated { // fewer than half are reached
		t.Errorf("state %s", n.State())
	}
}

// What is released is taken at once, and what is deleted is gone (S-036).
func TestReleased(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n, b := w.start("a"), w.start("b")
		time.Sleep(3 * lease)
		released, deleted, bound := w.put(n, "released"), w.put(n, "deleted"), session.Held{Record: session.Record{Key: "bound", Bound: true}}
		if _, err := n.Put(t.Context(), bound); err != nil {
			t.Fatal(err)
		}
		released.Subs = []string{"file:///a"}
		if err := n.Save(t.Context(), released); err != nil {
			t.Fatal(err)
		}
		n.Drain(t.Context())
		if _, ok := b.LeastLoaded(); ok && b.Beat(t.Context()) == nil { // which tells b
			if m, ok := b.LeastLoaded(); ok {
				t.Errorf("%+v takes sessions", m)
			}
		}
		if errors.Join(n.Release(t.Context(), released), n.Delete(t.Context(), deleted), n.Delete(t.Context(), bound)) != nil {
			t.Error("the end of sessions failed")
		}
		if err := takeOver(t.Context(), b, "released"); err != nil || len(b.Record("released").Subs) != 1 {
			t.Errorf("take over = %v", err)
		}
		for _, key := range []string{"deleted", "bound"} {
			if err := takeOver(t.Context(), b, key); !errors.Is(err, session.ErrNotFound) {
				t.Errorf("%s: %v", key, err)
			}
		}
		if err := takeOver(t.Context(), n, "released"); err == nil {
			t.Error("one that stops has taken a session over")
		}
	})
}

// What has ended here does not come back: not from a store that was out of reach then, for however long, not from one that
// comes back with what it had before, and not if the instance was never told that the store has it (S-036, S-060, S-061).
// The record is removed, whether or not anybody asks for it. What was given away meanwhile is there.
func TestEndedStays(t *testing.T) {
	for _, c := range []struct {
		name     string
		mute     bool          // the answer to the session's begin is lost
		cut      []string      // from the store, when it ends
		away     time.Duration // that long
		restored bool
	}{
		{name: "this instance is cut off", cut: []string{"a"}, away: lease / 2},
		{name: "all are, for long", cut: []string{"a", "b"}, away: 2*lease + 10*cluster.EndedFor},
		{name: "an old file", restored: true},
		{name: "a lost answer", mute: true},
		{name: "a lost answer, and cut off", mute: true, cut: []string{"a"}},
	} {
		in(t, func(t *testing.T, w *world) {
			n, b := w.start("a"), w.start("b")
			time.Sleep(3 * lease)
			w.set(w.mute, "a", c.mute)
			h, asked, released := w.put(n, "k"), w.put(n, "asked"), w.put(n, "released")
			w.set(w.mute, "a", false)
			if _, err := b.Find(t.Context(), "k"); err != nil {
				t.Fatalf("%s: the store does not have it: %v", c.name, err)
			}
			for _, id := range c.cut {
				w.set(w.cut, id, true)
			}
			time.Sleep(min(c.away, 2*lease)) // so that all know it
			if err := errors.Join(n.Delete(t.Context(), h), n.Delete(t.Context(), asked), n.Release(t.Context(), released)); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			time.Sleep(c.away)
			if c.restored {
				for _, key := range []string{"k", "asked"} {
					if _, err := w.store.As("a", "", nil).Put(t.Context(), session.Held{Record: session.Record{Key: key}}); err != nil {
						t.Error(err)
					}
				}
				w.store.Restart()
			}
			for _, id := range c.cut {
				w.set(w.cut, id, false)
			}
			if err := takeOver(t.Context(), n, "asked"); !errors.Is(err, session.ErrNotFound) || n.Holds("asked") { // before a beat has seen that
				t.Errorf("%s: taken over again: %v", c.name, err)
			}
			time.Sleep(lease)
			for _, key := range []string{"k", "asked"} {
				if _, err := b.Find(t.Context(), key); !errors.Is(err, session.ErrNotFound) {
					t.Errorf("%s: %s: Find = %v", c.name, key, err)
				}
			}
			if err := takeOver(t.Context(), b, "released"); err != nil {
				t.Errorf("%s: what was given away: %v", c.name, err)
			}
		})
	}
}

// An instance gives away a session whose record the store does not have yet, or has without the instance's
// knowledge. Another one takes it over all the same (S-070).
func TestReleasedUnsure(t *testing.T) {
	for _, c := range []struct{ written, away bool }{{true, false}, {false, false}, {false, true}} { // away: also when it is given away
		in(t, func(t *testing.T, w *world) {
			n, b := w.start("a"), w.start("b")
			time.Sleep(3 * lease)
			w.set(w.mute, "a", true)
			w.set(w.cut, "a", !c.written)
			h := w.put(n, "k")
			w.set(w.mute, "a", false)
			w.set(w.cut, "a", c.away)
			h.Params = []byte(`{}`)
			if err := n.Release(t.Context(), h); err != nil {
				t.Error(err)
			}
			if c.away {
				w.set(w.cut, "a", false)
				time.Sleep(lease)
			}
			if got, err := b.Find(t.Context(), "k"); err != nil || got.Owner != "" || string(got.Params) != `{}` {
				t.Errorf("%+v; Find = %+v, %v", c, got, err)
			}
			if err := takeOver(t.Context(), b, "k"); err != nil {
				t.Errorf("%+v; taken over: %v", c, err)
			}
			time.Sleep(lease)
			if !b.Holds("k") || n.Holds("k") {
				t.Errorf("%+v; afterwards the owner is another", c)
			}
		})
	}
}

// Thousands of sessions that have ended while the store was away are removed some at a time. Those that
// live do not wait for them, also at a slow store (S-060, S-065).
func TestManyEnded(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		const many = 2000
		w.most = many + 1
		n := w.start("a")
		time.Sleep(3 * lease)
		lives := w.put(n, "lives")
		var all []session.Held
		for i := range many {
			all = append(all, w.put(n, fmt.Sprint(i)))
		}
		w.set(w.cut, "a", true)
		for _, h := range all {
			if err := n.Delete(t.Context(), h); err != nil {
				t.Fatal(err)
			}
		}
		w.mu.Lock()
		w.slow = 200 * time.Millisecond
		w.cut["a"] = false
		w.mu.Unlock()
		time.Sleep(lease)
		if left := len(w.store.Records()); left < many/4 {
			t.Fatalf("%d records are left: what follows shows nothing", left)
		}
		lives.Subs = []string{"file:///a"}
		if err := n.Save(t.Context(), lives); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lease)
		if h, err := w.store.As("", "", nil).Find(t.Context(), "lives"); err != nil || len(h.Subs) != 1 {
			t.Errorf("a session that lives is not written: %+v, %v", h, err)
		}
		time.Sleep(many / cluster.AtOnce * 2 * w.slow)
		if left := len(w.store.Records()); left != 1 {
			t.Errorf("%d records are left", left)
		}
	})
}

// What is known of sessions that have ended is bounded: the oldest are forgotten, and that is told
// if the store has them still.
func TestEndedBound(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.most = 2
		n := w.start("a")
		time.Sleep(3 * lease)
		for _, cut := range []bool{true, false} {
			for i := range 5 {
				h := w.put(n, fmt.Sprint(cut, i))
				w.set(w.cut, "a", cut)
				if err := n.Delete(t.Context(), h); err != nil {
					t.Fatal(err)
				}
				w.set(w.cut, "a", false)
				time.Sleep(time.Millisecond)
			}
			first, last, count := n.Remembers(fmt.Sprint(cut, 0)), n.Remembers(fmt.Sprint(cut, 4)), n.EndedCount()
			if first || !last || count > 2*w.most {
				t.Errorf("cut off: %t; %d are known, the first: %t, the last: %t", cut, count, first, last)
			}
			time.Sleep(2 * lease)
		}
	})
}

// Whatever happens to instances and store, no two instances begin requests of one session
// at the same time (S-010), and afterwards each session has one owner that serves it, if
// its owner did not take its record with it.
//
// Which of two things comes first decides about owners. If commands took no time, many would happen at one
// instant, in the order in which the scheduler of the real machine runs them: a fault would come once in
// thousands of runs, and never again. So each command, and each answer, is on its way for a time of
// its own that is drawn, too.
func TestOwnership(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(strconv.Itoa(scaletest.Of(20, 100))); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 1<<16-1), 40, 120).Draw(rt, "steps")
		ways := rapid.Uint64().Draw(rt, "ways")
		fault := ""
		synctest.Test(t, func(t *testing.T) { fault = play(t, steps, ways) })
		if fault != "" {
			rt.Fatal(fault)
		}
	})
}

// travels returns how long things are on their way: each for a time that depends on the seed, on what it is
// and on how many of that kind were before, and not on what else runs. Most take a few milliseconds, some
// are slow, and none is so slow that it is given up.
func travels(seed uint64) func(what ...string) time.Duration {
	var mu sync.Mutex
	count := map[string]uint64{}
	return func(what ...string) time.Duration {
		name := strings.Join(what, " ")
		mu.Lock()
		count[name]++
		h := fnv.New64a()
		_, _ = fmt.Fprint(h, seed, count[name], name)
		mu.Unlock()
		r := rand.New(rand.NewPCG(seed, h.Sum64()))
		most := 5 * time.Millisecond
		if r.IntN(6) == 0 {
			most = cluster.OpTimeout / 3
		}
		return 1 + time.Duration(r.Int64N(int64(most)))
	}
}

func play(t *testing.T, steps []int, ways uint64) (fault string) {
	w := newWorld(t)
	defer w.close()
	travel := travels(ways)
	w.watch(func(id, what, key string) { time.Sleep(travel("to", id, what, key)) }, func(id, what, key string) { time.Sleep(travel("from", id, what, key)) })
	started, sessions := 0, 0
	begin := func() {
		w.start(fmt.Sprint("node", started))
		started++
		time.Sleep(travel("begin")) // its first beat is on its way
	}
	for range 3 {
		begin()
	}
	time.Sleep(3 * lease)
	living := func() (all []*cluster.Node) { // always in the same order
		for i := range started {
			if n := w.nodes[fmt.Sprint("node", i)]; n != nil {
				all = append(all, n)
			}
		}
		return all
	}
	owners := func() string { // it takes no time: what it finds is so at one instant
		for s := range sessions {
			var who []string
			for _, n := range living() {
				if n.Begins(fmt.Sprint("s", s)) {
					who = append(who, fmt.Sprintf("%s (%s, cut: %t)", n.ID(), n.State(), w.cut[n.ID()]))
				}
			}
			if len(who) > 1 {
				return fmt.Sprintf("s%d is served by %d instances: %v", s, len(who), who)
			}
		}
		return ""
	}
	var requests sync.WaitGroup // nothing waits for these but the end: what happens meanwhile matters
	defer requests.Wait()
	asked := func() { // requests reach each instance
		for _, n := range living() {
			if !n.Ready() {
				requests.Go(func() { _ = n.Await(t.Context(), "") })
			}
		}
	}
	sleep := func(d time.Duration) string {
		for ; d > 0; d -= lease / 12 {
			time.Sleep(min(d, lease/12) + travel("sleep"))
			if fault := owners(); fault != "" {
				return fault
			}
		}
		return ""
	}
	cutOff := func() bool {
		return slices.ContainsFunc(living(), func(n *cluster.Node) bool { return w.cut[n.ID()] || n.State() != cluster.Sure })
	}
	pick := func(x int) (string, *cluster.Node) {
		i := x % started
		for {
			if n := w.nodes[fmt.Sprint("node", i)]; n != nil {
				return fmt.Sprint("node", i), n
			}
			i = (i + 1) % started
		}
	}
	for at, x := range steps {
		time.Sleep(travel("step"))
		id, n := pick(x / 16)
		switch x % 16 {
		case 0, 1, 2:
			if n.Await(t.Context(), "") == nil {
				_, _ = n.Put(t.Context(), session.Held{Record: session.Record{Key: fmt.Sprint("s", sessions)}})
				sessions++ // also if it failed: the store may have it all the same, and no id is made twice
			}
		case 3, 4, 5, 6:
			if sessions > 0 {
				key := fmt.Sprint("s", x/16%sessions)
				requests.Go(func() { _ = takeOver(t.Context(), n, key) })
			}
		case 7:
			if len(w.nodes) > 2 {
				w.kill(id)
			}
		case 8:
			// One that starts while the others are cut off is not known to them: S-010
			// excepts it.
			if len(w.nodes) < 5 && !cutOff() {
				begin()
			}
		case 9:
			w.set(w.cut, id, true)
		case 10:
			w.set(w.cut, id, !w.cut[id])
		case 11:
			for id := range w.nodes {
				w.set(w.cut, id, false)
			}
		case 12:
			for id := range w.nodes {
				w.set(w.cut, id, true)
			}
		case 13:
			w.store.Restart() // failed over, with nothing lost
		default:
			fault = sleep(time.Duration(x/16%80) * 100 * time.Millisecond)
		}
		asked()
		if fault == "" {
			fault = owners()
		}
		if fault != "" {
			return fmt.Sprintf("after step %d (%d): %s", at, x%16, fault)
		}
	}
	for id := range w.nodes {
		w.set(w.cut, id, false)
	}
	if fault := sleep(4 * lease); fault != "" {
		return "at the end: " + fault
	}
	for s := range sessions {
		key := fmt.Sprint("s", s)
		_, n := pick(s)
		switch err := takeOver(t.Context(), n, key); {
		case err == nil, errors.Is(err, session.ErrFenced): // it is the one, or another living is
		case errors.Is(err, session.ErrNotFound): // its owner has died before it could write
		default:
			return fmt.Sprintf("at the end %s has no owner: %v", key, err)
		}
	}
	if fault := owners(); fault != "" {
		return "at the end: " + fault
	}
	return ""
}

// enough says that there is room for one more owner.
func enough() error { return nil }

// Owners take no room that sessions need.
func TestHomesBesideSessions(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n, b := w.start("a"), w.start("b")
		time.Sleep(3 * lease)
		for i := range 150 { // there may be 100 sessions
			if _, mine, err := n.Claim(t.Context(), cluster.ConnectionKey("files", fmt.Sprint(i)), "files", enough); !mine || err != nil {
				t.Fatalf("Claim = %t, %v", mine, err)
			}
		}
		w.put(b, "theirs")
		w.kill("b")
		time.Sleep(2 * lease)
		if err := takeOver(t.Context(), n, "theirs"); err != nil {
			t.Errorf("take over = %v", err)
		}
		for i := range 99 {
			w.put(n, fmt.Sprint("s", i))
		}
		if _, err := n.Put(t.Context(), session.Held{Record: session.Record{Key: "one more"}}); !errors.Is(err, session.ErrFull) {
			t.Errorf("one session more than there may be: %v", err)
		}
		if err := n.Beat(t.Context()); err != nil || n.Members()[0].Sessions != 100 {
			t.Errorf("others see %+v, %v", n.Members(), err)
		}
		for i := range 150 {
			if err := n.Unclaim(t.Context(), cluster.ConnectionKey("files", fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		if connections, all := n.HeldCount(); connections != 0 || all != 100 {
			t.Errorf("%d owners and %d of all are left", connections, all)
		}
	})
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
