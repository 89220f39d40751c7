package lane_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/deadline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server opens connections that answer everything at once. It is also the lane's observer and client, and
// records all events in order.
type server struct {
	bridge.Nobody
	fails atomic.Bool // to open
	// opening, if not nil, is called before a connection is opened.
	opening func(context.Context) error
	held    chan struct{} // until it is closed, calls of that method wait

	mu     sync.Mutex // guards the rest
	said   []string
	rest   bridge.Client // of the newest connection
	offers string        // its capabilities; empty means none
}

func (s *server) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, what)
}

// take returns the events since the last take, when all is quiet.
func (s *server) take() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	said := s.said
	s.said = nil
	return said
}

func (s *server) Open(ctx context.Context, _ *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	if s.opening != nil {
		if err := s.opening(ctx); err != nil {
			return nil, err
		}
	}
	if s.fails.Load() {
		return nil, &bridge.Error{Kind: bridge.ErrUnavailable, Public: "it could not be started"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said, s.rest = append(s.said, "open"), rest
	return conn{s, cmp.Or(s.offers, "{}")}, nil
}

// conn is a connection to the server.
type conn struct {
	s      *server
	offers string
}

func (c conn) Server() *bridge.Greeting {
	return &bridge.Greeting{Revision: "2025-11-25", Capabilities: []byte(c.offers)}
}
func (c conn) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	c.s.note(r.Method)
	if r.Method == "held" {
		<-c.s.held
	}
	return jsonrpc.NewResult(nil, []byte("{}")), nil
}
func (conn) Notify(context.Context, *bridge.Request) error { return nil }
func (c conn) Close(context.Context) error                 { c.s.note("close"); return nil }

// The following methods implement Observer, Gate and Health.
func (s *server) Reopened(lost bool) {
	s.note(map[bool]string{true: "Reopened lost", false: "Reopened"}[lost])
}
func (s *server) Replaced()                 { s.note("Replaced") }
func (s *server) Notified(*jsonrpc.Message) { s.note("Heard") }
func (s *server) Ended()                    { s.note("Ended") }
func (s *server) Notify(*jsonrpc.Message)   { s.note("Notify") }

type health struct{}

func (health) CallDone(error, bool)             {}
func (health) Failed(error)                     {}
func (health) NoRoom(error)                     {}
func (health) Lost(error)                       {}
func (health) Greeted(string, *bridge.Greeting) {}
func (health) Opened()                          {}
func (health) Restarted()                       {}

// gate lets everything pass, and records it.
type gate struct{ s *server }

func (g gate) Pass(context.Context, *bridge.Caller) error { g.s.note("Pass"); return nil }
func (g gate) Left() time.Duration                        { return 0 }
func (g gate) Opening(context.Context, *bridge.Caller) (func(lane.Conn, bridge.Upstream, error) bridge.Upstream, error) {
	return func(_ lane.Conn, up bridge.Upstream, err error) bridge.Upstream {
		g.s.note("Opening")
		return gated{up, g.s}
	}, nil
}

type gated struct {
	bridge.Upstream
	s *server
}

func (g gated) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	g.s.note("through the gate")
	return g.Upstream.Call(ctx, r)
}

func options(s bridge.Adapter) *lane.Options {
	total := lane.NewTotal(3, limits.NewShares(3, 0))
	o := &lane.Options{
		Name: "s", Adapter: s, Log: slog.New(slog.DiscardHandler), Idle: time.Hour, Handshake: time.Minute, Settings: new(atomic.Pointer[lane.Settings]), Health: health{},
		Budget: lane.NewBudget("s", 2, limits.NewShares(2, 0), total, nil),
	}
	o.Set(lane.Settings{Restarts: 30, MaxPause: time.Minute})
	return o
}

