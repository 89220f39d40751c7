package gateway

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// completely answers all calls with a complete result.
func completely(payload string) func(*statelessWire, *jsonrpc.Message) bool {
	return func(s *statelessWire, m *jsonrpc.Message) bool {
		switch {
		case m.Method == era.Listen:
			s.acknowledge(m)
		case m.IsRequest():
			result := `{"resultType":"complete"`
			if len(payload) > 2 {
				result += ","
			}
			s.reply(m, result+payload[1:])
		}
		return true
	}
}

// protocol.md D2.1, D5, D7: what the client gets of what
// a modern server answers. Bytes that are not concerned stay what they are.
func TestLiftAnswers(t *testing.T) {
	result := func(r string) string { return `"result":` + r }
	for _, tc := range []struct{ name, revision, method, answer, want string }{
		{"envelope", "2025-11-25", "tools/call", result(`{"resultType":"complete", "content":[], "x":1.0,"ttlMs":5 , "cacheScope":"private"}`), result(`{"content":[], "x":1.0}`)},
		{"envelope only", "2025-11-25", "completion/complete", result(`{ "ttlMs":5,"resultType":"complete"}`), result(`{ }`)},
		{"between", "2025-11-25", "tools/list", result(`{"tools":[],"resultType":"complete","ttlMs":1,"nextCursor":"","cacheScope":"public"}`), result(`{"tools":[],"nextCursor":""}`)},
		{"server", "2025-11-25", "tools/call", result(`{"content":[],"_meta":{"a":1e3,"io.modelcontextprotocol/serverInfo":{"name":"s"},"b":2},"resultType":"complete"}`), result(`{"content":[],"_meta":{"a":1e3,"b":2}}`)},
		{"server only", "2025-11-25", "tools/call", result(`{"_meta":{"io.modelcontextprotocol\/serverInfo":{}},"resultType":"complete","content":[]}`), result(`{"content":[]}`)},
		{"twice", "2025-11-25", "tools/call", result(`{"resultType":"x","content":[],"resultType":"complete","n":1.0}`), result(`{"content":[],"n":1.0}`)},
		{"no type", "2025-11-25", "tools/call", result(`{"content":[]}`), result(`{"content":[]}`)},
		{"unknown type", "2025-11-25", "tools/call", result(`{"resultType":"riddle","content":[]}`), `"code":-32603`},
		{"type is no text", "2025-11-25", "tools/call", result(`{"resultType":5}`), `"code":-32603`},
		{"task", "2025-11-25", "tools/call", result(`{"resultType":"task","taskId":"t"}`), `"code":-32603`},
		{"question where there is none", "2025-11-25", "tools/list", result(`{"resultType":"input_required","requestState":"s"}`), `"code":-32603`},
		{"structured", "2025-11-25", "tools/call", result(`{"resultType":"complete","content":[],"structuredContent":[1,2.0]}`), result(`{"content":[{"type":"text","text":"[1,2.0]"}]}`)},
		{"schema", "2025-11-25", "tools/list", result(`{"resultType":"complete","tools":[{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}],"ttlMs":0,"cacheScope":"private"}`), result(`{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`)},
		{"link", "2025-03-26", "tools/call", result(`{"content":[{"type":"resource_link","uri":"x://y","name":"n"}],"resultType":"complete"}`), result(`{"content":[{"type":"text","text":"n: x://y"}]}`)},
		{"audio", "2024-11-05", "tools/call", result(`{"content":[{"type":"audio","mimeType":"audio/wav","data":"AAAA"}]}`), result(`{"content":[{"type":"text","text":"[audio audio/wav, 3 bytes]"}]}`)},
		{"no resource", "2025-11-25", "resources/read", `"error":{"code":-32602,"message":"m","data":{"uri":"x://y"}}`, `"error":{"code":-32002,"message":"m","data":{"uri":"x://y"}}`},
		{"capability", "2025-11-25", "tools/call", `"error":{"code":-32021,"message":"m","data":{"requiredCapabilities":{}}}`, `"error":{"code":-32021,"message":"m","data":{"requiredCapabilities":{}}}`},
		{"version", "2025-11-25", "tools/call", `"error":{"code":-32022,"message":"m"}`, `"code":-32603`},
		{"method", "2025-11-25", "prompts/list", `"error":{"code":-32601,"message":"m"}`, `"error":{"code":-32601,"message":"m"}`},
		{"lines", "2025-03-26", "tools/call", result("{\n \"content\":[{\"type\":\"resource_link\",\n\"uri\":\"x:\",\"name\":\"n\"}],\n\"resultType\":\"complete\"\n}"), result(`{  "content":[{"type":"text","text":"n: x:"}] }`)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &statelessFake{discover: silentServer, serve: func(s *statelessWire, m *jsonrpc.Message) bool {
				s.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID, tc.answer))
				return true
			}}
			run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
				s, _, _ := beginAs(t, g, able(tc.revision))
				bridgetest.Contains(t, do(t, s, "1", tc.method, `{"uri":"x://y"}`), tc.want, `"id":1`)
			})
		})
	}
}

