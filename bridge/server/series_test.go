package server

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/bridge/server/internal/metrics"
	"github.com/mcp-bridge/bridge/bridge/server/status"
	"github.com/mcp-bridge/bridge/config"
)

// kindsOf returns the kinds of marks, with their servers.
func kindsOf(marks []admin.Mark) string {
	var all []string
	for _, m := range marks {
		all = append(all, strings.TrimSpace(m.Kind+" "+m.Server))
	}
	return strings.Join(all, ", ")
}

// Calls are in the bucket in which they ended, by outcome, and each caller sees those of its servers.
func TestAdminSeries(t *testing.T) {
	run(t, operators, []string{"one", "two", "idle"}, func(t *testing.T, r *rig) {
		r.s.follow()
		one, two := r.join(devKey, "/one/mcp"), r.join(devKey, "/two/mcp")
		time.Sleep(12 * time.Second) // two buckets end, with the handshakes in the first
		for i, tool := range []string{"echo", "echo", "fail", "none"} {
			r.as(devKey, "/one/mcp", one, call(fmt.Sprint(i+1), tool))
		}
		r.as(devKey, "/two/mcp", two, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"late","arguments":{"after":"2s"}}}`)
		time.Sleep(5 * time.Second)
		read := func(key, query string) (all seriesAnswer) {
			r.read("GET", "series"+query, "", key, 200, &all)
			return all
		}
		all, own := read(opsKey, ""), read(oneKey, "")
		if all.Step != 5000 || all.Points != 3 || all.To%1000 != 0 || all.To > time.Now().UnixMilli() || all.To <= time.Now().Add(-5*time.Second).UnixMilli() || all.Marks == nil {
			t.Fatalf("%+v", all)
		}
		if s := all.Servers; len(s) != 3 || s[0].Server != "one" || s[1].Server != "two" || s[2].Server != "idle" || s[2].Calls != nil {
			t.Fatalf("servers: %+v", s)
		}
		if len(own.Servers) != 1 || own.Servers[0].Server != "one" || own.Total.Limits != nil || all.Total.Limits.Calls == 0 {
			t.Errorf("who may use one server sees %+v", own)
		}
		var of serverSeries
		r.read("GET", "series?server=two", "", opsKey, 200, &of)
		if of.Server != "two" || of.Limits == nil || of.Limits.Calls != 512 || of.Limits.Queue != 512 || len(of.P50) != 3 {
			t.Errorf("%+v, limits %+v", of, of.Limits)
		}
		is := func(what string, got, want []uint64) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		is("calls", all.Total.Calls, []uint64{2, 0, 5})
		is("errors", all.Total.Errors, []uint64{0, 0, 1})
		is("tool errors", all.Total.ToolErrors, []uint64{0, 0, 1})
		is("in flight", all.Total.InFlight, []uint64{0, 0, 0})
		is("one", all.Servers[0].Calls, []uint64{1, 0, 4})
		is("two", all.Servers[1].Calls, []uint64{1, 0, 1})
		is("the total of who may use one server", own.Total.Calls, []uint64{1, 0, 4})
		is("of one server", of.Calls, []uint64{1, 0, 1})
		if p := all.Total.P99; p[0] != nil || p[2] == nil || *p[2] <= 1000 || *p[2] > 2500 || *all.Total.P50[2] > 1 {
			t.Errorf("p50 %v, p99 %v", all.Total.P50, p)
		}

		from := fmt.Sprintf("?from=%d", all.To)
		if again := read(opsKey, from); again.Points != 0 || again.Total.Calls == nil || len(again.Total.Calls) != 0 || again.Servers[0].Calls != nil {
			t.Errorf("nothing is new, but there is %+v of %+v", again, again.Total)
		}
		r.as(devKey, "/one/mcp", one, call("6", "echo"))
		time.Sleep(10 * time.Second)
		again := read(opsKey, from)
		is("what is new", again.Total.Calls, []uint64{1, 0})
		is("what is new of one", again.Servers[0].Calls, []uint64{1, 0})

		var st status.Bridge
		r.read("GET", "status", "", opsKey, 200, &st)
		for _, share := range []*float64{st.Servers[0].ErrorShare, st.Servers[0].ToolErrorShare} {
			if share == nil || *share < .16 || *share > .17 || st.Servers[2].ErrorShare != nil || st.Servers[0].Tools != nil {
				t.Errorf("the share of errors: %v of %+v", share, st.Servers[0])
			}
		}
		time.Sleep(20 * time.Minute)
		if all = read(opsKey, ""); all.Points != 180 || len(all.Total.Calls) != 180 || slices.Max(all.Total.Calls) != 0 || all.Servers[0].Calls != nil {
			t.Errorf("after 20 minutes: %d points, %v", all.Points, all.Total.Calls)
		}
	})
}

// The slowest tools come first, and viewers see the size of the list.
func TestAdminTools(t *testing.T) {
	run(t, operators, []string{"one", "two"}, func(t *testing.T, r *rig) {
		r.s.follow()
		one, two := r.join(devKey, "/one/mcp"), r.join(devKey, "/two/mcp")
		r.as(devKey, "/one/mcp", one, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		r.as(devKey, "/one/mcp", one, call("2", "echo"))
		r.as(devKey, "/one/mcp", one, call("3", "fail"))
		r.as(devKey, "/two/mcp", two, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"late","arguments":{"after":"2s"}}}`)
		is := func(when, query string, want ...metrics.ToolUse) {
			t.Helper()
			var got toolsAnswer
			if r.read("GET", "tools"+query, "", sinKey, 200, &got); !slices.Equal(got.Tools, want) {
				t.Errorf("%s: %+v, want %+v", when, got.Tools, want)
			}
		}
		slow, quick := metrics.ToolUse{Server: "two", Tool: "other", Calls: 1, Mean: 2000}, metrics.ToolUse{Server: "one", Tool: "other", Calls: 2, ToolErrors: 1}
		is("before the first bucket", "")
		time.Sleep(5 * time.Second)
		is("after it", "", slow, quick)
		is("of one", "?server=one", quick)
		time.Sleep(2 * time.Minute)
		r.as(devKey, "/one/mcp", one, call("4", "echo"))
		is("of a minute", "?minutes=1", metrics.ToolUse{Server: "one", Tool: "other", Calls: 1})
		quick.Calls = 3
		is("of three minutes", "?minutes=3", slow, quick)
		time.Sleep(20 * time.Minute)
		is("after 20 minutes", "?minutes=15")
		for name, want := range map[string]string{"one": `"tools": []`, "two": `"tools": null`} { // the first list is empty
			if w := r.ask("GET", "/ui/api/v1/servers/"+name+"/tools", "", "X-API-Key", sinKey); w.Code != 200 || !strings.Contains(w.Body.String(), want) {
				t.Errorf("the list of %s: %d %s", name, w.Code, w.Body)
			}
		}
		var viewer, own status.Bridge
		r.read("GET", "status", "", sinKey, 200, &viewer)
		r.read("GET", "status", "", devKey, 200, &own)
		if s := viewer.Servers[0]; s.Tools == nil || *s.Tools != 0 || s.ListTokens == nil || *s.ListTokens < 5 || *s.ListTokens > 20 || viewer.Servers[1].Tools != nil || own.Servers[0].Tools != nil {
			t.Errorf("the list of tools: %+v", s)
		}
	})
}

