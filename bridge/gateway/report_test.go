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
	reported(t, []ServerOptions{{Name: "fake", Adapter: moody()}}, func(t *testing.T, g *gateway, l *ledger) {
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

// A tool that fails is reported as that, also by a server of 2026-07-28, by the bridge in the
// server's place, and by the result of a task. Nothing else is, whatever its result says.
func TestWatchFailed(t *testing.T) {
	const failed = `{"resultType":"complete","content":[],"isError":true}`
	modern := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		if m.Method == era.Listen {
			s.acknowledge(m)
			return true
		}
		s.reply(m, failed)
		return true
	}}
	legacy := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "initialize" || !m.IsRequest() {
			return false
		}
		f.answer(m, failed)
		return true
	}}
	reported(t, []ServerOptions{{Name: "modern", Adapter: modern}, {Name: "legacy", Adapter: legacy}}, func(t *testing.T, g *gateway, l *ledger) {
		for _, name := range []string{"modern", "legacy"} {
			s, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{Server: name, ID: "id-" + name})
			if err != nil {
				t.Fatal(bridgetest.Text(m), err)
			}
			l.got()
			do(t, s, "1", "tools/call", `{"name":"x"}`)
			l.want(t, name, fmt.Sprintf("%q tools/call x: tool_error", name))
			visitor{server: name}.call(t, g, "tools/call", `"name":"x"`)
			l.want(t, name+" without a session", fmt.Sprintf("%q tools/call x: tool_error", name))
			do(t, s, "1", "prompts/get", `{"name":"x"}`)
			l.want(t, name+": a prompt", fmt.Sprintf("%q prompts/get x: ok", name))
			if name == "legacy" {
				do(t, s, "1", "tasks/result", `{"taskId":"t"}`)
				l.want(t, "a task", `"legacy" tasks/result: tool_error`)
			}
			s.End(bridge.ErrEnded)
		}
	})
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A report says whose request it was, of which revisions, and how long it took.
func TestWatchReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got report.Report
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: moody()}}, Log: slog.New(slog.DiscardHandler), Watch: func(r report.Report) { got = r }})
		defer g.Close(context.Background())
		s, _ := begin(t, g, "p")
		do(t, s, "1", "tools/call", `{"name":"hang"}`)
		if got.Took != time.Minute || got.Principal != "p" || got.Revision != "2025-11-25" || got.Speaks != "2025-11-25" {
			t.Errorf("reported %+v", got)
		}
		if got.Session == "" || len(got.Session) > 8 || !strings.HasPrefix(s.id, got.Session) {
			t.Errorf("session %q of %q", got.Session, s.id)
		}
		visitor{principal: "q"}.call(t, g, "tools/call", `"name":"x"`)
		if got.Session != "" || got.Principal != "q" || got.Revision != "2026-07-28" || got.Speaks != "2025-11-25" {
			t.Errorf("reported %+v", got)
		}
	})
}

// A call that waits for its client is reported with each request of that.
func TestWatchParked(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		switch {
		case m.Method == "tools/call":
			f.say(`{"jsonrpc":"2.0","id":"q` + string(m.ID) + `","method":"roots/list"}`)
			return true
		case m.IsResponse():
			f.say(`{"jsonrpc":"2.0","id":` + strings.Trim(string(m.ID), `"q`) + `,"result":{"content":[]}}`)
			return true
		}
		return false
	}}
	reported(t, []ServerOptions{{Name: "fake", Adapter: f}}, func(t *testing.T, g *gateway, l *ledger) {
		state := stateOf(t, visitor{}.call(t, g, "tools/call", `"name":"x"`))
		l.want(t, "asked", `"fake" tools/call x: ok`)
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"x","inputResponses":{"r1":{"roots":[]}},"requestState":"`+state+`"`), `"content":[]`)
		l.want(t, "answered", `"fake" tools/call x: ok`)
	})
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
		s, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{ID: "id"})
		if err != nil {
			t.Fatal(bridgetest.Text(m), err)
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

// An answer that has no room among the bytes under way is reported as what the
// client gets instead, once; so is a list of several servers that has none
// although the parts of it were there.
func TestWatchNoRoom(t *testing.T) {
	long := strings.Repeat("x", 300<<10)
	big := func(name string) *fake {
		list := toolList("a")
		list = strings.Replace(list, `"name":"a"`, `"name":"a","description":"`+long+`"`, 1)
		return shop(name, map[string]string{"tools/list": list, "tools/call": `{"content":[{"type":"text","text":"` + long + `"}]}`})
	}
	for _, test := range []struct {
		name    string
		servers []ServerOptions
		tool    string
		list    []string
		call    string
	}{
		{"one server", []ServerOptions{{Name: "one", Adapter: big("one")}}, "a", []string{`"one" tools/list: too_large`}, `"one" tools/call a: too_large`},
		{
			"several", []ServerOptions{{Name: "one", ServerSettings: ServerSettings{Prefix: "one__"}, Adapter: big("one")}, {Name: "two", ServerSettings: ServerSettings{Prefix: "two__"}, Adapter: big("two")}}, "one__a",
			[]string{`"one" tools/list: ok`, `"two" tools/list: ok`, `"" tools/list: too_large`}, `"one" tools/call one__a: too_large`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &ledger{}
				g := newGateway(Options{Servers: test.servers, Log: slog.New(slog.DiscardHandler), Watch: l.take, MaxBytes: 256 << 10})
				defer g.Close(context.Background())
				s, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{ID: "id"})
				if err != nil {
					t.Fatal(bridgetest.Text(m), err)
				}
				l.got()
				for _, ask := range []func(method, of string) string{
					func(method, of string) string { return do(t, s, "1", method, "{"+of+"}") },
					func(method, of string) string { return visitor{}.call(t, g, method, of) },
				} {
					bridgetest.Contains(t, ask("tools/list", ""), `"bridge":"upstream_too_large"`)
					l.want(t, "a list", test.list...)
					bridgetest.Contains(t, ask("tools/call", `"name":"`+test.tool+`"`), `"bridge":"upstream_too_large"`)
					l.want(t, "a call", test.call)
				}
				if n := g.bytes.Used(); n != 0 {
					t.Errorf("%d bytes are under way", n)
				}
			})
		})
	}
}
