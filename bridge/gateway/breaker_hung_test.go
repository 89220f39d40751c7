package gateway

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// hanging is a server whose first connection says nothing any more from some
// time on, while new ones work.
func hanging() (f *fake, hang *atomic.Bool) {
	hang = &atomic.Bool{}
	f = &fake{times: conn.Timeouts{Idle: time.Minute}}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool { return f.n == 1 && hang.Load() && m.IsRequest() }
	return f, hang
}

// A connection that has hung is not used for ever because the breaker waits for
// a sign of life on it: not while its clients go on calling, and not with a
// subscription.
func TestBreakerHung(t *testing.T) {
	for _, share := range []Share{SharePrincipal, ShareAll} {
		f, hang := hanging()
		run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: share, Breaker: breaker.Options{Failures: 3}}}, func(t *testing.T, g *gateway) {
			s, _ := begin(t, g, "")
			bridgetest.Contains(t, do(t, s, "1", "resources/subscribe", `{"uri":"a:"}`), `"result"`)
			hang.Store(true)
			var got string
			for began := time.Now(); time.Since(began) < 15*time.Minute; time.Sleep(time.Second) {
				got = do(t, s, "1", "tools/call", `{"name":"x"}`)
			}
			bridgetest.Contains(t, got, `"result"`)
			if st := state(g); st.Breaker != "closed" || f.opened() > 3 || st.Lanes != 1 || !strings.Contains(strings.Join(f.wire(f.open()).received(), "\n"), "resources/subscribe") {
				t.Errorf("%s: %s; %d connections were opened, %d are open", share, st.Breaker, f.opened(), st.Lanes)
			}
		})
	}
}

// A server that hangs is left alone soon after the first deadline, however many
// calls are under way by then: each that was made at another time has found out
// for itself. Those that were made together have found out once.
func TestBreakerHungUnderWay(t *testing.T) {
	const deadline = 5 * time.Minute
	for _, test := range []struct {
		name  string
		share Share
		every time.Duration // between calls
		after time.Duration // the first deadline; 0 means never
	}{
		{"now and then", ShareAll, 10 * time.Second, 41 * time.Second},
		{"now and then, in sessions with connections of their own", ShareSession, 10 * time.Second, 41 * time.Second},
		{"often", ShareAll, time.Second, 5 * time.Second},
		{"all the time", ShareAll, 50 * time.Millisecond, 5 * time.Second},
		{"at once", ShareAll, 0, 0},
		{"nearly at once", ShareSession, time.Millisecond, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{times: conn.Timeouts{Idle: deadline}}
			f.serve = func(_ *fakeWire, m *jsonrpc.Message) bool { return m.Method == "tools/call" }
			run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: test.share, Breaker: breaker.Options{Failures: 5}}}, func(t *testing.T, g *gateway) {
				var all []*sitting
				for range 10 {
					s, _ := begin(t, g, "")
					all = append(all, s)
				}
				time.Sleep(time.Hour)
				began := time.Now()
				n := 0
				for ; time.Since(began) < deadline-time.Second && (test.after > 0 || n < 10); n++ {
					if s := all[n%len(all)]; n < 1000 {
						start(t, s, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`, n))
					}
					time.Sleep(test.every)
				}
				time.Sleep(deadline - time.Since(began) - time.Millisecond)
				if st := state(g); st.Trips != 0 {
					t.Fatal("left alone before anything was overdue")
				}
				within := cmp.Or(test.after, deadline)
				time.Sleep(within + time.Millisecond)
				if st := state(g); (st.Trips == 1) != (test.after > 0) {
					t.Errorf("%v after the first deadline: left alone %d times", within, st.Trips)
				}
			})
		})
	}
}

// A server that has hung for a while and works again is not left alone for the
// calls that it has lost then, which meet their deadlines much later.
func TestBreakerHungBefore(t *testing.T) {
	const deadline = 5 * time.Minute
	var hang atomic.Bool
	f := &fake{times: conn.Timeouts{Idle: deadline}}
	f.serve = func(_ *fakeWire, m *jsonrpc.Message) bool { return hang.Load() && m.Method == "tools/call" }
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: ShareAll, Breaker: breaker.Options{Failures: 3}}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		hang.Store(true)
		for n := range 6 {
			start(t, s, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`, n))
			time.Sleep(2 * time.Second)
		}
		hang.Store(false)
		bridgetest.Contains(t, do(t, s, "10", "tools/call", `{"name":"x"}`), `"result"`)
		time.Sleep(deadline)
		if st := state(g); st.Trips != 0 || st.Slots != 0 {
			t.Errorf("left alone %d times; %d calls are under way", st.Trips, st.Slots)
		}
		bridgetest.Contains(t, do(t, s, "11", "tools/call", `{"name":"x"}`), `"result"`)
	})
}

// Nor does one of a principal's that has hung keep the others from the server.
func TestBreakerHungOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, hang := hanging()
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: f, ServerSettings: ServerSettings{Breaker: breaker.Options{Failures: 3}}}}, Grants: map[string]filter.Grant{"a": {}, "b": {}}})
		defer g.Close(context.Background())
		ask := func(principal string) string {
			return visitor{principal: principal}.call(t, g, "tools/call", `"name":"x"`)
		}
		ask("a")
		hang.Store(true)
		for state(g).Trips == 0 {
			ask("a")
		}
		time.Sleep(10 * time.Second)
		for i := range 5 {
			if i == 0 {
				ask("b") // may be told to come again
			} else {
				bridgetest.Contains(t, ask("b"), `"resultType":"complete"`)
			}
			time.Sleep(20 * time.Second)
		}
		bridgetest.Contains(t, ask("a"), `"resultType":"complete"`)
	})
}

// One that has calls under way may only have much to do: it is not given up.
func TestBreakerBusy(t *testing.T) {
	f := &fake{times: conn.Timeouts{Idle: time.Hour}}
	var busy atomic.Bool
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		switch {
		case m.Method == "tools/call" && m.Name() == "long":
			busy.Store(true)
			m = m.Clone()
			f.wg.Go(func() {
				select {
				case <-time.After(10 * time.Minute):
					busy.Store(false)
					f.answer(m, `{"long":true}`)
				case <-f.done:
				}
			})
			return true
		case m.Method == "tools/call" && busy.Load():
			f.Abort(idOf(m), failure(bridge.ErrTimeout))
			return true
		}
		return busy.Load() && m.Method == "ping"
	}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: ShareAll, Breaker: breaker.Options{Failures: 3}}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		long := start(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"long"}}`)
		time.Sleep(time.Minute)
		for range 8 * 60 {
			do(t, s, "2", "tools/call", `{"name":"x"}`)
			time.Sleep(time.Second)
		}
		if st := state(g); st.Breaker == "closed" || f.open() != 1 || st.Losses != 0 {
			t.Errorf("%s, %d connections, %d losses", st.Breaker, f.open(), st.Losses)
		}
		<-long.done
		bridgetest.Contains(t, long.answer, `"long":true`)
		time.Sleep(2 * time.Minute)
		bridgetest.Contains(t, do(t, s, "2", "tools/call", `{"name":"x"}`), `"result"`)
	})
}

func idOf(m *jsonrpc.Message) (n int64) {
	_, _ = fmt.Sscan(string(m.ID), &n)
	return n
}
