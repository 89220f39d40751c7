package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// One opening serves all who need it; nothing is opened before.
func TestLaneOpensOnce(t *testing.T) {
	f := &fake{before: func(context.Context, int) error { time.Sleep(time.Second); return nil }}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}, func(t *testing.T, g *gateway) {
		if f.opened() != 0 {
			t.Error("opened without a need")
		}
		done := make(chan error)
		for range 10 {
			go func() { _, _, err := initialize(t, g, "p", bridgetest.InitializeParams); done <- err }()
			synctest.Wait()
		}
		for range 10 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if f.opened() != 1 {
			t.Errorf("opened %d times, want 1", f.opened())
		}
	})
}

// A loss is one error for each pending call; the next call goes over
// a new connection, which is told the level and the subscriptions first, and
// the client learns that its lists may have changed (protocol.md D3, R-187).
func TestLaneLoss(t *testing.T) {
	f := &fake{serve: silent("slow")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, st := begin(t, g, "")
		do(t, s, "1", "logging/setLevel", `{"level":"info","_meta":{"progressToken":7}}`)
		do(t, s, "2", "resources/subscribe", `{"uri":"a:\u0031"}`)
		do(t, s, "3", "resources/subscribe", `{"uri":"b:"}`)
		do(t, s, "4", "resources/unsubscribe", `{"uri":"b:"}`)
		var calls []*pendingCall
		for i := range 3 {
			calls = append(calls, start(t, s, fmt.Sprintf(`{"jsonrpc":"2.0","id":"c%d","method":"slow"}`, i)))
		}
		synctest.Wait()
		st.take()
		lost := time.Now()
		f.wire(1).die()
		for i, p := range calls {
			<-p.done
			bridgetest.Contains(t, p.answer, fmt.Sprintf(`"id":"c%d"`, i), `"bridge":"upstream_lost"`, "it died")
			bridgetest.Lacks(t, p.answer, "secret")
		}
		synctest.Wait() // the lane knows of the loss: in the instant before, a call is lost too
		if got := do(t, s, "9", "tools/call", `{}`); got != `{"jsonrpc":"2.0","id":9,"result":{}}` {
			t.Errorf("next call = %s", got)
		}
		if took := time.Since(lost); took != 0 { // it has worked
			t.Errorf("opened again after %v, want at once", took)
		}
		got := f.wire(2).received()
		if len(got) != 3 || !strings.Contains(got[2], "tools/call") {
			t.Fatalf("the new connection got %q", got)
		}
		bridgetest.Contains(t, got[0], `"logging/setLevel"`, `"level":"info"`)
		bridgetest.Lacks(t, got[0], `"progressToken":7`) // tokens never cross
		bridgetest.Contains(t, got[1], `"resources/subscribe"`, `"a:1"`)
		told := strings.Join(st.take(), "\n")
		bridgetest.Contains(t, told, "tools/list_changed", "resources/list_changed", `resources/updated","params":{"uri":"a:1"}`)
		bridgetest.Lacks(t, told, "prompts") // which the server does not have
	})
}

// silent makes a server that never answers that method.
func silent(method string) func(*fakeWire, *jsonrpc.Message) bool {
	return func(_ *fakeWire, m *jsonrpc.Message) bool { return m.Method == method }
}

// gaps returns the pauses between the openings, in seconds.
func gaps(f *fake) (all []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := 1; i < len(f.opens); i++ {
		all = append(all, int(f.opens[i].Sub(f.opens[i-1])/time.Second))
	}
	return all
}

// Starts are 1, 2, 4 … 60 s apart, however often somebody calls. A
// call that would have to wait for long is refused at once, with the time.
func TestLaneBackOff(t *testing.T) {
	f := &fake{}
	f.before = func(_ context.Context, n int) error {
		if n > 1 {
			return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it is broken", Err: errors.New("secret")}
		}
		return nil
	}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{StartsPerMinute: 100, Breaker: breaker.Options{Off: true}}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		f.wire(1).die()
		synctest.Wait()
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); {
			at := time.Now()
			got := do(t, s, "1", "tools/call", `{}`)
			bridgetest.Contains(t, got, `"bridge":"upstream_unavailable"`, "it is broken")
			bridgetest.Lacks(t, got, "secret")
			if took := time.Since(at); took > patientUntil {
				t.Fatalf("a call waited %v", took)
			} else if took == 0 {
				bridgetest.Contains(t, got, "the next start is tried in ")
			}
			time.Sleep(500 * time.Millisecond)
		}
		want := []int{1, 2, 4, 8, 16, 32, 60, 60}
		if got := gaps(f); fmt.Sprint(got[:min(len(got), len(want))]) != fmt.Sprint(want) {
			t.Errorf("pauses %v, want %v", got, want)
		}
	})
}

// Five stable minutes make good for the losses before, also without an
// answer.
func TestLaneStable(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		do(t, s, "1", "resources/subscribe", `{"uri":"a:"}`) // a need without calls
		for i, live := range []time.Duration{0, 0, 0, stable - time.Second, stable} {
			time.Sleep(live)
			synctest.Wait()
			at := time.Now()
			f.wire(i + 1).die()
			synctest.Wait()
			for f.open() == i+1 && time.Since(at) < time.Minute {
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
			}
			want := []time.Duration{0, 1, 2, 4, 0}[i] * time.Second
			if took := time.Since(at).Round(time.Second); took != want {
				t.Errorf("loss %d: opened again after %v, want %v", i+1, took, want)
			}
		}
	})
}

