package gateway

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/filter"
)

// What a principal has ends when its key is taken away, whatever state it is in,
// and is reported as refused; another's goes on.
func TestRevoke(t *testing.T) {
	f := inquisitive()
	var ready chan struct{}
	f.before = func(ctx context.Context, n int) error {
		if n < 5 {
			return nil
		}
		select { // an opening that takes its time
		case <-ready:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ready = make(chan struct{})
		l := &ledger{}
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: f}}, Log: slog.New(slog.DiscardHandler), Watch: l.take,
			Grants: map[string]filter.Grant{"p": {}, "q": {}}})
		defer g.Close(context.Background())
		const asks, hangs = `"name":"ask","arguments":{}`, `"name":"slow"`
		var states []string
		var guests []*visiting
		var sessions []*sitting
		var calls []*pendingCall
		for _, principal := range []string{"p", "q"} {
			v := visitor{principal: principal}
			states = append(states, stateOf(t, v.call(t, g, "tools/call", asks)))
			guests = append(guests, v.ask(t, g, "1", "tools/call", hangs))
			s, _ := begin(t, g, principal)
			sessions = append(sessions, s)
			calls = append(calls, start(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}`))
		}
		opened := make(chan error)
		go func() {
			_, _, err := initialize(t, g, "p", bridgetest.InitializeParams)
			opened <- err
		}()
		l.got()

		g.Revoke("p")
		if err := <-opened; !errors.Is(err, bridge.ErrRevoked) {
			t.Errorf("a session that was being opened: %v", err)
		}
		const reason = `"code":-32600,"message":"the caller's key is no longer valid","data":{"bridge":"unauthorized"}`
		synctest.Wait()
		for i, gone := range []bool{true, false} {
			if guests[i].over() != gone || calls[i].over() != gone {
				t.Fatalf("calls of %d have ended: %v, %v, want %v", i, guests[i].over(), calls[i].over(), gone)
			}
		}
		bridgetest.Contains(t, guests[0].answer, reason)
		bridgetest.Contains(t, calls[0].answer, reason)
		l.want(t, "revoked", `"fake" initialize: denied`, `"fake" tools/call slow: denied`, `"fake" tools/call slow: denied`)
		if st := g.Status()[0]; st.Parked != 1 {
			t.Errorf("%d calls are parked, want 1", st.Parked)
		}

		bridgetest.Contains(t, visitor{principal: "p"}.call(t, g, "tools/call", hangs), reason)
		if _, a, err := initialize(t, g, "p", bridgetest.InitializeParams); !errors.Is(err, bridge.ErrRevoked) || !strings.Contains(a, reason) {
			t.Errorf("a new session: %s, %v", a, err)
		}
		bridgetest.Contains(t, do(t, sessions[1], "2", "tools/call", tool("x")), `"result"`)

		g.Restore("p")
		close(ready)
		retry := `"inputResponses":{"r1":{"action":"cancel"}},"requestState":"`
		bridgetest.Contains(t, visitor{principal: "p"}.call(t, g, "tools/call", asks+","+retry+states[0]+`"`), `"error"`)
		bridgetest.Contains(t, visitor{principal: "q"}.call(t, g, "tools/call", asks+","+retry+states[1]+`"`), `"content":[]`)
		bridgetest.Contains(t, visitor{principal: "p"}.call(t, g, "tools/call", `"name":"x"`), `"result"`)
		if s, _ := begin(t, g, "p"); s.Principal() != "p" {
			t.Error("no session")
		}
		for i := range guests[1:] {
			guests[i+1].cancel(bridge.ErrCancelled)
			<-guests[i+1].done
		}
		for _, principal := range []string{"p", "q"} {
			if calls := g.revoked.Revoke(principal); calls != 0 {
				t.Errorf("%d calls of %s are left", calls, principal)
			}
		}
	})
}
