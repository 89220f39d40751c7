package stateless_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// line is a connection to a server of some revision, which answers each call with
// the number of the connection.
type line struct {
	bridge.Upstream
	n      int
	from   *bridge.Caller
	server bridge.Greeting
	closed *atomic.Int64
}

func (l *line) Server() *bridge.Greeting                              { return &l.server }
func (l *line) Caller() *bridge.Caller                                { return l.from }
func (l *line) Checked() bridge.Upstream                              { return l }
func (l *line) Go(func(context.Context)) bool                         { return false }
func (l *line) Keep(context.Context) (func(), error)                  { return func() {}, nil }
func (l *line) Ping(context.Context, time.Duration) error             { return nil }
func (l *line) Known(context.Context) (*bridge.Greeting, bool, error) { return &l.server, false, nil }
func (l *line) Holds(*bridge.Request, *bridge.Greeting, error) bool   { return false }

func (l *line) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	m, err := jsonrpc.Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","line":%d}}`, l.n))
	return m, err
}

func (l *line) Close(context.Context) error {
	l.closed.Add(1)
	return nil
}

// server counts the connections that it makes.
type server struct {
	revision string
	made     *int
	closed   *atomic.Int64
}

func (*server) Misheaded(*bridge.Request) *jsonrpc.Message { return nil }
func (*server) Heard(*jsonrpc.Message)                     {}

func (s *server) Line(from *bridge.Caller, _ bridge.Client) stateless.Line {
	*s.made++
	return &line{n: *s.made, from: from, server: bridge.Greeting{Revision: s.revision, Capabilities: []byte("{}"), Result: []byte("{}")}, closed: s.closed}
}

// budget is a Budget of so many connections.
type budget int64

func (b budget) Most() int64            { return int64(b) }
func (budget) Closing() (closed func()) { return func() {} }

// pool returns a Pool of connections to a server of that revision, and how many
// were made and closed.
func pool(t *testing.T, revision string, o stateless.Options) (p *stateless.Pool, made *int, closed *atomic.Int64) {
	key, err := seal.New()
	if err != nil {
		t.Fatal(err)
	}
	made, closed = new(int), new(atomic.Int64)
	o.Legacy = lower.Options{
		Name: "fake", Log: slog.New(slog.DiscardHandler), Seals: key, Rewrites: &list.Rewrites{},
	}
	o.Queue, o.Shares = limits.NewQueue("fake", limits.Options{}), limits.NewShares(100, 0)
	o.Server = &server{revision, made, closed}
	o.Force = context.Background()
	return stateless.New(o), made, closed
}