func call(t *testing.T, l *lane.Lane, method, params string) error {
	t.Helper()
	_, err := l.Call(t.Context(), &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`), From: l.Caller()})
	return err
}

// told is a client that waits until it knows of the server's replacement.
type told struct {
	bridge.Nobody
	gone func()
}

func (t told) Gone(error) { t.gone() }

// A caller that comes during the notifications of a replacement gets a connection to the new server. Clients
// begin again as soon as they know, while others do not know yet.
func TestReplacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{offers: `{"logging":{}}`}
		var l *lane.Lane
		again := make(chan error, 1)
		o := options(s)
		o.Budget = lane.NewBudget("s", 9, limits.NewShares(9, 0), lane.NewTotal(9, limits.NewShares(9, 0)), nil)
		l = lane.New(o, &bridge.Caller{}, lane.Ends{Observer: s, Client: told{gone: func() {
			go func() { again <- call(t, l, "initialize", "{}") }()
			time.Sleep(time.Second) // of the bubble: whatever they can do is done
		}}})
		if err := call(t, l, "initialize", "{}"); err != nil {
			t.Fatal(err)
		}
		s.rest.Gone(errors.New("it has died"))
		s.offers = "{}"
		if err := call(t, l, "x", "{}"); !errors.Is(err, bridge.ErrReplaced) {
			t.Errorf("a call of one that knew the server as it was: %v", err)
		}
		if err := <-again; err != nil {
			t.Errorf("who began again: %v", err)
		}
		if err := call(t, l, "x", "{}"); err != nil {
			t.Errorf("the call after that: %v", err)
		}
		_ = l.Close(t.Context())
	})
}

// The observer gets a connection's events in order, and before the client. Calls pass the gate. Pings and
// restored settings do not.
func TestDoors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		l := lane.New(options(s), &bridge.Caller{}, lane.Ends{Client: s, Observer: s, Gate: gate{s}})
		for _, step := range []struct {
			name  string
			do    func()
			state lane.State
			want  []string
		}{
			{"nothing yet", func() {}, lane.Idle, nil},
			{"a call", func() { _ = call(t, l, "resources/subscribe", `{"uri":"a:"}`) }, lane.Open,
				[]string{"Pass", "open", "Opening", "through the gate", "resources/subscribe"}},
			{"a ping", func() { _ = l.Ping(t.Context(), time.Second) }, lane.Open, []string{"ping"}},
			{"a notification", func() { s.rest.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"x"}`)) }, lane.Open, []string{"Heard", "Notify"}},
			{"a loss", func() { s.fails.Store(true); s.rest.Gone(errors.New("it died")) }, lane.Lost, []string{"close"}},
			{"another connection", func() { s.fails.Store(false); time.Sleep(time.Minute) }, lane.Open,
				[]string{"open", "Opening", "resources/subscribe", "Reopened lost", "Notify"}},
			{"the end", func() { _ = l.Close(t.Context()) }, lane.Ended, []string{"Ended", "close"}},
		} {
			step.do()
			got := s.take()
			if i := slices.Index(got, "open"); step.name == "another connection" {
				got = got[max(i, 0):] // without the attempts that fail
			} else if step.name == "a loss" {
				got = slices.DeleteFunc(got, func(what string) bool { return what == "Pass" || what == "Opening" }) // the first of them
			}
			if !slices.Equal(got, step.want) || l.State() != step.state {
				t.Errorf("%s: %q, state %d, want %q, %d", step.name, got, l.State(), step.want, step.state)
			}
		}
		if err := call(t, l, "x", "{}"); !errors.Is(err, bridge.ErrShutdown) {
			t.Errorf("a call after the end: %v", err)
		}
	})
}

// The time limit of a handshake is suspended while a person signs in, and only then (I-212).
func TestOpeningStandsStill(t *testing.T) {
	for signs, want := range map[bool]bool{true: true, false: false} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{opening: func(ctx context.Context) error {
				if signs {
					defer deadline.Hold(ctx)()
				}
				return backoff.For(ctx, time.Hour)
			}}
			l := lane.New(options(s), &bridge.Caller{}, lane.Ends{Client: s, Observer: s})
			began := time.Now()
			err := call(t, l, "x", "{}")
			if took := time.Since(began); (err == nil) != want || want && took != time.Hour || !want && took != time.Minute {
				t.Errorf("sign-in %v: %v after %v", signs, err, took)
			}
			_ = l.Close(t.Context())
		})
	}
}

