package stateless_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
)

// A subscription at a modern server outlives its connection, up to five minutes.
func TestRelisten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.LatestModern, `{}`, stateless.Options{})
		const wants = `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:1"]}}`
		v := s.ask("", `{}`, era.Listen, wants)
		c := s.all0().Next()
		for _, method := range []string{"notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/progress", "notifications/vendor"} {
			c.Back.Notify(bridgetest.Notification(t, method, `{}`))
		}
		same(t, "before the acknowledgement", strings.Join(v.Got(), "\n"), "")
		c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, wants))
		same(t, "after it", strings.Join(v.Got(), "\n"), era.Acknowledged+" "+wants+"\nnotifications/tools/list_changed {}\nnotifications/vendor {}")
		time.Sleep(time.Hour) // it lasts
		c.Fail(bridge.ErrLost)
		c = s.all[0].Next()
		c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, wants))
		same(t, "after a loss", strings.Join(v.Got(), "\n"), "notifications/tools/list_changed \nnotifications/resources/updated {\"uri\":\"a:1\"}")
		same(t, "the cache heard", strings.Join(s.heard, "\n"), "notifications/tools/list_changed\nnotifications/resources/updated")
		began := time.Now()
		c.Fail(bridge.ErrUnavailable)
		for range 8 {
			s.all[0].Next().Fail(bridge.ErrUnavailable)
		}
		for {
			synctest.Wait()
			select {
			case <-v.done:
			case <-time.After(time.Minute):
				s.all[0].Next().Fail(bridge.ErrUnavailable)
				continue
			}
			break
		}
		if away := time.Since(began); away < 5*time.Minute || away > 8*time.Minute {
			t.Errorf("the subscription ended after %v", away)
		}
		same(t, "the end", v.answer(), `{"jsonrpc":"2.0","result":{}}`)

		// A refusal is the answer, as is another error after the acknowledgement, and the end of the server.
		v = s.ask("", `{}`, era.Listen, wants)
		s.all[0].Next().Refuse(t, `{"code":-5,"message":"no"}`)
		bridgetest.Contains(t, v.answer(), `"code":-5`)
		v = s.ask("", `{}`, era.Listen, wants)
		c = s.all[0].Next()
		c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, wants))
		c.Fail(bridge.ErrTimeout)
		same(t, "the end", v.answer(), `{"jsonrpc":"2.0","result":{}}`)
		v = s.ask("", `{}`, era.Listen, wants)
		c = s.all[0].Next()
		c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, wants))
		c.Fail(bridge.ErrLost)
		synctest.Wait()
		s.all[0].rest.Gone(bridge.ErrLost)
		same(t, "the end", v.answer(), `{"jsonrpc":"2.0","result":{}}`)
		s.end()

		// Without an acknowledgement, the server is away for as long as its connections last, too.
		s = play(t, era.LatestModern, `{}`, stateless.Options{})
		v = s.ask("", `{}`, era.Listen, wants)
		c = s.all0().Next()
		c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, wants))
		c.Fail(bridge.ErrLost)
		for range 3 {
			c = s.all[0].Next()
			time.Sleep(2 * time.Minute)
			c.Fail(bridge.ErrLost)
		}
		synctest.Wait()
		select {
		case <-v.done:
			same(t, "the end", v.answer(), `{"jsonrpc":"2.0","result":{}}`)
		default:
			t.Error("a subscription that is not acknowledged any more goes on")
		}
		s.end()
	})
}
