package aggregate

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
)

// The sessions of principals are bounded, without refusing another one: the least recently used one is dropped.
func TestStatelessOfManyPrincipals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := one(of("one", "two")).Stateless()
		defer all.Close(context.Background())
		request := func(n int, method, params string) *bridge.Request {
			from := &bridge.Caller{Principal: fmt.Sprint("p", n), Revision: era.LatestModern, Capabilities: []byte("{}")}
			return &bridge.Request{From: from, Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)}
		}
		kept := func() int {
			synctest.Wait()
			all.mu.Lock()
			defer all.mu.Unlock()
			return len(all.each)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		ended := make(chan error, maxShared+2)
		listen := func(n int) {
			told := make(chan struct{})
			r := request(n, era.Listen, `{"notifications":{"toolsListChanged":true}}`)
			r.Back = acknowledged{told: told}
			wg.Go(func() {
				_, err := all.Call(ctx, r)
				ended <- err
			})
			<-told
		}
		listen(0)
		for i := range maxShared + 2 {
			m, err := all.Call(ctx, request(i, "tools/call", `{"name":"one__x"}`))
			if err != nil {
				t.Fatal(err)
			}
			bridgetest.Contains(t, bridgetest.Text(m), `"by":"one"`)
		}
		if n := kept(); n != maxShared {
			t.Errorf("%d are kept, want %d", n, maxShared)
		}
		for i := range maxShared + 1 { // in use, and one too many
			listen(1000 + i)
		}
		if synctest.Wait(); len(ended) > 0 {
			t.Errorf("a subscription has ended with %v", <-ended)
		}
		cancel(bridge.ErrCancelled)
		wg.Wait()
		if n := kept(); n > maxShared {
			t.Errorf("%d are kept, want %d", n, maxShared)
		}
	})
}
