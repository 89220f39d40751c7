package share

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ended is an Observer of lanes that open nothing.
type ended struct{ lane.Observer }

func (ended) Ended() {}

// server is the Upstream of a shared lane. It records its subscribers.
type server struct {
	bridge.Upstream
	takes   time.Duration // to answer
	refuses string        // a method

	mu   sync.Mutex // guards subs
	subs map[string]bool
}

func (s *server) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	time.Sleep(s.takes)
	if r.Method == s.refuses {
		return jsonrpc.NewError(nil, -1, "no", nil), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs[r.URI()] = r.Method == "resources/subscribe"
	return jsonrpc.NewResult(nil, []byte("{}")), nil
}

func (s *server) SharedLane(from *bridge.Caller, to bridge.Client, givenUp func()) (*lane.Lane, bridge.Upstream) {
	return lane.New(&lane.Options{}, from, lane.Ends{Client: to, Observer: ended{}, GivenUp: givenUp}), s
}

// shared runs f in a bubble with the shared lanes of a server, of which there may be
// four.
func shared(t *testing.T, up *server, f func(t *testing.T, h *Hubs)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		up.subs = map[string]bool{}
		h := New(Options{
			Server: "s", Budget: lane.NewBudget("s", 4, nil, nil, nil), Force: t.Context(), Lanes: up,
		})
		defer h.Close(t.Context())
		f(t, h)
	})
}

