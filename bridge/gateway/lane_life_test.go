package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// An idle connection is closed and opened again on need; never while a call is
// under way or a subscription exists.
func TestLaneIdle(t *testing.T) {
	f := &fake{serve: silent("slow")}
	run(t, ServerOptions{Adapter: f, Idle: time.Minute}, func(t *testing.T, g *gateway) {
		s, st := begin(t, g, "")
		lanes := func(want int64, when string) {
			t.Helper()
			synctest.Wait()
			if got := g.lanes.Open(); got != want {
				t.Errorf("%s: %d connections, want %d", when, got, want)
			}
		}
		time.Sleep(59 * time.Second)
		do(t, s, "1", "x", `{}`)
		time.Sleep(59 * time.Second)
		lanes(1, "used 59 s ago")
		time.Sleep(2 * time.Second)
		lanes(0, "unused for a minute")
		at := time.Now()
		do(t, s, "1", "x", `{}`)
		if time.Since(at) != 0 || len(st.take()) != 0 {
			t.Error("waking is no loss: no back-off, no list_changed")
		}
		slow := start(t, s, `{"jsonrpc":"2.0","id":5,"method":"slow"}`)
		time.Sleep(time.Hour)
		lanes(1, "a call is under way")
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`), nil)
		<-slow.done
		do(t, s, "1", "resources/subscribe", `{"uri":"a:"}`)
		time.Sleep(time.Hour)
		lanes(1, "a subscription exists")
		do(t, s, "1", "resources/unsubscribe", `{"uri":"a:"}`)
		time.Sleep(61 * time.Second)
		lanes(0, "the subscription has ended")
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`), nil)
		lanes(1, "a notification wakes the server")
		bridgetest.Contains(t, fmt.Sprint(f.wire(3).received()), "roots/list_changed")
	})
}

// What waits for a connection is bounded.
func TestLaneNotesBounded(t *testing.T) {
	f := &fake{before: func(ctx context.Context, n int) error {
		if n > 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		f.wire(1).die()
		synctest.Wait()
		for range 10 * maxNotes {
			s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`), nil)
		}
		if n := 10*maxNotes - g.dropped.Load(); n != maxNotes {
			t.Errorf("%d notifications wait, want %d", n, maxNotes)
		}
	})
}

// A handshake that hangs is given up, and says so.
func TestLaneHandshakeTimeout(t *testing.T) {
	f := &fake{serve: silent("initialize")}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{HandshakeTimeout: 10 * time.Second}}, func(t *testing.T, g *gateway) {
		at := time.Now()
		_, a, err := initialize(t, g, "", bridgetest.InitializeParams)
		if !errors.Is(err, bridge.ErrUnavailable) || time.Since(at) != 10*time.Second {
			t.Errorf("Initialize = %v after %v", err, time.Since(at))
		}
		bridgetest.Contains(t, a, `"id":"init"`, `"bridge":"upstream_unavailable"`, "did not finish its handshake within 10s")
	})
}

// A client that goes during initialize is no fault of the server's.
func TestLaneClosedWhileOpening(t *testing.T) {
	f := &fake{serve: silent("initialize")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s, _, err := g.initialize(ctx, bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{Server: "fake", ID: "x"})
		if s != nil || err == nil {
			t.Errorf("Initialize = %v, %v", s, err)
		}
		synctest.Wait()
		if st := g.Status()[0]; !st.Usable || st.Lanes != 0 || st.Sessions != 0 {
			t.Errorf("Status = %+v", st)
		}
	})
}

// Close during an opening, during a call, twice and at once.
func TestLaneClose(t *testing.T) {
	for _, tc := range []struct {
		name  string
		serve func(*fakeWire, *jsonrpc.Message) bool
	}{{"opening", silent("initialize")}, {"call", silent("slow")}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(Options{})
				defer g.Close(context.Background())
				l := bare(newServer(g, ServerOptions{Name: "fake", Adapter: &fake{serve: tc.serve}}), &bridge.Caller{Params: []byte(bridgetest.InitializeParams)})
				done := make(chan error, 1)
				go func() {
					_, err := l.Call(context.Background(), &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"slow"}`)})
					done <- err
				}()
				synctest.Wait()
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() { _ = l.Close(context.Background()) })
				}
				wg.Wait()
				if err := <-done; err == nil {
					t.Error("the pending call succeeded")
				}
				if _, err := l.Call(context.Background(), &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"x"}`)}); !errors.Is(err, bridge.ErrShutdown) {
					t.Errorf("a call after Close = %v", err)
				}
				if err := l.Notify(context.Background(), &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"x"}`)}); !errors.Is(err, bridge.ErrShutdown) {
					t.Errorf("a notification after Close = %v", err)
				}
				if n := g.lanes.Open(); n != 0 {
					t.Errorf("%d lanes are left", n)
				}
			})
		})
	}
}

