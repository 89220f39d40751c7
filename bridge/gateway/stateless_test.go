package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
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

// A request that would be in memory for as long as somebody listens is not larger than it has to be.
func TestListenTooLarge(t *testing.T) {
	run(t, ServerOptions{Adapter: modernShop("one", nil)}, func(t *testing.T, g *gateway) {
		bridgetest.Contains(t, visitor{}.call(t, g, era.Listen, `"notifications":{},"x":"`+strings.Repeat("x", maxListenSize)+`"`), "-32602")
	})
}

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

// A call of a client without a session that is parked has no place among the calls of its server.
func TestParkedCallGivesPlaceBack(t *testing.T) {
	o := Options{Servers: []ServerOptions{{Name: "fake", Adapter: inquisitive(), ServerSettings: ServerSettings{Limits: limits.Options{Calls: 1, Wait: time.Second}}}}}
	limited(t, o, func(t *testing.T, g *gateway) {
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"ask","arguments":{}`), `"input_required"`)
		if s := g.Status()[0]; s.Slots != 0 || s.Slotless != 1 {
			t.Errorf("%d places, %d that ask, want none and 1", s.Slots, s.Slotless)
		}
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"x"`), `"result"`)
	})
}

// Answers count among the bytes under way from when they come until they are
// released, by whatever kind of client; what has no room is refused, and not as
// if it could be called again.
func TestAnswersUnderWay(t *testing.T) {
	large := strings.Repeat("x", 300<<10)
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Name() == "large" {
			f.answer(m, `{"content":[{"type":"text","text":"`+large+`"}]}`)
		}
		return m.Name() == "large"
	}}
	limited(t, Options{MaxBytes: 9 << 17, // an eighth is for requests only
		Servers: []ServerOptions{{Name: "fake", Adapter: f}}}, func(t *testing.T, b *gateway) {
		s, _ := begin(t, b, "")
		modern := visitor{caps: "{}"}
		call := func(session bool) (*jsonrpc.Message, error) {
			m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"large",`+statelessReserved+`}}}`)
			if session {
				return s.Call(m, nil, nil)
			}
			g, no := NewStateless("", modern.principal, m)
			if no != nil {
				t.Fatal(bridgetest.Text(no))
			}
			g.Back = &stream{}
			return b.Call(t.Context(), m, *g)
		}
		var held []*jsonrpc.Message
		for i := range 3 {
			m, err := call(i%2 == 0)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, m)
		}
		if n := b.bytes.Used(); n < 900<<10 || n > 1<<20 {
			t.Errorf("%d bytes are under way", n)
		}
		for _, session := range []bool{true, false} {
			m, err := call(session)
			if !errors.Is(err, bridge.ErrTooLarge) || bridge.RetryAfter(err) != 0 {
				t.Errorf("the fourth: %v", err)
			}
			bridgetest.Contains(t, bridgetest.Text(m), "does not fit into max_bytes_in_flight; the call was executed", `"bridge":"upstream_too_large"`)
		}
		bridgetest.Contains(t, do(t, s, "1", "tools/call", tool("small")), `"result"`)
		held[0].Release()
		held[0].Release()
		a, err := call(true)
		if err != nil || len(a.Result) < len(large) {
			t.Errorf("when one was released: %v", err)
		}
		for _, m := range append(held, a) {
			m.Release()
		}
		if n := b.bytes.Used(); n != 0 {
			t.Errorf("%d bytes are under way when all were released", n)
		}
	})
}

// where all servers are one, a task is its principal's only too. The
// server's own id of it is not seen.
func TestCommonsTasksOfPrincipals(t *testing.T) {
	all(t, []stock{{name: "one", prefix: "one__", f: modernShop("one", nil)}, {name: "two", prefix: "two__", f: modernShop("two", nil)}}, func(t *testing.T, g *gateway) {
		ann, bob := visitor{principal: "ann"}, visitor{principal: "bob"}
		id := gjson.Get(ann.call(t, g, "tools/call", `"name":"one__slow"`), "result.taskId").Str
		if !strings.HasPrefix(id, "one:") || id == "one:t1" {
			t.Errorf("the task is %q", id)
		}
		bridgetest.Contains(t, ann.call(t, g, "tasks/get", `"taskId":"`+id+`"`), `"taskId":"`+id+`"`, `"by":"one"`)
		bridgetest.Contains(t, bob.call(t, g, "tasks/get", `"taskId":"`+id+`"`), "-32602")
		bridgetest.Contains(t, ann.call(t, g, "tasks/get", `"taskId":"one:t1"`), "-32602")
		v := ann.ask(t, g, "7", era.Listen, `"notifications":{"taskIds":["`+id+`"]}`)
		bridgetest.Contains(t, strings.Join(v.take(), ""), `"taskIds":["`+id+`"]`)
		v.cancel(nil)
		<-v.done
	})
}
