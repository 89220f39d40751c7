package gateway

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// faulty is a server whose calls of tools end as one says: without an answer
// when it returns an error. It counts what reaches it.
type faulty struct {
	fake
	outcome func(n int) error // of the nth call of a tool; nil means that all are answered
	calls   atomic.Int64
	pings   atomic.Int64
	mute    atomic.Bool // pings are not answered
	closed  atomic.Bool // no connection can be opened
}

func newFaulty(outcome func(n int) error) *faulty {
	f := &faulty{outcome: outcome}
	f.before = func(context.Context, int) error {
		if f.closed.Load() {
			return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it could not be started"}
		}
		return nil
	}
	f.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
		switch m.Method {
		case "ping":
			f.pings.Add(1)
			return f.mute.Load()
		case "tools/call":
			n := f.calls.Add(1)
			if f.outcome == nil {
				return false
			}
			if err := f.outcome(int(n)); err != nil {
				id, _ := strconv.ParseInt(string(m.ID), 10, 64)
				w.Abort(id, err)
				return true
			}
		}
		return false
	}
	return f
}

func failure(kind error) *bridge.Error {
	return &bridge.Error{Server: "fake", Kind: kind, Public: "it failed"}
}

func always(err error) func(int) error { return func(int) error { return err } }

func state(g *gateway) Status { return g.Status()[0] }

// While the server is left alone no connection is opened either, whoever wants
// one, and however its clients share them (stacklok/toolhive#5861).
func TestBreakerGatesOpenings(t *testing.T) {
	for _, share := range []Share{ShareSession, SharePrincipal, ShareCall, ShareAll} {
		t.Run(string(share), func(t *testing.T) {
			f := newFaulty(nil)
			f.closed.Store(true)
			run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: share, Breaker: breaker.Options{Failures: 3}}}, func(t *testing.T, g *gateway) {
				for i := 0; state(g).Breaker == "closed"; i++ {
					if i > 20 {
						t.Fatal("never opened")
					}
					_, _, _ = initialize(t, g, fmt.Sprint("p", i), bridgetest.InitializeParams)
				}
				if n := f.opened(); n != 3 {
					t.Errorf("opened after %d attempts", n)
				}
				var wg sync.WaitGroup
				for i := range 50 {
					wg.Go(func() {
						switch {
						case i%2 == 0:
							_, a, err := initializeAs(t, g, fmt.Sprint("id", i), fmt.Sprint("p", i))
							if !errors.Is(err, bridge.ErrOpen) || !strings.Contains(a, "circuit_open") {
								t.Errorf("initialize: %s, %v", a, err)
							}
						default:
							if got := (visitor{principal: fmt.Sprint("p", i)}).call(t, g, "tools/call", `"name":"x"`); !strings.Contains(got, "circuit_open") {
								t.Errorf("a client without a session: %s", got)
							}
						}
					})
				}
				wg.Wait()
				if n := f.opened(); n != 3 {
					t.Errorf("%d connections were opened while the server was left alone", n-3)
				}
			})
		})
	}
}

func initializeAs(t testing.TB, g *gateway, id, principal string) (*sitting, string, error) {
	s, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":"init","method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{Server: "fake", ID: id, Principal: principal})
	return s, bridgetest.Text(m), err
}

// Await reports a sign of life of any connection, although an open circuit keeps calls from the server.
func TestBreakerAwait(t *testing.T) {
	f := newFaulty(nil)
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: ShareAll, Breaker: breaker.Options{Failures: 2}}, Idle: -1}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		f.outcome = func(int) error { return failure(bridge.ErrUnavailable) }
		f.mute.Store(true)
		f.closed.Store(true)
		for range 2 {
			do(t, s, "1", "tools/call", `{"name":"x"}`)
		}
		var told atomic.Int64
		stop := g.table.Load().servers[0].health.Await(s.caller, func() { told.Add(1) })
		defer stop()
		time.Sleep(10 * time.Minute)
		if n, p := told.Load(), f.pings.Load(); n != 0 || p < 4 || p > 10 {
			t.Errorf("told %d times; %d pings in 10 min", n, p)
		}
		f.mute.Store(false)
		time.Sleep(3 * time.Minute)
		if told.Load() != 1 || state(g).Breaker != "closed" || f.open() != 1 {
			t.Errorf("told %d times; %s; %d connections", told.Load(), state(g).Breaker, f.opened())
		}
	})
}
