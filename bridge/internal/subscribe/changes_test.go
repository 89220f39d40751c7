package subscribe_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// When a server ends a subscription, the waiting notifications are sent first.
func TestChangesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, there := range []bool{true, false} {
			var got []string
			c := subscribe.NewChanges(func(m *jsonrpc.Message) { got = append(got, string(m.Params)) })
			for i := range 3 {
				m, _ := jsonrpc.Parse([]byte(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"n":%d}}`, i)))
				c.Notify(subscribe.Changed(m), m)
			}
			c.End(there)
			time.Sleep(time.Second)
			if s := strings.Join(got, ""); there && s != `{"n":0}{"n":2}` || !there && s != `{"n":0}` {
				t.Errorf("there %t: heard %s", there, s)
			}
		}
	})
}

// Of a storm of changes a client hears the first at once, then one in 100 ms, and the last. Silence is forgotten.
func TestChangesStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards got
		var got []string
		c := subscribe.NewChanges(func(m *jsonrpc.Message) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, string(m.Params))
		})
		take := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			all := got
			got = nil
			return all
		}
		say := func(n int) {
			for _, what := range []string{"resources/updated", "tools/list_changed"} {
				m, _ := jsonrpc.Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/%s","params":{"uri":"a:","n":%d}}`, what, n))
				c.Notify(subscribe.Changed(m), m)
			}
		}
		const storm, every, span = 2000, time.Millisecond, 100 * time.Millisecond
		if say(0); len(take()) != 2 {
			t.Error("the first changes are not told at once")
		}
		for n := range storm {
			say(n + 1)
			time.Sleep(every)
		}
		time.Sleep(span)
		all := take()
		if most, last := 2*int(storm*every/span+1), fmt.Sprintf(`"n":%d}`, storm); len(all) > most || len(all) < most-4 || !strings.HasSuffix(all[len(all)-1], last) || !strings.HasSuffix(all[len(all)-2], last) {
			t.Errorf("heard %d times, at last %q", len(all), all[max(0, len(all)-2):])
		}
		time.Sleep(span)
		if say(-1); len(take()) != 2 {
			t.Error("after silence, changes are not told at once")
		}
		c.End(true)
	})
}
