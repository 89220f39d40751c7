package integration

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// TestStorm has a server say 30,000 times, as fast as it can, that its tools have
// changed. Each client is told ten times a second at most, and not left with what
// there was before the last time.
func TestStorm(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	const every = 100 * time.Millisecond
	changes := func(m message) bool { return m.method == "notifications/tools/list_changed" }
	for _, test := range []struct {
		share   string
		clients int
	}{{"session", 1}, {"all", 20}} {
		t.Run(test.share, func(t *testing.T) {
			b := startBridge(t, []string{"--share", test.share}, fakeProgram(t))
			var peers []*peer
			for i := range test.clients {
				p := newPeer(fmt.Sprint("client ", i), true).connect(t, target{transport: "streamable", url: b.base + "/mcp"}, legacy)
				defer p.close(t)
				peers = append(peers, p)
			}
			began := time.Now()
			peers[0].tool(t, "storm", map[string]any{"bytes": 30000, "message": "last"})
			var all sync.WaitGroup
			for i, p := range peers {
				all.Go(func() {
					told := 0
					for names := []string{}; !slices.Contains(names, "last"); names = listedNow(t, p) {
						if _, ok := eventually(func() (int, bool) { n := len(p.since(0, changes)); return n, n > told }); !ok {
							t.Errorf("client %d has %v and is told nothing more", i, names)
							return
						}
						told = len(p.since(0, changes))
					}
				})
			}
			all.Wait()
			for i, p := range peers {
				told := len(p.since(0, changes))
				if most := int(time.Since(began)/every) + 2; told > most {
					t.Errorf("client %d was told %d times, and should be %d times at most", i, told, most)
				}
			}
			t.Logf("%d clients in %v; the first was told %d times", test.clients, time.Since(began), len(peers[0].since(0, changes)))
		})
	}
}

// listedNow returns the names of the tools as a client lists them now.
func listedNow(t *testing.T, p *peer) []string {
	r, err := p.session.ListTools(t.Context(), nil)
	if err != nil {
		t.Error(err)
		return nil
	}
	return toolNames(r.Tools)
}