func joined(t *testing.T, h *Hubs, principal string) *View {
	t.Helper()
	v, err := h.Join(bridge.Caller{Principal: principal, Capabilities: []byte("{}"), Params: []byte("{}")}, bridge.Nobody{}, false)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A lane is closed on request when no session uses it.
func TestHubsRelease(t *testing.T) {
	shared(t, &server{}, func(t *testing.T, s *Hubs) {
		v, b := joined(t, s, "a"), joined(t, s, "b")
		if len(s.hubs) != 2 {
			t.Fatalf("%d lanes", len(s.hubs))
		}
		var key bridge.ConnectionKey
		for c, h := range s.hubs {
			if h == v.h {
				key = c
			}
		}
		if s.Release(key); s.hubs[key] != v.h {
			t.Error("a lane that is used was closed")
		}
		_, _ = v.Close(t.Context()), b.Close(t.Context())
		s.Release(key)
		synctest.Wait()
		if s.hubs[key] != nil || v.h.lane.State() != lane.Ended || b.h.lane.State() == lane.Ended {
			t.Errorf("%d lanes are left", len(s.hubs))
		}
	})
}

func (v *View) says(t *testing.T, method, uri string) {
	t.Helper()
	m := bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"uri":%q}}`, method, uri))
	if _, err := v.Call(context.Background(), &bridge.Request{Message: m, From: &bridge.Caller{}}); err != nil {
		t.Error(err)
	}
}

// The hubs of principals that left for good do not accumulate.
func TestHubsForgetPrincipals(t *testing.T) {
	shared(t, &server{}, func(t *testing.T, h *Hubs) {
		stays := joined(t, h, "stays")
		for i := range 20 {
			_ = joined(t, h, fmt.Sprint(i)).Close(t.Context())
		}
		if n := len(h.hubs); n > 4 || joined(t, h, "stays").h != stays.h {
			t.Errorf("%d shared connections are kept in mind", n)
		}
	})
}

// Subscribe, unsubscribe and leave race. In the end the hub and the server have the same subscribers.
func TestHubSubscriptionRaces(t *testing.T) {
	up := &server{takes: time.Millisecond}
	shared(t, up, func(t *testing.T, s *Hubs) {
		stays := joined(t, s, "p")
		var wg sync.WaitGroup
		for i := range 20 {
			v := joined(t, s, "p")
			wg.Go(func() {
				for range 20 {
					v.says(t, "resources/subscribe", "a:")
					v.says(t, "resources/subscribe", "b:")
					v.says(t, "resources/unsubscribe", "a:")
				}
				_ = v.Close(t.Context())
			})
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				_ = v.Close(t.Context())
			})
		}
		wg.Wait()
		stays.says(t, "resources/subscribe", "a:")
		time.Sleep(time.Second)
		synctest.Wait()
		if h := stays.h; !up.subs["a:"] || up.subs["b:"] || h.subs.Len() != 1 {
			t.Errorf("server %v, hub has %d; want a: only", up.subs, h.subs.Len())
		}
	})
}

// A session that ends while it subscribes leaves no subscription behind. Neither does one whose server refuses
// to end it.
func TestHubForgetsSubscriptions(t *testing.T) {
	up := &server{takes: time.Second}
	shared(t, up, func(t *testing.T, h *Hubs) {
		v := joined(t, h, "p")
		var wg sync.WaitGroup
		wg.Go(func() { v.says(t, "resources/subscribe", "a:") })
		synctest.Wait()
		_ = v.Close(t.Context())
		wg.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		if up.subs["a:"] || v.h.subs.Len() != 0 {
			t.Errorf("server %v, hub has %d; want none", up.subs, v.h.subs.Len())
		}
	})
	shared(t, &server{refuses: "resources/unsubscribe"}, func(t *testing.T, h *Hubs) {
		v := joined(t, h, "p")
		v.says(t, "resources/subscribe", "a:")
		v.says(t, "resources/unsubscribe", "a:")
		if v.h.subs.Len() != 0 {
			t.Errorf("hub has %d; want none", v.h.subs.Len())
		}
	})
}

// heard is a client that records updated resources.
type heard struct {
	bridge.Nobody
	uris []string
}

func (h *heard) Notify(m *jsonrpc.Message) { h.uris = append(h.uris, m.URI()) }

// A session is notified of the resources that it has subscribed to, and of parts of them.
func TestHubTellsOfParts(t *testing.T) {
	shared(t, &server{}, func(t *testing.T, h *Hubs) {
		client := &heard{}
		v, err := h.Join(bridge.Caller{Principal: "p", Capabilities: []byte("{}"), Params: []byte("{}")}, client, false)
		if err != nil {
			t.Fatal(err)
		}
		v.says(t, "resources/subscribe", "file:///docs")
		for _, uri := range []string{"file:///docs", "file:///docs/a.md", "file:///docs2", "file:///"} {
			v.h.Notify(bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%q}}`, uri)))
		}
		if got := fmt.Sprint(client.uris); got != "[file:///docs file:///docs/a.md]" {
			t.Errorf("told of %s", got)
		}
	})
}

// A principal has so many shared lanes. One that no session uses makes room, but not one of another principal.
func TestHubsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &server{subs: map[string]bool{}}
		h := New(Options{
			Server: "s", Budget: lane.NewBudget("s", 100, nil, nil, nil), Force: t.Context(), Lanes: up,
		})
		defer h.Close(t.Context())
		join := func(principal string, n int) (*View, error) {
			return h.Join(bridge.Caller{Principal: principal, Capabilities: fmt.Appendf(nil, `{"x":%d}`, n), Params: []byte("{}")}, bridge.Nobody{}, false)
		}
		other, _ := join("q", 0)
		_ = other.Close(t.Context())
		var all []*View
		for n := range MaxHubs {
			v, err := join("p", n)
			if err != nil {
				t.Fatalf("lane %d: %v", n, err)
			}
			all = append(all, v)
		}
		if _, err := join("p", MaxHubs); !errors.Is(err, bridge.ErrOverloaded) {
			t.Errorf("one more: %v", err)
		}
		if _, err := join("q", 1); err != nil {
			t.Errorf("of another principal: %v", err)
		}
		_ = all[3].Close(t.Context())
		if _, err := join("p", MaxHubs); err != nil {
			t.Errorf("after one connection became unused: %v", err)
		}
	})
}
