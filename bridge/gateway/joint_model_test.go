package gateway

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// keepsOne is a server on a wire without streams that keeps one subscription for
// the connection, as servers by the Go SDK do: a newer one takes the place of an
// older one, and the end of any ends all. It ends one some time after that was
// taken back.
type keepsOne struct {
	*modernFake
	lag    func() time.Duration // from the cancellation to the end
	silent bool                 // what was taken back is not answered
	refuse string               // what cannot be listened to

	mu      sync.Mutex // guards the rest
	filters []string   // that were asked for
	open    map[string]bool
	most    int               // subscriptions at once
	heard   map[string]string // what changes are told -> the id of the subscription
	w       *fakeWire
}

func newKeepsOne() *keepsOne {
	k := &keepsOne{modernFake: modernShop("fake", nil), lag: func() time.Duration { return 0 }, open: map[string]bool{}, heard: map[string]string{}}
	rest := k.serve
	k.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		switch m.Method {
		case era.Listen:
			return k.listen(f, m) || rest(f, m)
		case "notifications/cancelled":
			id := string(m.RequestID())
			time.AfterFunc(k.lag(), func() { k.end(f, id) })
			return true
		}
		return rest(f, m)
	}
	return k
}

// listen begins a subscription, or reports true if it is answered.
func (k *keepsOne) listen(f *fakeWire, m *jsonrpc.Message) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	filter := gjson.GetBytes(m.Params, "notifications")
	k.filters = append(k.filters, filter.Raw)
	if k.refuse != "" && strings.Contains(filter.Raw, k.refuse) {
		f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no %s"}}`, m.ID, k.refuse))
		return true
	}
	id := string(m.ID)
	if k.w != f {
		k.w, k.open, k.heard = f, map[string]bool{}, map[string]string{}
	}
	k.open[id] = true
	k.most = max(k.most, len(k.open))
	filter.ForEach(func(name, value gjson.Result) bool {
		for _, uri := range value.Array() {
			k.heard[cmp.Or(uri.Str, name.Str)] = id
		}
		return true
	})
	return false
}

func (k *keepsOne) end(f *fakeWire, id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.open[id] || k.w != f {
		return
	}
	delete(k.open, id)
	k.heard = map[string]string{}
	if !k.silent {
		f.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"complete"}}`)
	}
}

// change has a list or a resource change, and tells whoever is to hear of it.
func (k *keepsOne) change(what, method, params string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if id, ok := k.heard[what]; ok {
		k.w.say(`{"jsonrpc":"2.0","method":"notifications/` + method + `","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}` + params + `}}`)
	}
}

func (k *keepsOne) tools() { k.change("toolsListChanged", "tools/list_changed", "") }

// hears has a client listen.
func hears(t *testing.T, g *gateway, id int, filter string) *visiting {
	t.Helper()
	return visitor{}.ask(t, g, fmt.Sprint(id), era.Listen, `"notifications":{`+filter+`}`)
}

// endsIn is how long the end of a subscription is waited for that was taken back.
const endsIn = time.Second

// gatherFor is how long subscriptions are gathered: they come in crowds.
const gatherFor = 50 * time.Millisecond

const tellsTools = `"toolsListChanged":true`

// Whatever clients come and go, and however slow the server is: who was
// acknowledged hears of each later change, or that there may have been one.
func TestJointNeverDeaf(t *testing.T) {
	for seed := range uint64(scaletest.Of(28, 100)) {
		k := newKeepsOne()
		var mu sync.Mutex // guards rng
		rng := rand.New(rand.NewPCG(seed, 0))
		k.lag = func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(rng.IntN(4)) * 70 * time.Millisecond
		}
		k.silent = seed%4 == 0
		run(t, ServerOptions{Adapter: k}, func(t *testing.T, g *gateway) {
			type client struct {
				*visiting
				id int
			}
			standing := map[string][]client{}
			id, n := 0, rand.New(rand.NewPCG(seed, 1))
			for range 40 {
				what := []string{"toolsListChanged", "x:a", "x:b"}[n.IntN(3)]
				switch here := standing[what]; {
				case len(here) > 0 && n.IntN(3) == 0:
					here[0].cancel(nil)
					<-here[0].done
					standing[what] = here[1:]
				default:
					id++
					filter := `"resourceSubscriptions":["` + what + `"]`
					if what == "toolsListChanged" {
						filter = tellsTools
					}
					standing[what] = append(here, client{hears(t, g, id, filter), id})
				}
				time.Sleep([]time.Duration{0, gatherFor / 2, gatherFor, 2 * gatherFor, endsIn}[n.IntN(5)])
				if n.IntN(3) > 0 {
					continue
				}
				begun := map[client]string{} // who has to hear of the change, and what each was told before
				for _, c := range standing[what] {
					synctest.Wait()
					c.mu.Lock()
					if len(c.lines) > 0 {
						begun[c] = strings.Join(c.lines, "")
					}
					c.mu.Unlock()
				}
				if what == "toolsListChanged" {
					k.tools()
				} else {
					k.change(what, "resources/updated", `,"uri":"`+what+`"`)
				}
				time.Sleep(7 * time.Second)
				for c, before := range begun {
					c.mu.Lock()
					after := strings.TrimPrefix(strings.Join(c.lines, ""), before)
					c.mu.Unlock()
					if !strings.Contains(after, "changed") && !strings.Contains(after, "updated") {
						t.Errorf("seed %d: %d has not heard of a change of %s, only %q", seed, c.id, what, before)
					}
				}
			}
			if k.most > 1 {
				t.Errorf("seed %d: %d subscriptions at once", seed, k.most)
			}
			for _, all := range standing {
				for _, c := range all {
					if c.over() {
						t.Errorf("seed %d: %d has ended: %s", seed, c.id, c.answer)
					}
					c.cancel(nil)
					<-c.done
				}
			}
			time.Sleep(endsIn)
			synctest.Wait()
			if len(k.open) > 0 || len(k.heard) > 0 {
				t.Errorf("seed %d: in the end, %v are open and %v is heard of", seed, k.open, k.heard)
			}
		})
	}
}
