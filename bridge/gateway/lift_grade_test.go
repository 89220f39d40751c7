package gateway

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
)

// D3, D5: legacy revisions that differ. Requests, results, errors,
// notifications, questions and answers are graded, whichever side is newer.
func TestLiftGrades(t *testing.T) {
	for _, tc := range []struct {
		name, client, server     string
		method, params, got      string // what the client asks, and what the server gets of it
		answer, want             string // what the server answers, and what the client gets of it
		says, hears              string // before that
		asks, asked, reply, told string // and a question
	}{
		{name: "completion context", client: "2025-11-25", server: "2025-03-26",
			method: "completion/complete", params: `{"ref":{"type":"ref/prompt","name":"p"},"context":{"arguments":{}},"n":1.0}`, got: `{"ref":{"type":"ref/prompt","name":"p"},"n":1.0}`,
			answer: `"result":{"completion":{"values":[]}}`, want: `"result":{"completion":{"values":[]}}`},
		{name: "task", client: "2025-11-25", server: "2025-06-18", method: "tools/call", params: `{"name":"t","task":{"ttl":1},"x":1.0}`, got: `{"name":"t","x":1.0}`,
			answer: `"result":{"content":[]}`, want: `"result":{"content":[]}`},
		{name: "link", client: "2025-03-26", server: "2025-11-25", method: "tools/call", params: `{"name":"t"}`, got: `{"name":"t"}`,
			answer: `"result":{"content":[{"type":"resource_link","uri":"x:","name":"n"}],"n":1.0}`, want: `"result":{"content":[{"type":"text","text":"n: x:"}],"n":1.0}`},
		{name: "progress", client: "2024-11-05", server: "2025-11-25", method: "tools/call", params: `{"name":"t","_meta":{"progressToken":"p"}}`, got: `{"name":"t","_meta":{"progressToken":2}}`,
			says: `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1.50,"message":"m"}}`, hears: `{"progressToken":"p","progress":1.50}`,
			answer: `"result":{"content":[]}`, want: `"result":{"content":[]}`},
		{name: "url needed", client: "2025-06-18", server: "2025-11-25", method: "tools/call", params: `{"name":"t"}`, got: `{"name":"t"}`,
			answer: `"error":{"code":-32042,"message":"go","data":{"elicitations":[{"url":"https://x.example"}]}}`, want: `"code":-32603,"message":"go: https://x.example"`},
		{name: "not found stays", client: "2025-06-18", server: "2025-11-25", method: "resources/read", params: `{"uri":"x"}`, got: `{"uri":"x"}`,
			answer: `"error":{"code":-32002,"message":"m"}`, want: `"error":{"code":-32002,"message":"m"}`},
		{name: "form", client: "2025-06-18", server: "2025-11-25", method: "tools/call", params: `{"name":"t"}`, got: `{"name":"t"}`,
			asks: `"method":"elicitation/create","params":{"mode":"form","message":"?","requestedSchema":{"type":"object","properties":{"a":{"type":"string","default":"x"}}}}`, asked: `"params":{"message":"?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}`,
			reply: `"result":{"action":"decline"}`, told: `"result":{"action":"decline"}`, answer: `"result":{"content":[]}`, want: `"result":{"content":[]}`},
		{name: "url refused", client: "2025-06-18", server: "2025-11-25", method: "tools/call", params: `{"name":"t"}`, got: `{"name":"t"}`,
			asks: `"method":"elicitation/create","params":{"mode":"url","message":"?","url":"https://x.example","elicitationId":"e"}`, told: `"code":-32602`, answer: `"result":{"content":[]}`, want: `"result":{"content":[]}`},
		{name: "content of an answer", client: "2025-11-25", server: "2025-06-18", method: "tools/call", params: `{"name":"t"}`, got: `{"name":"t"}`,
			asks: `"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}`, asked: `"params":{"messages":[],"maxTokens":1}`,
			reply: `"result":{"role":"assistant","model":"m","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, told: `"content":{"type":"text","text":"a\nb"}`,
			answer: `"result":{"content":[]}`, want: `"result":{"content":[]}`},
		{name: "answer that cannot be passed on", client: "2025-11-25", server: "2025-06-18", method: "tools/call", params: `{"name":"t"}`, got: `{"name":"t"}`,
			asks: `"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}`, asked: `"params":{"messages":[],"maxTokens":1}`,
			reply: `"result":{"role":"assistant","model":"m","content":[{"type":"image"},{"type":"text","text":"b"}]}`, told: `"code":-32603`,
			answer: `"result":{"content":[]}`, want: `"result":{"content":[]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fake{result: strings.Replace(everything, "2025-11-25", tc.server, 1), serve: silent(tc.method)}
			run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
				s, _, _ := beginAs(t, g, able(tc.client))
				call := start(t, s, `{"jsonrpc":"2.0","id":"c","method":"`+tc.method+`","params":`+tc.params+`}`)
				w := f.wire(1)
				bridgetest.Contains(t, strings.Join(w.received(), "\n"), `"params":`+tc.got+`}`)
				if tc.says != "" {
					w.say(tc.says)
					bridgetest.Contains(t, strings.Join(call.back.take(), "\n"), tc.hears)
				}
				if tc.asks != "" {
					w.say(`{"jsonrpc":"2.0","id":"q",` + tc.asks + `}`)
					asked := strings.Join(call.back.take(), "\n")
					if bridgetest.Contains(t, asked, tc.asked); tc.asked == "" && asked != "" {
						t.Errorf("the client was asked %s", asked)
					}
					if tc.reply != "" {
						if err := s.Answer(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,`+tc.reply+`}`)); err != nil {
							t.Error(err)
						}
					}
					bridgetest.Contains(t, strings.Join(w.received(), "\n"), `"id":"q"`, tc.told)
				}
				w.say(`{"jsonrpc":"2.0","id":2,` + tc.answer + `}`)
				synctest.Wait()
				if !call.over() {
					t.Fatal("no answer")
				}
				bridgetest.Contains(t, call.answer, `"id":"c"`, tc.want)
			})
		})
	}
}

// A server that asks as soon as its handshake is done is not known yet. What a
// client of an older revision cannot be asked it is not asked even so.
func TestGradeEarlyQuestion(t *testing.T) {
	f := &fake{after: func(f *fakeWire) {
		f.say(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","enum":["x"]}}}}}}`)
		f.say(`{"jsonrpc":"2.0","id":2,"method":"roots/list"}`)
		heard := make(chan struct{})
		f.queue <- func() { close(heard) }
		<-heard
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		_, st, _ := beginAs(t, g, able("2025-06-18"))
		same(t, "the client", st.take(), []string{`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`})
		bridgetest.Contains(t, strings.Join(f.wire(1).received(), "\n"), `"id":1,"error":{"code":-32602`)
	})
}
