package gateway

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
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
		s, _, err := g.initialize(t.Context(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":"init","method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{Server: "fake", ID: "portable", Portable: true})
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
