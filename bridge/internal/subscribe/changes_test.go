package subscribe_test

import (
	"fmt"
	"strings"
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
