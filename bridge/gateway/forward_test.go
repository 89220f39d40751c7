package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// heads is a server that notes with which headers its connections and calls come.
type heads struct {
	fake
	f     string     // whose it is
	mu    sync.Mutex // guards the rest
	wrong string
	opens []http.Header
	sent  []http.Header
}

func (h *heads) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	h.mu.Lock()
	h.opens = append(h.opens, from.Header)
	h.mu.Unlock()
	up, err := h.fake.Open(ctx, from, rest)
	if err != nil {
		return nil, err
	}
	return &headsWire{up, h}, nil
}

type headsWire struct {
	bridge.Upstream
	h *heads
}

func (w *headsWire) note(r *bridge.Request) {
	if strings.HasSuffix(r.Name(), "bare") && w.h.f == "one" && (r.Header == nil || len(r.Header) > 0) {
		w.h.wrong = fmt.Sprintf("a request without headers came with %#v, want an empty one: nil would be somebody else's", r.Header)
	}
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.h.sent = append(w.h.sent, r.Header)
}

func (w *headsWire) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	w.note(r)
	return w.Upstream.Call(ctx, r)
}

func (w *headsWire) Notify(ctx context.Context, r *bridge.Request) error {
	w.note(r)
	return w.Upstream.Notify(ctx, r)
}

// A server gets what its own allow-list names, under the names of its own, and
// nothing else (D0.9).
func TestForward(t *testing.T) {
	sent := http.Header{"X-Tenant": {"t1"}, "X-Token": {"secret"}, "Authorization": {"Bearer mine"}, "X-Other": {"o"}}
	one, two, none := &heads{f: "one"}, &heads{}, &heads{}
	all(t, []stock{
		{name: "one", prefix: "one__", f: one, o: ServerOptions{Forward: []bridge.Forward{{From: "X-Tenant", To: "X-Tenant"}, {From: "X-Token", To: "Authorization"}}}},
		{name: "two", prefix: "two__", f: two, o: ServerOptions{Forward: []bridge.Forward{{From: "X-Other", To: "TENANT"}}, Share: SharePrincipal}},
		{name: "none", prefix: "none__", f: none},
	}, func(t *testing.T, b *Gateway) {
		for _, name := range []string{"", "one", "two", "none"} {
			s, a, err := b.Initialize(context.Background(), name, "x"+name, "", &Envelope{Header: sent}, bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`))
			if err != nil {
				t.Fatal(bridgetest.Text(a))
			}
			later := http.Header{"X-Token": {"newer"}}
			none := http.Header{"X-Odd": {"1"}}
			for i, tool := range []string{"one__x", "two__x", "none__x"} {
				m := bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q}}`, i, tool))
				_, _ = s.Call(m, &Envelope{Header: later}, nil)
			}
			s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`), &Envelope{Header: sent})
			_, _ = s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"one__bare"}}`), &Envelope{Header: none}, nil)
			synctest.Wait()
		}
		if one.wrong != "" {
			t.Error(one.wrong)
		}
		for _, test := range []struct {
			name  string
			h     *heads
			opens http.Header
			may   map[string]string
		}{
			{"one", one, http.Header{"X-Tenant": {"t1"}, "Authorization": {"secret"}}, map[string]string{"X-Tenant": "t1", "Authorization": "secret newer"}},
			{"two", two, http.Header{"TENANT": {"o"}}, map[string]string{"TENANT": "o"}},
			{"none", none, nil, nil},
		} {
			if len(test.h.opens) == 0 || len(test.h.sent) == 0 {
				t.Errorf("%s was not used", test.name)
			}
			for _, h := range test.h.opens {
				if fmt.Sprint(h) != fmt.Sprint(test.opens) {
					t.Errorf("%s was opened with %v, want %v", test.name, h, test.opens)
				}
			}
			newer := false
			for _, h := range test.h.sent {
				for name, values := range h {
					newer = newer || values[0] == "newer"
					if may := test.may[name]; may == "" || len(values) != 1 || !strings.Contains(may, values[0]) {
						t.Errorf("%s got %s: %v", test.name, name, values)
					}
				}
			}
			if test.name == "one" && !newer {
				t.Error("a call did not bring its own header")
			}
		}
	})
}

