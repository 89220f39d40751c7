package lower_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A subscription lasts until its client or the server leaves. It reports what the server accepted.
func TestListen(t *testing.T) {
	const all = `{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["a:x","a:y"]}}`
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true}}`, lower.Clients{Group: "g"})
		s.Serve = func(r *bridge.Request) *jsonrpc.Message {
			if r.URI() == "a:y" {
				return jsonrpc.NewError([]byte("1"), -5, "no", nil)
			}
			return bridgetest.Result(t, `{}`)
		}
		bridgetest.Contains(t, s.ask(s.from, era.Listen, `{"notifications":5}`).answer(), "-32602")
		v, w := s.ask(s.from, era.Listen, all), s.ask(s.from, era.Listen, `{"notifications":{"resourceSubscriptions":["a:x"]}}`)
		synctest.Wait()
		bridgetest.Contains(t, strings.Join(v.Got(), "\n"), `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:x"]}}`)
		w.Got()
		if st := s.s.Status(); st.Subscriptions != 3 {
			t.Errorf("Status() = %+v", st)
		}
		if n := strings.Count(strings.Join(s.Got(), "\n"), `subscribe {"uri":"a:x"}`); n != 1 {
			t.Errorf("%d requests for one resource", n)
		}
		s.tr.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", ""))
		s.tr.Notify(bridgetest.Notification(t, "notifications/prompts/list_changed", ""))
		s.tr.Notify(bridgetest.Notification(t, "notifications/resources/updated", `{"uri":"a:x/part"}`))
		same(t, "one client got", strings.Join(v.Got(), "\n"), "notifications/tools/list_changed \nnotifications/resources/updated {\"uri\":\"a:x/part\"}")
		same(t, "the other got", strings.Join(w.Got(), "\n"), "notifications/resources/updated {\"uri\":\"a:x/part\"}")
		w.cancel(bridge.ErrCancelled)
		bridgetest.Contains(t, w.answer(), "error: cancelled")
		synctest.Wait()
		same(t, "the server got", strings.Join(s.Got(), "\n"), "")
		s.tr.Gone(nil)
		same(t, "the end", v.answer(), `{"jsonrpc":"2.0","result":{}}`)
		synctest.Wait()
		same(t, "the server got", strings.Join(s.Got(), "\n"), `resources/unsubscribe {"uri":"a:x"}`)
		bridgetest.Contains(t, s.seen(), "keep", "release", "gone")
		s.end()

		// A server that does not answer: the subscription begins without its resources.
		s = play(t, era.Rev20251125, `{"resources":{"subscribe":true}}`, lower.Clients{})
		v = s.ask(s.from, era.Listen, all)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		bridgetest.Contains(t, strings.Join(v.Got(), "\n"), `{"notifications":{}}`)
		v.cancel(bridge.ErrCancelled)
		<-v.done
		s.end()

		// Where each request has a connection of its own, there is nothing to report.
		s = play(t, era.Rev20251125, `{"tools":{"listChanged":true}}`, lower.Clients{Once: true})
		v = s.ask(s.from, era.Listen, all)
		synctest.Wait()
		bridgetest.Contains(t, strings.Join(v.Got(), "\n"), `{"notifications":{}}`)
		v.cancel(bridge.ErrCancelled)
		<-v.done
		s.end()
	})
}
