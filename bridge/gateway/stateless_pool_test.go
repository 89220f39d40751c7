package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// What clients meet of the limits of package stateless.
const (
	maxProfiles   = 8
	claimPatience = 100 * time.Millisecond
	statelessIdle = 10 * time.Minute
	givingUp      = 5 * time.Minute
)

// remains says what the stateless clients of a server have.
type remains struct{ slots, all, parked, waiting, bytes, busy int }

// remainsOf returns what there is, when all is quiet.
func remainsOf(p *stateless.Pool) remains {
	synctest.Wait()
	st := p.Status()
	return remains{st.Found, st.Open, st.Kept, st.Waiting, st.Bytes, st.Requests + st.Subscriptions}
}

// capsOf makes the nth of many different capabilities.
func capsOf(n int) string { return fmt.Sprintf(`{"experimental":{"e%d":{}}}`, n) }

// D1.2: a connection for each set of capabilities, however it is spelt, also for lists:
// servers choose by the capabilities of a client what they show it.
func TestPoolProfiles(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		visitor{caps: `{"sampling":{},"roots":{}}`}.call(t, g, "tools/call", `"name":"x"`)
		visitor{caps: `{ "roots" : {"listChanged":true}, "sampling":{} }`}.call(t, g, "tools/call", `"name":"x"`)
		visitor{caps: `{"extensions":{"io.modelcontextprotocol/tasks":{}},"sampling":{},"roots":{}}`}.call(t, g, "tools/list", ``)
		if n := f.opened(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
		bridgetest.Contains(t, f.wire(1).log()[0], `"capabilities":{"sampling":{},"roots":{}}`)
		visitor{caps: `{"roots":{}}`}.call(t, g, "tools/call", `"name":"y"`)
		visitor{caps: `{}`}.call(t, g, "server/discover", ``)
		if n := f.opened(); n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
		visitor{caps: `{}`}.call(t, g, "resources/list", ``)
		visitor{caps: `{"extensions":{"io.modelcontextprotocol/ui":{}}}`}.call(t, g, "tools/list", ``)
		if n := f.opened(); n != 4 {
			t.Errorf("%d connections, want 4", n)
		}
		bridgetest.Contains(t, f.wire(3).log()[0], `"capabilities":{}`)
		bridgetest.Contains(t, f.wire(4).log()[0], `"io.modelcontextprotocol/ui"`)
		visitor{principal: "q", caps: `{"roots":{}}`}.call(t, g, "resources/list", ``)
		if n := f.opened(); n != 5 {
			t.Errorf("%d connections, want 5: principals share none", n)
		}
	})
}

// D1.2, R-178: a principal has so many connections. The one that was not used
// for longest makes room, but none that is in use.
func TestPoolBound(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool { return m.Name() == "slow" }}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		slow := visitor{caps: capsOf(0)}.ask(t, g, "1", "tools/call", `"name":"slow"`)
		synctest.Wait()
		for i := range maxProfiles {
			visitor{caps: capsOf(i)}.call(t, g, "tools/call", `"name":"x"`)
		}
		visitor{caps: capsOf(100)}.call(t, g, "tools/call", `"name":"x"`)
		synctest.Wait()
		if n := g.lanes.Open(); n != maxProfiles {
			t.Errorf("%d connections, want %d", n, maxProfiles)
		}
		visitor{caps: capsOf(0)}.call(t, g, "tools/call", `"name":"x"`) // the first is still there
		visitor{caps: capsOf(2)}.call(t, g, "tools/call", `"name":"x"`) // and 2, but not 1
		if n := f.opened(); n != maxProfiles+1 {
			t.Errorf("%d opened, want %d", n, maxProfiles+1)
		}
		var busy []*visiting
		for i := range maxProfiles + 1 {
			busy = append(busy, visitor{caps: capsOf(i)}.ask(t, g, "1", "tools/call", `"name":"slow"`))
			synctest.Wait()
		}
		last := busy[maxProfiles]
		if !last.over() || !errors.Is(last.err, bridge.ErrOverloaded) {
			t.Errorf("got %s, %v; want a refusal", last.answer, last.err)
		}
		for _, v := range append(busy, slow) {
			v.cancel(bridge.ErrCancelled)
			<-v.done
		}
	})
}

