package aggregate_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A new connection to a lost server gets the session's log level and its subscriptions again.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, caps, map[string]string{
			"resources/list": `{"resources":[{"uri":"a:1"}]}`, "resources/templates/list": `{"resourceTemplates":[]}`, "resources/subscribe": `{}`,
			"resources/unsubscribe": `{}`, "logging/setLevel": `{}`, "tools/call": `{}`,
		})
		two := newActor(t, "two", era.Rev20251125, `{"tools":{}}`, map[string]string{"tools/call": `{}`})
		s := play(t, true, one, two)
		bridgetest.Contains(t, s.call("resources/subscribe", `{"uri":"a:1"}`), `"result":{}`)
		bridgetest.Contains(t, s.call("logging/setLevel", `{"level":"loud"}`), `-32602`)
		bridgetest.Contains(t, s.call("logging/setLevel", `{"level":"info"}`), `"result":{}`)
		bridgetest.Contains(t, one.lines(), `logging/setLevel {"level":"info"}`)
		same(t, "the unused server got", two.lines(), "")
		s.call("tools/call", `{"name":"two__x"}`)
		bridgetest.Lacks(t, two.lines(), "setLevel") // it has no logging

		one.to.Gone(bridge.ErrLost)
		bridgetest.Contains(t, s.heard(), "notifications/tools/list_changed", "notifications/prompts/list_changed")
		if one.Closed() != 1 {
			t.Errorf("the connection was closed %d times", one.Closed())
		}
		s.call("tools/call", `{"name":"one__x"}`)
		got := one.lines()
		bridgetest.Contains(t, got, `logging/setLevel {"level":"info"}`, `resources/subscribe {"uri":"a:1"}`)
		if !strings.HasSuffix(got, `tools/call {"name":"x"}`) {
			t.Errorf("the call came first: %s", got)
		}
		bridgetest.Contains(t, s.call("resources/unsubscribe", `{"uri":"a:1"}`), `"result":{}`)
		bridgetest.Contains(t, one.lines(), `resources/unsubscribe {"uri":"a:1"}`)
		s.end()
	})
}

// Messages of servers reach the call that they may be about, and progress finds the question's server.
func TestMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, caps, nil)
		s := play(t, true, one)
		s.client.Reply = func(*jsonrpc.Message) *jsonrpc.Message { return bridgetest.Result(t, `{"roots":[]}`) }
		done := s.ask("tools/call", `{"name":"one__x","_meta":{"progressToken":7}}`)
		c := one.Next()
		got := make(chan string, 2)
		take := func(m *jsonrpc.Message) { got <- string(m.Result) }
		c.Back.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":7,"progress":1}`))
		c.Back.Ask(bridgetest.Question(t, "roots/list", `{"_meta":{"progressToken":"q"}}`), take)
		one.to.Ask(bridgetest.Question(t, "roots/list", `{"_meta":{"progressToken":5}}`), take)
		one.to.Notify(bridgetest.Notification(t, "notifications/message", `{"level":"info","data":"about it"}`))
		c.Answer(t, `{}`)
		bridgetest.Contains(t, <-done, `"result":{}`)
		heard := s.heard()
		bridgetest.Contains(t, heard, `"progress":1`, `{"_meta":{"progressToken":"one \"q\""}}`, `{"_meta":{"progressToken":"one 5"}}`, "about it")
		same(t, "replies", <-got+<-got, `{"roots":[]}{"roots":[]}`)
		for token, want := range map[string]string{`"one \"q\""`: `notifications/progress {"progressToken":"q","progress":1}`, `"two 5"`: "", `5`: ""} {
			one.Got()
			r := bridgetest.Request(t, s.from, nil, "notifications/progress", `{"progressToken":`+token+`,"progress":1}`)
			if err := s.up.Notify(t.Context(), r); err != nil {
				t.Error(err)
			}
			same(t, "the server got", one.lines(), want)
		}
		if err := s.up.Notify(t.Context(), bridgetest.Request(t, s.from, nil, "notifications/roots/list_changed", `{}`)); err != nil {
			t.Error(err)
		}
		bridgetest.Contains(t, one.lines(), "roots/list_changed")
		s.end()
	})
}

// A message of a server that names no call goes to the only call in flight. With none or several, it goes to the session.
func TestMessagesBesideCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, caps, nil)
		s := play(t, true, one)
		call := func(back bridge.Client) *bridgetest.Call {
			go func() {
				_, _ = s.up.Call(t.Context(), bridgetest.Request(t, s.from, back, "tools/call", `{"name":"one__x"}`))
			}()
			return one.Next()
		}
		says := func(what string) {
			one.to.Notify(bridgetest.Notification(t, "notifications/message", `{"level":"info","data":"`+what+`"}`))
			one.to.Notify(bridgetest.Notification(t, "notifications/resources/updated", `{"uri":"`+what+`"}`))
			one.to.Ask(bridgetest.Question(t, "roots/list", `{"of":"`+what+`"}`), func(*jsonrpc.Message) {})
		}
		about := func(what string) string {
			return `notifications/message {"level":"info","data":"` + what + `"}|notifications/resources/updated {"uri":"` + what + `"}|asked roots/list {"of":"` + what + `"}`
		}
		var first, second bridgetest.Client
		a := call(&first)
		says("one call")
		same(t, "the call got", strings.Join(first.Got(), "|"), `notifications/message {"level":"info","data":"one call"}|asked roots/list {"of":"one call"}`)
		same(t, "the session got", s.heard(), `notifications/resources/updated {"uri":"one call"}`)
		b := call(&second)
		says("two calls")
		same(t, "the calls got", strings.Join(append(first.Got(), second.Got()...), "|"), "")
		same(t, "the session got", strings.ReplaceAll(s.heard(), "\n", "|"), about("two calls"))
		a.Answer(t, `{}`)
		b.Answer(t, `{}`)
		synctest.Wait()
		says("no call")
		same(t, "the session got", strings.ReplaceAll(s.heard(), "\n", "|"), about("no call"))
		s.end()
	})
}

// A subscription that was ended is not made again over the next connection. One that was not is, once, and its resource may
// have changed meanwhile.
func TestSubscribedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, caps, map[string]string{
			"resources/list": `{"resources":[{"uri":"a:1"},{"uri":"a:2"}]}`, "resources/templates/list": `{"resourceTemplates":[]}`, "resources/subscribe": `{}`,
			"resources/unsubscribe": `{}`, "tools/call": `{}`,
		})
		s := play(t, true, one)
		for _, uri := range []string{"a:1", "a:2"} {
			s.call("resources/subscribe", `{"uri":"`+uri+`"}`)
		}
		s.call("resources/unsubscribe", `{"uri":"a:2"}`)
		one.to.Gone(bridge.ErrLost)
		s.heard()
		one.Got()
		s.call("tools/call", `{"name":"one__x"}`)
		same(t, "the server got", one.lines(), "resources/subscribe {\"uri\":\"a:1\"}\ntools/call {\"name\":\"x\"}")
		same(t, "the client got", s.heard(), `notifications/resources/updated {"uri":"a:1"}`)
		s.call("tools/call", `{"name":"one__x"}`)
		same(t, "the server got", one.lines(), `tools/call {"name":"x"}`)
		s.end()
	})
}
