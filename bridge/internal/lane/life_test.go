package lane_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// An opening that fails leaves no slot taken, however it fails.
func TestFailedOpenings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.fails.Store(true)
		o := options(s)
		o.Set(lane.Settings{Restarts: 100, MaxPause: time.Second})
		l := lane.New(o, &bridge.Caller{}, lane.Ends{Client: s, Observer: s})
		for range 6 { // more than are opened at once
			if err := call(t, l, "x", "{}"); !errors.Is(err, bridge.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if o.Budget.Open() != 0 || o.Budget.Opening() {
			t.Errorf("%d slots are taken; opening: %t", o.Budget.Open(), o.Budget.Opening())
		}
		// The gate lets it pass at first, and not when it is its turn.
		g := lane.New(o, &bridge.Caller{}, lane.Ends{Client: s, Observer: s, Gate: lateGate{gate{s}}})
		for range 6 {
			if err := call(t, g, "x", "{}"); !errors.Is(err, bridge.ErrOpen) {
				t.Fatal(err)
			}
		}
		if o.Budget.Open() != 0 || o.Budget.Opening() {
			t.Errorf("behind a gate, %d slots are taken; opening: %t", o.Budget.Open(), o.Budget.Opening())
		}
		s.fails.Store(false)
		time.Sleep(time.Second)
		if err := call(t, l, "x", "{}"); err != nil {
			t.Error(err)
		}
		_, _ = l.Close(t.Context()), g.Close(t.Context())
	})
}

// lateGate refuses each connection when it is about to be opened.
type lateGate struct{ gate }

func (lateGate) Opening(context.Context, *bridge.Caller) (func(lane.Conn, bridge.Upstream, error) bridge.Upstream, error) {
	return nil, bridge.ErrOpen
}

// bounds bounds its openings itself.
type bounds struct{ *server }

func (bounds) BoundsOpenings() time.Duration { return 0 }

// At most four connections to a server are opened at once, unless the adapter bounds its openings. Who waits in vain gives
// the slot back.
func TestOpeningsAtOnce(t *testing.T) {
	for bounded, want := range map[bool]int32{false: 4, true: 6} {
		synctest.Test(t, func(t *testing.T) {
			var now, most atomic.Int32
			hold := make(chan struct{})
			s := &server{opening: func(ctx context.Context) error {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				<-hold
				return nil
			}}
			o := options(s)
			if o.Handshake = time.Hour; bounded {
				o.Adapter = bounds{s}
			}
			o.Budget = lane.NewBudget("s", 9, unlimited{}, lane.NewTotal(9, unlimited{}), nil)
			var all []*lane.Lane
			var wg sync.WaitGroup
			for i := range 6 {
				l := lane.New(o, &bridge.Caller{}, lane.Ends{Client: s, Observer: s})
				all = append(all, l)
				wg.Go(func() {
					if err := call(t, l, "x", "{}"); err != nil {
						t.Errorf("lane %d: %v", i, err)
					}
				})
			}
			synctest.Wait()
			hasty := *o
			hasty.Handshake = time.Minute
			l := lane.New(&hasty, &bridge.Caller{}, lane.Ends{Client: s, Observer: s})
			if !bounded {
				if err := call(t, l, "x", "{}"); !errors.Is(err, bridge.ErrOverloaded) || o.Budget.Open() != 6 {
					t.Errorf("one more: %v; %d slots are taken", err, o.Budget.Open())
				}
			}
			close(hold)
			wg.Wait()
			if most.Load() != want {
				t.Errorf("bounded by the adapter: %t, %d at once, want %d", bounded, most.Load(), want)
			}
			for _, l := range append(all, l) {
				_ = l.Close(t.Context())
			}
		})
	}
}

// unlimited is Shares without a bound.
type unlimited struct{}

func (unlimited) Take(string, int64) bool { return true }
func (unlimited) Return(string, int64)    {}
func (unlimited) Most() int64             { return 0 }
func (unlimited) Refusal(string) error    { return nil }