// The end of Close's context cuts the polite part short, also of sessions that
// had ended before.
func TestLaneCloseHurries(t *testing.T) {
	polite := func(ctx context.Context, _ *fakeWire) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Hour):
		}
	}
	for _, share := range []Share{ShareSession, SharePrincipal, ShareCall} {
		t.Run(string(share), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: &fake{closes: polite}, ServerSettings: ServerSettings{Share: share}}}})
				s, _ := begin(t, g, "")
				begin(t, g, "")
				s.End(bridge.ErrEnded)
				synctest.Wait()
				at := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				g.Close(ctx)
				if took := time.Since(at); took != time.Second {
					t.Errorf("Close took %v, want 1s", took)
				}
			})
		})
	}
}

// Close returns although a connection does not close.
func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: &fake{closes: func(context.Context, *fakeWire) { <-free }}}}})
		begin(t, g, "")
		at := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g.Close(ctx)
		if took := time.Since(at); took != time.Second+lastWait {
			t.Errorf("Close took %v, want %v", took, time.Second+lastWait)
		}
		close(free)
	})
}

// At most four connections to a server are opened at once, and a server that
// hangs does not hold up another one.
func TestLaneOpenings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		slow := &fake{before: func(context.Context, int) error {
			n := now.Add(1)
			most.Store(max(most.Load(), n))
			time.Sleep(10 * time.Second)
			now.Add(-1)
			return nil
		}}
		g := newGateway(Options{Servers: []ServerOptions{{Name: "slow", Adapter: slow}, {Name: "fake", Adapter: &fake{}}}})
		defer g.Close(context.Background())
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				_, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{Server: "slow", ID: fmt.Sprint(i)})
				if err != nil {
					t.Error(bridgetest.Text(m))
				}
			})
		}
		synctest.Wait()
		at := time.Now()
		begin(t, g, "")
		if took := time.Since(at); took != 0 {
			t.Errorf("another server's opening took %v", took)
		}
		wg.Wait()
		if took := time.Since(at); most.Load() != maxOpenings || took != 30*time.Second {
			t.Errorf("%d openings at once, %v in all; want %d, 30s", most.Load(), took, maxOpenings)
		}
	})
}

// Connections are limited per server and in all; a refusal is no loss.
func TestLaneLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(Options{MaxLanes: 3, Servers: []ServerOptions{
			{Name: "fake", Adapter: &fake{}, ServerSettings: ServerSettings{MaxChildren: 2}}, {Name: "other", Adapter: &fake{}}}})
		defer g.Close(context.Background())
		one, _ := begin(t, g, "")
		begin(t, g, "")
		_, a, err := initialize(t, g, "", bridgetest.InitializeParams)
		if !errors.Is(err, bridge.ErrOverloaded) || !errors.Is(err, bridge.ErrUnavailable) {
			t.Errorf("third session = %v", err)
		}
		bridgetest.Contains(t, a, "the limit is 2")
		for i, want := range []error{nil, bridge.ErrOverloaded} {
			_, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{Server: "other", ID: fmt.Sprint(i)})
			if !errors.Is(err, want) {
				t.Errorf("session %d of the other server = %s, %v", i, bridgetest.Text(m), err)
			}
		}
		one.End(bridge.ErrEnded)
		synctest.Wait()
		begin(t, g, "")
		if st := g.Status()[0]; !st.Usable || st.Lanes != 2 {
			t.Errorf("Status = %+v", st)
		}
	})
}
