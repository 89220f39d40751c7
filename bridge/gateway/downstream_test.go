package gateway_test

import (
	"testing"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

func TestCalls(t *testing.T) {
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	var c gateway.Calls
	if !closed(c.None()) {
		t.Error("calls are under way that never began")
	}
	c.Add(1)
	c.Add(1)
	one, other := c.None(), c.None()
	c.Add(-1)
	if closed(one) || closed(other) {
		t.Error("a call under way was not waited for")
	}
	c.Add(-1)
	if !closed(one) || !closed(other) {
		t.Error("who waits is not told that no call is under way")
	}
}

func TestBatch(t *testing.T) {
	b := gateway.Batch{}
	for _, tc := range []struct{ text, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"a"}`, ""},
		{`{"jsonrpc":"2.0","id":2,"method":"a"}`, ""},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, ""},
		{`{"jsonrpc":"2.0","method":"a"}`, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"b"}`, "this id stands twice in the batch"},
		{`{"jsonrpc":"2.0","id":"1","method":"b"}`, ""},
		{`{"jsonrpc":"2.0","id":3,"method":"initialize"}`, "initialize cannot be part of a batch"},
	} {
		m, err := jsonrpc.Parse([]byte(tc.text))
		if err != nil {
			t.Fatal(err)
		}
		if got := b.Fault(m); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.text, got, tc.want)
		}
	}
}

func TestUnread(t *testing.T) {
	const size = 1000
	out := replay.New(gateway.ReplayLimits(size))
	defer out.Close()
	for n := 0; n <= 4; n++ {
		if gateway.Unread(out, size) {
			t.Errorf("%d messages are too many", n)
		}
		if err := out.Append(replay.Event{Data: make([]byte, size), Must: true}); err != nil {
			t.Fatal(err)
		}
	}
	if !gateway.Unread(out, size) {
		t.Error("five messages are not too many")
	}
}
