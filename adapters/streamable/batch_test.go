package streamable

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// The messages of a batch count among the bytes in flight for as long as one of
// its calls is: a client must not get around the limit with arrays. A batch has 100 messages at most.
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
		half := `"` + strings.Repeat("x", limit/2) + `"`
		a := c.post(`[{"jsonrpc":"2.0","id":1,"method":"ping"},` + call("2", "wait", half) + `]`)
		synctest.Wait()
		if free() {
			t.Error("a call of a batch is under way and does not count")
		}
		if r := c.call("3", "wait", half).Wait(); r.Status() != 503 {
			t.Errorf("what is too much beside it: %d %s, want 503", r.Status(), r.Body())
		}
		r.s.Answer(`{"done":true}`)
		if a.Wait(); !strings.Contains(a.Body(), `"id":2,"result":{"done":true}`) || !strings.Contains(a.Body(), `"id":1,"result":{}`) {
			t.Errorf("the batch was answered %s", a.Body())
		}
		if synctest.Wait(); !free() {
			t.Error("the batch counts after its last answer")
		}
		for n, status := range map[int]int{100: 200, 101: 400} {
			rest := strings.Repeat(`,{"jsonrpc":"2.0","method":"x"}`, n-1)
			if r := c.post(`[{"jsonrpc":"2.0","id":1,"method":"ping"}` + rest + "]").Wait(); r.Status() != status {
				t.Errorf("a batch of %d = %d, want %d", n, r.Status(), status)
			}
		}
	})
}

// A cancellation within a batch reaches a call before it, as it does over other transports. What has no answer then
// is accepted without a body.
func TestBatchCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &wiretest.Server{}, gateway.Options{}, Options{})
		c := r.begin("2025-03-26")
		const cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`
		if r := c.post("[" + call("2", "wait", "1") + "," + cancelled + "]").Wait(); r.Status() != 202 || r.Body() != "" {
			t.Errorf("the cancelled call was answered %d %s", r.Status(), r.Body())
		}
		if r := c.post(`[{"jsonrpc":"2.0","id":3,"method":"ping"},` + call("2", "wait", "1") + "," + cancelled + "]").Wait(); r.Status() != 200 || r.Body() != `[{"jsonrpc":"2.0","id":3,"result":{}}]` {
			t.Errorf("the batch was answered %d %s", r.Status(), r.Body())
		}
	})
}
