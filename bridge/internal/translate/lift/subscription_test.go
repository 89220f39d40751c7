package lift_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
)

// A session's subscriptions at a modern server are one request to listen, which is replaced when they change.
func TestSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, era.Rev20260728, `{}`, `{"tools":{"listChanged":true},"resources":{"subscribe":true}}`)
		s.begin()
		c := s.Next()
		bridgetest.Contains(t, string(c.Whole()), `"notifications":{"toolsListChanged":true}`)
		acknowledge(t, c, `{"toolsListChanged":true}`)
		c.Back.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", `{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}`))
		c.Back.Notify(bridgetest.Notification(t, "notifications/vendor", `{}`))
		same(t, "the client got", strings.Join(s.client.Got(), "\n"), "notifications/tools/list_changed {}")

		bridgetest.Contains(t, s.call("resources/subscribe", `{}`), "params.uri must be a string")
		one, two := s.ask("resources/subscribe", `{"uri":"a:1"}`), s.ask("resources/subscribe", `{"uri":"a:2"}`)
		d := s.Next()
		bridgetest.Contains(t, string(d.Whole()), `"resourceSubscriptions":["a:1","a:2"]`)
		acknowledge(t, d, `{"toolsListChanged":true,"resourceSubscriptions":["a:1"]}`)
		bridgetest.Contains(t, <-one, `"result":{}`)
		bridgetest.Contains(t, <-two, `"code":-32602`, "does not report changes")
		if c.Ctx.Err() == nil || d.Ctx.Err() != nil {
			t.Error("the new subscription did not replace the old one")
		}
		bridgetest.Contains(t, s.call("resources/subscribe", `{"uri":"a:1"}`), `"result":{}`) // it is there
		d.Back.Notify(bridgetest.Notification(t, "notifications/resources/updated", `{"uri":"a:1"}`))
		same(t, "the client got", strings.Join(s.client.Got(), "\n"), `notifications/resources/updated {"uri":"a:1"}`)

		// The server ends it: it is opened again, and the client looks at everything again.
		d.Answer(t, `{}`)
		e := s.Next()
		acknowledge(t, e, `{"toolsListChanged":true,"resourceSubscriptions":["a:1"]}`)
		same(t, "the client got", strings.Join(s.client.Got(), "\n"), "notifications/tools/list_changed \nnotifications/resources/updated {\"uri\":\"a:1\"}")
		if s.missed != 2 {
			t.Errorf("%d missed changes", s.missed)
		}
		// The lane has opened its connection again: the same, after the next acknowledgement.
		s.own.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", ""))
		same(t, "the client got", strings.Join(s.client.Got(), "\n"), "")
		e.Fail(bridge.ErrLost)
		e = s.Next()
		acknowledge(t, e, `{"toolsListChanged":true,"resourceSubscriptions":["a:1"]}`)
		bridgetest.Contains(t, strings.Join(s.client.Got(), "\n"), "notifications/tools/list_changed", "a:1")

		// Without the resource, a smaller one follows; what comes of the old one is not passed on.
		bridgetest.Contains(t, s.call("resources/unsubscribe", `{"uri":"a:1"}`), `"result":{}`)
		e.Back.Notify(bridgetest.Notification(t, "notifications/resources/updated", `{"uri":"a:1"}`))
		same(t, "the client got", strings.Join(s.client.Got(), "\n"), "")
		f := s.Next()
		bridgetest.Lacks(t, string(f.Whole()), "resourceSubscriptions")
		acknowledge(t, f, `{"toolsListChanged":true}`)

		// One that the server refuses is the client's, and the others stay.
		one = s.ask("resources/subscribe", `{"uri":"a:3"}`)
		s.Next().Refuse(t, "{\n\"code\":-5,\n\"message\":\"not that one\"}")
		bridgetest.Contains(t, <-one, `"error":{ "code":-5, "message":"not that one"}`) // on one line
		two = s.ask("resources/subscribe", `{"uri":"a:4"}`)
		s.Next()
		bridgetest.Contains(t, <-two, "error: server fake: it did not acknowledge a subscription within 10s")
		if f.Ctx.Err() != nil {
			t.Error("the earlier subscription has ended")
		}
		s.end()
		bridgetest.Contains(t, s.call("resources/subscribe", `{"uri":"a:5"}`), "error: session was ended")
	})
}

// A server without subscriptions is asked three times. A list that the client read meanwhile may have changed.
func TestSubscribeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, era.Rev20260728, `{}`, `{"tools":{"listChanged":true}}`)
		s.begin()
		c := s.Next()
		done := s.ask("tools/list", `{}`) // waits for the subscription a moment
		s.Next().Answer(t, `{"tools":[]}`)
		<-done
		acknowledge(t, c, `{"toolsListChanged":true}`)
		same(t, "the client got", strings.Join(s.client.Got(), "\n"), "notifications/tools/list_changed ")
		s.end()

		s = play(t, era.Rev20251125, era.Rev20260728, `{}`, `{"tools":{"listChanged":true}}`)
		s.call("initialize", bridgetest.InitializeParams)
		for range 3 {
			s.Next().Refuse(t, `{"code":-32601,"message":"unknown"}`)
		}
		time.Sleep(time.Hour)
		if got := s.Got(); len(got) != 4 { // with the handshake
			t.Errorf("the server got %d requests: %q", len(got), got)
		}
		s.end()
	})
}
