package aggregate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
)

// A list that takes too long leaves its server out. Its page comes with the next request, after a notification.
func TestSlowList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`})
		two := newActor(t, "two", era.Rev20251125, caps, nil)
		s := play(t, true, one, two)
		list := func(after time.Duration, want string) {
			t.Helper()
			began := time.Now()
			bridgetest.Contains(t, s.call("tools/list", `{}`), want)
			if waited := time.Since(began); waited != after {
				t.Errorf("the client waited for %v, want %v", waited, after)
			}
		}
		done := s.ask("tools/list", `{}`)
		c := two.Next()
		c.Opened()
		bridgetest.Contains(t, <-done, `"tools":[{"name":"one__x"}]`)
		list(250*time.Millisecond, `"tools":[{"name":"one__x"}]`) // it is not asked twice, nor waited for again
		c.Answer(t, `{"tools":[{"name":"late"}]}`)
		same(t, "the client got", s.heard(), "notifications/tools/list_changed ")
		list(0, `{"name":"two__late"}`)
		// It is slow: its last page stands in for the next one.
		done = s.ask("tools/list", `{}`)
		c = two.Next()
		c.Opened()
		bridgetest.Contains(t, <-done, `{"name":"two__late"}`)
		c.Answer(t, `{"tools":[{"name":"newer"}]}`)
		same(t, "the client got", s.heard(), "notifications/tools/list_changed ")
		list(0, `{"name":"two__newer"}`)
		// A change makes the stored page wrong.
		two.to.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", ""))
		done = s.ask("tools/list", `{}`)
		c = two.Next()
		c.Answer(t, `{"tools":[]}`)
		bridgetest.Lacks(t, <-done, "newer")
		s.end()
	})
}

// A list that took long is waited for only shortly the next time, with its last page in its place, until it is quick again
// or has changed.
func TestSlowAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, `{"tools":{}}`, map[string]string{"tools/list": `{"tools":[]}`})
		two := newActor(t, "two", era.Rev20251125, `{"tools":{}}`, nil)
		s := play(t, true, one, two)
		list := func(takes time.Duration, page string, want string, waits time.Duration) {
			t.Helper()
			began := time.Now()
			done := s.ask("tools/list", `{}`)
			c := two.Next()
			c.Opened()
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				time.Sleep(takes)
				c.Answer(t, `{"tools":[{"name":"`+page+`"}]}`)
			}()
			got := <-done
			if took := time.Since(began); took != waits || !strings.Contains(got, want) {
				t.Errorf("%s after %v, want %s after %v", got, took, want, waits)
			}
			<-answered
			synctest.Wait()
		}
		list(3*time.Second, "a", "two__a", 3*time.Second)
		list(3*time.Second, "a", "two__a", 250*time.Millisecond)
		same(t, "the client got", s.heard(), "") // it has that page
		list(100*time.Millisecond, "b", "two__b", 100*time.Millisecond)
		list(3*time.Second, "c", "two__c", 3*time.Second) // it was quick
		list(3*time.Second, "d", "two__c", 250*time.Millisecond)
		bridgetest.Contains(t, s.heard(), "notifications/tools/list_changed")
		two.to.Notify(bridgetest.Notification(t, "notifications/prompts/list_changed", ""))
		began := time.Now()
		bridgetest.Contains(t, s.call("tools/list", `{}`), "two__d") // which came late
		if took := time.Since(began); took != 0 {
			t.Errorf("a page that is there took %v", took)
		}
		two.to.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", ""))
		list(3*time.Second, "e", "two__e", 3*time.Second)
		s.end()
	})
}

// A page that comes late is shown once, and not if the list has changed since, nor does a request that its client cancelled
// go on.
func TestLatePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, `{"tools":{}}`, map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`})
		two := newActor(t, "two", era.Rev20251125, `{"tools":{}}`, nil)
		s := play(t, true, one, two)
		done := s.ask("tools/list", `{}`)
		c := two.Next()
		c.Opened()
		<-done
		two.to.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", ""))
		s.heard()
		c.Answer(t, `{"tools":[{"name":"stale"}]}`)
		same(t, "the client got", s.heard(), "")
		done = s.ask("tools/list", `{}`)
		c = two.Next()
		c.Opened()
		bridgetest.Lacks(t, <-done, "stale")
		c.Answer(t, `{"tools":[{"name":"late"}]}`)
		bridgetest.Contains(t, s.heard(), "notifications/tools/list_changed")
		bridgetest.Contains(t, s.call("tools/list", `{}`), "two__late")

		// One that fails late is left out of the next list.
		done = s.ask("tools/list", `{}`)
		c = two.Next()
		c.Opened()
		<-done
		c.Fail(&bridge.Error{Kind: bridge.ErrLost, Public: "it died"})
		synctest.Wait()
		two.Got()
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"why":"it died"`)
		same(t, "the server that failed got", two.lines(), "")
		two.told()
		s.heard()

		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := s.up.Call(ctx, bridgetest.Request(t, s.from, s.client, "tools/list", `{}`))
			ended <- err
		}()
		c = two.Next()
		cancel(bridge.ErrCancelled)
		if err := <-ended; !errors.Is(err, bridge.ErrCancelled) {
			t.Errorf("cancelled: %v", err)
		}
		<-c.Ctx.Done()
		s.end()
	})
}
