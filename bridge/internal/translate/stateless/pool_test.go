package stateless_test

import (
	"context"
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
