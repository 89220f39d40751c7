package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Subscribing, unsubscribing and leaving race; in the end the server knows of
// the subscribers that are left, and the lane of no other need.
func TestShareSubscriptionRaces(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}, func(t *testing.T, g *gateway) {
		stays, _ := begin(t, g, "p")
		var wg sync.WaitGroup
		for i := range 20 {
			s, _ := begin(t, g, "p")
			wg.Go(func() {
				for range 20 {
					do(t, s, "1", "resources/subscribe", `{"uri":"a:"}`)
					do(t, s, "2", "resources/subscribe", `{"uri":"b:"}`)
					do(t, s, "3", "resources/unsubscribe", `{"uri":"a:"}`)
				}
			})
			if i%2 == 0 {
				wg.Go(func() { s.End(bridge.ErrEnded) })
			} else {
				wg.Go(func() { do(t, s, "4", "resources/unsubscribe", `{"uri":"b:"}`) })
			}
		}
		wg.Wait()
		do(t, stays, "1", "resources/subscribe", `{"uri":"a:"}`)
		g.mu.Lock()
		var others []*sitting
		for s := range g.sessions {
			if s != stays {
				others = append(others, s)
			}
		}
		g.mu.Unlock()
		for _, s := range others {
			s.End(bridge.ErrEnded)
		}
		synctest.Wait()
		state := map[string]bool{} // as the server sees it
		for _, line := range f.wire(1).received() {
			m := bridgetest.Parse(t, line)
			if m.Method == "resources/subscribe" || m.Method == "resources/unsubscribe" {
				state[m.URI()] = m.Method == "resources/subscribe"
			}
		}
		if lane := restored(f); !state["a:"] || state["b:"] || !slices.Equal(lane, []string{"a:"}) {
			t.Errorf("server %v, lane %v; want a: only", state, lane)
		}
	})
}

// A session that ends while it subscribes leaves no subscription behind.
func TestShareLeavesWhileSubscribing(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "resources/subscribe" {
			time.AfterFunc(time.Second, func() { f.answer(m, "{}") })
		}
		return m.Method == "resources/subscribe"
	}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "p")
		u := below(s)
		done := make(chan error, 1)
		go func() {
			_, err := u.Call(context.Background(), &bridge.Request{From: s.caller, Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:"}}`)})
			done <- err
		}()
		synctest.Wait()
		s.End(bridge.ErrEnded)
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		got := f.wire(1).received()
		bridgetest.Contains(t, got[len(got)-1], "resources/unsubscribe")
		if lane := restored(f); len(lane) != 0 {
			t.Errorf("it is told again of %v", lane)
		}
	})
}

// A session does not rely on a level that the server is only being told, and
// then refuses.
func TestShareLevelsTakeTurns(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method != "logging/setLevel" || !strings.Contains(string(m.Params), "info") {
			return false
		}
		time.AfterFunc(time.Second, func() {
			f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"no"}}`, m.ID))
		})
		return true
	}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}, func(t *testing.T, g *gateway) {
		one, _ := begin(t, g, "p")
		two, _ := begin(t, g, "p")
		first := start(t, one, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`)
		synctest.Wait()
		bridgetest.Contains(t, do(t, two, "1", "logging/setLevel", `{"level":"error"}`), `"result":{}`)
		<-first.done
		bridgetest.Contains(t, first.answer, `"code":-1`)
		got := f.wire(1).received()
		if len(got) != 2 || !strings.Contains(got[1], "error") {
			t.Errorf("the server was told %q", got)
		}
		do(t, two, "2", "logging/setLevel", `{"level":"warning"}`) // more than it says, and less than it has refused
		if got := f.wire(1).received(); len(got) != 3 || !strings.Contains(got[2], "warning") {
			t.Errorf("then the server was told %q", got)
		}
	})
}
