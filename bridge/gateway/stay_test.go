package gateway

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/session"
)

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
