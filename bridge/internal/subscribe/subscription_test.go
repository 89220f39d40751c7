package subscribe_test

import (
	"slices"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// told is a Client that records notifications.
type told struct {
	bridge.Nobody
	all []string
}

func (t *told) Notify(m *jsonrpc.Message) { t.all = append(t.all, bridgetest.Text(m)) }

// The acknowledgement comes first.
func TestListener(t *testing.T) {
	c := &told{}
	l := subscribe.NewListener(c, subscribe.Wanted{Changes: map[string]bool{list.Tools.Changed(): true}, URIs: []string{"a"}})
	l.Wants.Missed(l.Notify)
	if len(c.all) > 0 {
		t.Errorf("told %q before the acknowledgement", c.all)
	}
	l.Acknowledge(&l.Wants)
	l.Notify(subscribe.Updated("b"))
	want := []string{
		`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a"]}}}`,
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
		`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a"}}`,
		`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"b"}}`,
	}
	if !slices.Equal(c.all, want) {
		t.Errorf("told %q, want %q", c.all, want)
	}
}
