package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A server that is out of reach although its session lives on is shown as
// failing, until a call succeeds.
func TestFared(t *testing.T) {
	var out atomic.Bool
	f := &fake{}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if !out.Load() || m.Method != "tools/call" {
			return false
		}
		return f.Abort(number(m.ID), &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it cannot be reached", Err: errors.New("refused")})
	}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		state := func() string { return g.Status()[0].State }
		for _, want := range []string{"ready", "failing", "failing", "ready"} {
			out.Store(want == "failing")
			do(t, s, "1", "tools/call", `{"name":"x"}`)
			if got := state(); got != want {
				t.Errorf("state %q, want %q", got, want)
			}
		}
		if n := f.opened(); n != 1 {
			t.Errorf("%d connections, want 1: its session lives on", n)
		}
	})
}

// One caller's wrong token, or a request that the server does not take, is no
// failure of the server; that it refuses what the bridge itself shows is one.
func TestFaredRejected(t *testing.T) {
	for _, test := range []struct {
		name  string
		kind  error
		token string
		want  string
	}{
		{"a caller's token", bridge.ErrCredentials, "wrong", "ready"},
		{"the bridge's own", bridge.ErrCredentials, "", "failing"},
		{"too large, or too often", bridge.ErrRejected, "", "ready"},
		{"out of reach", bridge.ErrUnavailable, "wrong", "failing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{}
			opens := true
			f.before = func(context.Context, int) error {
				if opens {
					return nil
				}
				return failure(test.kind)
			}
			f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
				return m.Method == "tools/call" && f.Abort(number(m.ID), failure(test.kind))
			}
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
				do(t, s, "1", "tools/call", `{"name":"x"}`)
				if st := g.Status()[0]; st.State != test.want || st.Usable != (test.want == "ready") {
					t.Errorf("after a call: %s, usable %v, want %s", st.State, st.Usable, test.want)
				}
				do(t, s, "1", "tools/list", `{}`) // it works again
				if test.kind == bridge.ErrRejected {
					return // a server to which no connection is made is of no use
				}
				opens = false
				if _, _, err = g.initialize(context.Background(), first, SessionOptions{Server: "fake", ID: "s2", Envelope: &Envelope{Header: h}}); err == nil {
					t.Fatal("there is a connection")
				}
				if st := g.Status()[0]; st.State != test.want || st.Usable != (test.want == "ready") {
					t.Errorf("after an opening: %s, usable %v, want %s", st.State, st.Usable, test.want)
				}
			})
		})
	}
}

// A server that does not take one request works: what one client sends says
// nothing about others. That our credentials are refused is for the operator to
// see.
func TestDeclinedWorks(t *testing.T) {
	for _, test := range []struct {
		kind  error
		works bool
	}{{bridge.ErrRejected, true}, {bridge.ErrCredentials, false}, {bridge.ErrUnavailable, false}} {
		f := newFaulty(always(failure(test.kind)))
		run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
			s, _ := begin(t, g, "")
			do(t, s, "1", "tools/call", `{"name":"x"}`)
			if st := state(g); st.Usable != test.works || (st.State == "ready") != test.works || (st.Failures == 0) != test.works {
				t.Errorf("after %v: %+v", test.kind, st)
			}
			f.outcome = nil
			do(t, s, "1", "tools/call", `{"name":"x"}`)
			if st := state(g); !st.Usable || st.State != "ready" {
				t.Errorf("after an answer: %+v", st)
			}
		})
	}
}
