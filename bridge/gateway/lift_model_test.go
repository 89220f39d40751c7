package gateway

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// whims is a modern server that takes its time to acknowledge subscriptions, and
// refuses some.
type whims struct {
	mu       sync.Mutex // guards the rest
	rng      *rand.Rand
	asked    int
	open     map[string][]string // resources of the subscriptions that have begun, by id
	ended    map[string]bool
	promised map[string]bool // resources that the client was told that it hears of
	unheard  []string        // of those, at some moment
}

func (w *whims) serve(one *statelessWire, m *jsonrpc.Message) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m.Method {
	case "notifications/cancelled":
		id := string(m.RequestID())
		w.ended[id] = true
		delete(w.open, id)
		w.look()
	case era.Listen:
		w.asked++
		refuses := w.asked > 1 && w.rng.IntN(4) == 0
		time.AfterFunc(time.Duration(w.rng.IntN(4))*70*time.Millisecond, func() { w.begin(one, m, refuses) })
	}
	return true
}

func (w *whims) begin(one *statelessWire, m *jsonrpc.Message, refuses bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := string(m.ID)
	switch {
	case w.ended[id]:
	case refuses:
		one.say(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32603,"message":"no"}}`)
	default:
		w.open[id] = nil
		for _, uri := range gjson.GetBytes(m.Params, "notifications.resourceSubscriptions").Array() {
			w.open[id] = append(w.open[id], uri.Str)
		}
		one.acknowledge(m)
	}
}

// look notes what the client does not hear of although it was told so.
func (w *whims) look() {
	for uri, promised := range w.promised {
		heard := false
		for _, uris := range w.open {
			heard = heard || slices.Contains(uris, uri)
		}
		if promised && !heard {
			w.unheard = append(w.unheard, uri)
		}
	}
}

func (w *whims) promise(uri string, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.promised[uri] = is
	w.look()
}

// from the answer to resources/subscribe until the client ends it,
// there is no moment in which it does not hear of the resource, whatever it does
// with others and however slow the server is.
func TestListenNeverDeaf(t *testing.T) {
	for seed := range uint64(scaletest.Of(50, 200)) {
		server := &whims{rng: rand.New(rand.NewPCG(seed, 0)), open: map[string][]string{}, ended: map[string]bool{}, promised: map[string]bool{}}
		run(t, ServerOptions{Adapter: &statelessFake{serve: server.serve}}, func(t *testing.T, g *gateway) {
			s, _, _ := beginAs(t, g, able("2025-11-25"))
			time.Sleep(time.Second)
			var wg sync.WaitGroup
			for c := range 3 {
				rng := rand.New(rand.NewPCG(seed, uint64(1+c)))
				wg.Go(func() {
					for k := range 12 {
						uri, method := fmt.Sprintf("x:%d.%d", c, rng.IntN(2)), "subscribe"
						if rng.IntN(3) == 0 {
							method = "unsubscribe"
							server.promise(uri, false)
						}
						m, _ := s.Call(parseRaw(fmt.Sprintf(`{"jsonrpc":"2.0","id":"%d.%d","method":"resources/%s","params":{"uri":%q}}`, c, k, method, uri)), nil, nil)
						if method == "subscribe" && m.Error == nil {
							server.promise(uri, true)
						}
						time.Sleep([]time.Duration{0, gatherFor / 2, 2 * gatherFor, shrinkAfter - gatherFor, shrinkAfter, shrinkAfter + gatherFor}[rng.IntN(6)])
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Minute)
			server.mu.Lock()
			defer server.mu.Unlock()
			if len(server.unheard) > 0 || len(server.open) != 1 {
				t.Errorf("seed %d: not heard of were %q, and %d subscriptions are open", seed, server.unheard, len(server.open))
			}
			for _, uris := range server.open {
				for _, uri := range uris {
					if !server.promised[uri] {
						t.Errorf("seed %d: %s is heard of still", seed, uri)
					}
				}
			}
		})
	}
}
