package limits

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A call gives its slot back while a person or a model has to answer a question, and a subscription when it is acknowledged.
// Requests that set or end something need none.
func TestSlotsGivenBack(t *testing.T) {
	ask := func(t *testing.T, to bridge.Client, method string) {
		to.Ask(bridgetest.Question(t, method, "{}"), func(*jsonrpc.Message) {})
	}
	refusing := &bridgetest.Client{Reply: func(*jsonrpc.Message) *jsonrpc.Message {
		return bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}`)
	}}
	for _, tc := range []struct {
		name          string
		method        string
		back          *bridgetest.Client
		does          func(t *testing.T, call, rest bridge.Client)
		taken, parked int
	}{
		{"a call", "tools/call", &bridgetest.Client{}, nil, 1, 0},
		{"a call of nobody's", "tools/call", nil, nil, 1, 0},
		{"a level", "logging/setLevel", &bridgetest.Client{}, nil, 0, 0},
		{"a question about it", "tools/call", &bridgetest.Client{}, func(t *testing.T, call, _ bridge.Client) { ask(t, call, "elicitation/create") }, 0, 1},
		{"a question for roots", "tools/call", &bridgetest.Client{}, func(t *testing.T, call, _ bridge.Client) { ask(t, call, "roots/list") }, 1, 0},
		{"a question that is refused at once", "tools/call", refusing, func(t *testing.T, call, _ bridge.Client) { ask(t, call, "elicitation/create") }, 1, 0},
		{"a question that names no call", "tools/call", &bridgetest.Client{}, func(t *testing.T, _, rest bridge.Client) { ask(t, rest, "sampling/createMessage") }, 0, 1},
		{"progress", "tools/call", &bridgetest.Client{}, func(t *testing.T, call, _ bridge.Client) {
			call.Notify(bridgetest.Notification(t, era.Acknowledged, "{}"))
		}, 1, 0},
		{"a subscription", era.Listen, &bridgetest.Client{}, nil, 1, 0},
		{"a subscription with a notification", era.Listen, &bridgetest.Client{}, func(t *testing.T, call, _ bridge.Client) {
			call.Notify(bridgetest.Notification(t, "notifications/x", "{}"))
		}, 1, 0},
		{"an acknowledged subscription", era.Listen, &bridgetest.Client{}, func(t *testing.T, call, _ bridge.Client) {
			call.Notify(bridgetest.Notification(t, era.Acknowledged, "{}"))
		}, 0, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(Options{Calls: 1, Wait: time.Second})
			up := bridgetest.NewUpstream(era.Rev20251125, "{}")
			var rest bridgetest.Client
			bounded, client := c.of.Wrap(up), c.of.Client(&rest)
			var back bridge.Client
			if tc.back != nil {
				back = tc.back
			}
			done := make(chan error)
			r := bridgetest.Request(t, bridgetest.Caller(era.Rev20251125, "", "{}"), back, tc.method, "{}")
			go func() {
				_, err := bounded.Call(t.Context(), r)
				done <- err
			}()
			call := up.Next()
			if (call.Back == nil) != (tc.back == nil) {
				t.Errorf("%s: the call has the client %v", tc.name, call.Back)
			}
			if tc.does != nil {
				tc.does(t, call.Back, client)
				if len(tc.back.Got())+len(rest.Got()) != 1 {
					t.Errorf("%s: the client got nothing", tc.name)
				}
			}
			if q := c.g; q.taken != tc.taken || q.parked != tc.parked {
				t.Errorf("%s: %d slots are taken, and %d given back", tc.name, q.taken, q.parked)
			}
			call.Answer(t, "{}")
			if err := <-done; err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			c.empty(t)
		})
	}
}