// failed is Health that keeps why openings failed.
type failed struct {
	health
	why *error
}

func (f failed) Failed(err error) { *f.why = err }

// A connection that ends before its opening returns is lost like any other. A call that fails unsent because the connection
// has ended is made once more over the next one, also if the lane has not heard of the end.
func TestGoneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		died := &bridge.Error{Kind: bridge.ErrLost, Public: "it died"}
		s := &server{}
		o := options(goneAtOnce{s, died})
		var why error
		o.Health = failed{health{}, &why}
		l := lane.New(o, &bridge.Caller{}, lane.Ends{Client: s, Observer: s})
		if err := call(t, l, "x", "{}"); !errors.Is(err, bridge.ErrLost) {
			t.Error(err)
		}
		if synctest.Wait(); l.State() != lane.Lost || why != error(died) {
			t.Errorf("state %d, %v", l.State(), why)
		}
		began := time.Now()
		o.Adapter = s
		if err := call(t, l, "x", "{}"); err != nil || time.Since(began) != time.Second {
			t.Errorf("the next call: %v after %v", err, time.Since(began))
		}
		_ = l.Close(t.Context())

		s = &server{}
		l = lane.New(options(unsent{s}), &bridge.Caller{}, lane.Ends{Client: s, Observer: s})
		if err := call(t, l, "x", "{}"); err != nil {
			t.Errorf("a call over a connection that has ended: %v", err)
		}
		if got := strings.Join(s.take(), ", "); got != "open, close, open, Reopened lost, x" {
			t.Errorf("the lane did %s", got)
		}
		_ = l.Close(t.Context())
	})
}

// goneAtOnce opens connections that end before Open returns.
type goneAtOnce struct {
	*server
	why error
}

func (g goneAtOnce) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	up, err := g.server.Open(ctx, from, rest)
	rest.Gone(g.why)
	return up, err
}

// unsent opens a connection that has ended without a word, and then others that work.
type unsent struct{ *server }

func (u unsent) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	first := len(u.said) == 0
	up, err := u.server.Open(ctx, from, rest)
	if first {
		return dead{up}, err
	}
	return up, err
}

type dead struct{ bridge.Upstream }

func (dead) Call(context.Context, *bridge.Request) (*jsonrpc.Message, error) {
	return nil, &bridge.Error{Kind: bridge.ErrUnsent, Public: "its connection has ended"}
}

// A server that forgets its sessions works: its connections are opened again at once, as often as it takes.
func TestForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		l := lane.New(options(s), &bridge.Caller{}, lane.Ends{Client: s, Observer: s})
		for i := range 40 {
			began := time.Now()
			l.Keep(t.Context())
			if took := time.Since(began); took != 0 {
				t.Fatalf("opening %d took %v", i, took)
			}
			time.Sleep(time.Second)
			s.rest.Gone(&bridge.Error{Kind: bridge.ErrUnsent, Public: "it has forgotten the session"})
			synctest.Wait()
		}
		_ = l.Close(t.Context())
	})
}

// A lane bounds the notifications that wait for a connection, and counts those that it drops. SetLevel stores
// a log level only while the lane has no connection.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		s := &server{opening: func(context.Context) error { <-hold; return nil }}
		o := options(s)
		o.Dropped = new(atomic.Uint64)
		l := lane.New(o, &bridge.Caller{}, lane.Ends{Client: s, Observer: s})
		if !l.SetLevel([]byte(`{"level":"info"}`)) {
			t.Error("the level of a lane without a connection is not set")
		}
		for range 640 {
			_ = l.Notify(t.Context(), &bridge.Request{Message: bridgetest.Notification(t, "notifications/x", "")})
		}
		synctest.Wait()
		if n := o.Dropped.Load(); n != 640-64 {
			t.Errorf("%d are dropped", n)
		}
		if l.SetLevel([]byte(`{"level":"debug"}`)) {
			t.Error("the level is set while the connection is opened")
		}
		close(hold)
		if synctest.Wait(); l.SetLevel([]byte(`{"level":"debug"}`)) {
			t.Error("the level of an open connection is set without it")
		}
		_ = l.Close(t.Context())
		if l.SetLevel([]byte(`{"level":"debug"}`)) {
			t.Error("the level of a closed lane is set")
		}
	})
}