// Starts after a loss are limited per minute.
func TestLaneRestartCap(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{StartsPerMinute: 2}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		for n := 1; n <= 2; n++ {
			f.wire(n).die()
			synctest.Wait()
			do(t, s, "1", "x", `{}`)
		}
		f.wire(3).die()
		synctest.Wait()
		time.Sleep(10 * time.Second)                                                       // past the back-off
		bridgetest.Contains(t, do(t, s, "1", "x", `{}`), "the next start is tried in 50s") // of 60 s since the first
		time.Sleep(50 * time.Second)
		bridgetest.Contains(t, do(t, s, "1", "x", `{}`), `"result"`)
	})
}

// A subscription is a need: its connection comes back without a call, however
// often the start fails.
func TestLaneSubscriptionIsNeed(t *testing.T) {
	f := &fake{}
	f.before = func(_ context.Context, n int) error {
		if n > 1 && n < 7 {
			return errors.New("no")
		}
		return nil
	}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{StartsPerMinute: 100, Breaker: breaker.Options{Off: true}}}, func(t *testing.T, g *gateway) {
		s, st := begin(t, g, "")
		do(t, s, "1", "resources/subscribe", `{"uri":"a:"}`)
		f.wire(1).die()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if len(f.wires) != 2 {
			t.Fatalf("%d connections, want 2; pauses %v", len(f.wires), gaps(f))
		}
		f.wire(2).say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:"}}`)
		bridgetest.Contains(t, strings.Join(st.take(), "\n"), `resources/updated`)
		// Without one, a lost connection stays away, and the end of a
		// subscription needs none.
		f.wire(2).die()
		synctest.Wait()
		bridgetest.Contains(t, do(t, s, "2", "resources/unsubscribe", `{"uri":"a:"}`), `"result":{}`)
		n := f.opened()
		time.Sleep(5 * time.Minute)
		if f.opened() != n && len(f.wires) > 3 {
			t.Errorf("%d connections without a need", len(f.wires))
		}
	})
}

// EndWithServer, and a server that comes back as another one, end the session.
func TestLaneEndsSession(t *testing.T) {
	other := func(result string) func(*fakeWire, *jsonrpc.Message) bool {
		return func(f *fakeWire, m *jsonrpc.Message) bool {
			if m.Method == "initialize" && f.n > 1 {
				f.answer(m, result)
				return true
			}
			return false
		}
	}
	for _, tc := range []struct {
		name   string
		end    bool
		serve  func(*fakeWire, *jsonrpc.Message) bool
		reopen bool
		ends   bool
	}{
		{name: "EndWithServer", end: true, ends: true},
		{name: "same again", reopen: true},
		{name: "more than before", reopen: true, serve: other(strings.Replace(everything, `"tools":{`, `"more":{},"tools":{"new":true,`, 1))},
		{name: "another revision", reopen: true, ends: true, serve: other(strings.Replace(everything, "2025-11-25", "2025-06-18", 1))},
		{name: "a capability less", reopen: true, ends: true, serve: other(strings.Replace(everything, `"logging":{},`, ``, 1))},
		{name: "a part of one less", reopen: true, ends: true, serve: other(strings.Replace(everything, `"subscribe":true,`, ``, 1))},
		{name: "a part of one turned off", reopen: true, ends: true, serve: other(strings.Replace(everything, `"subscribe":true`, `"subscribe":false`, 1))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fake{serve: tc.serve}
			run(t, ServerOptions{Adapter: f, EndWithServer: tc.end}, func(t *testing.T, g *gateway) {
				s, _ := begin(t, g, "")
				f.wire(1).die()
				synctest.Wait()
				if tc.reopen {
					got := do(t, s, "1", "x", `{}`)
					if tc.ends {
						bridgetest.Contains(t, got, `"error"`, `"bridge":"upstream_lost"`, "initialize again")
					} else {
						bridgetest.Contains(t, got, `"result"`)
					}
				}
				synctest.Wait()
				ended := context.Cause(s.ctx) != nil
				if ended != tc.ends {
					t.Errorf("session ended: %t, want %t", ended, tc.ends)
				}
			})
		})
	}
}

// A connection that ends between its handshake and the return of Open is lost
// like any other.
func TestLaneGoneBeforeOpen(t *testing.T) {
	f := &fake{}
	f.after = func(f *fakeWire) {
		if f.n == 1 {
			f.die()
			synctest.Wait()
		}
	}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}, func(t *testing.T, g *gateway) {
		_, a, err := initialize(t, g, "p", bridgetest.InitializeParams)
		if !errors.Is(err, bridge.ErrLost) {
			t.Errorf("Initialize = %s, %v", a, err)
		}
		synctest.Wait() // the loss is noted after the client has its answer
		if st := g.Status()[0]; st.Usable {
			t.Errorf("Status = %+v, want failing", st)
		}
		_, a, err = initialize(t, g, "p", bridgetest.InitializeParams)
		if err != nil {
			t.Errorf("Initialize = %s, %v", a, err)
		}
		if st := g.Status()[0]; !st.Usable {
			t.Errorf("Status = %+v, want ready", st)
		}
	})
}