// A kept connection stays open without calls. Others are closed when they are idle.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		l := lane.New(options(s), &bridge.Caller{}, lane.Ends{Client: s, Observer: s})
		defer l.Close(t.Context())
		release, err := l.Keep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		if l.State() != lane.Open {
			t.Errorf("state %d while it is kept", l.State())
		}
		release()
		time.Sleep(time.Hour + time.Second)
		if l.State() != lane.Idle {
			t.Errorf("state %d when nobody needs it", l.State())
		}
		if err := call(t, l, "x", "{}"); err != nil || !slices.Contains(s.take(), "Reopened") {
			t.Errorf("a call after that: %v", err)
		}
	})
}

// heldGate records the connections that it gets.
type heldGate struct {
	gate
	all *[]lane.Conn
}

func (h heldGate) Opening(context.Context, *bridge.Caller) (func(lane.Conn, bridge.Upstream, error) bridge.Upstream, error) {
	return func(c lane.Conn, up bridge.Upstream, _ error) bridge.Upstream {
		*h.all = append(*h.all, c)
		return up
	}, nil
}

// GoneIdle ends a connection without calls; one with calls stays.
func TestGoneIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		var all []lane.Conn
		l := lane.New(options(s), &bridge.Caller{}, lane.Ends{Client: s, Observer: s, Gate: heldGate{gate{s}, &all}})
		defer l.Close(t.Context())
		why := &bridge.Error{Kind: bridge.ErrUnsent, Public: "somebody wants another one"}
		if err := call(t, l, "x", "{}"); err != nil {
			t.Fatal(err)
		}
		s.held = make(chan struct{})
		done := make(chan error)
		go func() { done <- call(t, l, "held", "{}") }()
		synctest.Wait()
		if all[0].GoneIdle(why) || l.State() != lane.Open {
			t.Errorf("a connection with a call is closed: state %d", l.State())
		}
		close(s.held)
		if err := <-done; err != nil {
			t.Errorf("the call: %v", err)
		}
		s.take()
		if !all[0].GoneIdle(why) || all[0].GoneIdle(why) {
			t.Error("a connection without calls can be closed once")
		}
		if got := s.take(); !slices.Equal(got, []string{"close"}) {
			t.Errorf("it was %q", got)
		}
		began := time.Now()
		if err := call(t, l, "x", "{}"); err != nil || time.Since(began) > 2*time.Second || len(all) != 2 || all[0].GoneIdle(why) {
			t.Errorf("the next call: %v after %v, over connection %d", err, time.Since(began), len(all))
		}
	})
}

// A budget counts the connections to its server and to all. Its error names the full limit.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		total := lane.NewTotal(3, limits.NewShares(3, 0))
		var all []*lane.Lane
		budgets := map[string]*lane.Budget{}
		for _, open := range []struct{ server, full string }{
			{"a", ""}, {"a", ""}, {"a", "it has too many connections: see max_children of the server (the limit is 2)"},
			{"b", ""}, {"b", "the bridge has too many connections: see max_children (the limit is 3)"},
		} {
			o := options(s)
			if budgets[open.server] == nil {
				budgets[open.server] = lane.NewBudget(open.server, 2, limits.NewShares(2, 0), total, nil)
			}
			o.Budget = budgets[open.server]
			l := lane.New(o, &bridge.Caller{}, lane.Ends{Client: s, Observer: s})
			all = append(all, l)
			err := call(t, l, "x", "{}")
			if e, ok := errors.AsType[*bridge.Error](err); ok && e.Public != open.full || !ok && open.full != "" || ok && !errors.Is(err, bridge.ErrOverloaded) {
				t.Errorf("%s: %v, want %q", open.server, err, open.full)
			}
		}
		if a, b := budgets["a"].Open(), budgets["b"].Open(); a != 2 || b != 1 || total.Open() != 3 || total.Most() != 3 || budgets["a"].Opening() {
			t.Errorf("%d and %d are open, %d in all", a, b, total.Open())
		}
		for _, l := range all {
			_ = l.Close(t.Context())
		}
		if a, b := budgets["a"].Open(), budgets["b"].Open(); a+b+total.Open() != 0 {
			t.Errorf("%d and %d are left, %d in all", a, b, total.Open())
		}
	})
}

// single is an adapter with one connection, whose wire has a stream for each call.
type single struct{ *bridgetest.Upstream }

func (s single) Open(context.Context, *bridge.Caller, bridge.Client) (bridge.Upstream, error) {
	return s, nil
}

