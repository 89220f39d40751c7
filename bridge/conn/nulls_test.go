package conn

import (
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A server's optional members that are null do not reach clients, and those of clients do not reach servers. A
// payload without them keeps its bytes.
func TestNulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wireOf{}
		back := &asker{at: func(reply func(*jsonrpc.Message)) {
			reply(jsonrpc.NewResult(nil, []byte(`{"action":"cancel","content":null}`)))
		}}
		c := New("fake", w, back, Timeouts{})
		list := ask(t, c, t.Context(), back, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		call := ask(t, c, t.Context(), back, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","arguments":{"x":null}}}`)
		bridgetest.Contains(t, w.take(), `"arguments":{"x":null}`)
		deliver(t, c, `{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}`)
		bridgetest.Contains(t, w.take(), `"result":{"action":"cancel"}`)
		deliver(t, c, `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","annotations":null}],"nextCursor":null}}`)
		bridgetest.Contains(t, (<-list).answer, `"result":{"tools":[{"name":"a"}]}`)
		deliver(t, c, `{"jsonrpc":"2.0","id":2,"result":{ "content":[ ],"structuredContent":{"x":null}}}`)
		bridgetest.Contains(t, (<-call).answer, `"result":{ "content":[ ],"structuredContent":{"x":null}}`)
	})
}

// a client gets a whole greeting of a server that leaves out parts of it.
func TestHandshakeFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wireOf{}
		c := New("fake", w, &asker{}, Timeouts{})
		done := make(chan string, 1)
		go func() {
			g, err := Handshake(t.Context(), c, &bridge.Caller{Params: []byte(`{"protocolVersion":"2025-06-18"}`)}, "")
			if err != nil {
				done <- err.Error()
				return
			}
			done <- g.Revision + " " + string(g.Result)
		}()
		synctest.Wait()
		deliver(t, c, `{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"tools":{},"prompts":null},"instructions":null}}`)
		want := `2025-06-18 {"capabilities":{"tools":{}},"protocolVersion":"2025-06-18","serverInfo":{"name":"fake","version":"unknown"}}`
		if got := <-done; got != want {
			t.Errorf("greeting %s\nwant     %s", got, want)
		}
	})
}

// A server of 2024-10-07 is one of 2024-11-05, also for its clients.
func TestHandshakeFirstDraft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("fake", &wireOf{}, &asker{}, Timeouts{})
		done := make(chan string, 1)
		go func() {
			g, err := Handshake(t.Context(), c, &bridge.Caller{Params: []byte(`{"protocolVersion":"2025-11-25"}`)}, "")
			if err != nil {
				done <- err.Error()
				return
			}
			done <- g.Revision + " " + string(g.Result)
		}()
		synctest.Wait()
		deliver(t, c, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-10-07","capabilities":{},"serverInfo":{"name":"old","version":"1"}}}`)
		want := `2024-11-05 {"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"old","version":"1"}}`
		if got := <-done; got != want {
			t.Errorf("greeting %s\nwant     %s", got, want)
		}
	})
}