// CloseUnused closes what no request uses, and nothing else, also where connections never close as idle.
func TestPoolCloseUnused(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool { return m.Name() == "slow" }}
	run(t, ServerOptions{Adapter: f, Idle: -1}, func(t *testing.T, g *gateway) {
		slow := visitor{caps: capsOf(0)}.ask(t, g, "1", "tools/call", `"name":"slow"`)
		visitor{caps: capsOf(1)}.call(t, g, "tools/list", ``)
		synctest.Wait()
		g.CloseUnused()
		synctest.Wait()
		if n := g.lanes.Open(); n != 1 || slow.over() {
			t.Errorf("%d connections are open, want that of the call", n)
		}
		slow.cancel(bridge.ErrCancelled)
		<-slow.done
		g.CloseUnused()
		synctest.Wait()
		if n := g.lanes.Open(); n != 0 {
			t.Errorf("%d connections are open", n)
		}
		bridgetest.Contains(t, visitor{caps: capsOf(1)}.call(t, g, "tools/list", ``), `"result"`)
	})
}

// A connection that makes room for another has left when that is opened, however
// long its end takes.
func TestPoolRoomIsRoom(t *testing.T) {
	for _, share := range []Share{"", ShareCall} {
		f := &fake{closes: func(context.Context, *fakeWire) { time.Sleep(time.Second) }}
		run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{MaxChildren: 2, Share: share}}, func(t *testing.T, g *gateway) {
			for i := range 6 {
				bridgetest.Contains(t, visitor{caps: capsOf(i)}.call(t, g, "tools/call", `"name":"x"`), `"result"`)
				if n := g.lanes.Open(); n > 2 {
					t.Errorf("%d connections", n)
				}
			}
		})
	}
}

// Sessions have connections to the server too: one of the pool's that nobody uses
// makes room for them, and beside them.
func TestPoolRoomBesideSessions(t *testing.T) {
	run(t, ServerOptions{Adapter: &fake{}, ServerSettings: ServerSettings{MaxChildren: 2}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		for i := range 3 {
			bridgetest.Contains(t, visitor{caps: capsOf(i)}.call(t, g, "tools/call", `"name":"x"`), `"result"`)
		}
		bridgetest.Contains(t, do(t, s, "1", "tools/list", "{}"), `"result"`)
		second, _ := begin(t, g, "")
		bridgetest.Contains(t, do(t, second, "1", "tools/list", "{}"), `"result"`)
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/list", ""), "too many connections")
	})
}

// what clients say of themselves is kept with connections and sessions,
// and not counted among the bytes under way.
func TestIntroductionBound(t *testing.T) {
	run(t, ServerOptions{Adapter: &fake{}}, func(t *testing.T, g *gateway) {
		icon := func(n int) string { return rawjson.Quote(strings.Repeat("x", n)) }
		for _, v := range []visitor{
			{caps: `{"experimental":{"e":` + icon(maxIntroduction) + `}}`},
			{meta: `,"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1","icons":` + icon(maxIntroduction) + `}`},
		} {
			bridgetest.Contains(t, v.call(t, g, "tools/list", ""), `"code":-32602`, "262144")
		}
		bridgetest.Contains(t, visitor{caps: `{"experimental":{"e":` + icon(maxIntroduction/2) + `}}`}.call(t, g, "tools/list", ""), `"result"`)
		begin := func(n int) string {
			_, m, _ := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
				`"capabilities":{},"clientInfo":{"name":"x","version":"1","icons":`+icon(n)+`}}}`), SessionOptions{ID: "s" + fmt.Sprint(n)})
			return bridgetest.Text(m)
		}
		bridgetest.Contains(t, begin(maxIntroduction), `"code":-32602`)
		bridgetest.Contains(t, begin(maxIntroduction/2), `"result"`)
	})
}