// Attributes implements bridge.Attributing.
func (single) Attributes() bool { return true }

// One principal cannot take all connections, of a server or of all: unused ones of its own make room first.
func TestBudgetOfPrincipals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			name             string
			slots            int
			own, all         *limits.Shares
			most             int // connections of p
			reason           string
			spares, yieldOwn int
		}{
			{"a server's", 4, limits.NewShares(4, 2), limits.NewShares(100, 2), 3, "one caller has too many connections to it", 0, 1},
			{"of all servers", 100, limits.NewShares(100, 2), limits.NewShares(8, 2), 6, "one caller has too many connections to all servers", 0, 0},
			{"two", 2, limits.NewShares(2, 2), limits.NewShares(100, 2), 1, "one caller has too many connections to it", 0, 1},
			{"no other may use it", 4, limits.NewShares(4, 1), limits.NewShares(100, 2), 4, "it has too many connections", 0, 0},
			{"an unused one", 6, limits.NewShares(4, 2), limits.NewShares(100, 2), 3, "one caller has too many connections to it", 1, 2},
		} {
			spare := &spares{of: tc.own, left: tc.spares}
			b := lane.NewBudget("s", tc.slots, tc.own, lane.NewTotal(100, tc.all), spare)
			var all []*lane.Lane
			open := func(principal string) error {
				o := options(&server{})
				o.Budget = b
				l := lane.New(o, &bridge.Caller{Principal: principal}, lane.Ends{Client: bridge.Nobody{}, Observer: &server{}})
				all = append(all, l)
				return call(t, l, "x", "{}")
			}
			for range tc.most + tc.spares {
				if err := open("p"); err != nil {
					t.Errorf("%s: %v", tc.name, err)
				}
			}
			if err, _ := errors.AsType[*bridge.Error](open("p")); err == nil || !strings.HasPrefix(err.Public, tc.reason) || !errors.Is(err, bridge.ErrOverloaded) {
				t.Errorf("%s: one more: %v", tc.name, err)
			}
			if err := open("q"); (err == nil) != (tc.name != "no other may use it") {
				t.Errorf("%s: another principal: %v", tc.name, err)
			}
			if spare.own != tc.yieldOwn {
				t.Errorf("%s: asked %d times for an unused connection of p", tc.name, spare.own)
			}
			for ; spare.yielded > 0; spare.yielded-- { // no connection was closed
				tc.own.Force("p", 1)
			}
			for _, l := range all {
				_ = l.Close(t.Context())
			}
			if synctest.Wait(); !tc.own.Idle() || !tc.all.Idle() || b.Open() != 0 {
				t.Errorf("%s: %d connections are left", tc.name, b.Open())
			}
		}
	})
}

// spares are unused connections of p, which make room for its others.
type spares struct {
	of                 *limits.Shares
	left, own, yielded int
}

// Yield implements lane.Spare.
func (s *spares) Yield(principal string, own bool) bool {
	if own && principal == "p" {
		s.own++
	}
	if !own || s.left == 0 {
		return false
	}
	s.left--
	s.yielded++
	s.of.Return("p", 1)
	return true
}

// A subscription that the server does not acknowledge in time fails, and is no reason to leave the server alone. One that
// has begun lasts.
func TestListenAcknowledged(t *testing.T) {
	for _, streams := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			o, up := options(s), bridgetest.NewUpstream(era.LatestModern, `{"tools":{"listChanged":true}}`)
			o.Handshake = time.Minute
			o.Adapter = plain{up} // one subscription for all
			if streams {
				o.Adapter = single{up}
			}
			from := bridgetest.Caller(era.LatestModern, "", "{}")
			l := lane.New(o, from, lane.Ends{Client: s, Observer: s})
			listen := func() <-chan error {
				done := make(chan error, 1)
				go func() {
					_, err := l.Call(t.Context(), bridgetest.Request(t, from, bridge.Nobody{}, era.Listen, `{"notifications":{"toolsListChanged":true}}`))
					done <- err
				}()
				return done
			}
			if err := l.Ping(t.Context(), time.Second); err != nil {
				t.Errorf("a ping without a connection: %v", err)
			}
			began, silent := time.Now(), listen()
			up.Next()
			err, _ := errors.AsType[*bridge.Error](<-silent)
			if err == nil || err.Public != "it did not acknowledge the subscription within 1m0s" || !errors.Is(err, bridge.ErrRejected) || time.Since(began) != time.Minute {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			lasts := listen()
			c := up.Next()
			c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, `{"notifications":{"toolsListChanged":true}}`))
			if time.Sleep(time.Hour); len(lasts) > 0 {
				t.Errorf("a subscription that has begun ended: %v", <-lasts)
			}
			c.Answer(t, "{}")
			<-lasts
			_ = l.Close(t.Context())
		})
	}
}

