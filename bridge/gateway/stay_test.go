package gateway

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/session"
)

// slowKeeper is a Keeper whose first Save of a subscription lasts until release is closed.
type slowKeeper struct {
	*session.Memory
	release chan struct{}
	saves   []session.Held // that were begun; only one may run at a time
	running int
}

func (s *slowKeeper) Save(ctx context.Context, h session.Held) error {
	if len(h.Subs) == 0 {
		return s.Memory.Save(ctx, h)
	}
	s.saves = append(s.saves, h)
	s.running++
	defer func() { s.running-- }()
	if len(s.saves) == 1 {
		<-s.release
	}
	return s.Memory.Save(ctx, h)
}

// Two changes of a session at once are stored in their order, although the store is slow with the first:
// no call waits for the store, and one save runs at a time.
func TestSavesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &slowKeeper{Memory: session.NewMemory(10), release: make(chan struct{})}
		f := &fake{}
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: f}}, Log: slog.New(slog.DiscardHandler), Sessions: k})
		defer g.Close(context.Background())
		s, _ := begin(t, g, "")
		answered := 0
		for _, uri := range []string{"x:a", "x:b", "x:c"} {
			go func() {
				do(t, s, "1", "resources/subscribe", `{"uri":"`+uri+`"}`)
				answered++
			}()
			synctest.Wait()
		}
		if answered != 3 || k.running != 1 {
			t.Errorf("%d calls are answered and %d saves run at once, want 3 and 1", answered, k.running)
		}
		close(k.release)
		synctest.Wait()
		h, err := k.Find(t.Context(), s.id)
		if want := []string{"x:a", "x:b", "x:c"}; err != nil || !slices.Equal(h.Subs, want) {
			t.Errorf("the store has %q (%v), the session %q", h.Subs, err, want)
		}
		if n := len(k.saves); n != 2 {
			t.Errorf("%d saves, want the first and the last state", n)
		}
	})
}

// What ends with unsaved changes is released with them.
func TestReleasesLastState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &slowKeeper{Memory: session.NewMemory(10), release: make(chan struct{})}
		f := &fake{}
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: f}}, Log: slog.New(slog.DiscardHandler), Sessions: k})
		defer g.Close(context.Background())
		s, _, err := join(t, g, SessionOptions{Server: "fake", ID: "portable", Portable: true})
		if err != nil {
			t.Fatal(err)
		}
		go do(t, s, "1", "resources/subscribe", `{"uri":"x:a"}`)
		synctest.Wait()
		go do(t, s, "2", "resources/subscribe", `{"uri":"x:b"}`)
		synctest.Wait()
		g.Move(s.id)
		close(k.release)
		<-s.ended
		h, err := k.Find(t.Context(), s.id)
		if want := []string{"x:a", "x:b"}; err != nil || h.Owner != "" || !slices.Equal(h.Subs, want) {
			t.Errorf("the store has %q of %q (%v), the session %q", h.Subs, h.Owner, err, want)
		}
	})
}

// lease is a Keeper that another instance may have taken a session from.
type lease struct {
	*session.Memory
	ready bool
	await func(ctx context.Context) error
}

func (l *lease) Ready() bool                                 { return l.ready }
func (l *lease) Await(ctx context.Context, key string) error { return l.await(ctx) }

// What is asked before each request (S-012).
func TestStaySure(t *testing.T) {
	l := &lease{Memory: session.NewMemory(1), ready: true}
	s := newStay(l, "key", nil)
	if err := s.Confirm(t.Context()); err != nil {
		t.Errorf("with the store's word: %v", err)
	}
	if n := testing.AllocsPerRun(100, func() { _ = s.Confirm(context.Background()) }); n > 0 {
		t.Errorf("%v allocations for a call", n)
	}
	l.ready = false
	l.await = func(context.Context) error { return nil }
	if err := s.Confirm(t.Context()); err != nil {
		t.Errorf("after a beat: %v", err)
	}
	l.await = func(context.Context) error { return session.ErrUnavailable }
	if err := s.Confirm(t.Context()); !errors.Is(err, bridge.ErrUnavailable) {
		t.Errorf("without the store: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	moved := errors.New("moved")
	l.await = func(context.Context) error { cancel(moved); return nil } // by then the session is another's
	if err := s.Confirm(ctx); !errors.Is(err, moved) {
		t.Errorf("after another instance has taken it: %v", err)
	}
}

// records counts the changes of a record.
type records struct {
	session.Record
	saves int
}

func (r *records) keep(change func(*session.Record)) { r.saves++; change(&r.Record) }
func (r *records) moves() bool                       { return false }

// What is kept of the connections of a session, and what another instance takes of it.
func TestStayCarry(t *testing.T) {
	kept := &records{}
	s := newStay(&lease{}, "key", kept)
	s.SaveResume("files", nil) // of a child process there is nothing to keep
	if kept.saves != 0 {
		t.Error("nothing was saved")
	}
	s.SaveResume("a", []byte("1"))
	first := kept.Carry
	s.SaveResume("b", []byte("2"))
	s.SaveResume("b", []byte("2"))
	s.SaveResume("a", nil)
	if kept.saves != 3 || len(first) != 1 || len(kept.Carry) != 1 || string(kept.Carry["b"]) != "2" {
		t.Errorf("%d times saved: %q, then %q", kept.saves, first, kept.Carry)
	}
	other := newStay(&lease{}, "key", kept)
	other.Resume(&session.Held{Record: session.Record{Carry: maps.Clone(kept.Carry)}, Epoch: 3})
	if carry, above := other.TakeResume("b"); string(carry) != "2" || above != 3<<32 {
		t.Errorf("Carry = %q, %d", carry, above)
	}
	if carry, _ := other.TakeResume("b"); carry != nil {
		t.Errorf("once more: %q", carry)
	}
	if carry, _ := other.TakeResume("a"); carry != nil {
		t.Errorf("of another server: %q", carry)
	}
	kept.saves = 0
	if other.SaveResume("b", []byte("2")); kept.saves != 0 { // it is kept already
		t.Error("what is kept was saved again")
	}
}
