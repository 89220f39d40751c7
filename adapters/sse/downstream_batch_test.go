package sse

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/adapters/wiretest"
	"github.com/mcp-bridge/bridge/bridge"
)

// The messages of a batch count among the bytes under way for as long as one of
// them is used: a client must not get around the limit with arrays.
func TestBatchCounts(t *testing.T) {
	const limit = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &wiretest.Server{}, bridge.Options{MaxBytes: limit}, Options{})
		free := func() bool { // whether nothing is under way
			ok := r.b.Reserve(limit)
			if ok {
				r.b.Return(limit)
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
