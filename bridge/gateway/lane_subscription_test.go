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

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

const maxInterests = 2 * subscribe.MaxSubscriptions // of one subscription, as package lane has it

// keepsOne is a server on a wire without streams that keeps one subscription for
// the connection, as servers by the Go SDK do: a newer one takes the place of an
// older one, and the end of any ends all. It ends one some time after that was
// taken back.
type keepsOne struct {
	*peer
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
	k := &keepsOne{peer: newPeer(), lag: func() time.Duration { return 0 }, open: map[string]bool{}, heard: map[string]string{}}
	rest := k.peer.serve
	k.peer.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
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

// asked returns the filters that the server was asked for, when all is quiet.
func (k *keepsOne) asked() []string {
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.filters
}

// hears has a client listen.
func hears(t *testing.T, g *gateway, id int, filter string) *visiting {
	t.Helper()
	return visitor{}.ask(t, g, fmt.Sprint(id), era.Listen, `"notifications":{`+filter+`}`)
}

// told returns what a subscription was told since the last time, in short.
func told(t *testing.T, v *visiting, id int) string {
	t.Helper()
	time.Sleep(2 * changeEvery) // what is held back comes
	var all []string
	for _, line := range v.take() {
		bridgetest.Contains(t, line, fmt.Sprintf(`"io.modelcontextprotocol/subscriptionId":%d`, id))
		n := gjson.Parse(line)
		what := strings.TrimPrefix(n.Get("method").Str, "notifications/")
		all = append(all, strings.TrimSuffix(what+" "+cmp.Or(n.Get("params.notifications").Raw, n.Get("params.uri").Str), " "))
	}
	return strings.Join(all, ", ")
}

// endsIn is how long the end of a subscription is waited for that was taken back.
const endsIn = time.Second

const tellsTools = `"toolsListChanged":true`

// A server that needs seconds to end a subscription does not take its end for that
// of the next one.
func TestJointOfSlowServer(t *testing.T) {
	k := newKeepsOne()
	k.lag = func() time.Duration { return 3 * time.Second }
	run(t, ServerOptions{Adapter: k}, func(t *testing.T, g *gateway) {
		first := hears(t, g, 1, tellsTools)
		synctest.Wait()
		second := hears(t, g, 2, `"resourceSubscriptions":["x:a"]`)
		time.Sleep(gatherFor + 4*time.Second)
		told(t, first, 1)
		if got := told(t, second, 2); got != `subscriptions/acknowledged {"resourceSubscriptions":["x:a"]}` {
			t.Errorf("the second was told %q", got)
		}
		time.Sleep(time.Minute)
		k.tools()
		k.change("x:a", "resources/updated", `,"uri":"x:a"`)
		if got := told(t, first, 1); got != "tools/list_changed" {
			t.Errorf("the first was told %q", got)
		}
		if got := told(t, second, 2); got != "resources/updated x:a" {
			t.Errorf("the second was told %q", got)
		}
		if k.most != 1 {
			t.Errorf("%d subscriptions at once", k.most)
		}
	})
}

// those who listen over a wire without streams share
// one subscription at the server, and each hears what it has asked for.
func TestJoint(t *testing.T) {
	for _, silent := range []bool{false, true} {
		k := newKeepsOne()
		k.silent = silent
		endsIn := endsIn
		if silent { // for the first time
			endsIn = 5 * time.Second
		}
		run(t, ServerOptions{Adapter: k}, func(t *testing.T, g *gateway) {
			tell := func(v *visiting, id int, want string) {
				t.Helper()
				if got := told(t, v, id); got != want {
					t.Errorf("%d was told %q, want %q", id, got, want)
				}
			}
			began := time.Now()
			first := hears(t, g, 1, tellsTools)
			synctest.Wait()
			if took := time.Since(began); took != 0 {
				t.Errorf("the first one has to wait for %v", took)
			}
			tell(first, 1, `subscriptions/acknowledged {"toolsListChanged":true}`)

			// What is heard of already changes nothing.
			second := hears(t, g, 2, tellsTools)
			tell(second, 2, `subscriptions/acknowledged {"toolsListChanged":true}`)
			same(t, "filters", k.asked(), []string{`{` + tellsTools + `}`})

			// Whoever wants more gets it, and those before hear of what they may have missed.
			third := hears(t, g, 3, `"resourceSubscriptions":["x:b","x:a"]`)
			fourth := hears(t, g, 4, `"resourceSubscriptions":["x:a"],"promptsListChanged":true,`+tellsTools)
			time.Sleep(gatherFor + endsIn)
			tell(first, 1, "tools/list_changed")
			tell(second, 2, "tools/list_changed")
			tell(third, 3, `subscriptions/acknowledged {"resourceSubscriptions":["x:a","x:b"]}`)
			tell(fourth, 4, `subscriptions/acknowledged {"promptsListChanged":true,"resourceSubscriptions":["x:a"],"toolsListChanged":true}`)
			same(t, "filters", k.asked()[1:], []string{`{"promptsListChanged":true,"resourceSubscriptions":["x:a","x:b"],"toolsListChanged":true}`})

			// When one leaves the others hear what they did.
			second.cancel(nil)
			<-second.done
			k.tools()
			k.change("x:a", "resources/updated", `,"uri":"x:a/part"`)
			k.change("x:b", "resources/updated", `,"uri":"x:b"`)
			tell(first, 1, "tools/list_changed")
			tell(third, 3, "resources/updated x:a/part, resources/updated x:b")
			tell(fourth, 4, "tools/list_changed, resources/updated x:a/part")
			k.change("x:b", "resources/updated", `,"uri":"X:B"`) // written otherwise
			k.change("x:b", "message", `,"level":"info"`)
			tell(first, 1, "")
			tell(third, 3, "resources/updated X:B")
			tell(fourth, 4, "resources/updated X:B")

			// The last ones end it. Another one begins while it has not ended at the server.
			k.lag = func() time.Duration { return 500 * time.Millisecond }
			for _, v := range []*visiting{first, third, fourth} {
				v.cancel(nil)
				<-v.done
			}
			last := hears(t, g, 5, tellsTools)
			time.Sleep(endsIn)
			tell(last, 5, `subscriptions/acknowledged {"toolsListChanged":true}`)
			k.tools()
			tell(last, 5, "tools/list_changed")
			same(t, "filters", k.asked()[2:], []string{`{` + tellsTools + `}`})

			// The loss of the connection interrupts all.
			k.w.die()
			time.Sleep(time.Minute)
			tell(last, 5, "tools/list_changed")
			k.tools()
			tell(last, 5, "tools/list_changed")
			if k.most != 1 || last.over() {
				t.Errorf("%d subscriptions at once; it has ended: %t", k.most, last.over())
			}
			k.end(k.w, k.heard["toolsListChanged"]) // by itself
			if k.silent {
				last.cancel(nil)
				<-last.done
				return
			}
			<-last.done
			bridgetest.Contains(t, last.answer, `"resultType":"complete"`)
		})
	}
}

// What the server refuses is refused to those who have asked for it. Those who
// listened before go on.
func TestJointRefused(t *testing.T) {
	k := newKeepsOne()
	k.refuse = "x:no"
	run(t, ServerOptions{Adapter: k}, func(t *testing.T, g *gateway) {
		bad := []*visiting{hears(t, g, 1, `"resourceSubscriptions":["x:no"]`), hears(t, g, 2, `"resourceSubscriptions":["x:no"],`+tellsTools)}
		good := hears(t, g, 3, tellsTools)
		if got := told(t, good, 3); !strings.HasPrefix(got, "subscriptions/acknowledged") {
			t.Errorf("it was told %q", got)
		}
		bad = append(bad, hears(t, g, 4, `"resourceSubscriptions":["x:no"]`))
		also := hears(t, g, 5, `"resourceSubscriptions":["x:a"]`)
		time.Sleep(time.Second)
		bridgetest.Contains(t, told(t, good, 3), "tools/list_changed")
		if got := told(t, also, 5); !strings.HasPrefix(got, `subscriptions/acknowledged {"resourceSubscriptions":["x:a"]}`) {
			t.Errorf("it was told %q", got)
		}
		for _, v := range bad {
			<-v.done
			bridgetest.Contains(t, v.answer, `"code":-32601,"message":"no x:no"`)
		}
		k.tools()
		if got := told(t, good, 3); got != "tools/list_changed" || good.over() || also.over() {
			t.Errorf("it was told %q, and is over: %t, %t", got, good.over(), also.over())
		}

		// When those who were heard of are refused, all are told.
		k.refuse = "toolsListChanged"
		more := hears(t, g, 6, `"resourceSubscriptions":["x:b"]`)
		for _, v := range []*visiting{good, also, more} {
			<-v.done
			bridgetest.Contains(t, v.answer, `"code":-32601,"message":"no toolsListChanged"`)
		}
	})
	k = newKeepsOne()
	run(t, ServerOptions{Adapter: k}, func(t *testing.T, g *gateway) {
		bridgetest.Contains(t, visitor{}.call(t, g, era.Listen, `"notifications":[]`), `"code":-32602`, "params.notifications must be an object")
		many := ""
		for i := range maxInterests {
			many += fmt.Sprintf(`"x%d":1,`, i)
		}
		bridgetest.Contains(t, visitor{}.call(t, g, era.Listen, `"notifications":{`+many+tellsTools+`}`), `"code":-32603`, "params.notifications has too many entries", fmt.Sprint(maxInterests))
		if got := k.asked(); len(got) > 0 {
			t.Errorf("the server was asked for %q", got)
		}
		var all []*visiting
		full := 0
		for i := range 6 {
			item := fmt.Sprintf(`"x:%d%s"`, i, strings.Repeat("l", maxListenSize-1000))
			v := hears(t, g, i, `"resourceSubscriptions":[`+item+`]`)
			synctest.Wait()
			if v.over() {
				bridgetest.Contains(t, v.answer, "-32603", "the subscriptions over one connection to the server have too many bytes together")
				full++
				continue
			}
			all = append(all, v)
		}
		if full != 2 {
			t.Errorf("%d of 6 were refused", full)
		}
		for _, v := range all {
			v.cancel(nil)
			<-v.done
		}
	})
}

// a session that subscribes to one more resource replaces its subscription.
// It hears of what it heard of before, and of what may have changed meanwhile.
func TestJointOfSession(t *testing.T) {
	k := newKeepsOne()
	run(t, ServerOptions{Adapter: k}, func(t *testing.T, g *gateway) {
		s, st, _ := beginAs(t, g, able("2025-11-25"))
		for i, uri := range []string{"x:a", "x:b"} {
			bridgetest.Contains(t, do(t, s, fmt.Sprint(i), "resources/subscribe", `{"uri":"`+uri+`"}`), `"result":{}`)
		}
		bridgetest.Contains(t, strings.Join(st.take(), ""), "tools/list_changed", `"x:a"`)
		time.Sleep(shrinkAfter + time.Second)
		bridgetest.Contains(t, do(t, s, "3", "resources/unsubscribe", `{"uri":"x:a"}`), `"result":{}`)
		time.Sleep(shrinkAfter + time.Second)
		st.take()
		k.change("x:b", "resources/updated", `,"uri":"x:b"`)
		k.change("x:a", "resources/updated", `,"uri":"x:a"`)
		k.tools()
		same(t, "the session", st.take(), []string{`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:b"}}`, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}`})
	})
}

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