// A gate sees how many questions named no call. An error without a text for clients is described to them in general.
func TestAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		var all []lane.Conn
		l := lane.New(options(s), &bridge.Caller{}, lane.Ends{Client: s, Observer: s, Gate: heldGate{gate{s}, &all}})
		if err := call(t, l, "x", "{}"); err != nil {
			t.Fatal(err)
		}
		s.rest.Ask(bridgetest.Question(t, "roots/list", "{}"), func(*jsonrpc.Message) {})
		if n := all[0].Asked(); n != 1 {
			t.Errorf("%d questions", n)
		}
		s.opening = func(context.Context) error { return errors.New("secret") }
		s.rest.Gone(errors.New("secret"))
		for range 5 {
			_ = call(t, l, "x", "{}")
		}
		var e *bridge.Error
		if err := call(t, l, "x", "{}"); !errors.As(err, &e) || !strings.HasSuffix(e.Public, "(it failed)") {
			t.Errorf("a call much later: %v", err)
		}
		_ = l.Close(t.Context())
	})
}

// The subscriptions over one connection are bounded together, each topic counted once.
func TestTopicsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{offers: "{}"}
		from := bridgetest.Caller(era.LatestModern, "", "{}")
		l := lane.New(options(modernServer{s}), from, lane.Ends{Client: s, Observer: s})
		listen := func(n int) <-chan string {
			done := make(chan string, 1)
			params := fmt.Sprintf(`{"notifications":{"resourceSubscriptions":["x:%d%s"]}}`, n, strings.Repeat("l", 1<<20-100))
			go func() {
				m, _ := l.Call(t.Context(), bridgetest.Request(t, from, &bridgetest.Client{}, era.Listen, params))
				done <- bridgetest.Text(m)
			}()
			synctest.Wait()
			return done
		}
		for _, n := range []int{0, 1, 1, 2, 3} {
			listen(n)
		}
		select {
		case got := <-listen(4):
			bridgetest.Contains(t, got, "-32603", "the subscriptions over one connection to the server have too many bytes together")
		default:
			t.Error("there is no bound")
		}
		_ = l.Close(t.Context())
	})
}

// modernServer opens connections to a modern server that acknowledges nothing.
type modernServer struct{ *server }

func (m modernServer) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	return deaf{}, nil
}

type deaf struct{ bridge.Upstream }

func (deaf) Server() *bridge.Greeting {
	return &bridge.Greeting{Revision: era.LatestModern, Capabilities: []byte("{}")}
}
func (deaf) Close(context.Context) error { return nil }
func (deaf) Call(ctx context.Context, _ *bridge.Request) (*jsonrpc.Message, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A user that needs an open connection without calls learns after five minutes that none can be opened, and then with each
// attempt.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan time.Time, 100)
		s := &server{}
		l := lane.New(options(s), &bridge.Caller{}, lane.Ends{Client: s, Observer: s, GivenUp: func() { told <- time.Now() }})
		if _, _, err := l.Known(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour + time.Second)
		if l.State() != lane.Idle {
			t.Errorf("state %d: the question for the greeting keeps the connection open", l.State())
		}
		release, err := l.Keep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lost := time.Now()
		s.fails.Store(true)
		s.rest.Gone(errors.New("it has died"))
		time.Sleep(5*time.Minute - time.Second)
		synctest.Wait()
		if len(told) > 0 {
			t.Error("told too early")
		}
		if after := (<-told).Sub(lost); after < 5*time.Minute || after > 6*time.Minute+time.Second {
			t.Errorf("told after %v", after)
		}
		<-told
		release()
		_ = l.Close(t.Context())
	})
}
