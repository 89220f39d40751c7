package cluster_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

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
