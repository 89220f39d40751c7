package lift_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// whims is a modern server that takes its time to acknowledge subscriptions, and refuses some.
type whims struct {
	mu       sync.Mutex // guards the rest
	rng      *rand.Rand
	asked    int
	open     map[*bridgetest.Call][]string // resources of the subscriptions that have begun
	promised map[string]bool               // resources that the client was told that it hears of
	unheard  []string                      // of those, at some moment
}

// listen answers a request to listen, and returns when that is over.
func (w *whims) listen(t *testing.T, c *bridgetest.Call) {
	w.mu.Lock()
	w.asked++
	refuses, late := w.asked > 1 && w.rng.IntN(4) == 0, time.Duration(w.rng.IntN(4))*70*time.Millisecond
	w.mu.Unlock()
	if time.Sleep(late); c.Ctx.Err() == nil && refuses {
		c.Refuse(t, `{"code":-32603,"message":"no"}`)
		return
	}
	wants := gjson.GetBytes(c.Whole(), "notifications")
	w.change(func() {
		w.open[c] = nil
		for _, uri := range wants.Get("resourceSubscriptions").Array() {
			w.open[c] = append(w.open[c], uri.Str)
		}
	})
	c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, `{"notifications":`+wants.Raw+`}`))
	<-c.Ctx.Done()
	w.change(func() { delete(w.open, c) })
}

// change makes a change, and notes what the client does not hear of then although it was told so.
func (w *whims) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
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

// from the answer to resources/subscribe until the client ends it, there is no moment in which it does not
// hear of the resource, whatever it does with others and however slow the server is.
func TestNeverDeaf(t *testing.T) {
	for seed := range uint64(scaletest.Of(50, 200)) {
		synctest.Test(t, func(t *testing.T) {
			s := play(t, era.Rev20251125, era.Rev20260728, `{}`, `{"tools":{"listChanged":true},"resources":{"subscribe":true}}`)
			w := &whims{rng: rand.New(rand.NewPCG(seed, 0)), open: map[*bridgetest.Call][]string{}, promised: map[string]bool{}}
			s.begin()
			var serving, clients sync.WaitGroup
			over := make(chan struct{})
			serving.Go(func() {
				for {
					select {
					case c := <-s.Calls():
						serving.Go(func() { w.listen(t, c) })
					case <-over:
						return
					}
				}
			})
			time.Sleep(time.Second)
			for c := range 3 {
				rng := rand.New(rand.NewPCG(seed, uint64(1+c)))
				clients.Go(func() {
					for range 12 {
						uri, method := fmt.Sprintf("x:%d.%d", c, rng.IntN(2)), "resources/subscribe"
						if rng.IntN(3) == 0 {
							method = "resources/unsubscribe"
							w.change(func() { w.promised[uri] = false })
						}
						answer := s.call(method, `{"uri":"`+uri+`"}`)
						if method == "resources/subscribe" && gjson.Get(answer, "result").Exists() {
							w.change(func() { w.promised[uri] = true })
						}
						const gather, shrink = 50 * time.Millisecond, 5 * time.Second // of the subscription
						time.Sleep([]time.Duration{0, gather / 2, 2 * gather, shrink - gather, shrink, shrink + gather}[rng.IntN(6)])
					}
				})
			}
			clients.Wait()
			time.Sleep(time.Minute)
			w.change(func() {
				for _, uris := range w.open {
					for _, uri := range uris {
						if !w.promised[uri] {
							t.Errorf("seed %d: %s is heard of still", seed, uri)
						}
					}
				}
				if len(w.unheard) > 0 || len(w.open) != 1 {
					t.Errorf("seed %d: not heard of were %q, and %d subscriptions are open", seed, w.unheard, len(w.open))
				}
			})
			close(over)
			s.end()
			serving.Wait()
		})
	}
}
