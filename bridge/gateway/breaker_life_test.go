package gateway

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
)

// Where all servers are one, those who see that one is missing see it come
// back, though nobody calls it; and it is not started more often than the
// breaker has it.
func TestBreakerTogether(t *testing.T) {
	one, two := shop("one", map[string]string{"tools/list": toolList("a")}), shop("two", map[string]string{"tools/list": toolList("b")})
	var dead atomic.Bool
	dead.Store(true)
	two.before = func(context.Context, int) error {
		if dead.Load() {
			return &bridge.Error{Server: "two", Kind: bridge.ErrUnavailable, Public: "it could not be started"}
		}
		return nil
	}
	all(t, []stock{{name: "one", prefix: "one__", f: one}, {name: "two", prefix: "two__", f: two}}, func(t *testing.T, g *gateway) {
		s, st, _ := enter(t, g)
		for range 100 { // an hour, in which there are lists and calls
			time.Sleep(36 * time.Second)
			same(t, "tools", names(t, do(t, s, "1", "tools/list", `{}`)), []string{"one__a"})
			do(t, s, "1", "tools/call", `{"name":"two__b"}`)
		}
		st2 := g.Status()[1]
		if n := two.opened(); st2.Breaker == "closed" || st2.Usable && time.Now().Before(st2.RetryAt) || n > 5+10+30+2 {
			t.Errorf("%s; %d attempts in an hour", st2.Breaker, n)
		}
		st.take()
		dead.Store(false)
		time.Sleep(3 * time.Minute)
		bridgetest.Contains(t, strings.Join(st.take(), "\n"), "notifications/tools/list_changed")
		same(t, "tools", names(t, do(t, s, "1", "tools/list", `{}`)), []string{"one__a", "two__b"})
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"two__b"}`), `"by":"two"`)
		if st2 := g.Status()[1]; st2.Breaker != "closed" || !st2.Usable {
			t.Errorf("%+v", st2)
		}
	})
}

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
