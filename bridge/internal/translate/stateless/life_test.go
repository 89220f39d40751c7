package stateless_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A server that came back as another, or not at all, has its connection dropped.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, stateless.Options{})
		s.serve = func(*bridge.Request) *jsonrpc.Message { return bridgetest.Result(t, `{}`) }
		s.call("", "tools/call", `{"name":"x"}`)
		bridgetest.Contains(t, s.call("", "tools/call", `{"name":"x","requestState":"s"}`), "not from this instance")
		s.all[0].rest.Gone(bridge.ErrReplaced)
		synctest.Wait()
		s.call("", "tools/call", `{"name":"x"}`)
		if len(s.all) != 2 || s.all[0].Closed() != 1 {
			t.Errorf("%d connections; the first was closed %d times", len(s.all), s.all[0].Closed())
		}
		// A server that is found to be another one when a call comes: the call is made once, over a new connection.
		s.opens = func(_ context.Context, c *connection) error {
			if c.n > 2 {
				return nil
			}
			c.rest.Gone(bridge.ErrReplaced)
			return bridge.ErrReplaced
		}
		bridgetest.Contains(t, s.call("", "tools/call", `{"name":"again"}`), `"complete"`)
		if got := strings.Join(s.all[len(s.all)-1].Got(), "\n"); strings.Count(got, "again") != 1 {
			t.Errorf("the server got %s", got)
		}
		s.opens = func(context.Context, *connection) error { return bridge.ErrUnavailable }
		s.stale = "tools/list" // an old list is better than none
		bridgetest.Contains(t, s.call("", "tools/list", `{}`), `"complete"`)
		bridgetest.Contains(t, s.call("", "prompts/list", `{}`), "error: ")
		s.opens = nil
		// Cached lists and what is known of the server need no connection.
		n := s.greetings
		s.held = "tools/list"
		s.call("", "tools/list", `{}`)
		bridgetest.Contains(t, s.call("", "server/discover", `{}`), `"supportedVersions"`)
		if s.greetings != n {
			t.Errorf("%d more handshakes", s.greetings-n)
		}
		s.end()

		// Calls with processes of their own share the first handshake.
		s = play(t, era.Rev20251125, `{}`, stateless.Options{Sharing: stateless.EachCall})
		s.serve = func(*bridge.Request) *jsonrpc.Message { return bridgetest.Result(t, `{}`) }
		for range 3 {
			bridgetest.Contains(t, s.call("", "tools/call", `{"name":"x"}`), "complete")
		}
		if s.greetings != 1 || len(s.all) != 3 {
			t.Errorf("%d handshakes of %d connections", s.greetings, len(s.all))
		}
		s.all[2].rest.Gone(bridge.ErrReplaced)
		if s.call("", "tools/call", `{"name":"x"}`); s.greetings != 2 {
			t.Errorf("%d handshakes with another server", s.greetings-1)
		}
		s.end()

		// So do those that come meanwhile, unless the client whose call makes the handshake leaves.
		s = play(t, era.Rev20251125, `{}`, stateless.Options{Sharing: stateless.EachCall, Budget: budget(100)})
		s.serve = func(*bridge.Request) *jsonrpc.Message { return bridgetest.Result(t, `{}`) }
		var fails error
		s.opens = func(ctx context.Context, _ *connection) error {
			select {
			case <-time.After(time.Second):
				return fails
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		fails = bridge.ErrUnavailable
		crowd := func() (all []*visit) {
			for range 20 {
				all = append(all, s.ask("", `{}`, "tools/call", `{"name":"x"}`))
				synctest.Wait()
			}
			return all
		}
		for _, v := range crowd() {
			bridgetest.Contains(t, v.answer(), "error: ")
		}
		fails = nil
		before := s.greetings
		all := crowd()
		all[0].cancel(bridge.ErrCancelled)
		for i, v := range all {
			if got := v.answer(); strings.Contains(got, "complete") != (i > 0) {
				t.Errorf("call %d: %s", i, got)
			}
		}
		if before != 1 || s.greetings != 3 {
			t.Errorf("%d handshakes that fail, then %d", before, s.greetings-before)
		}
		s.end()
	})
}
