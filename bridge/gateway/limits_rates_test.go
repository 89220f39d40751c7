package gateway

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

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

// What is refused because it comes too often, in which words, and when it is
// not refused any more.
func TestRateRefusals(t *testing.T) {
	perTool := map[string]limits.Rate{"index": {PerSecond: 1.0 / 3600, Burst: 1}, "search_*": {PerSecond: 0.5, Burst: 2}, "search_all": {PerSecond: 0.25, Burst: 1}}
	for _, test := range []struct {
		name      string
		principal string
		o         limits.Options
		door      limits.Rate
		calls     []string // tools, all but the last of which may be called
		want      string   // of the last
		after     time.Duration
	}{
		{"rate", "p", limits.Options{Rate: limits.Rate{PerSecond: 5, Burst: 2}}, limits.Rate{}, []string{"a", "b", "c"},
			"server fake: it may be called 5/s burst 2 by one caller (limits: rate); try again in 200 ms", 200 * time.Millisecond},
		{"everybody", "", limits.Options{Rate: limits.Rate{PerSecond: 10, Burst: 1}}, limits.Rate{}, []string{"a", "b"},
			"server fake: it may be called 10/s burst 1 (limits: rate); try again in 100 ms", 100 * time.Millisecond},
		{"tool", "p", limits.Options{Tools: perTool}, limits.Rate{}, []string{"other", "index", "other", "index"},
			"server fake: tool index may be called 1/h by one caller (limits: tools: index); try again in 1h0m0s", time.Hour},
		{"pattern", "p", limits.Options{Tools: perTool}, limits.Rate{}, []string{"search_a", "search_b", "search_c"},
			"server fake: tools search_* may be called 30/m burst 2 by one caller (limits: tools: search_*); try again in 2 s", 2 * time.Second},
		{"the strictest of several", "p", limits.Options{Tools: perTool}, limits.Rate{}, []string{"search_all", "search_all"},
			"server fake: tool search_all may be called 15/m by one caller (limits: tools: search_all); try again in 4 s", 4 * time.Second},
		{"door", "p", limits.Options{}, limits.Rate{PerSecond: 2, Burst: 3}, []string{"a", "b", "c"},
			"the bridge may be called 2/s burst 3 by one caller (per_principal: rate); try again in 500 ms", 500 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := Options{Servers: []ServerOptions{{Name: "fake", Adapter: &fake{}, ServerSettings: ServerSettings{Limits: test.o}}}, Common: Common{PerPrincipal: limits.PerPrincipal{Rate: test.door}}}
			if test.principal != "" {
				o.Grants = grants(test.principal, "other")
			}
			limited(t, o, func(t *testing.T, g *gateway) {
				s, _ := begin(t, g, test.principal) // which counts at the door
				last := len(test.calls) - 1
				for _, name := range test.calls[:last] {
					bridgetest.Contains(t, do(t, s, "1", "tools/call", tool(name)), `"result"`)
				}
				refused := func() string {
					m, err := s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+tool(test.calls[last])+`}`), nil, nil)
					if !errors.Is(err, bridge.ErrLimited) || bridge.RetryAfter(err) != test.after {
						t.Fatalf("got %s, %v after %v, want it refused for %v", bridgetest.Text(m), err, bridge.RetryAfter(err), test.after)
					}
					return bridgetest.Text(m)
				}
				got := refused()
				if m := gjson.Get(got, "error.message").Str; m != test.want {
					t.Errorf("got  %s\nwant %s", m, test.want)
				}
				if d := gjson.Get(got, "error.data"); d.Get("bridge").Str != "rate_limited" || d.Get("retryAfterMs").Int() != test.after.Milliseconds() || (d.Get("server").Str == "fake") != (test.door == limits.Rate{}) {
					t.Errorf("data is %s", d.Raw)
				}
				for range 100 {
					refused() // which costs nothing
				}
				bridgetest.Contains(t, do(t, s, "1", "ping", `{}`), `"result"`)
				if test.door == (limits.Rate{}) {
					bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"result"`)
				}
				if test.principal != "" {
					another, _ := begin(t, g, "other")
					bridgetest.Contains(t, do(t, another, "1", "tools/call", tool(test.calls[last])), `"result"`)
				}
				time.Sleep(test.after - time.Millisecond)
				if _, err := s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+tool(test.calls[last])+`}`), nil, nil); bridge.RetryAfter(err) != time.Millisecond {
					t.Errorf("a moment too early: %v", err)
				}
				time.Sleep(time.Millisecond)
				bridgetest.Contains(t, do(t, s, "1", "tools/call", tool(test.calls[last])), `"result"`)
				n := g.Status()[0].Refused["rate"] + g.Totals().Refused["rate"]
				if n != 102 {
					t.Errorf("%d were refused, want 102", n)
				}
			})
		})
	}
}

// Clients of both kinds spend the same tokens, also at all servers as one, and
// under the server's own names.
func TestRatesOfAllClients(t *testing.T) {
	limits := limits.Options{Tools: map[string]limits.Rate{"own": {PerSecond: 1, Burst: 3}}}
	rename := filter.Lists{Tools: filter.Rules{Rename: map[string]string{"own": "seen"}}}
	o := Options{Grants: grants("p"), Servers: []ServerOptions{
		{Name: "fake", ServerSettings: ServerSettings{Prefix: "f__", Limits: limits, Lists: rename}, Adapter: &fake{}}, {Name: "other", ServerSettings: ServerSettings{Prefix: "o__"}, Adapter: &fake{}},
	}}
	limited(t, o, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "p")
		bridgetest.Contains(t, do(t, s, "1", "tools/call", tool("seen")), `"result"`)
		from := &bridge.Caller{Principal: "p", Revision: era.LatestModern, Capabilities: []byte("{}"), Params: []byte(bridgetest.InitializeParams)}
		call := func(server, name string) string {
			m, _ := g.Call(t.Context(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+name+`"}}`), Stateless{Server: server, From: from, Back: &stream{}})
			return bridgetest.Text(m)
		}
		bridgetest.Contains(t, call("fake", "seen"), `"result"`)
		bridgetest.Contains(t, call("", "f__seen"), `"result"`)
		for _, got := range []string{call("fake", "seen"), call("", "f__seen"), do(t, s, "1", "tools/call", tool("seen"))} {
			bridgetest.Contains(t, got, "tool own may be called 1/s burst 3 by one caller (limits: tools: own); try again in 1000 ms")
		}
		bridgetest.Contains(t, call("other", "own"), `"result"`)
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"x","Name":"seen"}`), "-32602") // it cannot be told which
	})
}

// What one principal may have, and that the others are not concerned.
func TestDoor(t *testing.T) {
	f := &fake{serve: func(_ *fakeWire, m *jsonrpc.Message) bool { return m.Method == "slow" || m.Name() == "slow" }}
	o := Options{Servers: []ServerOptions{{Name: "fake", Adapter: f}}, Grants: grants("p", "q"), Common: Common{PerPrincipal: limits.PerPrincipal{Sessions: 2, Calls: 3}}}
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
		if r := g.Totals().Refused; r["sessions"] != 1 || r["calls"] != 2 {
			t.Errorf("refused: %v", r)
		}
	})
}
