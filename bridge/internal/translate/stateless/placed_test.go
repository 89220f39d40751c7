package stateless_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// With several instances, calls to a legacy server are made at the owner of their connections.
func TestPlaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := &places{}
		s := play(t, era.Rev20251125, `{}`, stateless.Options{Places: at, Owned: true})
		for range 2 {
			bridgetest.Contains(t, s.call("p", "tools/call", `{"name":"x"}`), `{"at":"the owner"}`)
		}
		bridgetest.Contains(t, s.call("p", era.Listen, `{"notifications":{}}`), `{"at":"the owner"}`)
		if synctest.Wait(); len(s.all) != 1 || s.all[0].Closed() != 1 || len(s.all[0].Got()) != 0 {
			t.Errorf("%d connections were made to find out what the server is", len(s.all))
		}
		// The owner makes them over its own connections, and gives these up with the ownership.
		r := bridgetest.Request(t, bridgetest.Caller(era.LatestModern, "p", able), bridge.Nobody{}, "tools/call", `{"name":"x"}`)
		done := make(chan string)
		here := func(r *bridge.Request) {
			m, err := s.pool.Here(context.Background(), r)
			done <- fmt.Sprint(bridgetest.Text(m), err)
		}
		go here(r)
		synctest.Wait()
		c := s.all[1].Next()
		c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
		state := statePattern.FindString(<-done)
		s.pool.ReleaseOwner("session key")
		if s.pool.Status().Found != 1 {
			t.Error("a connection was given up for a key that is not its own")
		}
		s.pool.ReleaseOwner(at.keys[0])
		if s.pool.Status().Found != 0 || s.pool.Status().Waiting != 1 {
			t.Errorf("Status() = %+v", s.pool.Status())
		}
		v := s.ask("p", able, "tools/call", `{"name":"x",`+state+`,"inputResponses":{"r1":{"roots":[]}}}`)
		synctest.Wait()
		c.Answer(t, `{"content":[]}`)
		bridgetest.Contains(t, v.answer(), `"content":[]`)
		s.end()

		// A modern server over HTTP is served where the request arrives.
		at.keys = nil
		s = play(t, era.LatestModern, `{}`, stateless.Options{Places: at, Owned: true})
		s.serve = func(*bridge.Request) *jsonrpc.Message { return bridgetest.Result(t, `{"here":1}`) }
		bridgetest.Contains(t, s.call("p", "tools/call", `{"name":"x"}`), `"here":1`)
		if len(at.keys) > 0 {
			t.Errorf("the owner of %q was asked", at.keys)
		}
		s.end()
	})
}

// A requestState of another instance is passed to it, if it is still there.
func TestPlacedResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := play(t, era.Rev20251125, `{}`, stateless.Options{Legacy: lower.Options{Instance: "first"}})
		v := first.ask("p", able, "tools/call", `{"name":"x"}`)
		c := first.all0().Next()
		c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
		params := `{"name":"x",` + statePattern.FindString(v.answer()) + `,"inputResponses":{"r1":{"roots":[]}}}`
		at := &places{}
		s := play(t, era.Rev20251125, `{}`, stateless.Options{Places: at, Owned: true, Legacy: lower.Options{Instance: "second"}})
		bridgetest.Contains(t, s.call("p", "tools/call", params), `{"at":"first"}`)
		at.gone = true
		bridgetest.Contains(t, s.call("p", "tools/call", params), "its instance of the bridge has ended")
		s.end()
		first.end()
	})
}
