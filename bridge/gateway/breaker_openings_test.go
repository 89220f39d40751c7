package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Openings that fail keep new openings away, and nothing else: whoever has an
// open connection goes on using it, however often somebody else tries in vain.
func TestBreakerFailingOpenings(t *testing.T) {
	f := newFaulty(nil)
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Breaker: breaker.Options{Failures: 5}}}, func(t *testing.T, g *gateway) {
		var good []*sitting
		for range 3 {
			s, _ := begin(t, g, "")
			good = append(good, s)
		}
		f.closed.Store(true)
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 20 * 40 { // 20 a second for 40 s
				wg.Go(func() { // as long as a probe is waited for
					if _, a, err := initializeAs(t, g, fmt.Sprint("x", time.Now().UnixNano()), ""); !errors.Is(err, bridge.ErrUnavailable) {
						t.Errorf("initialize: %s, %v", a, err)
					}
				})
				time.Sleep(50 * time.Millisecond)
			}
		})
		for range 40 {
			for _, s := range good {
				bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"x"}`), `"result"`)
			}
			time.Sleep(time.Second)
		}
		wg.Wait()
		st := state(g)
		if n := f.opened(); st.Trips != 1 || st.Breaker != "open" || st.Usable || n > 3+5+4 {
			t.Errorf("%s, opened %d times; %d attempts to open a connection", st.Breaker, st.Trips, n)
		}
		bridgetest.Contains(t, st.Reason, "it could not be started")
		f.closed.Store(false)
		time.Sleep(time.Minute)
		begin(t, g, "")
		if st := state(g); st.Breaker != "closed" || !st.Usable {
			t.Errorf("when it works again: %+v", st)
		}
	})
}

// A server whose calls fail is left alone altogether, also while no connection
// to it can be opened; and when a connection gives a sign of life again, its
// calls go on, whether or not another one can be opened.
func TestBreakerFailingBoth(t *testing.T) {
	f := newFaulty(nil)
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Breaker: breaker.Options{Failures: 3}}}, func(t *testing.T, g *gateway) {
		var all []*sitting
		for range 3 {
			s, _ := begin(t, g, "")
			all = append(all, s)
		}
		f.closed.Store(true)
		for i := range 3 {
			_, _, _ = initializeAs(t, g, fmt.Sprint("x", i), "")
		}
		if st := state(g); st.Breaker != "open" {
			t.Fatalf("%+v", st)
		}
		f.outcome = func(int) error { return failure(bridge.ErrUnavailable) }
		for _, s := range all {
			do(t, s, "1", "tools/call", `{"name":"x"}`)
		}
		calls := f.calls.Load()
		bridgetest.Contains(t, do(t, all[0], "1", "tools/call", `{"name":"x"}`), "circuit_open")
		if st := state(g); st.Trips != 2 || f.calls.Load() != calls {
			t.Errorf("left alone %d times", st.Trips)
		}
		f.outcome = nil
		time.Sleep(5 * time.Second)
		for _, s := range all {
			bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"x"}`), `"result"`)
		}
		for i := range 5 {
			_, _, _ = initializeAs(t, g, fmt.Sprint("y", i), "")
		}
		for _, s := range all {
			bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"x"}`), `"result"`)
		}
	})
}

// While the one probe of a server that no connection can be opened to is under
// way, calls go on, and if they begin to fail the server is left alone, whatever
// the probe says.
func TestBreakerProbesOpenings(t *testing.T) {
	var closed, slow, bad atomic.Bool
	hold := make(chan struct{})
	f := &fake{}
	f.before = func(context.Context, int) error {
		if closed.Load() {
			return failure(bridge.ErrUnavailable)
		}
		return nil
	}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		switch {
		case m.Method == "initialize" && slow.Load():
			m = m.Clone()
			f.wg.Go(func() {
				select {
				case <-hold:
					f.answer(m, everything)
				case <-f.done:
				}
			})
			return true
		case m.Method == "tools/call" && bad.Load():
			f.Abort(idOf(m), failure(bridge.ErrLost))
			return true
		}
		return false
	}
	synctest.Test(t, func(t *testing.T) {
		hold = make(chan struct{})
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: f, ServerSettings: ServerSettings{Breaker: breaker.Options{Failures: 3}}}}, Log: slog.New(slog.DiscardHandler)})
		defer g.Close(context.Background())
		var all []*sitting
		for range 3 {
			s, _ := begin(t, g, "")
			all = append(all, s)
		}
		call := func(want string) {
			t.Helper()
			for _, s := range all {
				bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"x"}`), want)
			}
		}
		closed.Store(true)
		for i := range 3 {
			_, _, _ = initializeAs(t, g, fmt.Sprint("x", i), "")
		}
		n := f.opened()
		closed.Store(false)
		slow.Store(true)
		time.Sleep(5 * time.Second)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() { _, _, _ = initializeAs(t, g, fmt.Sprint("y", i), "") })
		}
		synctest.Wait()
		if got := f.opened() - n; got != 1 || state(g).Breaker != "half-open" {
			t.Errorf("%d probes, %s", got, state(g).Breaker)
		}
		call(`"result"`)
		bad.Store(true)
		call("upstream_lost")
		if st := state(g); st.Trips != 2 || st.Usable {
			t.Errorf("%+v", st)
		}
		close(hold)
		wg.Wait()
		call("circuit_open")
		bad.Store(false)
		time.Sleep(time.Minute)
		call(`"result"`)
	})
}

// What the bridge itself lacks is no failure of the server.
func TestBreakerOwnLack(t *testing.T) {
	for _, lack := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN} {
		f := newFaulty(nil)
		run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Breaker: breaker.Options{Failures: 3}}}, func(t *testing.T, g *gateway) {
			s, _ := begin(t, g, "")
			before := f.before
			f.before = func(_ context.Context, _ int) error {
				return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it could not be started", Err: fmt.Errorf("start: %w", lack)}
			}
			for i := range 20 {
				_, a, err := initializeAs(t, g, fmt.Sprint("x", i), "")
				bridgetest.Contains(t, a, `"bridge":"overloaded"`, "the bridge", "retryAfterMs")
				if !errors.Is(err, bridge.ErrOverloaded) || !errors.Is(err, lack) {
					t.Errorf("initialize: %v", err)
				}
			}
			f.outcome = func(int) error {
				return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "no connection", Err: lack}
			}
			for range 20 {
				do(t, s, "1", "tools/call", `{"name":"x"}`)
			}
			if st := state(g); st.Breaker != "closed" || !st.Usable || st.State != "ready" {
				t.Errorf("%v: %+v", lack, st)
			}
			f.outcome, f.before = nil, before
			bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"x"}`), `"result"`)
			begin(t, g, "")
		})
	}
}
