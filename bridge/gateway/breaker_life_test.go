package gateway

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
)

// Who waits for a server that is left alone although it has connections is told
// when one of these gives a sign of life.
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
