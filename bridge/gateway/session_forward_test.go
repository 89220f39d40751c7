package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

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

func (h *headsWire) note(r *bridge.Request) {
	if strings.HasSuffix(r.Name(), "bare") && h.h.f == "one" && (r.Header == nil || len(r.Header) > 0) {
		h.h.wrong = fmt.Sprintf("a request without headers came with %#v, want an empty one: nil would be somebody else's", r.Header)
	}
	h.h.mu.Lock()
	defer h.h.mu.Unlock()
	h.h.sent = append(h.h.sent, r.Header)
}

func (h *headsWire) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	h.note(r)
	return h.Upstream.Call(ctx, r)
}

func (h *headsWire) Notify(ctx context.Context, r *bridge.Request) error {
	h.note(r)
	return h.Upstream.Notify(ctx, r)
}

// A server gets what its own allow-list names, under the names of its own, and
// nothing else (D0.9).
func TestForward(t *testing.T) {
	sent := http.Header{"X-Tenant": {"t1"}, "X-Token": {"secret"}, "Authorization": {"Bearer mine"}, "X-Other": {"o"}}
	one, two, none := &heads{f: "one"}, &heads{}, &heads{}
	all(t, []stock{
		{name: "one", prefix: "one__", f: one, o: ServerOptions{Forward: []bridge.Forward{{From: "X-Tenant", To: "X-Tenant"}, {From: "X-Token", To: "Authorization"}}}},
		{name: "two", prefix: "two__", f: two, o: ServerOptions{Forward: []bridge.Forward{{From: "X-Other", To: "TENANT"}}, ServerSettings: ServerSettings{Share: SharePrincipal}}},
		{name: "none", prefix: "none__", f: none},
	}, func(t *testing.T, g *gateway) {
		for _, name := range []string{"", "one", "two", "none"} {
			s, a, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{Server: name, ID: "x" + name, Envelope: &Envelope{Header: sent}})
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
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}, Forward: []bridge.Forward{{From: "X-Token", To: "TOKEN"}}}, func(t *testing.T, g *gateway) {
		for i, token := range []string{"a", "b", "a", ""} {
			h := http.Header{"X-Token": {token}, "X-Odd": {fmt.Sprint(i)}}
			if token == "" {
				h = nil
			}
			if _, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{Server: "fake", ID: fmt.Sprint("s", i), Envelope: &Envelope{Header: h}}); err != nil {
				t.Fatal(bridgetest.Text(m))
			}
		}
		if got := fmt.Sprint(f.opens); got != "[map[TOKEN:[a]] map[TOKEN:[b]] map[]]" {
			t.Errorf("opened with %v", got)
		}
	})
}
