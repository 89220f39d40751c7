package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// asker is a modern server that asks for roots before it answers a call of a tool. The answer has the tool, the
// requestState and the root.
func asker() *modernFake {
	s := modernShop("asker", nil)
	serve := s.serve
	s.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method != "tools/call" {
			return serve(f, m)
		}
		p := gjson.ParseBytes(m.Params)
		if root := p.Get("inputResponses.r.roots.0.uri"); root.Exists() {
			f.answer(m, fmt.Sprintf(`{"resultType":"complete","content":[{"type":"text","text":%q}]}`, strings.Join([]string{m.Name(), p.Get("requestState").Str, root.Str}, " ")))
		} else {
			f.answer(m, fmt.Sprintf(`{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}},"requestState":%q}`, "state of "+m.Name()))
		}
		return true
	}
	return s
}

// Calls that ask at the same time keep their questions, each on its own stream, and their answers apart, also over a
// connection that everybody shares. A ping meanwhile is answered.
func TestQuestionsApart(t *testing.T) {
	for _, share := range []Share{ShareSession, SharePrincipal, ShareAll, ShareCall} {
		run(t, ServerOptions{Adapter: asker(), ServerSettings: ServerSettings{Share: share}}, func(t *testing.T, g *gateway) {
			var all []*sitting
			var calls []*pendingCall
			for i := range 4 {
				if i%2 == 0 {
					s, _ := begin(t, g, "")
					all = append(all, s)
				}
				calls = append(calls, start(t, all[i/2], fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t%d"}}`, i, i)))
			}
			for i, p := range calls {
				s := all[i/2]
				if got := do(t, s, "9", "ping", `{}`); got != `{"jsonrpc":"2.0","id":9,"result":{}}` {
					t.Errorf("%s: ping = %s", share, got)
				}
				asked := p.back.take()
				if len(asked) != 1 {
					t.Fatalf("%s: call %d was asked %q", share, i, asked)
				}
				if err := s.Answer(bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[{"uri":"file:///%d"}]}}`, gjson.Get(asked[0], "id").Raw, i))); err != nil {
					t.Error(err)
				}
				if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"t%d state of t%d file:///%d"}]}}`, i, i, i, i); !p.over() || p.answer != want {
					t.Errorf("%s: got %s, want %s", share, p.answer, want)
				}
			}
		})
	}
}

// A stream that breaks takes no call back: the question goes to another stream of the session, and the call goes
// on.
func TestQuestionAfterBreak(t *testing.T) {
	f := asker()
	serve := f.serve
	var let chan struct{}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			<-let
		}
		return serve(f, m)
	}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		let = make(chan struct{}) // in the bubble
		s, st := begin(t, g, "")
		call := start(t, s, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t"}}`)
		if call.over() {
			t.Fatal(call.answer)
		}
		call.back.close()
		close(let)
		asked := st.take()
		if len(asked) != 1 {
			t.Fatalf("the other stream has %q", asked)
		}
		if err := s.Answer(bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[{"uri":"file:///a"}]}}`, gjson.Get(asked[0], "id").Raw))); err != nil {
			t.Error(err)
		}
		if !call.over() || !strings.Contains(call.answer, "t state of t file:///a") {
			t.Errorf("the call ended with %q", call.answer)
		}
	})
}
