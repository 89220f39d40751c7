package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// ledger takes reports, each as a line.
type ledger struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (l *ledger) take(r report.Report) {
	name := r.Request.GivenName()
	if name != "" {
		name = " " + name
	}
	line := fmt.Sprintf("%q %s%s: %v", r.Server, r.Request.Method, name, r.Outcome)
	if r.Code != 0 {
		line += fmt.Sprint(" ", r.Code)
	}
	if (r.Answer != nil) != (r.Outcome <= bridge.ErrorAnswer) && r.Request.Method != era.Listen {
		line += " with the wrong answer"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// got returns what was reported since it was called last.
func (l *ledger) got() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

func (l *ledger) want(t *testing.T, what string, want ...string) {
	t.Helper()
	got := l.got()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: reported %q, want %q", what, got, want)
	}
}

// reported runs f in a bubble with a bridge to some servers.
func reported(t *testing.T, servers []ServerOptions, f func(t *testing.T, g *gateway, l *ledger)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		g := newGateway(Options{Servers: servers, Log: slog.New(slog.DiscardHandler), Watch: l.take})
		f(t, g, l)
		for _, s := range g.table.Load().servers {
			if n := s.reports.Calls(); n != 0 {
				t.Errorf("%s: %d calls are left", s.o.Name, n)
			}
		}
		g.Close(context.Background())
	})
}

