package gateway

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// asksFirst answers calls of tools that carry no answer yet with a question for
// roots, and others with what they carry.
func asksFirst(s *statelessWire, m *jsonrpc.Message) bool {
	switch {
	case m.Method != "tools/call":
		return completely("{}")(s, m)
	case !gjson.GetBytes(m.Params, "inputResponses").Exists():
		s.reply(m, `{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list","params":{}}},"requestState":`+rawjson.Quote(m.Name())+`}`)
	default:
		text := m.Name() + " " + gjson.GetBytes(m.Params, "requestState").Str + " " + gjson.GetBytes(m.Params, "inputResponses.r.roots.0.uri").Str
		s.reply(m, `{"resultType":"complete","content":[{"type":"text","text":`+rawjson.Quote(text)+`}]}`)
	}
	return true
}

// calls that ask at the same time keep their questions, on
// their own channels, and their answers apart, also over a connection that
// everybody shares; a ping meanwhile is answered.
func TestLiftParallel(t *testing.T) {
	for _, share := range []Share{ShareSession, SharePrincipal, ShareAll, ShareCall} {
		t.Run(string(share), func(t *testing.T) {
			f := &statelessFake{discover: silentServer, serve: asksFirst}
			run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: share}}, func(t *testing.T, g *gateway) {
				var all []*sitting
				var calls [][]*pendingCall
				for i := range 2 {
					s, _, _ := beginAs(t, g, able("2025-11-25"))
					all = append(all, s)
					var mine []*pendingCall
					for k := range 3 {
						mine = append(mine, start(t, s, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t%d%d"}}`, k, i, k)))
					}
					calls = append(calls, mine)
				}
				for i, s := range all {
					if got := do(t, s, "9", "ping", `{}`); got != `{"jsonrpc":"2.0","id":9,"result":{}}` {
						t.Errorf("ping = %s", got)
					}
					for k, p := range calls[i] {
						asked := p.back.take()
						if len(asked) != 1 {
							t.Fatalf("call %d of session %d was asked %q", k, i, asked)
						}
						if err := s.Answer(bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[{"uri":"file:///%d%d"}]}}`, gjson.Get(asked[0], "id").Raw, i, k))); err != nil {
							t.Error(err)
						}
						if !p.over() {
							t.Fatal("no answer")
						}
						if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"t%d%d t%d%d file:///%d%d"}]}}`, k, i, k, i, k, i, k); p.answer != want {
							t.Errorf("got  %s\nwant %s", p.answer, want)
						}
					}
				}
			})
		})
	}
}

// The end of a session ends what it waits for; the server hears no more of it.
func TestLiftSessionEnds(t *testing.T) {
	for name, answer := range map[string]string{
		"asked":   `"inputRequests":{"e":{"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}}`,
		"waiting": `"requestState":"later"`,
	} {
		t.Run(name, func(t *testing.T) {
			for range 12 { // it is a race that has to be won every time
				f := &statelessFake{discover: silentServer, serve: func(s *statelessWire, m *jsonrpc.Message) bool {
					s.reply(m, `{"resultType":"input_required",`+answer+`}`)
					return true
				}}
				run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}, func(t *testing.T, g *gateway) {
					s, _, _ := beginAs(t, g, able("2025-11-25"))
					call := start(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
					synctest.Wait()
					s.End(bridge.ErrEnded)
					if !call.over() {
						t.Fatal("the call goes on")
					}
					bridgetest.Contains(t, call.answer, `"code":-32603`)
					time.Sleep(time.Hour)
					if got := f.wire(1).received("tools/call"); len(got) != 1 {
						t.Errorf("%d attempts", len(got))
					}
				})
			}
		})
	}
}

// TestLiftNulls: null is what some servers write where they leave something out.
func TestLiftNulls(t *testing.T) {
	for _, answer := range []string{`"requestState":"s","inputRequests":null`, `"requestState":null,"inputRequests":{"r":{"method":"roots/list"}}`} {
		n := 0
		f := &statelessFake{discover: silentServer, serve: func(s *statelessWire, m *jsonrpc.Message) bool {
			if n++; n == 1 {
				s.reply(m, `{"resultType":"input_required",`+answer+`}`)
			} else {
				s.reply(m, `{"resultType":"complete","content":[]}`)
			}
			return true
		}}
		run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
			s, st, _ := beginAs(t, g, able("2025-11-25"))
			st.heard = func(line string) {
				_ = s.Answer(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":`+gjson.Get(line, "id").Raw+`,"result":{"roots":[]}}`))
			}
			if got := do(t, s, "1", "tools/call", `{"name":"t"}`); !strings.Contains(got, `"content":[]`) {
				t.Errorf("%s: answered %s", answer, got)
			}
		})
	}
}

// A cancellation, an answer and the end of the session at the same time: each
// call ends once, and a cancelled one is either answered or not.
func TestLiftRace(t *testing.T) {
	for round := range 60 {
		f := &statelessFake{discover: silentServer, serve: asksFirst}
		run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: []Share{ShareSession, ShareAll}[round%2]}}, func(t *testing.T, g *gateway) {
			s, _, _ := beginAs(t, g, able("2025-11-25"))
			call := start(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
			synctest.Wait()
			var wg sync.WaitGroup
			wg.Go(func() { _ = s.Answer(parseRaw(`{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`)) })
			if round%3 != 0 {
				wg.Go(func() {
					s.Notify(parseRaw(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`), nil)
				})
			}
			if round%5 == 0 {
				wg.Go(func() { s.End(bridge.ErrEnded) })
			}
			if round%7 == 0 {
				wg.Go(func() { f.wire1(t).die() })
			}
			wg.Wait()
			<-call.done
			if round%3 == 0 && round%5 != 0 && round%7 != 0 && !strings.Contains(call.answer, `"t t "`) {
				t.Errorf("the answer is %s", call.answer)
			}
		})
	}
}

// a call whose connection is lost in the middle of questions and answers
// fails, and is not made again.
func TestLiftLost(t *testing.T) {
	f := &statelessFake{discover: silentServer}
	f.serve = func(s *statelessWire, m *jsonrpc.Message) bool {
		if gjson.GetBytes(m.Params, "inputResponses").Exists() {
			s.die()
			return true
		}
		return asksFirst(s, m)
	}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _, _ := beginAs(t, g, able("2025-11-25"))
		call := start(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
		synctest.Wait()
		if err := s.Answer(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`)); err != nil {
			t.Fatal(err)
		}
		if !call.over() {
			t.Fatal("no answer")
		}
		bridgetest.Contains(t, call.answer, `"code":-32603`, "upstream_lost")
		time.Sleep(time.Minute)
		if n := f.opened(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// With a question unanswered the server may be lost and come back: the next
// attempt goes over the new connection.
func TestLiftComesBack(t *testing.T) {
	f := &statelessFake{discover: silentServer, serve: asksFirst}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _, _ := beginAs(t, g, able("2025-11-25"))
		call := start(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
		f.wire(1).die()
		synctest.Wait()
		if err := s.Answer(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"roots":[{"uri":"x"}]}}`)); err != nil {
			t.Fatal(err)
		}
		<-call.done
		bridgetest.Contains(t, call.answer, "t t x")
		if n := f.opened(); n != 2 {
			t.Errorf("%d connections", n)
		}
	})
}