// D1.2: a client may ask for a connection of its own. The server does not see
// how, and other principals do not get there.
func TestPoolLaneKey(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		lane := func(p, key string) string {
			return visitor{principal: p, meta: `,"dev.mcp-bridge\/lane":` + key}.call(t, g, "tools/call", `"name":"x"`)
		}
		for _, key := range []string{`"a"`, `"b"`, `"\u0061"`} {
			bridgetest.Contains(t, lane("p", key), `"result"`)
		}
		bridgetest.Contains(t, lane("q", `"a"`), `"result"`)
		if n := f.opened(); n != 3 {
			t.Errorf("%d connections, want 3", n)
		}
		for i := range 3 {
			bridgetest.Lacks(t, strings.Join(f.wire(i+1).log(), ""), "lane")
		}
		for _, bad := range []string{`7`, `""`, `null`, rawjson.Quote(strings.Repeat("x", 257))} {
			bridgetest.Contains(t, lane("p", bad), `"code":-32602`)
		}
		for i := range maxProfiles {
			lane("p", rawjson.Quote(fmt.Sprint(i)))
		}
		synctest.Wait()
		if n := g.lanes.Open(); n != maxProfiles+1 {
			t.Errorf("%d connections, want %d of p's and one of q's", n, maxProfiles)
		}
	})
}

// D1.2: whoever sends something else that is forwarded has another connection,
// and its requestState is good for it only.
func TestPoolForwarded(t *testing.T) {
	f := &fake{serve: asksRoots()}
	run(t, ServerOptions{Adapter: f, Forward: []bridge.Forward{{From: "X-User", To: "X-Who"}}}, func(t *testing.T, g *gateway) {
		call := func(user, params string) string {
			m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x",`+params+`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":`+ableVisitor+`}}}`)
			s, _ := NewStateless("", "", m)
			s.Back, s.Header = &stream{}, http.Header{"X-User": {user}}
			a, _ := g.Call(context.Background(), m, *s)
			return bridgetest.Text(a)
		}
		state := stateOf(t, call("ann", ""))
		retry := `"inputResponses":{"r1":{"roots":[]}},"requestState":"` + state + `",`
		bridgetest.Contains(t, call("bob", retry), "-32602")
		bridgetest.Contains(t, call("ann", retry), `"complete"`)
		if f.opened() != 1 || f.wire(1).from.Header.Get("X-Who") != "ann" {
			t.Errorf("%d connections, with %v", f.opened(), f.wire(1).from.Header)
		}
	})
}

// D1.2: connections that nobody uses are closed after a while, and nothing of
// them is left. Parked calls and subscriptions are uses.
func TestPoolIdle(t *testing.T) {
	for _, share := range []Share{"", SharePrincipal, ShareAll} {
		f := &fake{serve: asksRoots()}
		run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: share}}, func(t *testing.T, g *gateway) {
			p := g.table.Load().servers[0].pool
			visitor{}.call(t, g, "tools/list", "")
			time.Sleep(statelessIdle - time.Second)
			visitor{}.call(t, g, "tools/list", "")
			time.Sleep(statelessIdle - time.Second)
			if g.lanes.Open() != 1 {
				t.Errorf("%s: closed too soon", share)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if r := remainsOf(p); g.lanes.Open() != 0 || r != (remains{}) {
				t.Errorf("%s: left: %d connections, %+v", share, g.lanes.Open(), r)
			}
			v := visitor{}.ask(t, g, "1", era.Listen, `"notifications":{"toolsListChanged":true}`)
			time.Sleep(3 * statelessIdle)
			if f.opened() != 2 || v.over() {
				t.Errorf("%s: opened %d times", share, f.opened())
			}
			f.wire(2).say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			bridgetest.Contains(t, strings.Join(v.take(), ""), "acknowledged", "tools/list_changed")
			v.cancel(bridge.ErrCancelled)
			time.Sleep(2 * statelessIdle)
			if r := remainsOf(p); g.lanes.Open() != 0 || r != (remains{}) {
				t.Errorf("%s: left: %d connections, %+v", share, g.lanes.Open(), r)
			}
		})
	}
}

// Negative means for ever.
func TestPoolNeverIdle(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f, Idle: -1}, func(t *testing.T, g *gateway) {
		visitor{}.call(t, g, "tools/list", "")
		time.Sleep(24 * time.Hour)
		if g.lanes.Open() != 1 {
			t.Error("closed")
		}
	})
}

// share: call has a connection for each request, which a parked call keeps. It
// promises nothing that would have to last.
func TestPoolShareCall(t *testing.T) {
	f := &fake{serve: asksRoots()}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: ShareCall}}, func(t *testing.T, g *gateway) {
		bridgetest.Lacks(t, visitor{}.call(t, g, "server/discover", ""), "listChanged", `"subscribe"`)
		synctest.Wait()
		state := park(t, g, visitor{})
		if f.opened() != 2 || g.lanes.Open() != 1 {
			t.Errorf("%d opened, %d open", f.opened(), g.lanes.Open())
		}
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"x","inputResponses":{"r1":{"roots":[]}},"requestState":"`+state+`"`), `"complete"`)
		visitor{}.call(t, g, "tools/list", "")
		v := visitor{}.ask(t, g, "1", era.Listen, `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:"]}`)
		bridgetest.Contains(t, strings.Join(v.take(), ""), `"notifications":{}`)
		if f.opened() != 3 || g.lanes.Open() != 0 {
			t.Errorf("%d opened, %d open", f.opened(), g.lanes.Open())
		}
		v.cancel(bridge.ErrCancelled)
		<-v.done
		if r := remainsOf(g.table.Load().servers[0].pool); r.all+r.slots+r.waiting != 0 {
			t.Errorf("left: %+v", r)
		}
	})
}

