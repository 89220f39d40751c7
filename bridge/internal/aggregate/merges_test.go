package aggregate

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Merged lists belong to their pages and to a principal, have bounds, and are forgotten when the servers change.
func TestMerges(t *testing.T) {
	page := func() *jsonrpc.Message { return jsonrpc.NewResult(nil, []byte(`{"tools":[]}`)) }
	m, one, other := newMerges(), page(), page()
	pages := func(a *jsonrpc.Message) []source { return []source{{Page: list.PageOf(a)}} }
	ann, bob := mergeKey{principal: "ann"}, mergeKey{principal: "bob"}
	m.keep(ann, merge{pages(one), []byte("a")})
	if got := m.known(ann, pages(one)); string(got) != "a" {
		t.Errorf("the list is %q", got)
	}
	if m.known(ann, pages(other)) != nil || m.known(bob, pages(one)) != nil || m.known(ann, nil) != nil {
		t.Error("another page or another principal gets the list")
	}
	for i := range 3 * maxMerges {
		m.keep(mergeKey{principal: fmt.Sprint(i)}, merge{pages(one), make([]byte, maxMergedBytes/8)})
	}
	if n := m.all.Len(); n != 8 || m.bytes != maxMergedBytes {
		t.Errorf("%d lists with %d bytes are kept", n, m.bytes)
	}
	if m.forget(); m.all.Len() != 0 || m.bytes != 0 || m.known(mergeKey{principal: fmt.Sprint(3*maxMerges - 1)}, pages(one)) != nil {
		t.Errorf("%d lists with %d bytes are left", m.all.Len(), m.bytes)
	}
	for _, a := range []*jsonrpc.Message{one, other} { // the pages are in use until here
		if len(a.Result) == 0 {
			t.Error("a page is gone")
		}
	}
}

// If two lists find a server dead at the same time, they leave it out once. Nothing waits for the server after
// the session ended.
func TestMergeLeavesOutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := of("one", "dead")
		var waiting, ever atomic.Int64
		all[1].Log = slog.New(slowLog{slog.DiscardHandler})
		all[1].Host = &host{await: func() (stop func()) {
			waiting.Add(1)
			ever.Add(1)
			return func() { waiting.Add(-1) }
		}}
		s := newSession(one(all), &bridge.Caller{Params: []byte(bridgetest.InitializeParams)}, bridge.Nobody{})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { s.members()[1].leaveOut(errors.New("no")) })
		}
		wg.Wait()
		_ = s.Close(t.Context())
		if n := waiting.Load(); n != 0 || ever.Load() != 1 {
			t.Errorf("%d wait for a server on behalf of sessions that have ended, of %d", n, ever.Load())
		}
	})
}
