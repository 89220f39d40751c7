package gateway

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// sayOn makes the server send a message on the stream of a call, as it can over
// Streamable HTTP.
func (f *fakeWire) sayOn(call int64, text string) {
	f.queue <- func() {
		m, err := jsonrpc.Parse([]byte(text))
		if err != nil {
			panic(err)
		}
		f.DeliverOn(call, m)
	}
}

// D1.4.1, D1.7: what comes on a call's own stream is about that call,
// whichever others there are.
func TestLowerExactAttribution(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool { return m.Name() == "slow" || m.Method == "tools/list" }}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Cache: cache.Options{Off: true}}}, func(t *testing.T, g *gateway) {
		v := visitor{meta: `,"io.modelcontextprotocol/logLevel":"info"`}
		one := v.ask(t, g, "1", "tools/call", `"name":"slow"`) // call 3, behind initialize and the level
		synctest.Wait()
		two := v.ask(t, g, "2", "tools/call", `"name":"slow"`)
		synctest.Wait()
		list := v.ask(t, g, "3", "tools/list", "")
		synctest.Wait()
		w := f.wire(1)
		w.sayOn(3, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
		w.sayOn(3, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":2}}`)
		w.sayOn(3, `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		<-one.done
		bridgetest.Contains(t, one.answer, `"input_required"`)
		if got := one.take(); len(got) != 1 || !strings.Contains(got[0], `"data":1`) {
			t.Errorf("got %q", got)
		}
		w.sayOn(3, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":3}}`)
		w.sayOn(5, `{"jsonrpc":"2.0","id":2,"method":"elicitation/create","params":{"message":"m"}}`)
		if two.over() || list.over() || len(one.take())+len(two.take())+len(list.take()) != 0 {
			t.Error("it was taken to be about another call")
		}
		bridgetest.Contains(t, strings.Join(w.received(), ""), `"id":2,"error":{"code":-32602`) // a list cannot carry it
		two.cancel(bridge.ErrCancelled)
		list.cancel(bridge.ErrCancelled)
		<-two.done
		<-list.done
	})
}

// Of what a legacy server says on a call's stream, a client without a session gets
// progress and log messages. That a URL was visited is heard there too, on the
// stream of whatever call.
func TestLowerOnCall(t *testing.T) {
	const complete = `{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"%s"}}`
	calls := map[string]int64{} // by name
	f := &fake{told: true, serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		n, _ := strconv.ParseInt(string(m.ID), 10, 64)
		switch {
		case m.Method == "tools/list":
			calls["list"] = n
		case m.Name() == "slow":
			calls["slow"] = n
		case m.Name() != "":
			f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32042,"message":"m","data":{"elicitations":[{"url":"https://x","message":"m","elicitationId":%q}]}}}`, n, m.Name()))
		default:
			return false
		}
		return true
	}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Cache: cache.Options{Off: true}}}, func(t *testing.T, g *gateway) {
		v := visitor{}
		slow := v.ask(t, g, "1", "tools/call", `"name":"slow"`)
		synctest.Wait()
		list := v.ask(t, g, "2", "tools/list", "")
		synctest.Wait()
		w := f.wire(1)
		for on, call := range calls {
			w.sayOn(call, `{"jsonrpc":"2.0","method":"notifications/x"}`)
			first := v.call(t, g, "tools/call", `"name":"`+on+`s"`)
			bridgetest.Contains(t, first, `"input_required"`)
			w.sayOn(call, fmt.Sprintf(complete, on+"s"))
			synctest.Wait()
			state := statePattern.FindStringSubmatch(first)[1]
			began := time.Now()
			v.call(t, g, "tools/call", `"name":"`+on+`s","inputResponses":{"r1":{"action":"accept"}},"requestState":"`+state+`"`)
			if took := time.Since(began); took >= urlPatience {
				t.Errorf("%s: the completion was not heard: the call was made after %v", on, took)
			}
		}
		if len(calls) != 2 || f.open() != 1 {
			t.Errorf("calls %v over %d connections", calls, f.open())
		}
		if slow.over() || list.over() || len(slow.take())+len(list.take()) != 0 {
			t.Error("a client has got what its revision has not")
		}
		slow.cancel(bridge.ErrCancelled)
		list.cancel(bridge.ErrCancelled)
		<-slow.done
		<-list.done
	})
}
