package session_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/bridge/session/sessiontest"
)

func TestMemory(t *testing.T) {
	sessiontest.Run(t, func(*testing.T) func(string) session.Store {
		m := session.NewMemory(100)
		return func(owner string) session.Store { return m.As(owner) }
	})
}

func TestMemoryLimit(t *testing.T) {
	m, ctx := session.NewMemory(100), t.Context()
	put := func(key string) (session.Held, error) {
		return m.Put(ctx, session.Held{Record: session.Record{Key: key}})
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			if _, err := put(fmt.Sprint(i)); err != nil {
				t.Errorf("Put %d = %v", i, err)
			}
		})
	}
	wg.Wait()
	if _, err := put("more"); !errors.Is(err, session.ErrFull) {
		t.Errorf("Put above the limit = %v, want ErrFull", err)
	}
	h, err := m.Find(ctx, "7")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Delete(ctx, h); err != nil {
		t.Fatal(err)
	}
	if _, err := put("more"); err != nil || m.Len() != 100 {
		t.Errorf("Put after Delete = %v, with %d records", err, m.Len())
	}
}

// visible ASCII, at least 128 bits (26 characters of 5 bits).
func TestNewID(t *testing.T) {
	for _, tag := range []string{"", "ABCDEF"} {
		a, b := session.NewID(tag), session.NewID(tag)
		if a == b || len(a) < 26 || session.Tag(a) != tag {
			t.Errorf("ids %q and %q, tag %q", a, b, session.Tag(a))
		}
		for _, c := range a {
			if c < 0x21 || c > 0x7e {
				t.Errorf("id %q has the character %q", a, c)
			}
		}
		if session.Key(a) == session.Key(b) {
			t.Error("two ids have one key")
		}
	}
}
