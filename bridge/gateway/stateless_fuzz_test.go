package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// FuzzGuest plays a random life of clients without sessions of two principals:
// calls, retries with whatever requestState there is, cancellations, questions,
// subscriptions, losses and pauses. Whatever happens, each request has exactly
// one outcome, no client hears what is another's, no call is made twice, and
// nothing is left in the end.
func FuzzGuest(f *testing.F) {
	for mode := range byte(4) {
		for seed := range byte(4) {
			life := []byte{mode}
			for i := range byte(120) {
				life = append(life, (i*11+seed*37)^(i*i), i*17+seed)
			}
			f.Add(life)
		}
	}
	f.Fuzz(func(t *testing.T, life []byte) {
		if len(life) == 0 || len(life) > 600 {
			return
		}
		synctest.Test(t, func(t *testing.T) { visitLife(t, life) })
	})
}

// visitGame is what happens in one such life.
type visitGame struct {
	t      *testing.T
	g      *gateway
	f      *fake
	states []string
	fresh  int // calls that were not retries
	all    []*visiting
	names  []string // whose they are

	mu     sync.Mutex // guards the rest
	open   []slowVisit
	called int // calls that the server has got
	asked  int
}

type slowVisit struct {
	w *fakeWire
	m *jsonrpc.Message
}

func visitLife(t *testing.T, life []byte) {
	share := []Share{ShareSession, ShareCall, ShareAll, SharePrincipal}[life[0]%4]
	g := &visitGame{t: t, f: &fake{times: conn.Timeouts{Idle: time.Hour}}}
	g.f.serve = g.serve
	g.g = newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: g.f, ServerSettings: ServerSettings{Share: share, StartsPerMinute: 1000}, EndWithServer: life[0]&4 != 0}}, Log: slog.New(slog.DiscardHandler)})
	for i := 1; i+1 < len(life); i += 2 {
		g.move(life[i], life[i+1])
	}
	time.Sleep(20 * time.Minute) // what is parked is forgotten in ten
	for _, v := range g.all {
		v.cancel(bridge.ErrCancelled)
		<-v.done
	}
	time.Sleep(20 * time.Minute) // as what is idle is
	if r := remainsOf(g.g.table.Load().servers[0].pool); r.parked+r.waiting+r.bytes+r.busy+r.all != 0 {
		t.Errorf("left: %+v", r)
	}
	g.g.Close(context.Background())
	if n := g.g.lanes.Open(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	if g.called > g.fresh {
		t.Errorf("the server was called %d times for %d requests", g.called, g.fresh)
	}
	for i, v := range g.all {
		other := map[string]string{"ann": "of bob", "bob": "of ann"}[g.names[i]]
		if said := v.answer + strings.Join(v.lines, ""); share != ShareAll && strings.Contains(said, other) {
			t.Errorf("%s has got %s", g.names[i], said)
		}
		if v.answer == "" && v.err == nil {
			t.Errorf("a request of %s has no outcome", g.names[i])
		}
	}
}

func (v *visitGame) serve(f *fakeWire, m *jsonrpc.Message) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case m.Method == "tools/call":
		v.called++
		v.open = append(v.open, slowVisit{f, m})
		return true
	case m.Method == "tools/list":
		v.open = append(v.open, slowVisit{f, m})
		return true
	}
	return false
}

func (v *visitGame) move(what, how byte) {
	name := []string{"ann", "bob"}[how&1]
	c := visitor{principal: name, caps: []string{ableVisitor, `{"roots":{}}`, "{}"}[int(how>>1)%3]}
	add := func(method, params string) {
		v.all = append(v.all, c.ask(v.t, v.g, fmt.Sprint(how), method, params))
		v.names = append(v.names, name)
	}
	pick := func() (slowVisit, bool) {
		synctest.Wait()
		v.mu.Lock()
		defer v.mu.Unlock()
		if len(v.open) == 0 {
			return slowVisit{}, false
		}
		return v.open[int(how)%len(v.open)], true
	}
	switch what % 12 {
	case 0, 1:
		v.fresh++
		add("tools/call", `"name":"x"`)
	case 2:
		add("tools/list", "")
	case 3, 4, 5:
		for _, visiting := range v.all {
			if visiting.over() {
				if found := statePattern.FindStringSubmatch(visiting.answer); found != nil {
					v.states = append(v.states, found[1])
				}
			}
		}
		if len(v.states) > 0 {
			keys := ""
			for i := range 1 + how%4 {
				keys += fmt.Sprintf(`,"r%d":{"roots":[],"action":"accept"}`, i+1)
			}
			state := v.states[len(v.states)-1-int(how/8)%len(v.states)]
			add("tools/call", `"name":"x","inputResponses":{`+keys[1:]+`},"requestState":"`+state+`"`)
		}
	case 6:
		if len(v.all) > 0 {
			v.all[int(how)%len(v.all)].cancel(bridge.ErrCancelled)
		}
	case 7, 8:
		if s, ok := pick(); ok {
			v.asked++
			s.w.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"message":"of %s"}}`, v.asked, []string{"roots/list", "elicitation/create"}[how>>1&1], s.w.from.Principal))
			if how&8 != 0 {
				s.w.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, v.asked))
			}
		}
	case 9:
		if s, ok := pick(); ok {
			v.mu.Lock()
			for i, other := range v.open {
				if other == s {
					v.open = append(v.open[:i:i], v.open[i+1:]...)
				}
			}
			v.mu.Unlock()
			s.w.answer(s.m, `{"said":"of `+s.w.from.Principal+`"}`)
		}
	case 10:
		add(era.Listen, `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:`+fmt.Sprint(how%3)+`"]}`)
	case 11:
		if s, ok := pick(); ok && how&4 != 0 {
			s.w.die()
		}
		time.Sleep([]time.Duration{time.Millisecond, 30 * time.Millisecond, time.Second, 10 * time.Minute}[how&3])
	}
}