// share: all has one connection for everybody, who cannot be asked anything.
func TestPoolShareAll(t *testing.T) {
	f := &fake{serve: asksRoots()}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: ShareAll}}, func(t *testing.T, g *gateway) {
		for _, p := range []string{"p", "q"} {
			bridgetest.Contains(t, visitor{principal: p}.call(t, g, "tools/call", `"name":"x"`), `"complete"`)
		}
		if f.opened() != 1 {
			t.Errorf("%d connections", f.opened())
		}
		got := f.wire(1).log()
		bridgetest.Contains(t, got[0], `"capabilities":{}`, "mcp-bridge")
		bridgetest.Contains(t, strings.Join(got, ""), `"error":{"code":-32601`)
	})
}

// It is one for clients of both eras, also when many of both come at once. What
// they subscribe to, the server is told once, and again when nobody is left.
func TestShareAllIsOne(t *testing.T) {
	f := &fake{before: func(context.Context, int) error {
		time.Sleep(time.Second)
		return nil
	}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: ShareAll}}, func(t *testing.T, g *gateway) {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				bridgetest.Contains(t, visitor{principal: fmt.Sprint("p", i%3)}.call(t, g, "tools/call", `"name":"x"`), `"complete"`)
			})
			s, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{Server: "fake", ID: fmt.Sprint("all", i), Principal: fmt.Sprint("p", i%3)})
			if i == 0 && err != nil {
				t.Fatal(bridgetest.Text(m), err)
			}
			all.Go(func() { bridgetest.Contains(t, do(t, s, "2", "tools/call", `{"name":"y"}`), `"result"`) })
		}
		all.Wait()
		if n := f.opened(); n != 1 {
			t.Fatalf("%d connections, want 1", n)
		}
		s, st := begin(t, g, "p0")
		bridgetest.Contains(t, do(t, s, "1", "resources/subscribe", `{"uri":"a:"}`), `"result"`)
		v := visitor{}.ask(t, g, "1", era.Listen, `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:"]}`)
		bridgetest.Contains(t, strings.Join(v.take(), ""), "acknowledged", "a:")
		f.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:"}}`)
		f.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		bridgetest.Contains(t, strings.Join(v.take(), ""), "resources/updated", "tools/list_changed")
		bridgetest.Contains(t, strings.Join(st.take(), ""), "resources/updated", "tools/list_changed")
		s.End(bridge.ErrEnded)
		time.Sleep(2 * changeEvery)
		synctest.Wait()
		f.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:"}}`)
		bridgetest.Contains(t, strings.Join(v.take(), ""), "resources/updated")
		got := strings.Join(f.wire(1).received(), "")
		if strings.Count(got, "resources/subscribe") != 1 || strings.Contains(got, "resources/unsubscribe") {
			t.Errorf("the server got %s", got)
		}
		f.wire(1).die() // and comes back
		time.Sleep(5 * time.Second)
		bridgetest.Contains(t, strings.Join(v.take(), ""), "resources/updated", "tools/list_changed")
		v.cancel(bridge.ErrCancelled)
		<-v.done
		bridgetest.Contains(t, strings.Join(f.wire(2).received(), ""), "resources/unsubscribe")
	})
}