// Sessions with other values of what is forwarded do not share a connection.
func TestForwardShare(t *testing.T) {
	f := &heads{}
	run(t, ServerOptions{Adapter: f, Share: SharePrincipal, Forward: []bridge.Forward{{From: "X-Token", To: "TOKEN"}}}, func(t *testing.T, b *Gateway) {
		for i, token := range []string{"a", "b", "a", ""} {
			h := http.Header{"X-Token": {token}, "X-Odd": {fmt.Sprint(i)}}
			if token == "" {
				h = nil
			}
			if _, a, err := b.Initialize(context.Background(), "fake", fmt.Sprint("s", i), "", &Envelope{Header: h}, bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`)); err != nil {
				t.Fatal(bridgetest.Text(a))
			}
		}
		if got := fmt.Sprint(f.opens); got != "[map[TOKEN:[a]] map[TOKEN:[b]] map[]]" {
			t.Errorf("opened with %v", got)
		}
	})
}

// A server that is out of reach although its session lives on is shown as
// failing, until a call succeeds.
func TestFared(t *testing.T) {
	var out atomic.Bool
	f := &fake{}
	f.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
		if !out.Load() || m.Method != "tools/call" {
			return false
		}
		return w.Abort(number(m.ID), &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it cannot be reached", Err: errors.New("refused")})
	}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, b *Gateway) {
		s, _ := begin(t, b, "")
		state := func() string { return b.Status()[0].State }
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
			f.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
				return m.Method == "tools/call" && w.Abort(number(m.ID), failure(test.kind))
			}
			run(t, ServerOptions{Adapter: f, Forward: []bridge.Forward{{From: "X-Token", To: "Authorization"}}}, func(t *testing.T, b *Gateway) {
				h := http.Header{}
				if test.token != "" {
					h.Set("X-Token", test.token)
				}
				first := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`)
				s, _, err := b.Initialize(context.Background(), "fake", "s", "", &Envelope{Header: h}, first)
				if err != nil {
					t.Fatal(err)
				}
				do(t, s, "1", "tools/call", `{"name":"x"}`)
				if st := b.Status()[0]; st.State != test.want || st.Usable != (test.want == "ready") {
					t.Errorf("after a call: %s, usable %v, want %s", st.State, st.Usable, test.want)
				}
				do(t, s, "1", "tools/list", `{}`) // it works again
				if test.kind == bridge.ErrRejected {
					return // a server to which no connection is made is of no use
				}
				opens = false
				if _, _, err = b.Initialize(context.Background(), "fake", "s2", "", &Envelope{Header: h}, first); err == nil {
					t.Fatal("there is a connection")
				}
				if st := b.Status()[0]; st.State != test.want || st.Usable != (test.want == "ready") {
					t.Errorf("after an opening: %s, usable %v, want %s", st.State, st.Usable, test.want)
				}
			})
		})
	}
}

// Slow servers do not keep others from being started, and not all start at once.
func TestStarts(t *testing.T) {
	var mu sync.Mutex
	most, now := 0, 0
	var servers []stock
	for i := range 100 {
		f := &fake{before: func(ctx context.Context, _ int) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			defer func() { mu.Lock(); now--; mu.Unlock() }()
			took := 50 * time.Millisecond
			if i < 20 {
				took = 40 * time.Second
			}
			select {
			case <-time.After(took):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}}
		servers = append(servers, stock{name: fmt.Sprint("s", i), prefix: fmt.Sprint("s", i, "__"), f: f})
	}
	all(t, servers, func(t *testing.T, b *Gateway) {
		enter(t, b)
		ready := 0
		for _, st := range b.Status() {
			if st.State == "ready" {
				ready++
			}
		}
		if ready != 80 {
			t.Errorf("%d servers are ready after %v, want all 80 that are not slow", ready, greetPatience)
		}
		mu.Lock() // those that are slow go on
		defer mu.Unlock()
		if most > 20+maxStarts {
			t.Errorf("%d were started at once", most)
		}
	})
}
