package cluster_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

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
