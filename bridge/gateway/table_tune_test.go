package gateway

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// tuning runs f in a bubble with a session at a server whose options tune has count. The
// connection stays what it was.
func tuning(t *testing.T, a *fake, o ServerOptions, f func(t *testing.T, g *gateway, s *sitting, tune func(func(s *ServerOptions)))) {
	t.Helper()
	o.Adapter = a
	run(t, o, func(t *testing.T, g *gateway) {
		o.Name = "fake"
		s, _ := begin(t, g, "")
		f(t, g, s, func(change func(s *ServerOptions)) {
			change(&o)
			if err := g.Apply(Change{Names: []string{"fake"}, Tuned: []ServerOptions{o}}); err != nil {
				t.Error(err)
			}
		})
		if n := a.opened(); n != 1 {
			t.Errorf("%d connections, want the first", n)
		}
	})
}

// Limits, retries, pings, the circuit breaker, the cache and the checks of arguments count for an open session, and so does
// their end.
func TestTune(t *testing.T) {
	reads, lists := 0, 0
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		switch {
		case m.Method == "resources/read":
			reads++
			f.Abort(number(m.ID), failure(bridge.ErrTimeout))
		case m.Method == "tools/list":
			lists++
			f.answer(m, `{"tools":[{"name":"a","inputSchema":{"type":"object","required":["n"]}}]}`)
		default:
			return m.Name() == "hang"
		}
		return true
	}}
	o := ServerSettings{Breaker: breaker.Options{Failures: 1000}, Limits: limits.Options{Rate: limits.Rate{PerSecond: 0.001, Burst: 1}}, Cache: cache.Options{Lists: time.Hour}}
	tuning(t, f, ServerOptions{ServerSettings: o}, func(t *testing.T, g *gateway, s *sitting, tune func(func(*ServerOptions))) {
		call := func(want string) {
			t.Helper()
			bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"a"}`), want)
		}
		call(`"result"`)
		call("it may be called")
		tune(func(s *ServerOptions) { s.Limits = limits.Options{Calls: 1} })
		for _, every := range []time.Duration{0, time.Minute, 0} {
			tune(func(s *ServerOptions) { s.Ping = every })
			call(`"result":{}`)
			time.Sleep(time.Minute) // one may be on its way
			before := pings(f.wire(1))
			time.Sleep(10 * time.Minute)
			if n := pings(f.wire(1)) - before; (n >= 9) != (every > 0) || n > 10 {
				t.Errorf("%d pings in 10 minutes, one in %v", n, every)
			}
		}
		one, two := start(t, s, laterCall), start(t, s, strings.Replace(laterCall, "9,", "8,", 1))
		if one.over() || state(g).Slots != 1 || state(g).Queued != 1 {
			t.Errorf("%+v", state(g).Status)
		}
		tune(func(s *ServerOptions) { s.Limits = limits.Options{Calls: 3} })
		if two.over() || state(g).Slots != 2 || state(g).Queued != 0 {
			t.Errorf("with a higher limit: %+v", state(g).Status)
		}

		read := func(n int) int {
			before := reads
			for range n {
				do(t, s, "1", "resources/read", `{"uri":"a:"}`)
				time.Sleep(time.Minute) // a few retries each second
			}
			return reads - before
		}
		for _, tc := range []struct {
			o    retry.Options
			want int
		}{{retry.Options{}, 2}, {retry.Options{Attempts: 3}, 3}, {retry.Options{Off: true}, 1}, {retry.Options{}, 2}, {retry.Options{Attempts: 1}, 1}} {
			tune(func(s *ServerOptions) { s.Retry = tc.o })
			if got := read(1); got != tc.want {
				t.Errorf("%+v: %d attempts, want %d", tc.o, got, tc.want)
			}
		}

		list := func() int {
			before := lists
			for range 3 {
				bridgetest.Contains(t, do(t, s, "1", "tools/list", "{}"), `"a"`)
			}
			return lists - before
		}
		if n := [2]int{list(), list()}; n != [2]int{1, 0} {
			t.Errorf("kept: %v", n)
		}
		tune(func(s *ServerOptions) { s.Cache.Lists = time.Minute })
		if n := list(); n != 1 {
			t.Errorf("with another time: %d", n)
		}
		if time.Sleep(61 * time.Second); list() != 1 {
			t.Error("after that time")
		}
		tune(func(s *ServerOptions) { s.Cache.Off = true })
		if n := list(); n != 3 || state(g).Cache.Entries != 0 {
			t.Errorf("off: %d, and %d are kept", n, state(g).Cache.Entries)
		}

		tune(func(s *ServerOptions) { s.Validate = true })
		call("n: is missing")
		tune(func(s *ServerOptions) { s.Validate = false })
		call(`"result":{}`)

		for _, off := range []bool{false, true, false} {
			tune(func(s *ServerOptions) { s.Breaker = breaker.Options{Failures: 3, Pause: time.Hour, Off: off} })
			want, is := 3, "open"
			if off {
				want, is = 10, "off"
			}
			if n := read(10); n != want || state(g).Breaker != is {
				t.Errorf("the breaker is %s after %d reads, want %s after %d", state(g).Breaker, n, is, want)
			}
			if b, _, _, _ := g.Operated("fake"); off && b.Force(&breaker.Force{Open: true, Until: time.Now().Add(time.Hour)}) {
				t.Error("one that is off can be opened by an operator")
			}
		}
	})
}

// There may be more connections, and a session ends with its own when that is wanted now.
// Both count for a server whose place another has taken, too.
func TestTuneFormer(t *testing.T) {
	f := &fake{}
	o := ServerOptions{Name: "fake", Adapter: f, ServerSettings: ServerSettings{MaxChildren: 1}}
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(Options{Servers: []ServerOptions{o}, Log: slog.New(slog.DiscardHandler), Watch: func(report.Report) {}})
		s, _ := begin(t, g, "")
		if _, a, err := initialize(t, g, "", bridgetest.InitializeParams); err == nil {
			t.Fatalf("a second connection: %s", a)
		}
		_ = g.Apply(Change{Names: []string{"fake"}, Servers: []ServerOptions{o}, Gone: func(string) {}})
		former, now := s.bindings.Current().Server, g.table.Load().servers[0]
		if former == now {
			t.Fatal("no other has taken its place")
		}
		o.MaxChildren, o.EndWithServer = 2, true
		_ = g.Apply(Change{Names: []string{"fake"}, Tuned: []ServerOptions{o}})
		for range 2 {
			if _, a, err := initialize(t, g, "", bridgetest.InitializeParams); err != nil {
				t.Errorf("with max_children: 2: %s", a)
			}
		}
		if n := former.lane.Budget.Most(); n != 2 {
			t.Errorf("the former may have %d", n)
		}
		f.wire(1).die()
		time.Sleep(time.Minute)
		if g.Totals().Sessions != 2 {
			t.Errorf("%d sessions are left, want those of the other connections", g.Totals().Sessions)
		}
		g.Close(t.Context())
	})
}

// What an operator hides or renames is so for whoever is there: at the server's own address
// and at that of all, with a session and without. Those who listen are told, others are not,
// and nothing is opened for it.
func TestTuneFilter(t *testing.T) {
	one := shop("one", map[string]string{"tools/list": toolList("read", "write"), "prompts/list": `{"prompts":[{"name":"greet"}]}`, "resources/list": `{"resources":[{"uri":"x:a","name":"a"}]}`})
	two := shop("two", map[string]string{"tools/list": toolList("other")})
	all(t, []stock{{"one", "one__", one, ServerOptions{}}, {"two", "two__", two, ServerOptions{}}}, func(t *testing.T, g *gateway) {
		type client struct {
			name, prefix string
			ask          func(method, params string) string
			told         func() []string
		}
		legacy := func(name, server, prefix string) client {
			s, m, err := join(t, g, SessionOptions{Server: server, ID: "session " + name})
			if err != nil {
				t.Fatalf("%s: %s", name, m)
			}
			st := &stream{}
			s.Attach(st)
			s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
			return client{name, prefix, func(method, params string) string { return do(t, s, "1", method, "{"+params+"}") }, st.take}
		}
		modern := func(name, server, prefix string) client {
			v := visitor{server: server}
			listening := v.ask(t, g, `"l"`, "subscriptions/listen", `"notifications":{"toolsListChanged":true,"promptsListChanged":true}`)
			t.Cleanup(func() { listening.cancel(nil) })
			listening.take() // that it listens
			return client{name, prefix, func(method, params string) string { return v.call(t, g, method, params) }, listening.take}
		}
		clients := []client{legacy("a session", "one", ""), legacy("a session at all", "", "one__"), modern("without a session", "one", ""), modern("without a session at all", "", "one__")}
		others := []client{legacy("a session elsewhere", "two", ""), modern("without a session elsewhere", "two", "")}
		for _, c := range clients {
			bridgetest.Contains(t, c.ask("tools/call", `"name":"`+c.prefix+`write"`), `"by":"one"`)
			bridgetest.Contains(t, c.ask("prompts/get", `"name":"`+c.prefix+`greet"`), `"by":"one"`)
			same(t, c.name, names(t, c.ask("tools/list", ""))[:2], []string{c.prefix + "read", c.prefix + "write"})
			c.told()
		}
		opened := one.opened()
		o := ServerOptions{Name: "one", ServerSettings: ServerSettings{Prefix: "one__"}, Adapter: one}
		tune := func(f filter.Lists) {
			o.Lists = f
			if err := g.Apply(Change{Names: []string{"one", "two"}, Tuned: []ServerOptions{o}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // a change is told at once, and the next a tenth of a second later
		}
		told := func(want ...string) {
			t.Helper()
			for _, c := range clients {
				got := c.told()
				var methods []string
				for _, line := range got {
					methods = append(methods, gjson.Get(line, "method").Str)
				}
				same(t, c.name+" is told", methods, want)
			}
			for _, c := range others {
				if got := c.told(); len(got) > 0 {
					t.Errorf("%s is told: %s", c.name, got)
				}
			}
		}
		const tools, prompts = "notifications/tools/list_changed", "notifications/prompts/list_changed"

		tune(filter.Lists{Tools: filter.Rules{Deny: []string{"write"}}})
		told(tools)
		for _, c := range clients {
			bridgetest.Contains(t, c.ask("tools/call", `"name":"`+c.prefix+`write"`), "Unknown tool: "+c.prefix+"write")
			bridgetest.Contains(t, c.ask("tools/call", `"name":"`+c.prefix+`read"`), `"by":"one"`)
			if got := c.ask("tools/list", ""); strings.Contains(got, c.prefix+`write"`) {
				t.Errorf("%s still sees it: %s", c.name, got)
			}
		}
		tune(filter.Lists{Tools: filter.Rules{Rename: map[string]string{"write": "put"}}, Prompts: filter.Rules{Deny: []string{"*"}}})
		told(tools, prompts)
		for _, c := range clients {
			bridgetest.Contains(t, c.ask("tools/call", `"name":"`+c.prefix+`put"`), `"name":"write"`) // also who has not listed it
			bridgetest.Contains(t, c.ask("tools/call", `"name":"`+c.prefix+`write"`), "Unknown tool")
			bridgetest.Contains(t, c.ask("prompts/get", `"name":"`+c.prefix+`greet"`), "Unknown prompt")
			bridgetest.Contains(t, c.ask("tools/list", ""), c.prefix+`put"`)
		}
		tune(filter.Lists{Tools: filter.Rules{Rename: map[string]string{"write": "put"}}, Prompts: filter.Rules{Deny: []string{"*"}}}) // the same again
		told()
		tune(filter.Lists{})
		told(tools, prompts)
		for _, c := range clients {
			bridgetest.Contains(t, c.ask("tools/call", `"name":"`+c.prefix+`write"`), `"name":"write"`)
			bridgetest.Contains(t, c.ask("prompts/get", `"name":"`+c.prefix+`greet"`), `"by":"one"`)
		}
		if n := one.opened(); n != opened {
			t.Errorf("%d connections were opened, then %d", opened, n)
		}
	})
}

