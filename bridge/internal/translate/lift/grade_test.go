package lift_test

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lift"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Calls between legacy revisions are translated where one of them does not know what the other says.
func TestGrade(t *testing.T) {
	for _, tc := range []struct {
		name, session, server, method, params string
		sent, answer, want                    string
	}{
		{"schema of results", era.Rev20241105, era.Rev20251125, "tools/list", `{}`, `{}`,
			`"result":{"tools":[{"name":"x","outputSchema":{"type":"object"}}]}`, `"result":{"tools":[{"name":"x"}]}`},
		{"structured content", era.Rev20241105, era.Rev20251125, "tools/call", `{"name":"x"}`, `{"name":"x"}`,
			`"result":{"structuredContent":{"a":1}}`, `"content":[{"type":"text","text":"{\"a\":1}"}]`},
		{"context of a completion", era.Rev20250618, era.Rev20250326, "completion/complete", `{"ref":{},"context":{}}`, `{"ref":{}}`, `"result":{"a":1}`, `"result":{"a":1}`},
		{"URLs to visit", era.Rev20250618, era.Rev20251125, "tools/call", `{"name":"x"}`, `{"name":"x"}`,
			`"error":{"code":-32042,"message":"m","data":{"elicitations":[{"url":"https://a.example"}]}}`, `"code":-32603,"message":"m: https://a.example"`},
		{"newer client", era.Rev20251125, era.Rev20241105, "tools/call", `{"name":"x"}`, `{"name":"x"}`, `"result":{"structuredContent":{"a":1}}`, `"result":{"structuredContent":{"a":1}}`},
		{"task of a newer client", era.Rev20251125, era.Rev20250618, "tools/call", `{"name":"x","task":{"ttl":1},"n":1.0}`, `{"name":"x","n":1.0}`, `"result":{"content":[]}`, `"result":{"content":[]}`},
		{"tasks", era.Rev20250618, era.Rev20251125, "initialize", bridgetest.InitializeParams, bridgetest.InitializeParams, `"result":{"capabilities":{"tasks":{},"tools":{}}}`, `"result":{"capabilities":{"tools":{}}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := play(t, tc.session, tc.server, `{}`, `{}`)
			s.Serve = func(*bridge.Request) *jsonrpc.Message {
				return bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,`+tc.answer+`}`)
			}
			bridgetest.Contains(t, s.call(tc.method, tc.params), tc.want)
			same(t, "the server got", strings.Join(s.Got(), "\n"), tc.method+" "+tc.sent)
			s.end()
		})
	}
}

// Messages of a server of another legacy revision are translated too, about a call and by themselves.
func TestGradeBack(t *testing.T) {
	s := play(t, era.Rev20241105, era.Rev20251125, `{"sampling":{},"roots":{}}`, `{}`)
	s.client.Reply = func(m *jsonrpc.Message) *jsonrpc.Message {
		return bridgetest.Result(t, `{"role":"user","model":"m","content":{"type":"text","text":"x"}}`)
	}
	got := make(chan string, 1)
	take := func(m *jsonrpc.Message) { got <- string(m.Result) + string(m.Error) }
	s.Serve = func(r *bridge.Request) *jsonrpc.Message {
		r.Back.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":1,"progress":1,"message":"m"}`))
		r.Back.Ask(bridgetest.Question(t, "sampling/createMessage", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`), take)
		return bridgetest.Result(t, `{}`)
	}
	s.call("tools/call", `{"name":"x"}`)
	same(t, "the client got", strings.Join(s.client.Got(), "\n"), "notifications/progress {\"progressToken\":1,\"progress\":1}\n"+
		`asked sampling/createMessage {"messages":[{"role":"user","content":{"type":"text","text":"a"}}]}`)
	bridgetest.Contains(t, <-got, `"role":"user"`)
	s.own.Ask(bridgetest.Question(t, "elicitation/create", `{}`), take)
	bridgetest.Contains(t, <-got, "the client does not have the capability elicitation")
	s.own.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":1,"progress":1,"message":"m"}`))
	s.own.Gone(bridge.ErrLost)
	same(t, "the client got", strings.Join(s.client.Got(), "\n"), "notifications/progress {\"progressToken\":1,\"progress\":1}\ngone")
	if err := s.up.Notify(t.Context(), bridgetest.Request(t, s.from, nil, "notifications/roots/list_changed", `{}`)); err != nil {
		t.Error(err)
	}
	bridgetest.Contains(t, strings.Join(s.Got(), "\n"), "roots/list_changed")
}

// Answers to questions are translated for an older server. A server that asks before its revision is known asks only what
// the client's revision can express.
func TestGradeAnswers(t *testing.T) {
	s := play(t, era.Rev20251125, era.Rev20250618, `{"sampling":{}}`, `{}`)
	content := ""
	s.client.Reply = func(*jsonrpc.Message) *jsonrpc.Message {
		return bridgetest.Result(t, `{"role":"assistant","model":"m","content":`+content+`}`)
	}
	var got string
	s.Serve = func(r *bridge.Request) *jsonrpc.Message {
		r.Back.Ask(bridgetest.Question(t, "sampling/createMessage", `{"messages":[],"maxTokens":1}`), func(m *jsonrpc.Message) { got = string(m.Result) + string(m.Error) })
		return bridgetest.Result(t, `{}`)
	}
	for given, want := range map[string]string{
		`[{"type":"text","text":"a"},{"type":"text","text":"b"}]`: `"content":{"type":"text","text":"a\nb"}`,
		`[{"type":"image"},{"type":"text","text":"b"}]`:           `"code":-32603`,
	} {
		content = given
		s.call("tools/call", `{"name":"x"}`)
		bridgetest.Contains(t, got, want)
	}
	s.end()
	early := lift.New(bridgetest.Caller(era.Rev20250618, "", `{"elicitation":{},"roots":{}}`), s.client, &lift.Options{}).Client()
	s.client.Got()
	for method, params := range map[string]string{
		"elicitation/create": `{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","enum":["x"]}}}}}`,
		"roots/list":         `{}`,
	} {
		early.Ask(bridgetest.Question(t, method, params), func(m *jsonrpc.Message) {
			if method == "elicitation/create" {
				bridgetest.Contains(t, string(m.Error), `"code":-32602`)
			}
		})
	}
	same(t, "the client got", strings.Join(s.client.Got(), "\n"), "asked roots/list {}")
}
