package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// filters returns what the subscriptions that the server was asked for are
// about, in order.
func (s *statelessWire) filters() []string {
	var all []string
	for _, m := range s.received(era.Listen) {
		all = append(all, gjson.GetBytes(m.Params, "notifications").Raw)
	}
	return all
}

// cancelled returns the ids of what the server was told that it is not wanted
// any more.
func (s *statelessWire) cancelled() []string {
	var all []string
	for _, m := range s.received("notifications/cancelled") {
		all = append(all, string(m.RequestID()))
	}
	return all
}

const bothLists = `"toolsListChanged":true,"resourcesListChanged":true`

// protocol.md D2.5: the life of a session's subscription.
func TestListen(t *testing.T) {
	f := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		if m.Method == era.Listen {
			s.acknowledge(m, "x:no")
		}
		return true
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, st, _ := beginAs(t, g, able("2025-11-25"))
		w := f.wire(1)
		same(t, "filters", w.filters(), []string{`{` + bothLists + `}`})
		first := w.received(era.Listen)[0]
		bridgetest.Contains(t, string(first.Meta()), `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`)

		// What it brings comes without its id, and nothing else does.
		w.tell(first.ID, "notifications/tools/list_changed", "")
		w.tell(first.ID, "notifications/progress", "")
		w.tell(first.ID, "notifications/vendor", "")
		same(t, "the client", st.take(), []string{`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}`})

		// Several at once are one change, which is made before the other ends.
		began := time.Now()
		var calls []*pendingCall
		for i, uri := range []string{"x:b", "x:no", "x:a"} {
			calls = append(calls, start(t, s, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":%q}}`, i, uri)))
		}
		for _, p := range calls {
			<-p.done
		}
		if took := time.Since(began); took != gatherFor {
			t.Errorf("subscribing took %v", took)
		}
		same(t, "answers", []string{calls[0].answer, calls[2].answer}, []string{`{"jsonrpc":"2.0","id":0,"result":{}}`, `{"jsonrpc":"2.0","id":2,"result":{}}`})
		bridgetest.Contains(t, calls[1].answer, `"id":1`, "-32602", "x:no")
		same(t, "filters", w.filters()[1:], []string{`{` + bothLists + `,"resourceSubscriptions":["x:a","x:b","x:no"]}`})
		same(t, "cancelled", w.cancelled(), []string{string(first.ID)})
		second := w.received(era.Listen)[1]
		w.tell(second.ID, "notifications/resources/updated", "x:a")
		w.tell(second.ID, "notifications/resources/updated", "x:a/part")
		same(t, "the client", st.take(), []string{`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:a"}}`,
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:a/part"}}`})

		// What is known to be heard takes no time; what ends, ends later.
		began = time.Now()
		for _, c := range []struct{ method, uri string }{{"subscribe", "x:a"}, {"unsubscribe", "x:b"}, {"unsubscribe", "x:never"}} {
			if got := do(t, s, "9", "resources/"+c.method, `{"uri":"`+c.uri+`"}`); got != `{"jsonrpc":"2.0","id":9,"result":{}}` {
				t.Errorf("%s %s: %s", c.method, c.uri, got)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		w.tell(second.ID, "notifications/resources/updated", "x:b")
		if got := st.take(); len(got) > 0 {
			t.Errorf("the client got %q of what it had ended", got)
		}
		// The refused one makes another subscription too, without it.
		time.Sleep(shrinkAfter)
		filters := w.filters()
		if got := filters[len(filters)-1]; got != `{`+bothLists+`,"resourceSubscriptions":["x:a"]}` {
			t.Errorf("in the end it was %s", got)
		}
		if n := len(filters); n != 3 {
			t.Errorf("%d subscriptions: %q", n, filters)
		}
	})
	if n := f.wire1(t).Pending(); n != 0 {
		t.Errorf("%d calls are left", n)
	}
}

// wire1 is the first connection, outside of a bubble.
func (s *statelessFake) wire1(t *testing.T) *statelessWire {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wires[0]
}

func parseRaw(text string) *jsonrpc.Message {
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		panic(err)
	}
	return m
}

// A server's error may have line breaks between its tokens; on the client's wire
// it is one line.
func TestListenErrorIsOneLine(t *testing.T) {
	f := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		if m.Method != era.Listen {
			return completely("{}")(s, m)
		}
		s.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + ",\"error\":{\n\"code\":-32603,\n\"message\":\"no\"}}")
		return true
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _, _ := beginAs(t, g, able("2025-11-25"))
		if got, want := do(t, s, "1", "resources/subscribe", `{"uri":"x:a"}`), `{"jsonrpc":"2.0","id":1,"error":{ "code":-32603, "message":"no"}}`; got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}