// A server that comes back as another is forgotten: what was parked has failed,
// subscriptions end, and the next request finds the new one.
func TestPoolServerComesBackAnother(t *testing.T) {
	f := &fake{serve: asksRoots(), result: everything}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		state := park(t, g, visitor{})
		v := visitor{}.ask(t, g, `"l"`, era.Listen, `"notifications":{"toolsListChanged":true}`)
		v.take()
		f.result = `{"protocolVersion":"2025-06-18","capabilities":{"prompts":{}},"serverInfo":{"name":"new","version":"2"}}`
		f.wire(1).die()
		<-v.done
		if v.answer != `{"jsonrpc":"2.0","id":"l","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}` {
			t.Errorf("the subscription ended with %s", v.answer)
		}
		synctest.Wait()
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"x","requestState":"`+state+`"`), `upstream_lost`)
		bridgetest.Contains(t, visitor{}.call(t, g, "server/discover", ""), `"name":"new"`)
		bridgetest.Contains(t, visitor{}.call(t, g, "prompts/list", ""), `"name":"new"`)
		if r := remainsOf(g.table.Load().servers[0].pool); r.slots != 1 || r.all != 1 {
			t.Errorf("left: %+v", r)
		}
	})
}

// A client without a session has agreed to nothing that a server could break by
// coming back as another: its next call is served, and made once.
func TestPoolServesAnother(t *testing.T) {
	f := &fake{result: everything}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"x"`), `"result"`)
		f.result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"new","version":"2"}}`
		f.wire(1).die()
		synctest.Wait()
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"y"`), `"result"`, `"name":"new"`)
		calls := 0
		for n := range f.opened() - 1 { // what came after the loss; not every one need have become a connection
			calls += strings.Count(strings.Join(f.wire(n+2).log(), ""), `"name":"y"`)
		}
		if calls != 1 {
			t.Errorf("the server got the call %d times", calls)
		}
	})
}

// A server whose state dies with it is not opened again for subscriptions.
func TestPoolEndWithServer(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f, EndWithServer: true}, func(t *testing.T, g *gateway) {
		v := visitor{}.ask(t, g, "1", era.Listen, `"notifications":{"toolsListChanged":true}`)
		synctest.Wait()
		f.wire(1).die()
		<-v.done
		bridgetest.Contains(t, v.answer, `"resultType":"complete"`)
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/list", ""), `"complete"`)
	})
}

