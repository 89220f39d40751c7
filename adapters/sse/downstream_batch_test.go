package sse

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// The messages of a batch count among the bytes in flight for as long as one of
// them is used: a client must not get around the limit with arrays.
func TestBatchCounts(t *testing.T) {
	const limit = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &wiretest.Server{}, gateway.Options{MaxBytes: limit}, Options{})
		free := func() bool { // reports that nothing is in flight
			ok := r.g.Room("").Reserve(limit)
			if ok {
				r.g.Room("").Return(limit)
			}
			return ok
		}
		c := r.begin("2025-03-26")
		defer c.Leave()
		c.post(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{"x":"`+strings.Repeat("x", limit/2)+`"}}}]`, 202)
		if free() {
			t.Error("a call of a batch is under way and does not count")
		}
		c.post(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"wait","arguments":{"x":"`+strings.Repeat("x", limit/2)+`"}}}`, 503)
		r.s.Answer(`{}`)
		c.expect(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		if !free() {
			t.Error("the batch counts after its last answer")
		}
	})
}

// A9: of two requests with the same id in one batch, the later one is refused.
func TestBatchSameID(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		c := r.begin("2025-03-26")
		defer c.Leave()
		const call = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":%q}}`
		c.post("["+strings.ReplaceAll(call, "%q", "1")+","+strings.ReplaceAll(call, "%q", "2")+`,{"jsonrpc":"2.0","id":"7","method":"ping"}]`, 202)
		var got []string
		for _, e := range c.Events()[2:] {
			got = append(got, e.Data)
		}
		slices.Sort(got)
		if s := strings.Join(got, "\n"); s != `{"jsonrpc":"2.0","id":"7","result":{}}
{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"this id stands twice in the batch"}}
{"jsonrpc":"2.0","id":7,"result":{"echo":1}}` {
			t.Errorf("got\n%s", s)
		}
	})
}

// A batch that is refused says why: it is too large, or the revision has none.
func TestBatchRefused(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		for _, test := range []struct{ revision, batch, want string }{
			{"2025-03-26", "[" + strings.Repeat(ping+",", 100) + ping + "]", "a batch has 1 to 100 messages"},
			{"2025-03-26", "[]", "a batch has 1 to 100 messages"},
			{"2025-06-18", "[" + ping + "]", "batches do not exist in revision 2025-06-18: send one message in each POST"},
		} {
			c := r.begin(test.revision)
			if r := c.Do("POST", c.endpoint, test.batch).Wait(); r.Status() != 400 || strings.TrimSpace(r.Body()) != test.want {
				t.Errorf("%.40s: %d %s, want 400 %s", test.batch, r.Status(), r.Body(), test.want)
			}
			c.Leave()
		}
	})
}