// Those who listen over a wire without streams share one subscription. Each hears of its own tasks only.
func TestSharedTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		o, up := options(s), bridgetest.NewUpstream(era.LatestModern, `{"tools":{"listChanged":true}}`)
		o.Adapter = plain{up}
		from := bridgetest.Caller(era.LatestModern, "", "{}")
		l := lane.New(o, from, lane.Ends{Client: s, Observer: s})
		ctx, cancel := context.WithCancel(t.Context())
		clients := []*bridgetest.Client{{}, {}}
		var wg sync.WaitGroup
		var c *bridgetest.Call
		for i, client := range clients {
			wg.Go(func() {
				_, _ = l.Call(ctx, bridgetest.Request(t, from, client, era.Listen, fmt.Sprintf(`{"notifications":{"taskIds":["t%d"]}}`, i)))
			})
			c = up.Next() // with those before
			c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, `{"notifications":`+gjson.GetBytes(c.Whole(), "notifications").Raw+`}`))
			synctest.Wait()
		}
		for _, id := range []string{"t0", "t1", "t2"} {
			c.Back.Notify(bridgetest.Notification(t, "notifications/tasks", `{"taskId":"`+id+`","status":"working"}`))
		}
		synctest.Wait()
		for i, client := range clients {
			got := strings.Join(client.Got(), "\n")
			if n := strings.Count(got, "notifications/tasks"); n != 1 || !strings.Contains(got, fmt.Sprintf(`"taskId":"t%d"`, i)) {
				t.Errorf("client %d heard %s", i, got)
			}
		}
		cancel()
		wg.Wait()
		_ = l.Close(t.Context())
	})
}

// plain is an adapter with one connection, whose wire has no streams.
type plain struct{ *bridgetest.Upstream }

func (p plain) Open(context.Context, *bridge.Caller, bridge.Client) (bridge.Upstream, error) {
	return p.Upstream, nil
}

// An open connection is pinged as the settings say from its next call on, also if it was opened while there were no pings.
func TestPingSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		o := options(s)
		o.Idle = -1
		l := lane.New(o, &bridge.Caller{}, lane.Ends{Client: s, Observer: s})
		use := func(every time.Duration, calls bool) {
			o.Set(lane.Settings{Restarts: 30, MaxPause: time.Second, Ping: every})
			if !calls {
				return
			}
			if err := call(t, l, "x", "{}"); err != nil {
				t.Fatal(err)
			}
			s.take()
		}
		for i, step := range []struct {
			every, during time.Duration
			least, most   int
		}{
			{0, time.Hour, 0, 0},
			{time.Minute, 10 * time.Minute, 9, 10},
			{5 * time.Minute, time.Hour, 11, 14}, // without a call
			{10 * time.Hour, time.Hour, 0, 1},
			{time.Minute, 4 * time.Minute, 3, 4}, // not only after ten hours
			{0, time.Hour, 0, 1},                 // without a call
			{time.Minute, 10 * time.Minute, 9, 10},
			{0, time.Hour, 0, 0}, // of another connection
			{time.Minute, 10 * time.Minute, 9, 10},
		} {
			if i == 7 {
				s.rest.Gone(errors.New("it has died"))
				synctest.Wait()
			}
			use(step.every, i != 2 && i != 5)
			time.Sleep(step.during)
			pings := 0
			for _, what := range s.take() {
				if what == "ping" {
					pings++
				}
			}
			if pings < step.least || pings > step.most {
				t.Errorf("step %d: %d pings in %v, one in %v", i, pings, step.during, step.every)
			}
		}
		_ = l.Close(t.Context())
	})
}