// moody does what the name of a tool says.
func moody() *fake {
	return &fake{times: conn.Timeouts{Max: time.Minute}, serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		switch m.Name() {
		case "refuse":
			f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`, m.ID))
		case "fail":
			f.answer(m, `{"content":[],"isError":true}`)
		case "die":
			f.die()
		case "hang":
		case "huge":
			f.queue <- func() {
				var n int64
				fmt.Sscan(string(m.ID), &n)
				f.Abort(n, &bridge.Error{Server: "fake", Kind: bridge.ErrTooLarge, Public: "too large"})
			}
		default:
			return false
		}
		return true
	}}
}

// Each request of a client is reported once, with what became of it; what the
// bridge asks by itself is not.
func TestWatch(t *testing.T) {
	f, asks := moody(), inquisitive()
	serve := f.serve
	f.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
		return serve(w, m) || (m.Name() == "ask" || m.IsResponse()) && asks.serve(w, m)
	}
	reported(t, []ServerOptions{{Name: "fake", Adapter: f}}, func(t *testing.T, g *gateway, l *ledger) {
		s, _ := begin(t, g, "p")
		l.want(t, "initialize", `"fake" initialize: ok`)
		tool := func(name string) string { return fmt.Sprintf(`{"name":%q,"arguments":{}}`, name) }
		do(t, s, "1", "ping", `{}`)
		l.want(t, "ping")
		do(t, s, "1", "tools/list", `{}`)
		l.want(t, "a list", `"fake" tools/list: ok`)
		for name, outcome := range map[string]string{
			"x": "ok", "fail": "tool_error", "refuse": "error -32602", "hang": "timeout", "huge": "too_large",
		} {
			do(t, s, "1", "tools/call", tool(name))
			l.want(t, name, `"fake" tools/call `+name+`: `+outcome)
			visitor{}.call(t, g, "tools/call", `"name":"`+name+`","arguments":{}`)
			l.want(t, name+" without a session", `"fake" tools/call `+name+`: `+outcome)
		}
		do(t, s, "1", "tools/call", tool("die"))
		l.want(t, "die", `"fake" tools/call die: lost`)

		// A call that waits for its client is reported with each request of that.
		state := stateOf(t, visitor{}.call(t, g, "tools/call", `"name":"ask","arguments":{}`))
		l.want(t, "asked", `"fake" tools/call ask: ok`)
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"ask","arguments":{},"inputResponses":{"r1":{"action":"cancel"}},"requestState":"`+state+`"`), `"content":[]`)
		l.want(t, "answered", `"fake" tools/call ask: ok`)

		p := start(t, s, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":`+tool("hang")+`}`)
		time.Sleep(2 * time.Second)
		if st := g.Status()[0]; st.Calls != 1 {
			t.Errorf("%d calls under way, want 1", st.Calls)
		}
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`), nil)
		if !p.over() {
			t.Fatal("the call goes on")
		}
		l.want(t, "cancelled", `"fake" tools/call hang: cancelled`)
		v := visitor{}.ask(t, g, "1", "tools/call", `"name":"hang"`)
		time.Sleep(2 * time.Second)
		v.cancel(context.Canceled)
		<-v.done
		l.want(t, "gone", `"fake" tools/call hang: cancelled`)

		v = visitor{}.ask(t, g, "1", era.Listen, `"notifications":{"toolsListChanged":true}`)
		l.want(t, "listening")
		v.cancel(bridge.ErrCancelled)
		<-v.done
		l.want(t, "listened", `"fake" subscriptions/listen: ok`)

		do(t, s, "1", "initialize", bridgetest.InitializeParams)
		l.want(t, "initialize again", `"" initialize: error -32600`)
		p = start(t, s, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":`+tool("hang")+`}`)
		synctest.Wait()
		_ = g.Drain(canceled())
		do(t, s, "1", "tools/call", tool("x"))
		visitor{}.call(t, g, "tools/call", `"name":"x"`)
		if _, _, err := initialize(t, g, "p", bridgetest.InitializeParams); !errors.Is(err, bridge.ErrShutdown) {
			t.Errorf("Initialize = %v", err)
		}
		l.want(t, "stopping", `"" tools/call x: other`, `"" tools/call x: other`, `"" initialize: other`)
		s.End(bridge.ErrEnded)
		<-p.done
		l.want(t, "session ended", `"fake" tools/call hang: cancelled`)
	})
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Where several servers are one, each that gets a request is reported, under the
// name that the client knows; what none gets is, without one.
func TestWatchTogether(t *testing.T) {
	one, two := shop("one", map[string]string{"tools/list": toolList("a")}), shop("two", map[string]string{"tools/list": toolList("b")})
	dead := &fake{before: func(context.Context, int) error {
		return &bridge.Error{Server: "dead", Kind: bridge.ErrUnavailable, Public: "no such program"}
	}}
	servers := []ServerOptions{{Name: "one", ServerSettings: ServerSettings{Prefix: "one__"}, Adapter: one}, {Name: "two", ServerSettings: ServerSettings{Prefix: "two__"}, Adapter: two}, {Name: "dead", ServerSettings: ServerSettings{Prefix: "dead__", Breaker: breaker.Options{Failures: 100}}, Adapter: dead}}
	reported(t, servers, func(t *testing.T, g *gateway, l *ledger) {
		s, m, err := join(t, g, SessionOptions{ID: "id"})
		if err != nil {
			t.Fatal(m, err)
		}
		l.want(t, "initialize", `"" initialize: ok`)
		do(t, s, "1", "tools/list", `{}`)
		l.want(t, "a list", `"one" tools/list: ok`, `"two" tools/list: ok`)
		for _, without := range []bool{false, true} {
			call := func(name string) string {
				if without {
					return visitor{}.call(t, g, "tools/call", `"name":"`+name+`"`)
				}
				return do(t, s, "1", "tools/call", `{"name":"`+name+`"}`)
			}
			call("two__b")
			l.want(t, "a call", `"two" tools/call two__b: ok`)
			call("dead__b")
			l.want(t, "a call to a dead server", `"dead" tools/call dead__b: unavailable`)
			if got := call("nobody's"); !strings.Contains(got, "error") {
				t.Fatal(got)
			}
			l.want(t, "an unknown tool", `"" tools/call nobody's: error -32602`)
		}
		begun := s.Enter(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`), nil, nil)
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`), nil)
		if _, err := begun.Do(); !errors.Is(err, bridge.ErrCancelled) {
			t.Errorf("a list that was cancelled before it was asked for: %v", err)
		}
		l.want(t, "a list that was cancelled before it was asked for", `"" tools/list: cancelled`)
		do(t, s, "1", "logging/setLevel", `{"level":"info"}`)
		l.want(t, "a level", `"" logging/setLevel: ok`)
		do(t, s, "1", "tools/call", `{"name":"dead__b"}`) // it cannot even be told the level
		l.want(t, "a call to a dead server", `"dead" tools/call dead__b: unavailable`)
		s.End(bridge.ErrEnded)
	})
}

// A list of several servers that has no room among the bytes under way although the parts of it were there is reported as
// what the client gets instead, once.
func TestWatchNoRoom(t *testing.T) {
	big := func(name string) ServerOptions {
		list := strings.Replace(toolList("a"), `"d"`, `"`+strings.Repeat("x", 300<<10)+`"`, 1)
		return ServerOptions{Name: name, ServerSettings: ServerSettings{Prefix: name + "__"}, Adapter: shop(name, map[string]string{"tools/list": list})}
	}
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		g := newGateway(Options{Servers: []ServerOptions{big("one"), big("two")}, Log: slog.New(slog.DiscardHandler), Watch: l.take, MaxBytes: 256 << 10})
		defer g.Close(context.Background())
		s := sessionAt(t, g, "", "", "")
		l.got()
		for _, answer := range []func() string{
			func() string { return do(t, s, "1", "tools/list", "{}") },
			func() string { return visitor{}.call(t, g, "tools/list", "") },
		} {
			bridgetest.Contains(t, answer(), `"bridge":"upstream_too_large"`)
			l.want(t, "a list", `"one" tools/list: ok`, `"two" tools/list: ok`, `"" tools/list: too_large`)
		}
		if n := g.bytes.Used(); n != 0 {
			t.Errorf("%d bytes are under way", n)
		}
	})
}