// D1.6: a server that stays away for too long ends the subscriptions.
func TestPoolListenGivesUp(t *testing.T) {
	f := &fake{}
	f.before = func(_ context.Context, n int) error {
		if n > 1 {
			return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it is broken"}
		}
		return nil
	}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		v := visitor{}.ask(t, g, "1", era.Listen, `"notifications":{"toolsListChanged":true}`)
		synctest.Wait()
		f.wire(1).die()
		began := time.Now()
		<-v.done
		if took := time.Since(began); took < givingUp || took > givingUp+2*maxBackOff {
			t.Errorf("it took %v", took)
		}
		bridgetest.Contains(t, v.answer, `"resultType":"complete"`)
	})
}

// Requests, parked calls and subscriptions end with the bridge.
func TestPoolClose(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		return m.Name() == "slow" || asksRoots()(f, m)
	}}
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: f}}, Log: slog.New(slog.DiscardHandler)})
		park(t, g, visitor{})
		slow := visitor{}.ask(t, g, "1", "tools/call", `"name":"slow"`)
		still := visitor{caps: "{}"}.ask(t, g, "1", "tools/call", `"name":"slow"`)
		l := visitor{}.ask(t, g, "1", era.Listen, `"notifications":{}`)
		synctest.Wait()
		g.Close(context.Background())
		for _, v := range []*visiting{slow, still} {
			<-v.done
			bridgetest.Contains(t, v.answer, `"error"`)
		}
		<-l.done
		bridgetest.Contains(t, l.answer, `"resultType":"complete"`)
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/list", ""), `"bridge":"stopping"`)
		if r := remainsOf(g.table.Load().servers[0].pool); g.lanes.Open() != 0 || r != (remains{}) {
			t.Errorf("left: %d connections, %+v", g.lanes.Open(), r)
		}
	})
}

// The filter of resources holds for subscriptions too, and its refusals are
// those of 2026-07-28.
func TestPoolFiltered(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Lists: filter.Lists{Resources: filter.Rules{Deny: []string{"secret:*"}}}}}, func(t *testing.T, g *gateway) {
		bridgetest.Contains(t, visitor{}.call(t, g, "resources/read", `"uri":"secret:1"`), `"code":-32602`, `"uri":"secret:1"`)
		bridgetest.Contains(t, visitor{}.call(t, g, era.Complete, `"ref":{"type":"ref/resource","uri":"secret:x"}`), `"code":-32602`)
		v := visitor{}.ask(t, g, "1", era.Listen, `"notifications":{"resourcesListChanged":true,"resourceSubscriptions":["secret:","open:"]}`)
		got := strings.Join(v.take(), "")
		bridgetest.Contains(t, got, "acknowledged", "open:", "resourcesListChanged")
		bridgetest.Lacks(t, got, "secret")
		f.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"secret:/1"}}`)
		f.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"open:/1"}}`)
		bridgetest.Lacks(t, strings.Join(v.take(), ""), "secret")
		bridgetest.Lacks(t, strings.Join(f.wire(1).received(), ""), "secret")
		bridgetest.Contains(t, visitor{}.call(t, g, era.Listen, `"notifications":7`), "-32602")
		v.cancel(nil)
		<-v.done
	})
	names := &fake{serve: says(map[string]string{"tools/list": `{"tools":[{"name":"a"},{"name":"b"}],"x":1}`})}
	run(t, ServerOptions{Adapter: names, ServerSettings: ServerSettings{Lists: filter.Lists{Tools: filter.Rules{Deny: []string{"b"}, Rename: map[string]string{"a": "c"}}}}}, func(t *testing.T, g *gateway) {
		want := `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private",` + fakeInfo + `,"tools":[{"name":"c"}],"x":1}}`
		if got := (visitor{}).call(t, g, "tools/list", ""); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		visitor{}.call(t, g, "tools/call", `"name":"c"`)
		bridgetest.Contains(t, names.wire(1).received()[1], `{"name":"a"}`)
	})
}
