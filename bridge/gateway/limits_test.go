package gateway

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// grants lets principals of these names use everything.
func grants(names ...string) map[string]filter.Grant {
	all := map[string]filter.Grant{}
	for _, n := range names {
		all[n] = filter.Grant{}
	}
	return all
}

// limited runs f in a bubble with a bridge of these options, and checks that
// nothing is left of its limits.
func limited(t *testing.T, o Options, f func(t *testing.T, g *gateway)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o.Log = slog.New(slog.DiscardHandler)
		g := newGateway(o)
		f(t, g)
		g.Close(context.Background())
		for _, st := range g.Status() {
			if st.Slots+st.Queued+st.Slotless != 0 {
				t.Errorf("left at %s: %d places, %d in the queue, %d that ask", st.Name, st.Slots, st.Queued, st.Slotless)
			}
		}
		if !g.quota.Idle() {
			t.Error("a caller has something left")
		}
	})
}

func tool(name string) string { return `{"name":"` + name + `"}` }

// What one principal may have, and that the others are not concerned.
func TestDoor(t *testing.T) {
	f := &fake{serve: func(_ *fakeWire, m *jsonrpc.Message) bool { return m.Method == "slow" || m.Name() == "slow" }}
	o := Options{Servers: []ServerOptions{{Name: "fake", Adapter: f}}, Grants: grants("p", "q"), Common: Common{PerPrincipal: limits.PerPrincipal{Sessions: 2, Calls: 3, Rate: limits.Rate{PerSecond: 0.1, Burst: 11}}}}
	limited(t, o, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "p")
		second, _ := begin(t, g, "p")
		_, a, err := initialize(t, g, "p", bridgetest.InitializeParams)
		if !errors.Is(err, bridge.ErrOverloaded) {
			t.Errorf("the third session: %v", err)
		}
		bridgetest.Contains(t, a, "one caller may have 2 sessions open (per_principal: sessions); end those that are not used", `"data":{"bridge":"overloaded","retryAfterMs":1000}`)
		other, _ := begin(t, g, "q")

		// Calls of its sessions and of its clients without sessions count together.
		start(t, s, `{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		start(t, second, `{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		from := &bridge.Caller{Principal: "p", Revision: era.LatestModern, Capabilities: []byte(`{"extensions":{"x-vendor.new":{}}}`), Params: []byte(bridgetest.InitializeParams)}
		modern := func(ctx context.Context) (string, error) {
			m, err := g.Call(ctx, bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}`), Stateless{Server: "fake", From: from, Back: &stream{}})
			return bridgetest.Text(m), err
		}
		go func() {
			_, err := modern(ctx)
			done <- err
		}()
		synctest.Wait()
		const want = "one caller may have 3 calls under way (per_principal: calls)"
		bridgetest.Contains(t, do(t, s, "2", "x", `{}`), want, `"data":{"bridge":"overloaded","retryAfterMs":1000}`)
		got, err := modern(t.Context())
		if bridgetest.Contains(t, got, want); !errors.Is(err, bridge.ErrOverloaded) {
			t.Error(err)
		}
		bridgetest.Contains(t, do(t, s, "3", "ping", `{}`), `"result"`)
		bridgetest.Contains(t, do(t, other, "2", "x", `{}`), `"result"`)
		cancel()
		if err := <-done; !errors.Is(err, bridge.ErrCancelled) {
			t.Error(err)
		}
		bridgetest.Contains(t, do(t, s, "2", "x", `{}`), `"result"`)

		second.End(bridge.ErrEnded)
		synctest.Wait()
		third, _ := begin(t, g, "p")
		third.End(bridge.ErrEnded)
		for range 3 {
			bridgetest.Contains(t, do(t, s, "2", "x", `{}`), `"result"`)
		}
		bridgetest.Contains(t, do(t, s, "2", "x", `{}`), "the bridge may be called 6/m burst 11 by one caller (per_principal: rate)", `"data":{"bridge":"rate_limited","retryAfterMs":10000}`)
		if r := g.Totals().Refused; r["sessions"] != 1 || r["calls"] != 2 || r["rate"] != 1 {
			t.Errorf("refused: %v", r)
		}
	})
}

// Who is added has a share of the connections of each server at once. What a principal's clients without sessions do not
// use makes room for what they need, and nothing of others does.
func TestShares(t *testing.T) {
	limited(t, Options{Servers: []ServerOptions{{Name: "fake", Adapter: &fake{}, ServerSettings: ServerSettings{MaxChildren: 4}}}, Grants: grants("p")}, func(t *testing.T, g *gateway) {
		if err := g.Apply(Change{Names: []string{"fake"}, Settings: &Settings{Grants: grants("p", "q")}}); err != nil {
			t.Fatal(err)
		}
		call := func(principal string, n int) string {
			return visitor{principal: principal, caps: capsOf(n)}.call(t, g, "tools/call", `"name":"x"`)
		}
		bridgetest.Contains(t, call("q", 0), `"result"`)
		for n := range 6 {
			bridgetest.Contains(t, call("p", n), `"result"`)
			time.Sleep(time.Second)
		}
		if of := g.table.Load().servers[0].laneShares; of.Has("p") != 3 || of.Has("q") != 1 {
			t.Errorf("connections: %d and %d", of.Has("p"), of.Has("q"))
		}
		for range 3 {
			begin(t, g, "p")
		}
		_, a, err := initialize(t, g, "p", bridgetest.InitializeParams)
		if bridgetest.Contains(t, a, "one caller has too many connections to it", `"bridge":"overloaded"`); err == nil {
			t.Error("one caller has all connections")
		}
		if _, a, err := initialize(t, g, "q", bridgetest.InitializeParams); err != nil {
			t.Errorf("another caller: %s", a)
		}
	})
}