// A session that has an older server of the name heeds the filter of today. What is said of
// a resource that is hidden by now does not reach it, and what is on its way does.
func TestTuneFilterOlder(t *testing.T) {
	f := shop("one", map[string]string{"tools/list": toolList("read", "write")})
	all(t, []stock{{"one", "", f, ServerOptions{}}}, func(t *testing.T, g *gateway) {
		s, st := enter(t, g)
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"write"}`), `"by":"one"`)
		o := ServerOptions{Name: "one", Adapter: f, ServerSettings: ServerSettings{HandshakeTimeout: time.Second}}
		if err := g.Apply(Change{Names: []string{"one"}, Servers: []ServerOptions{o}, Gone: func(string) {}}); err != nil {
			t.Fatal(err)
		}
		st.take()
		update := func(uri string) string {
			f.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `"}}`)
			return strings.Join(st.take(), " ")
		}
		bridgetest.Contains(t, update("x:a"), "x:a")
		o.Lists = filter.Lists{Tools: filter.Rules{Allow: []string{"read"}}, Resources: filter.Rules{Deny: []string{"x:*"}}}
		if err := g.Apply(Change{Names: []string{"one"}, Tuned: []ServerOptions{o}}); err != nil {
			t.Fatal(err)
		}
		told := strings.Join(st.take(), " ")
		bridgetest.Contains(t, told, "tools/list_changed", "resources/list_changed")
		bridgetest.Contains(t, do(t, s, "2", "tools/call", `{"name":"write"}`), "Unknown tool")
		bridgetest.Contains(t, do(t, s, "3", "tools/call", `{"name":"read"}`), `"by":"one"`)
		bridgetest.Contains(t, do(t, s, "4", "resources/read", `{"uri":"x:a"}`), "error")
		if got := update("x:b") + update("y:a"); strings.Contains(got, "x:b") || !strings.Contains(got, "y:a") {
			t.Errorf("what is said of resources: %s", got)
		}
		if n := f.opened(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}
