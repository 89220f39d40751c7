package gateway

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// The places of sessions count too: where they take all, calls share what is
// left one after the other.
func TestClaimBesideSessions(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Name() == "slow" {
			time.AfterFunc(time.Second, func() { f.answer(m, `{"content":[]}`) })
		}
		return m.Name() == "slow"
	}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{MaxChildren: 2}}, func(t *testing.T, g *gateway) {
		begin(t, g, "")
		var all []*visiting
		for range 5 {
			all = append(all, visitor{}.ask(t, g, "1", "tools/call", `"name":"slow"`))
		}
		for _, v := range all {
			<-v.done
			bridgetest.Contains(t, v.answer, `"result"`)
		}
		if n := g.lanes.Open(); n != 2 {
			t.Errorf("%d connections", n)
		}
	})
}

// A question that comes after a call was cancelled may be about that one. No other
// client is shown it until the server has heard of the cancellation.
func TestQuestionOfCancelledCall(t *testing.T) {
	for what, deaf := range map[string]bool{"it is busy": true, "it goes on with cancelled calls": false} {
		t.Run(what, func(t *testing.T) {
			f := &fake{serve: func(_ *fakeWire, m *jsonrpc.Message) bool {
				return m.Method == "tools/call" || deaf && m.Method == "ping"
			}}
			run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
				leave := func() {
					v := visitor{}.ask(t, g, "1", "tools/call", `"name":"x"`)
					time.Sleep(claimPatience)
					synctest.Wait()
					v.cancel(bridge.ErrCancelled)
					<-v.done
					synctest.Wait()
				}
				leave()
				if !deaf { // a question about no call shows what it is
					f.wire(1).say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"secret"}}`)
					synctest.Wait()
					leave()
					f.wire(1).say(`{"jsonrpc":"2.0","id":"q2","method":"elicitation/create","params":{"message":"secret"}}`)
					synctest.Wait()
				}
				other := visitor{}.ask(t, g, "2", "tools/call", `"name":"y"`)
				synctest.Wait()
				if n := f.opened(); deaf && n != 1 {
					t.Errorf("%d connections: a server that has never asked anything keeps its own", n)
				}
				f.wire(1).say(`{"jsonrpc":"2.0","id":"q3","method":"elicitation/create","params":{"message":"secret"}}`)
				time.Sleep(time.Second)
				if other.over() || deaf && !strings.Contains(strings.Join(f.wire(1).received(), ""), `"id":"q3","error":{"code":-32603`) {
					t.Errorf("got %s", other.answer)
				}
				leave() // over a second one, which is not used again
				last := visitor{}.ask(t, g, "3", "tools/call", `"name":"z"`)
				time.Sleep(claimPatience)
				synctest.Wait()
				n := f.opened()
				f.wire(n - 1).say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"secret"}}`)
				f.wire(n).say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"mine"}}`)
				<-last.done
				bridgetest.Contains(t, last.answer, "mine")
				if other.over() {
					t.Errorf("got %s", other.answer)
				}
				other.cancel(bridge.ErrCancelled)
				<-other.done
			})
		})
	}
}

// Where the wire says which call a question is about, calls share a connection,
// until the server has asked something beside its calls.
func TestClaimOfTellingWire(t *testing.T) {
	f := &fake{told: true, serve: silent("tools/call")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		one := visitor{}.ask(t, g, "1", "tools/call", `"name":"x"`)
		synctest.Wait()
		two := visitor{}.ask(t, g, "2", "tools/call", `"name":"y"`)
		synctest.Wait()
		if n := f.opened(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
		f.wire(1).say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m"}}`)
		time.Sleep(time.Second)
		if one.over() || two.over() {
			t.Errorf("a question of which it cannot be told whose it is was shown: %s%s", one.answer, two.answer)
		}
		bridgetest.Contains(t, strings.Join(f.wire(1).received(), ""), `"id":"q","error":{"code":-32603`)
		three := visitor{}.ask(t, g, "3", "tools/call", `"name":"z"`)
		synctest.Wait()
		four := visitor{}.ask(t, g, "4", "tools/call", `"name":"z"`)
		time.Sleep(claimPatience)
		synctest.Wait()
		if n := f.opened(); n != 3 {
			t.Errorf("%d connections, want 3", n)
		}
		for i, v := range []*visiting{three, four} {
			f.wire(i + 2).say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m"}}`)
			<-v.done
			bridgetest.Contains(t, v.answer, `"input_required"`)
		}
		for _, v := range []*visiting{one, two} {
			v.cancel(bridge.ErrCancelled)
			<-v.done
		}
	})
}