// the level of one session goes with its later requests, and with nobody
// else's; what is below it the client does not get.
func TestLiftLevel(t *testing.T) {
	f := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		if m.Method != "tools/call" {
			return completely("{}")(s, m)
		}
		for _, level := range []string{"debug", "warning", "error"} {
			s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"` + level + `","data":1.0}}`)
		}
		s.reply(m, `{"resultType":"complete","content":[]}`)
		return true
	}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}, func(t *testing.T, g *gateway) {
		s, _, _ := beginAs(t, g, able("2025-11-25"))
		other, _, _ := beginAs(t, g, able("2025-11-25"))
		bridgetest.Contains(t, do(t, s, "1", "logging/setLevel", `{"level":"loud"}`), "-32602")
		if got := do(t, s, "2", "logging/setLevel", `{"level":"warning"}`); got != `{"jsonrpc":"2.0","id":2,"result":{}}` {
			t.Errorf("setLevel = %s", got)
		}
		call := start(t, s, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t"}}`)
		if !call.over() {
			t.Fatal("no answer")
		}
		if got := strings.Join(call.back.take(), "\n"); strings.Contains(got, "debug") || !strings.Contains(got, `{"level":"warning","data":1.0}`) || !strings.Contains(got, `"error"`) {
			t.Errorf("the client got %s", got)
		}
		quiet := start(t, other, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t"}}`)
		if !quiet.over() || len(quiet.back.take()) > 0 {
			t.Error("the other session got log messages")
		}
		got := f.wire(1).received("tools/call")
		level := func(m *jsonrpc.Message) string {
			return gjson.GetBytes(m.Meta(), `io\.modelcontextprotocol/logLevel`).Str
		}
		if level(got[0]) != "warning" || level(got[1]) != "" || len(f.wire(1).received("logging/setLevel")) > 0 {
			t.Errorf("the server got %s and %s", got[0].Params, got[1].Params)
		}
	})
}

// a URL that is asked for again and again does not keep a call for ever.
func TestRunawayTime(t *testing.T) {
	f := &statelessFake{discover: silentServer, serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		s.reply(m, `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.example"}}}}`)
		return true
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, st, _ := beginAs(t, g, able("2025-11-25"))
		began := time.Now()
		call := start(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
		synctest.Wait()
		if err := s.Answer(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`)); err != nil {
			t.Fatal(err)
		}
		<-call.done
		bridgetest.Contains(t, call.answer, `"code":-32603`, "upstream_timeout")
		if took := time.Since(began); took != maxTalk {
			t.Errorf("it took %v", took)
		}
		if n := len(f.wire(1).received("tools/call")); n < 100 || n > 130 {
			t.Errorf("%d attempts", n)
		}
		if asked := append(call.back.take(), st.take()...); len(asked) != 1 {
			t.Errorf("the client was told %q", asked)
		}
	})
}

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