// Each change of a server and of the bridge is a mark, for callers that may see the server. A connection that ends and
// opens again is a restart.
func TestAdminMarks(t *testing.T) {
	run(t, operators, []string{"one", "two"}, func(t *testing.T, r *rig) {
		r.file("servers: { one: { stdio: sh } }")
		r.s.follow()
		r.f.Before = func(context.Context) error {
			return &bridge.Error{Server: "one", Kind: bridge.ErrUnavailable, Public: "it is down"}
		}
		from := "" // of the last look
		look := func(what, key, query, want string) []admin.Mark {
			t.Helper()
			var s seriesAnswer
			r.read("GET", "series"+query, "", key, 200, &s)
			if got := kindsOf(s.Marks); got != want {
				t.Fatalf("%s: %s, want %s", what, got, want)
			}
			from = fmt.Sprintf("?from=%d", time.Now().UnixMilli())
			return s.Marks
		}
		time.Sleep(time.Second)
		failed := time.Now()
		for range 10 {
			if _, body := r.as(devKey, "/one/mcp", "", initialize); !strings.Contains(body, "error") {
				t.Fatalf("it is not down: %s", body)
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		marks := look("a server that is down", opsKey, "", "failing one, breaker_open one")
		if marks[0].At != failed.UnixMilli() || marks[1].At < failed.UnixMilli() || marks[1].At > failed.Add(time.Second).UnixMilli() || !strings.Contains(marks[0].Text, "it is down") {
			t.Errorf("%+v", marks)
		}
		r.f.Before = nil
		time.Sleep(5 * time.Minute)
		id := r.join(devKey, "/one/mcp")
		time.Sleep(5 * time.Second)
		look("a server that works again", opsKey, from, "working one, breaker_closed one")
		r.act("servers/two/drain", "{}")
		r.act("drain", "{}")
		r.act("reload", "{}")
		time.Sleep(5 * time.Second)
		r.act("servers/two/resume", "{}")
		r.act("resume", "{}")
		time.Sleep(5 * time.Second)
		look("what an operator did", opsKey, from, "drain two, drain, reload, resume two, resume")
		look("who may use one server", oneKey, "", "failing one, breaker_open one, working one, breaker_closed one")
		var of serverSeries
		if r.read("GET", "series?server=two", "", opsKey, 200, &of); kindsOf(of.Marks) != "drain two, resume two" {
			t.Errorf("of one server: %s", kindsOf(of.Marks))
		}
		r.as(devKey, "/one/mcp", id, call("1", "quit"))
		r.as(devKey, "/one/mcp", id, call("2", "echo"))
		time.Sleep(6 * time.Second) // after a tick, not at one
		if marks := look("a restart", opsKey, from, "restart one"); !strings.Contains(marks[0].Text, "it died") {
			t.Errorf("%+v", marks)
		}
		time.Sleep(16 * time.Minute)
		look("after 16 minutes", opsKey, "", "")
	})
}

// Clients are grouped by their names, and have the servers that they call, with rates from the first answer on.
func TestAdminTopology(t *testing.T) {
	run(t, operators, []string{"one", "two"}, func(t *testing.T, r *rig) {
		r.s.follow()
		named := func(name string) string { return strings.Replace(initialize, `"name":"c"`, `"name":"`+name+`"`, 1) }
		read := func(key string) (t topology) {
			r.read("GET", "topology", "", key, 200, &t)
			return t
		}
		_, a := r.as(devKey, "/one/mcp", "", named("a"))
		_, b1 := r.as(opsKey, "/mcp", "", named("b"))
		_, b2 := r.as(opsKey, "/mcp", "", named("b"))
		_, page := r.as(opsKey, "/one/mcp", "", named("mcp-bridge-console"))
		for i := range 30 {
			id := fmt.Sprint(i + 1)
			r.as(devKey, "/one/mcp", a, call(id, "echo"))
			r.as(opsKey, "/mcp", []string{b1, b2}[i%2], call(id, "two__echo"))
			r.as(opsKey, "/mcp", b1, call(fmt.Sprint(100+i), "two__none"))
			r.as(opsKey, "/one/mcp", page, call(id, "echo"))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second / 2) // after a tick, not at one
		r.as(opsKey, "/mcp", b1, call("200", "one__echo"))
		r.as(opsKey, "/mcp", b1, `{"jsonrpc":"2.0","id":201,"method":"tools/list"}`) // of all servers: the use of none
		body, header := modernCall("tools/call", `"name":"echo","arguments":{},`)
		for range 6 {
			r.Do("POST", "/two/mcp", body, append(header, "Mcp-Name", "echo", "X-API-Key", devKey)...).Wait()
		}
		time.Sleep(time.Second)
		got := read(opsKey)
		near := func(rate, want float64) bool { return rate > .8*want && rate < 1.2*want }
		want := []admin.ClientUse{ // each initialize is a call, too
			{Client: "b 1", Principal: "ops", Transport: "streamable", Address: "/mcp", Sessions: 2, Calls: 64, Servers: []admin.ServerUse{{Server: "two", Calls: 60}, {Server: "one", Calls: 1}}},
			{Client: "a 1", Principal: "dev", Transport: "streamable", Address: "/one/mcp", Sessions: 1, Calls: 31, Servers: []admin.ServerUse{{Server: "one", Calls: 31}}},
			{Client: admin.Unnamed, Principal: "dev", Transport: "stateless", Address: "/two/mcp", Calls: 6, Servers: []admin.ServerUse{{Server: "two", Calls: 6}}},
		}
		if len(got.Clients) != 3 || !near(got.Clients[0].Rate, 2) || !near(got.Clients[1].Rate, 1) || !near(got.Clients[2].Rate, .2) || !near(got.Clients[0].Servers[0].Rate, 2) {
			t.Fatalf("%+v", got.Clients)
		}
		for i, c := range got.Clients {
			c.Rate, c.Servers = 0, slices.Clone(c.Servers)
			for k := range c.Servers {
				c.Servers[k].Rate = 0
			}
			if !reflect.DeepEqual(c, want[i]) {
				t.Errorf("%+v, want %+v", c, want[i])
			}
		}
		if e := got.Edges; len(e) != 2 || e[0].Address != "/one/mcp" || e[0].Server != "one" || !near(e[0].Rate, 2) || e[1].Address != "/mcp" || e[1].Server != "two" || !near(e[1].Rate, 2) {
			t.Errorf("edges: %+v", e)
		}
		if s := got.Servers; len(s) != 2 || s[0].Clients != 2 || s[1].Clients != 3 || s[0].Errors != 0 || !near(s[1].Errors, .5) || !near(s[1].Rate, 2) {
			t.Errorf("servers: %+v", s)
		}
		if p := got.Addresses; len(p) != 3 || p[0].Path != "/mcp" || !near(p[0].Rate, 2) || p[1].Path != "/one/mcp" || !near(p[1].Rate, 2) {
			t.Errorf("addresses: %+v", p)
		}
		if own := read(oneKey); len(own.Clients) != 0 || len(own.Servers) != 1 || own.Servers[0].Clients != 0 || len(own.Edges) != 1 || own.Edges[0].Server != "one" || len(own.Addresses) != 1 {
			t.Errorf("who may use one server sees %+v", own)
		}
		if own := read(devKey); len(own.Clients) != 2 || own.Clients[0].Client != "a 1" || len(own.Servers) != 2 || own.Servers[1].Clients != 1 {
			t.Errorf("a caller sees %+v", own)
		}

		r.Do("DELETE", "/mcp", "", "X-API-Key", opsKey, "Mcp-Session-Id", b1).Wait()
		r.Do("DELETE", "/mcp", "", "X-API-Key", opsKey, "Mcp-Session-Id", b2).Wait()
		time.Sleep(14 * time.Minute)
		got = read(opsKey)
		if c := got.Clients[1]; len(got.Clients) != 3 || c.Client != "b 1" || c.Sessions != 0 || c.Rate != 0 || c.Calls != 64 || len(c.Servers) != 2 || got.Servers[1].Clients != 2 {
			t.Errorf("after the end of its sessions: %+v, %+v", got.Clients, got.Servers)
		}
		time.Sleep(2 * time.Minute)
		got = read(opsKey)
		if c := got.Clients; len(c) != 1 || c[0].Client != "a 1" || c[0].Sessions != 1 || c[0].Calls != 30 || len(c[0].Servers) != 0 || got.Servers[0].Clients != 0 {
			t.Errorf("after 16 minutes: %+v", got)
		}
	})
}

// Without anybody who may use the API of operators, nothing is counted.
func TestAdminNobody(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*config.Config)
		want   bool
	}{
		{"the defaults", nil, true},
		{"an operator", func(c *config.Config) { operators(c); c.Console = "" }, true},
		{"no operator", func(c *config.Config) { operators(c); c.Console, c.Admin, c.Viewers = "", nil, nil }, false},
		{"on every network", func(c *config.Config) { c.Listen = "0.0.0.0:8808" }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, test.change, "one")
			if r.s.timeline.counts.Load() {
				t.Errorf("%s: calls are counted without HTTP", test.name)
			}
			r.s.follow()
			if got := r.s.timeline.counts.Load(); got != test.want {
				t.Errorf("%s: calls are counted: %t", test.name, got)
			}
		})
	}
}

// The last lines of the log are there for an operator who looks for the first time.
func TestAdminLogBefore(t *testing.T) {
	run(t, func(c *config.Config) { operators(c); c.LogLevel = "error" }, []string{"one"}, func(t *testing.T, r *rig) {
		r.as(devKey, "/one/mcp", "", initialize)
		w := r.ask("GET", "/ui/api/v1/log", "", "X-API-Key", opsKey)
		if w.Code != 200 || !strings.Contains(w.Body.String(), "session began") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