// over returns the number of the connection that a call went over.
func over(t *testing.T, p *stateless.Pool, principal, caps, meta string) string {
	t.Helper()
	r := &bridge.Request{
		Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{`+meta+`}}}`),
		From:    &bridge.Caller{Principal: principal, Revision: era.LatestModern, Capabilities: []byte(caps)},
	}
	m, err := p.Call(t.Context(), r)
	if err != nil || m.Error != nil {
		t.Fatalf("got %s, %v", bridgetest.Text(m), err)
	}
	return string(m.Result)
}

// TestSharing checks which requests share a connection, by the share setting and the era of the server.
func TestSharing(t *testing.T) {
	const legacy, modern = era.Rev20251125, era.Rev20260728
	for _, tc := range []struct {
		name, revision string
		sharing        stateless.Sharing
		want           int // connections for five requests
	}{
		{"capabilities, lanes and principals differ at a legacy server", legacy, stateless.Apart, 4},
		{"only principals differ at a modern one", modern, stateless.Apart, 2},
		{"everybody", legacy, stateless.Everybody, 1},
		{"each call", legacy, stateless.EachCall, 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, made, closed := pool(t, tc.revision, stateless.Options{Sharing: tc.sharing, Budget: budget(10)})
				over(t, p, "", `{}`, "")
				over(t, p, "", `{ }`, "") // as the first
				over(t, p, "", `{"experimental":{"e":{}}}`, "")
				over(t, p, "", `{}`, `"`+era.KeyLane+`":"l"`)
				if tc.sharing != stateless.EachCall {
					over(t, p, "", `{}`, `"dev.mcp-bridge\/lane":"\u006c"`) // the same one
				}
				over(t, p, "q", `{}`, "")
				if *made != tc.want {
					t.Errorf("%d connections, want %d", *made, tc.want)
				}
				if err := p.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if st := p.Status(); closed.Load() != int64(*made) || st != (stateless.Status{}) {
					t.Errorf("%d of %d connections closed, left: %+v", closed.Load(), *made, st)
				}
			})
		})
	}
}

// A principal has eight connections for different wishes. Its older ones make room, and those of others do not.
func TestSharingBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, made, closed := pool(t, era.Rev20251125, stateless.Options{Budget: budget(100)})
		over(t, p, "q", `{}`, "")
		for n := range 10 {
			over(t, p, "p", `{}`, fmt.Sprintf(`%q:"%d"`, era.KeyLane, n))
		}
		if synctest.Wait(); *made != 11 || closed.Load() != 2 {
			t.Errorf("%d connections made, and %d closed; want 11 and 2", *made, closed.Load())
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// If fewer connections are allowed than exist, unused ones make room.
func TestLowered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := lane.NewBudget("fake", 10, nil, nil, nil)
		p, made, closed := pool(t, era.Rev20260728, stateless.Options{Budget: most})
		for _, principal := range []string{"a", "b", "c", "d", "e"} {
			over(t, p, principal, `{}`, "")
		}
		most.Set(2)
		over(t, p, "f", `{}`, "")
		if synctest.Wait(); *made != 6 || closed.Load() != 4 {
			t.Errorf("%d connections made, and %d closed; want 6 and 4", *made, closed.Load())
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An idle connection is closed, and makes room on request.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, made, closed := pool(t, era.Rev20260728, stateless.Options{Budget: budget(10), Idle: time.Minute})
		over(t, p, "", `{}`, "")
		for n, after := range []time.Duration{40 * time.Second, 30 * time.Second, 31 * time.Second} { // used once more after 40 s
			time.Sleep(after)
			synctest.Wait()
			if want := int64(n / 2); closed.Load() != want {
				t.Errorf("%d connections closed, want %d", closed.Load(), want)
			}
			if n == 0 {
				over(t, p, "", `{}`, "")
			}
		}
		over(t, p, "", `{}`, "")
		if p.Yield("q", true) {
			t.Error("another principal's connection gives way")
		}
		if !p.Yield("q", false) || p.Yield("q", false) {
			t.Error("the one connection gives way once")
		}
		over(t, p, "", `{}`, "")
		p.CloseUnused()
		if synctest.Wait(); closed.Load() != 3 {
			t.Errorf("CloseUnused has left an unused connection")
		}
		_ = p.Close(t.Context())
		if *made != 3 || closed.Load() != 3 {
			t.Errorf("%d made, %d closed; want 3", *made, closed.Load())
		}
	})
}

// A principal has so many connections. The one that was not used for longest makes room, but none that is in use.
func TestProfiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, stateless.Options{Budget: budget(100)})
		s.serve = func(r *bridge.Request) *jsonrpc.Message {
			if r.Name() == "slow" {
				return nil
			}
			return bridgetest.Result(t, `{}`)
		}
		caps := func(n int) string { return fmt.Sprintf(`{"experimental":{"e%d":{}}}`, n) }
		quick := func(n int) { s.ask("", caps(n), "tools/call", `{"name":"x"}`).answer() }
		slow := func(principal string, n int) *visit {
			v := s.ask(principal, caps(n), "tools/call", `{"name":"slow"}`)
			synctest.Wait()
			return v
		}
		const most = 8
		busy := []*visit{slow("", 0)}
		for n := range most {
			quick(n)
		}
		quick(100)
		synctest.Wait()
		if open := s.pool.Status().Open; open != most || len(s.all) != most+1 {
			t.Errorf("%d connections of %d, want %d", open, len(s.all), most)
		}
		quick(0) // the first is still there, and the third, but not the second
		if quick(2); len(s.all) != most+1 {
			t.Errorf("%d connections were opened", len(s.all))
		}
		for n := range most {
			busy = append(busy, slow("", n))
		}
		bridgetest.Contains(t, slow("", most).answer(), "it has too many connections for clients of different capabilities")
		for _, v := range busy {
			v.cancel(bridge.ErrCancelled)
			v.answer()
		}
		s.end()

		s = play(t, era.Rev20251125, `{}`, stateless.Options{Budget: budget(100)})
		busy = nil
		for range lower.MaxParked + 1 {
			busy = append(busy, s.ask("p", able, "tools/call", `{"name":"slow"}`))
			time.Sleep(200 * time.Millisecond)
		}
		if open, queued := s.pool.Status().Open, s.pool.Status().Queued; open != lower.MaxParked || queued != 1 {
			t.Errorf("%d connections of one caller, and %d calls wait", open, queued)
		}
		for _, v := range busy {
			v.cancel(bridge.ErrCancelled)
			v.answer()
		}
		s.end()

		s = play(t, era.Rev20251125, `{}`, stateless.Options{Shares: limits.NewShares(4, 2)})
		s.serve = func(r *bridge.Request) *jsonrpc.Message { return nil }
		for n := range 3 {
			busy = append(busy, slow("p", n))
		}
		bridgetest.Contains(t, slow("p", 3).answer(), "one caller has too many connections to it: the limit is 3")
		for _, v := range busy {
			v.cancel(bridge.ErrCancelled)
			v.answer()
		}
		s.end()
	})
}

// A parked call is found again, gives way to others, and ends with its principal's key.
func TestParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, stateless.Options{})
		park := func() (string, *bridgetest.Call) {
			v := s.ask("p", able, "tools/call", `{"name":"x"}`)
			synctest.Wait()
			c := s.all[len(s.all)-1].Next()
			c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
			return statePattern.FindString(v.answer()), c
		}
		state, c := park()
		v := s.ask("p", able, "tools/call", `{"name":"x",`+state+`,"inputResponses":{"r1":{"roots":[]}}}`)
		synctest.Wait()
		c.Answer(t, `{"content":[]}`)
		bridgetest.Contains(t, v.answer(), `"content":[]`)
		state, c = park()
		s.pool.Revoke("p", bridge.ErrRevoked)
		if <-c.Ctx.Done(); !errors.Is(context.Cause(c.Ctx), bridge.ErrRevoked) {
			t.Error(context.Cause(c.Ctx))
		}
		bridgetest.Contains(t, s.ask("p", able, "tools/call", `{"name":"x",`+state+`}`).answer(), "no longer exists")
		s.end()

		// A call that waits for a connection gets that of a parked call whose client has stayed away for a minute.
		s = play(t, era.Rev20251125, `{}`, stateless.Options{Budget: budget(1)})
		_, c = park()
		time.Sleep(time.Minute)
		v = s.ask("p", able, "tools/call", `{"name":"y"}`)
		<-c.Ctx.Done()
		s.all[0].Next().Answer(t, `{}`)
		bridgetest.Contains(t, v.answer(), `"complete"`)
		s.end()
	})
}

// A connection is not idle while a call is in flight.
func TestIdleAfterUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.LatestModern, `{}`, stateless.Options{Idle: time.Minute})
		for n, after := range []time.Duration{0, 2 * time.Minute} {
			v := s.ask("", `{}`, "tools/call", `{"name":"x"}`)
			c := s.all0().Next()
			time.Sleep(after)
			c.Answer(t, `{}`)
			v.answer()
			if synctest.Wait(); s.all0().Closed() != 0 {
				t.Errorf("the connection is closed after call %d", n)
			}
		}
		time.Sleep(61 * time.Second)
		if synctest.Wait(); s.all0().Closed() != 1 {
			t.Error("the connection stays open")
		}
		s.end()
	})
}
