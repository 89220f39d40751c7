package aggregate_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// The greeting unites what the servers can do. Servers that are slow or fail are left out, unless all are.
func TestInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, `{"tools":{"listChanged":false},"tasks":{},"experimental":{"a":{}}}`, map[string]string{"tools/list": `{"tools":[]}`})
		two := newActor(t, "two", era.Rev20251125, `{"prompts":{},"experimental":{"b":{}}}`, nil)
		two.set(func() { two.fresh = true })
		s := play(t, true, one, two)
		same(t, "the greeting", s.call("initialize", bridgetest.InitializeParams), `{"jsonrpc":"2.0","result":{"protocolVersion":"2025-11-25",`+
			`"capabilities":{"tools":{"listChanged":true},"experimental":{"a":{},"b":{}},"prompts":{"listChanged":true}},"serverInfo":{"name":"bridge"}}}`)
		same(t, "the known server got", one.lines(), "")
		s.end()

		// Nothing is known of a slow server: it may have everything, and the client hears when it comes.
		two.set(func() { two.fresh = true })
		serve := two.Serve
		two.Serve = nil
		s = play(t, true, one, two)
		began := time.Now()
		bridgetest.Contains(t, s.call("initialize", bridgetest.InitializeParams), `"logging":{}`)
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("the client waited for %v", waited)
		}
		two.Next().Answer(t, string(two.Upstream.Server().Result))
		synctest.Wait()
		s.end()

		// It fails after that: lists do without it.
		two.set(func() { two.fresh = true })
		s = play(t, true, one, two)
		s.call("initialize", bridgetest.InitializeParams)
		two.set(func() { two.fails = errors.New("it has died") })
		two.Next().Fail(two.Failing())
		synctest.Wait()
		two.Serve = serve
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"dev.mcp-bridge/missing":[{"server":"two"`)
		s.end()

		// All fail: so does initialize.
		for _, a := range []*actor{one, two} {
			a.set(func() { a.fresh, a.fails = true, errors.New(a.Name+" is down") })
		}
		s = play(t, true, one, two)
		bridgetest.Contains(t, s.call("initialize", bridgetest.InitializeParams), "is down")
		s.end()
	})
}

// When all servers fail, each client gets the error. A server without a kind of list gets no request for it.
func TestNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, `{"tools":{}}`, map[string]string{"prompts/list": `{"prompts":[]}`, "tools/list": `{"tools":[{"name":"a0 z9"}],"_meta":{"k":1}}`})
		silent := newActor(t, "silent", era.Rev20251125, `{}`, map[string]string{"prompts/list": `{"prompts":[]}`})
		for _, known := range []bool{true, false} { // that it fails
			one.set(func() { one.fresh, one.fails = true, errors.New("one is down") })
			if !known {
				one.set(func() { one.fails = nil })
				one.Serve = func(*bridge.Request) *jsonrpc.Message { return nil }
			}
			s := play(t, true, one)
			done := s.ask("initialize", bridgetest.InitializeParams)
			if !known {
				one.Next().Fail(errors.New("one is down"))
			}
			bridgetest.Contains(t, <-done, "one is down")
			s.end()
		}
		one.Serve = func(r *bridge.Request) *jsonrpc.Message { return one.serve(t, r) }
		one.set(func() { one.fresh, one.fails = false, nil })
		s := play(t, true, one, silent)
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"name":"one__a0_z9_`)
		one.Got()
		silent.Got()
		bridgetest.Contains(t, s.call("prompts/list", `{}`), `"prompts":[]`)
		same(t, "the server without prompts got", one.lines(), "")
		same(t, "the server that announces nothing got", silent.lines(), "prompts/list {}")
		s.end()
		s = play(t, false, one)
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"k":1`, `"io.modelcontextprotocol/serverInfo":{"name":"bridge"}`)
		s.end()
	})
}
