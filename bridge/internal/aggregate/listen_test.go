package aggregate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
)

// Stateless clients subscribe at all servers at once, and hear when one comes or goes.
func TestListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		modern := `{"tools":{"listChanged":true},"resources":{"subscribe":true}}`
		lists := map[string]string{"resources/list": `{"resources":[{"uri":"a:1"}]}`, "resources/templates/list": `{"resourceTemplates":[]}`}
		one := newActor(t, "one", era.LatestModern, modern, lists)
		two := newActor(t, "two", era.LatestModern, `{"prompts":{}}`, nil)
		s := play(t, false, one, two)
		bridgetest.Contains(t, s.call(era.Listen, `{"notifications":5}`), "-32602")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := s.up.Call(ctx, bridgetest.Request(t, s.from, s.client, era.Listen, `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:1","z:1"],"taskIds":["one:T","none"]}}`))
			done <- err
		}()
		c := one.Next()
		bridgetest.Contains(t, string(c.Whole()), `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:1"],"taskIds":["T"]}`)
		same(t, "before the acknowledgement", s.heard(), "")
		c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:1"],"taskIds":["T"]}}`))
		same(t, "the acknowledgement", s.heard(), era.Acknowledged+` {"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:1"],"taskIds":["one:T"]}}`)
		c.Back.Notify(bridgetest.Notification(t, "notifications/tasks", `{"taskId":"T","status":"working"}`))
		c.Back.Notify(bridgetest.Notification(t, "notifications/resources/updated", `{"uri":"a:1"}`))
		same(t, "the client got", s.heard(), "notifications/tasks {\"taskId\":\"one:T\",\"status\":\"working\"}\nnotifications/resources/updated {\"uri\":\"a:1\"}")
		// The server is lost and comes back: what it may have changed is reported.
		c.Fail(bridge.ErrLost)
		c = one.Next()
		c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, `{"notifications":{"toolsListChanged":true}}`))
		bridgetest.Contains(t, s.heard(), "notifications/tools/list_changed")
		// Another server comes, which is listened to as well, and one goes.
		three := newActor(t, "three", era.LatestModern, `{"tools":{"listChanged":true}}`, nil)
		s.serve(one, three)
		three.Next().Refuse(t, `{"code":-5,"message":"no"}`)
		bridgetest.Contains(t, s.heard(), "notifications/tools/list_changed")
		s.serve(three)
		<-c.Ctx.Done()
		cancel(bridge.ErrCancelled)
		if err := <-done; !errors.Is(err, bridge.ErrCancelled) {
			t.Error(err)
		}
		s.end()
	})
}
