package lift_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A server that needs input: the client is asked, and the call is made again with the answers.
func TestConverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, era.Rev20260728, `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`, `{"tools":{}}`)
		s.begin()
		s.client.Reply = func(m *jsonrpc.Message) *jsonrpc.Message {
			if m.Method == "roots/list" {
				return bridgetest.Result(t, `{"roots":[]}`)
			}
			return jsonrpc.NewError(nil, -1, "no", nil)
		}
		done := s.ask("tools/call", `{"name":"x","_meta":{"progressToken":"p"}}`)
		c := s.Next()
		c.Back.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":"p","progress":5}`))
		c.Answer(t, `{"resultType":"input_required","requestState":"s1","inputRequests":{"a":{"method":"roots/list"},"b":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}}}`)
		c = s.Next()
		bridgetest.Contains(t, string(c.Whole()), `{"inputResponses":{"a":{"roots":[]},"b":{"action":"cancel"}},"requestState":"s1",`, `"name":"x"`)
		c.Back.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":"p","progress":2}`))
		c.Back.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":"p","progress":6}`))
		// A state without a question: the call is made again after a pause.
		began := time.Now()
		c.Answer(t, `{"resultType":"input_required","requestState":"s2"}`)
		c = s.Next()
		bridgetest.Contains(t, string(c.Whole()), `{"requestState":"s2","name":"x",`)
		if wait := time.Since(began); wait != 250*time.Millisecond {
			t.Errorf("the call was repeated after %v", wait)
		}
		c.Answer(t, `{"content":[]}`)
		same(t, "the answer", <-done, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		got := strings.Join(s.client.Got(), "\n")
		bridgetest.Contains(t, got, `"progress":5}`, `"progress":6}`, "asked roots/list", "asked elicitation/create")
		bridgetest.Lacks(t, got, `"progress":2}`)

		// URLs: the client is asked once, and hears when the server does not need the visit any more.
		s.client.Reply = func(*jsonrpc.Message) *jsonrpc.Message { return bridgetest.Result(t, `{"action":"accept"}`) }
		done = s.ask("tools/call", `{"name":"x"}`)
		for range 2 {
			s.Next().Answer(t, `{"resultType":"input_required","inputRequests":{"u":{"method":"elicitation/create","params":{"mode":"url","url":"https://a.example/","message":"m"}}}}`)
		}
		s.Next().Answer(t, `{"content":[]}`)
		bridgetest.Contains(t, <-done, `"content":[]`)
		got = strings.Join(s.client.Got(), "\n")
		bridgetest.Contains(t, got, `"elicitationId":"`, "notifications/elicitation/complete")
		if n := strings.Count(got, "asked "); n != 1 {
			t.Errorf("the client was asked %d times", n)
		}
		s.end()
	})
}

// What ends a call that needs input: the client's refusal, or a server that asks for what cannot be.
func TestConverseRefused(t *testing.T) {
	for _, tc := range []struct{ name, method, caps, answer, want string }{
		{"client fails, tool", "tools/call", `{"sampling":{}}`, `"inputRequests":{"a":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}}`, `"text":"the server asked the client for sampling/createMessage, which failed: no"}],"isError":true`},
		{"client fails, prompt", "prompts/get", `{"roots":{}}`, `"inputRequests":{"a":{"method":"roots/list"}}`, `"data":{"bridge":"client_refused","originalCode":-1}`},
		{"undeclared capability", "tools/call", `{}`, `"inputRequests":{"a":{"method":"roots/list"}}`, "it asks roots/list: the client does not have the capability roots"},
		{"state of another type", "tools/call", `{}`, `"requestState":5`, "its requestState is not a string"},
		{"endless state", "tools/call", `{}`, `"requestState":"` + strings.Repeat("x", 256<<10) + `"`, "its requestState is too long"},
		{"questions of another type", "tools/call", `{}`, `"inputRequests":[]`, "its inputRequests is not an object"},
		{"two questions of a key", "tools/call", `{"roots":{}}`, `"inputRequests":{"a":{"method":"roots/list"},"a":{"method":"roots/list"}}`, "two of its inputRequests have the same key"},
		{"no question and no state", "tools/call", `{}`, `"inputRequests":null`, "without inputRequests and requestState"},
		{"unknown question", "tools/call", `{}`, `"inputRequests":{"a":{"method":"vendor/ask"}}`, `which is no question of the protocol`},
		{"params that are no object", "tools/call", `{"roots":{}}`, `"inputRequests":{"a":{"method":"roots/list","params":5}}`, "with params that are not an object"},
		{"too many questions", "tools/call", `{"roots":{}}`, `"inputRequests":{` + strings.TrimSuffix(strings.Repeat(`"#":{"method":"roots/list"},`, bridge.MaxQuestions+1), ",") + `}`, "it asks too many questions at once"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := play(t, era.Rev20251125, era.Rev20260728, tc.caps, `{"tools":{}}`)
			s.begin()
			s.client.Reply = func(*jsonrpc.Message) *jsonrpc.Message { return jsonrpc.NewError(nil, -1, "no", nil) }
			answer := tc.answer
			for i := 0; strings.Contains(answer, "#"); i++ { // keys that differ
				answer = strings.Replace(answer, "#", strings.Repeat("k", i+1), 1)
			}
			s.Serve = func(*bridge.Request) *jsonrpc.Message {
				return bridgetest.Result(t, `{"resultType":"input_required",`+answer+`}`)
			}
			bridgetest.Contains(t, s.call(tc.method, `{"name":"x"}`), tc.want)
			if n := len(s.Got()); n != 1 {
				t.Errorf("the call was made %d times", n)
			}
			s.end()
		})
	}
	synctest.Test(t, func(t *testing.T) { // and one that never ends
		s := play(t, era.Rev20251125, era.Rev20260728, `{}`, `{"tools":{}}`)
		s.begin()
		s.Serve = func(*bridge.Request) *jsonrpc.Message {
			return bridgetest.Result(t, `{"resultType":"input_required","requestState":"s"}`)
		}
		bridgetest.Contains(t, s.call("tools/call", `{"name":"x"}`), "it keeps asking for input (the limit is 10)")
		s.end()

		// A URL that is asked for again and again ends after an hour.
		s = play(t, era.Rev20251125, era.Rev20260728, `{"elicitation":{"url":{}}}`, `{"tools":{}}`)
		s.begin()
		s.client.Reply = func(*jsonrpc.Message) *jsonrpc.Message { return bridgetest.Result(t, `{"action":"accept"}`) }
		s.Serve = func(*bridge.Request) *jsonrpc.Message {
			return bridgetest.Result(t, `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.example"}}}}`)
		}
		began := time.Now()
		bridgetest.Contains(t, s.call("tools/call", `{"name":"x"}`), "was not done within 1h0m0s of questions and answers")
		if took, n := time.Since(began), len(s.Got()); took != time.Hour || n < 100 || n > 130 {
			t.Errorf("it ended after %v and %d attempts", took, n)
		}
		bridgetest.Lacks(t, strings.Join(s.client.Got()[1:], "\n"), "asked")
		s.end()
	})
}
