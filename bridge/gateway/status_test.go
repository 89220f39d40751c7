package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// What has happened to a server's connections is counted, and what went wrong
// last is known also when it works again.
func TestStatusTally(t *testing.T) {
	f := moody()
	f.before = func(_ context.Context, n int) error {
		if n == 3 {
			return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "no such program"}
		}
		return nil
	}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		if st := g.Status()[0]; st.Revision != "" || st.Opened != 0 || st.Last != "" {
			t.Errorf("before anything has happened: %+v", st)
		}
		s, _ := begin(t, g, "")
		if st := g.Status()[0]; st.Revision != "2025-11-25" || st.Opened != 1 || st.Restarts != 0 {
			t.Errorf("in use: %+v", st)
		}
		do(t, s, "1", "tools/call", `{"name":"die"}`)
		synctest.Wait()
		if st := g.Status()[0]; st.Losses != 1 || !strings.Contains(st.Last, "it died") || !st.LastAt.Equal(time.Now()) || !st.Usable {
			t.Errorf("after a loss: %+v", st)
		}
		do(t, s, "1", "tools/list", `{}`)
		if st := g.Status()[0]; st.Opened != 2 || st.Restarts != 1 || !strings.Contains(st.Last, "it died") {
			t.Errorf("opened again: %+v", st)
		}
		if _, _, err := initialize(t, g, "", bridgetest.InitializeParams); !errors.Is(err, bridge.ErrUnavailable) {
			t.Fatal(err)
		}
		if st := g.Status()[0]; st.Failures != 1 || !strings.Contains(st.Last, "no such program") {
			t.Errorf("after a failure: %+v", st)
		}
	})
}

// A server is failing since it began to fail, however often it has been tried
// since, and also when it is its calls that fail and not its connection.
func TestStatusLeftAlone(t *testing.T) {
	f := newFaulty(always(failure(bridge.ErrTimeout)))
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Breaker: breaker.Options{Failures: 2, Pause: time.Second}}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		f.mute.Store(true)
		f.closed.Store(true)
		for range 2 {
			do(t, s, "1", "tools/call", `{"name":"x"}`)
		}
		began := time.Now()
		for range 3 {
			if st := state(g); st.State != "failing" || st.Reason == "" || !st.Since.Equal(began) || (st.Breaker == "open") != st.RetryAt.After(time.Now()) {
				t.Errorf("%v later: %+v", time.Since(began), st)
			}
			time.Sleep(10 * time.Second)
			do(t, s, "1", "tools/call", `{"name":"x"}`)
		}
	})
}

func TestStatusFailing(t *testing.T) {
	f := newFaulty(nil)
	f.closed.Store(true)
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Breaker: breaker.Options{Off: true}}}, func(t *testing.T, g *gateway) {
		initialize(t, g, "", bridgetest.InitializeParams)
		began := time.Now()
		for range 5 {
			if st := state(g); st.State != "failing" || st.Usable || !st.Since.Equal(began) || !st.LastAt.Equal(time.Now()) {
				t.Errorf("%v later: %+v", time.Since(began), st)
			}
			time.Sleep(time.Minute + time.Second)
			if st := state(g); st.State != "failing" || !st.Usable {
				t.Errorf("%v later, when somebody has to try it: %+v", time.Since(began), st)
			}
			initialize(t, g, "", bridgetest.InitializeParams)
		}
		f.closed.Store(false)
		initialize(t, g, "", bridgetest.InitializeParams)
		if st := state(g); st.State != "ready" || !st.Usable || !st.Since.IsZero() {
			t.Errorf("when it works: %+v", st)
		}
	})
}

// The totals say what is there, of each kind of client.
func TestTotals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
			if m.Method == "tools/call" {
				f.say(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
			}
			return m.Method == "tools/call"
		}}
		g := newGateway(Options{Servers: []ServerOptions{{Name: "one", ServerSettings: ServerSettings{Prefix: "1"}, Adapter: ask}, {Name: "two", ServerSettings: ServerSettings{Prefix: "2"}, Adapter: moody()}}, Log: slog.New(slog.DiscardHandler)})
		var s *sitting
		for i, server := range []string{"", "two"} {
			var err error
			if s, _, err = join(t, g, SessionOptions{Server: server, ID: fmt.Sprint("id", i)}); err != nil {
				t.Fatal(err)
			}
		}
		start(t, s, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"hang"}}`)
		v := visitor{}.ask(t, g, "1", era.Listen, `"notifications":{"toolsListChanged":true}`)
		modern := visitor{}.ask(t, g, "2", "tools/call", `"name":"2hang"`)
		visitor{}.call(t, g, "tools/call", `"name":"1ask"`) // is parked
		synctest.Wait()
		got := g.Totals()
		if got.Sessions != 2 || got.Aggregate != 1 || got.Calls != 2 || got.Stateless != 1 || got.Subscriptions != 1 || got.Admitted != 5 || got.MaxBytes != 512<<20 {
			t.Errorf("totals = %+v", got)
		}
		if st := g.Status(); st[0].Parked != 1 || st[1].Parked != 0 || st[1].Sessions != 1 {
			t.Errorf("status = %+v", st)
		}
		v.cancel(bridge.ErrCancelled)
		modern.cancel(bridge.ErrCancelled)
		g.Close(context.Background())
		<-v.done
		<-modern.done
		if got := g.Totals(); got.Sessions+got.Calls+got.Stateless+got.Subscriptions != 0 {
			t.Errorf("totals at the end = %+v", got)
		}
	})
}

// What is dropped because a client does not listen, or because a server cannot
// be had, is counted.
func TestDropped(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, a, err := initialize(t, g, "", bridgetest.InitializeParams)
		if err != nil {
			t.Fatal(a, err)
		}
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
		for range pendingLimits.Events + 7 {
			f.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
		}
		synctest.Wait()
		if n := g.Totals().Dropped; n != 7 {
			t.Errorf("%d dropped, want 7", n)
		}
	})
}

// A server that is out of reach although its session lives on is shown as failing, until a call succeeds. One caller's wrong
// token is no failure of the server; that it refuses what the bridge itself shows is one.
func TestStatusOfCalls(t *testing.T) {
	for _, test := range []struct {
		kind  error
		token string
		want  string
	}{
		{bridge.ErrUnavailable, "", "failing"},
		{bridge.ErrUnavailable, "wrong", "failing"},
		{bridge.ErrCredentials, "", "failing"},
		{bridge.ErrCredentials, "wrong", "ready"},
		{bridge.ErrRejected, "", "ready"},
	} {
		f := newFaulty(nil)
		run(t, ServerOptions{Adapter: f, Forward: []bridge.Forward{{From: "X-Token", To: "Authorization"}}}, func(t *testing.T, g *gateway) {
			h := http.Header{}
			if test.token != "" {
				h.Set("X-Token", test.token)
			}
			first := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`)
			s, _, err := g.initialize(context.Background(), first, SessionOptions{Server: "fake", ID: "s", Envelope: &Envelope{Header: h}})
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"ready", test.want, test.want, "ready"} {
				f.outcome = always(failure(test.kind))
				if want == "ready" && test.want != "ready" {
					f.outcome = nil
				}
				do(t, s, "1", "tools/call", `{"name":"x"}`)
				if st := state(g); st.State != want || st.Usable != (want == "ready") {
					t.Errorf("%v, token %q: %s, usable %v, want %s", test.kind, test.token, st.State, st.Usable, want)
				}
			}
			if n := f.opened(); n != 1 {
				t.Errorf("%d connections, want 1: its session lives on", n)
			}
		})
	}
}
