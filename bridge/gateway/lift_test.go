package gateway

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// protocol.md D2.2: what a modern server says of itself, as
// the answer to initialize.
func TestLiftInitialize(t *testing.T) {
	caps := `{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{},"logging":{},"completions":{},"extensions":{"com.example/x":{}}}`
	for _, tc := range []struct{ name, discover, asked, want string }{
		{"whole", announced, "2025-11-25", `{"protocolVersion":"2025-11-25","capabilities":` + caps + `,"serverInfo":{"name":"stateless","version":"2"},"instructions":"be kind"}`},
		{"old", announced, "2024-11-05", `{"protocolVersion":"2024-11-05","capabilities":` + caps + `,"serverInfo":{"name":"stateless","version":"2"},"instructions":"be kind"}`},
		{"modern revision in a handshake", announced, "2026-07-28", `{"protocolVersion":"2025-11-25","capabilities":` + caps + `,"serverInfo":{"name":"stateless","version":"2"},"instructions":"be kind"}`},
		{"nameless", `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`, "2025-06-18",
			`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"unknown"}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, ServerOptions{Adapter: &statelessFake{discover: tc.discover}}, func(t *testing.T, g *gateway) {
				_, _, a := beginAs(t, g, able(tc.asked))
				if want := `{"jsonrpc":"2.0","id":"init","result":` + tc.want + `}`; a != want {
					t.Errorf("got  %s\nwant %s", a, want)
				}
			})
		})
	}
}

// protocol.md D2.3: what a modern server is told of the client,
// which is not what the client says there itself.
func TestLiftMeta(t *testing.T) {
	const who = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}},"roots":{},"sampling":{}},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}`
	for _, tc := range []struct{ name, params, want string }{
		{"no params", ``, `{"_meta":{` + who + `}}`},
		{"empty", `,"params":{ }`, `{"_meta":{` + who + `}}`},
		{"others", `,"params":{ "cursor":"" }`, `{"_meta":{` + who + `}, "cursor":"" }`},
		{"empty _meta", `,"params":{"_meta":{ },"cursor":1.0}`, `{"_meta":{` + who + ` },"cursor":1.0}`},
		{"token", `,"params":{"x":[1],"_meta":{"progressToken":"p","v":1.50}}`, `{"x":[1],"_meta":{` + who + `,"progressToken":2,"v":1.50}}`},
		{"lies", `,"params":{"_meta":{"a":1,"io.modelcontextprotocol/clientCapabilities":{"x":1},"io.modelcontextprotocol/logLevel":"debug"}}`, `{"_meta":{"a":1,` + who + `}}`},
		{"hidden lies", `,"params":{"_meta":{"io.modelcontextprotocol\/logLevel":"debug","progressToken":7}}`, `{"_meta":{"progressToken":2,` + who + `}}`},
		{"no object", `,"params":{"_meta":"no","x":1}`, `{"_meta":{` + who + `},"x":1}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &statelessFake{discover: silentServer, serve: completely("{}")}
			run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Cache: cache.Options{Off: true}}}, func(t *testing.T, g *gateway) {
				s, _, _ := beginAs(t, g, able("2025-11-25"))
				m, _ := s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"`+tc.params+`}`), nil, nil)
				if got := bridgetest.Text(m); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
					t.Errorf("the client got %s", got)
				}
				if got := f.wire(1).received("tools/list"); len(got) != 1 || string(got[0].Params) != tc.want {
					t.Errorf("the server got %s\nwant %s", got[0].Params, tc.want)
				}
			})
		})
	}
}

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

// D0.5, D8.10: which requests of the client go to a modern server.
func TestLiftMethods(t *testing.T) {
	sharing := strings.Replace(able("2025-11-25"), `"capabilities":{`, `"capabilities":{"extensions":{"com.example/x":{}},`, 1)
	for _, tc := range []struct {
		method, client, discover string
		goes                     bool
	}{
		{"tools/list", able("2025-11-25"), silentServer, true},
		{"vendor/do", able("2025-11-25"), announced, false},
		{"vendor/do", sharing, announced, true},
		{"vendor/do", sharing, silentServer, false},
		{"tasks/get", sharing, announced, false},
		{"tasks/list", sharing, announced, false},
		{"subscriptions/listen", sharing, announced, false},
		{"server/discover", sharing, announced, false},
		{"resources/subscribe", able("2025-11-25"), silentServer, false},
		{"resources/unsubscribe", able("2025-11-25"), silentServer, false},
		{"logging/setLevel", able("2025-11-25"), silentServer, false},
	} {
		f := &statelessFake{discover: tc.discover, serve: completely("{}")}
		run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
			s, _, _ := beginAs(t, g, tc.client)
			before := len(f.wire(1).received(tc.method))
			a := do(t, s, "1", tc.method, `{"uri":"x","level":"info"}`)
			if after := len(f.wire(1).received(tc.method)); (after > before) != tc.goes || strings.Contains(a, "-32601") == tc.goes {
				t.Errorf("%s: the server got %d, the client %s", tc.method, after-before, a)
			}
		})
	}
}

// D2.1: notifications of the client are between it and the bridge.
func TestLiftNotifications(t *testing.T) {
	f := &statelessFake{serve: completely("{}")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _, _ := beginAs(t, g, able("2025-11-25"))
		f.wire(1).take()
		for _, n := range []string{"notifications/roots/list_changed", "notifications/initialized", "notifications/vendor"} {
			s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"`+n+`"}`), nil)
		}
		if got := f.wire(1).take(); len(got) > 0 {
			t.Errorf("the server got %q", got)
		}
	})
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

// what else ends a call that goes on and on, or does not make sense.
func TestRunaway(t *testing.T) {
	many := strings.Repeat(`"k":{"method":"roots/list","params":{}},`, bridge.MaxQuestions+1)
	for i := range bridge.MaxQuestions + 1 {
		many = strings.Replace(many, `"k"`, fmt.Sprintf(`"k%d"`, i), 1)
	}
	for _, tc := range []struct{ name, result, want string }{
		{"state too long", `"requestState":"` + strings.Repeat("x", longestState) + `"`, "requestState is too long"},
		{"state is no text", `"requestState":{}`, "requestState is not a string"},
		{"nothing", `"x":1`, "without inputRequests and requestState"},
		{"no questions", `"inputRequests":{}`, "without inputRequests and requestState"},
		{"questions are a list", `"inputRequests":[]`, "inputRequests is not an object"},
		{"question is a text", `"inputRequests":{"a":"b"}`, "no question of the protocol"},
		{"other question", `"inputRequests":{"a":{"method":"tools/list"}}`, "no question of the protocol"},
		{"params are a list", `"inputRequests":{"a":{"method":"roots/list","params":[]}}`, "not an object"},
		{"same key", `"inputRequests":{"a":{"method":"roots/list","params":{}},"\u0061":{"method":"roots/list","params":{}}}`, "same key"},
		{"too many", `"inputRequests":{` + strings.TrimSuffix(many, ",") + `}`, "too many questions at once"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &statelessFake{discover: silentServer, serve: func(s *statelessWire, m *jsonrpc.Message) bool {
				s.reply(m, `{"resultType":"input_required",`+tc.result+`}`)
				return true
			}}
			run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
				s, st, _ := beginAs(t, g, able("2025-11-25"))
				bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"t"}`), `"code":-32603`, tc.want)
				if got := f.wire(1).received("tools/call"); len(got) != 1 || len(st.take()) > 0 {
					t.Errorf("%d calls", len(got))
				}
			})
		})
	}
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
