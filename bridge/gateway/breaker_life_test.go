package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/scaletest"
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

// What lasts is a success from its first sign of life on: a subscription that
// ends with its connection, and a call that waits for a person.
func TestBreakerLasting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := modernShop("one", nil)
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: m, ServerSettings: ServerSettings{Breaker: breaker.Options{Failures: 1, Slow: time.Second}}}}})
		defer g.Close(context.Background())
		ctx, stop := context.WithCancel(t.Context())
		var back stream
		over := make(chan struct{})
		go func() {
			defer close(over)
			callsStateless(t, g, ctx, "", era.Listen, `"notifications":{"toolsListChanged":true}`, &back)
		}()
		for range 3 {
			time.Sleep(time.Minute)
			m.wire(m.open()).die()
		}
		time.Sleep(time.Minute)
		if st := state(g); st.Trips != 0 || m.open() != 4 {
			t.Errorf("left alone %d times; %d connections", st.Trips, m.open())
		}
		stop()
		<-over
		if st := state(g); st.Trips != 0 {
			t.Error("left alone when the subscription was ended")
		}
	})
	f := &fake{}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		switch {
		case m.Method == "tools/call":
			f.say(`{"jsonrpc":"2.0","id":"q` + string(m.ID) + `","method":"roots/list"}`)
			return true
		case m.IsResponse():
			f.say(`{"jsonrpc":"2.0","id":` + strings.Trim(string(m.ID), `"q`) + `,"result":{"content":[]}}`)
			return true
		}
		return false
	}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Breaker: breaker.Options{Failures: 1, Slow: time.Second}}}, func(t *testing.T, g *gateway) {
		park := stateOf(t, visitor{}.call(t, g, "tools/call", `"name":"x"`))
		time.Sleep(5 * time.Minute)
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"x","inputResponses":{"r1":{"roots":[]}},"requestState":"`+park+`"`), `"content":[]`)
		stateOf(t, visitor{}.call(t, g, "tools/call", `"name":"x"`))
		time.Sleep(20 * time.Minute) // nobody comes back
		if st := state(g); st.Trips != 0 {
			t.Error("left alone for the sake of people")
		}
	})
}

// An idle connection that is asked for signs of life is not lost because its
// server is left alone.
func TestBreakerPulse(t *testing.T) {
	f := newFaulty(nil)
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Ping: time.Minute, Breaker: breaker.Options{Failures: 2, Pause: 10 * time.Minute}}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		f.outcome = func(int) error { return failure(bridge.ErrLost) }
		for range 2 {
			do(t, s, "1", "tools/call", `{"name":"x"}`)
		}
		time.Sleep(9 * time.Minute)
		if p, l := f.pings.Load(), state(g).Losses; p != 0 || l != 0 || state(g).Breaker != "open" {
			t.Errorf("%d pings, %d losses, %s", p, l, state(g).Breaker)
		}
	})
}

// Whatever a server does, each request has exactly one answer, no tool
// is called twice, and when the server works again, so do its clients.
func TestBreakerFlapping(t *testing.T) {
	for seed := range uint64(scaletest.Of(1, 4)) {
		for _, share := range []Share{ShareSession, SharePrincipal, ShareCall, ShareAll} {
			t.Run(fmt.Sprint(share, seed), func(t *testing.T) { flap(t, share, seed) })
		}
	}
}

func flap(t *testing.T, share Share, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex // guards rnd, seen
	dice := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(n)
	}
	seen := map[int64]int{}
	var well atomic.Bool
	f := &fake{times: conn.Timeouts{Idle: 20 * time.Second}}
	f.before = func(ctx context.Context, _ int) error {
		if well.Load() {
			return nil
		}
		switch dice(4) {
		case 0:
			return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it could not be started"}
		case 1:
			select {
			case <-time.After(time.Duration(dice(90)) * time.Second):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			mu.Lock()
			seen[gjson.GetBytes(m.Params, "arguments.n").Int()]++
			mu.Unlock()
		}
		if well.Load() || !m.IsRequest() || m.Method == "initialize" {
			return false
		}
		id, _ := strconv.ParseInt(string(m.ID), 10, 64)
		switch dice(8) {
		case 0:
			f.die()
		case 1:
			f.Abort(id, failure(bridge.ErrLost))
		case 2:
			f.Abort(id, failure(bridge.ErrUnavailable))
		case 3:
			f.Abort(id, &bridge.Error{Server: "fake", Kind: bridge.ErrRejected, Public: "later", After: time.Second})
		case 4:
			return true // never
		default:
			return false
		}
		return true
	}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: share, HandshakeTimeout: time.Minute, StartsPerMinute: 1000, Retry: retry.Options{Attempts: 3}}}, func(t *testing.T, g *gateway) {
		var n, answered atomic.Int64
		var wg sync.WaitGroup
		one := func(s *sitting) {
			time.Sleep(time.Duration(dice(3000)) * time.Millisecond)
			n := n.Add(1)
			method, args := "tools/call", fmt.Sprintf(`"name":"x","arguments":{"n":%d}`, n)
			if dice(3) == 0 {
				method, args = "resources/list", ""
			}
			if s == nil {
				v := visitor{principal: fmt.Sprint(dice(2))}.ask(t, g, "1", method, args)
				if dice(5) == 0 {
					time.Sleep(time.Duration(dice(3000)) * time.Millisecond)
					v.cancel(bridge.ErrCancelled)
				}
				<-v.done
				if v.answer == "" && !errors.Is(v.err, bridge.ErrCancelled) {
					t.Errorf("no answer: %v", v.err)
				}
			} else if a := do(t, s, "1", method, "{"+args+"}"); !strings.Contains(a, `"result"`) && !strings.Contains(a, `"error"`) {
				t.Errorf("no answer: %q", a)
			}
			answered.Add(1)
		}
		for i := range 16 {
			wg.Go(func() {
				var s *sitting
				for j := 0; j < 20 && s == nil && i%2 == 0; j++ {
					s, _, _ = initializeAs(t, g, fmt.Sprint(i, "-", j), fmt.Sprint(i%4))
				}
				for range 40 {
					one(s)
				}
			})
		}
		wg.Wait()
		if n.Load() != 640 || answered.Load() != 640 {
			t.Errorf("%d requests, %d answers", n.Load(), answered.Load())
		}
		mu.Lock()
		for call, times := range seen {
			if times > 1 {
				t.Errorf("call %d was made %d times", call, times)
			}
		}
		mu.Unlock()
		well.Store(true)
		time.Sleep(5 * time.Minute)
		for range 10 {
			if got := (visitor{}).call(t, g, "tools/call", `"name":"x","arguments":{"n":0}`); !strings.Contains(got, `"resultType":"complete"`) {
				t.Errorf("when it works again: %s", got)
			}
		}
		if st := state(g); st.Breaker != "closed" {
			t.Errorf("%+v", st)
		}
	})
}
