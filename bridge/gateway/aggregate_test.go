package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// shop is a fake server that lists what it is given and says what it was asked.
func shop(name string, lists map[string]string) *fake {
	f := &fake{result: `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true},"logging":{},"completions":{},"x-` + name + `":{}},` +
		`"serverInfo":{"name":"` + name + `","version":"1"},"instructions":"ask ` + name + `"}`}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if list, ok := lists[m.Method]; ok {
			f.answer(m, list)
			return true
		}
		switch m.Method {
		case "tools/call", "prompts/get", "resources/read", "completion/complete":
			if m.Method == "resources/read" && lists["unreadable"] != "" {
				f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"no such thing"}}`, m.ID))
				return true
			}
			f.answer(m, fmt.Sprintf(`{"by":%q,"params":%s}`, name, m.Append(nil, nil, nil)[len(`{"jsonrpc":"2.0","method":"","params":`)+len(m.Method):len(m.Append(nil, nil, nil))-1]))
			return true
		}
		return false
	}
	return f
}

// toolList is a result of tools/list with tools of these names.
func toolList(names ...string) string {
	var all []string
	for _, n := range names {
		all = append(all, fmt.Sprintf(`{"description":"d","name":%q,"inputSchema":{"type":"object","x":1e400}}`, n))
	}
	return `{"tools":[` + strings.Join(all, ",") + `]}`
}

// stock is a server of a test, with its options.
type stock struct {
	name   string
	prefix string
	f      bridge.Adapter
	o      ServerOptions
}

// all runs f in a bubble with a bridge to several servers.
func all(t *testing.T, servers []stock, f func(t *testing.T, g *gateway)) {
	t.Helper()
	allLogged(t, slog.DiscardHandler, servers, f)
}

// allLogged is all, with a log.
func allLogged(t *testing.T, log slog.Handler, servers []stock, f func(t *testing.T, g *gateway)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var o Options
		for _, s := range servers {
			s.o.Name, s.o.Prefix, s.o.Adapter = s.name, s.prefix, s.f
			o.Servers = append(o.Servers, s.o)
		}
		o.Log, o.Version = slog.New(log), "9"
		g := newGateway(o)
		f(t, g)
		g.Close(context.Background())
		if n := g.lanes.Open(); n != 0 {
			t.Errorf("%d lanes are left", n)
		}
	})
}

// enter starts a session with all servers as one.
func enter(t *testing.T, g *gateway) (*sitting, *stream, string) {
	t.Helper()
	s, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{ID: fmt.Sprint("id", sessions.Add(1))})
	if err != nil {
		t.Fatalf("Initialize: %s, %v", bridgetest.Text(m), err)
	}
	st := &stream{}
	s.Attach(st)
	s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
	return s, st, string(m.Result)
}

// names returns the names or URIs of what a list answer has.
func names(t *testing.T, answer string) []string {
	t.Helper()
	var out []string
	for k := range list.Kinds {
		gjson.Get(answer, "result."+k.Member()).ForEach(func(_, v gjson.Result) bool {
			out = append(out, v.Get(k.Key()).String())
			return true
		})
	}
	return out
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// What every server has is there, under names that say whose it is.
func TestMerge(t *testing.T) {
	one := shop("one", map[string]string{
		"tools/list":               toolList("add", "echo"),
		"prompts/list":             `{"prompts":[{"name":"greet"}],"_meta":{"m":1,"both":1}}`,
		"resources/list":           `{"resources":[{"uri":"a:1","name":"x"},{"uri":"both:1","name":"of one"}]}`,
		"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"t1://{id}/x","name":"t"}]}`,
	})
	two := shop("two", map[string]string{
		"tools/list":               toolList("echo"),
		"prompts/list":             `{"prompts":[{"name":"greet"}],"_meta":{"n":2,"both":2}}`,
		"resources/list":           `{"resources":[{"uri":"both:1","name":"of two"},{"uri":"b:2","name":"y"}]}`,
		"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"t2://{id}","name":"t"}]}`,
	})
	all(t, []stock{{name: "one", prefix: "one__", f: one}, {name: "two", prefix: "two__", f: two}}, func(t *testing.T, g *gateway) {
		s, _, greeting := enter(t, g)
		want := `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{},"x-one":{},"x-two":{}},` +
			`"serverInfo":{"name":"mcp-bridge","version":"9"},"instructions":"one:\nask one\n\ntwo:\nask two"}`
		if greeting != want {
			t.Errorf("initialize:\n got %s\nwant %s", greeting, want)
		}
		list := do(t, s, "2", "tools/list", `{}`)
		same(t, "tools", names(t, list), []string{"one__add", "one__echo", "two__echo"})
		if !strings.Contains(list, `{"description":"d","name":"two__echo","inputSchema":{"type":"object","x":1e400}}`) {
			t.Errorf("a tool was changed beyond its name: %s", list)
		}
		list = do(t, s, "3", "prompts/list", `{}`)
		same(t, "prompts", names(t, list), []string{"one__greet", "two__greet"})
		if meta := gjson.Get(list, "result._meta").Raw; meta != `{"n":2,"m":1,"both":1}` && meta != `{"n":2,"both":1,"m":1}` {
			t.Errorf("_meta = %s", meta)
		}
		same(t, "resources", names(t, do(t, s, "4", "resources/list", `{}`)), []string{"a:1", "both:1", "b:2"})
		same(t, "templates", names(t, do(t, s, "5", "resources/templates/list", `{}`)), []string{"t1://{id}/x", "t2://{id}"})
		for _, test := range []struct{ method, params, by, want string }{
			{"tools/call", `{"name":"two__echo","arguments":{"n":12345678901234567890}}`, "two", `{"name":"echo","arguments":{"n":12345678901234567890}}`},
			{"tools/call", `{"_meta":{"progressToken":"x"},"arguments":{},"name":"one__add"}`, "one", ``},
			{"tools/call", `{"name":"one__unlisted"}`, "one", `{"name":"unlisted"}`},
			{"prompts/get", `{"name":"one__greet"}`, "one", `{"name":"greet"}`},
			{"resources/read", `{"uri":"both:1"}`, "one", `{"uri":"both:1"}`},
			{"resources/read", `{"uri":"b:2"}`, "two", `{"uri":"b:2"}`},
			{"resources/read", `{"uri":"t2://7"}`, "two", `{"uri":"t2://7"}`},
			{"resources/read", `{"uri":"b:unlisted"}`, "two", `{"uri":"b:unlisted"}`},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"two__greet"},"argument":{"name":"a","value":"b"}}`, "two", `{"argument":{"name":"a","value":"b"},"ref":{"name":"greet","type":"ref/prompt"}}`},
			{"completion/complete", `{"ref":{"type":"ref/resource","uri":"t1://{id}/x"},"argument":{}}`, "one", `{"argument":{},"ref":{"type":"ref/resource","uri":"t1://{id}/x"}}`},
		} {
			got := do(t, s, "6", test.method, test.params)
			if by := gjson.Get(got, "result.by").Str; by != test.by {
				t.Errorf("%s %s: answered by %q: %s", test.method, test.params, by, got)
			}
			if p := gjson.Get(got, "result.params").Raw; test.want != "" && p != test.want {
				t.Errorf("%s %s: the server got %s, want %s", test.method, test.params, p, test.want)
			}
		}
		for _, test := range []struct{ method, params, want string }{
			{"tools/call", `{"name":"echo"}`, `"error":{"code":-32602,"message":"Unknown tool: echo: did you mean one__echo or two__echo? `},
			{"tools/call", `{"name":"three__echo"}`, `"error":{"code":-32602,"message":"Unknown tool: three__echo"}`},
			{"tools/call", `{}`, `"error":{"code":-32602,"message":"Unknown tool: "}`},
			{"prompts/get", `{"name":"nope"}`, `"error":{"code":-32602,"message":"Unknown prompt: nope"}`},
			{"resources/read", `{"uri":"zzz:1"}`, `"error":{"code":-32002,"message":"Resource not found","data":{"uri":"zzz:1"}}`},
			{"resources/subscribe", `{"uri":"zzz:1"}`, `"error":{"code":-32002,`},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"x"}}`, `"code":-32602`},
			{"completion/complete", `{}`, `"code":-32602`},
			{"logging/setLevel", `{"level":"loud"}`, `"code":-32602`},
			{"tools/list", `{"cursor":"bogus"}`, `"error":{"code":-32602,"message":"params.cursor is not a nextCursor of tools/list"}`},
			{"x/custom", `{}`, `"code":-32601`},
			{"tasks/list", `{}`, `"code":-32601`},
		} {
			if got := do(t, s, "7", test.method, test.params); !strings.Contains(got, test.want) {
				t.Errorf("%s %s: %s, want %s", test.method, test.params, got, test.want)
			}
		}
	})
}

// A child that is known is not started because a client has come, and only
// those are started that something is wanted of.
func TestMergeOnNeed(t *testing.T) {
	one, two := shop("one", map[string]string{"tools/list": toolList("a")}), shop("two", nil)
	all(t, []stock{{name: "one", prefix: "one__", f: one}, {name: "two", prefix: "two__", f: two}}, func(t *testing.T, g *gateway) {
		first, _, _ := enter(t, g)
		first.End(bridge.ErrEnded)
		synctest.Wait()
		s, _, greeting := enter(t, g)
		if one.opened() != 1 || two.opened() != 1 || !strings.Contains(greeting, "ask two") {
			t.Errorf("the second client's initialize opened %d and %d connections and was answered %s", one.opened()-1, two.opened()-1, greeting)
		}
		do(t, s, "1", "logging/setLevel", `{"level":"debug"}`)
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`), nil)
		synctest.Wait()
		if one.opened() != 1 || two.opened() != 1 {
			t.Error("the level or the roots started a server")
		}
		do(t, s, "2", "tools/call", `{"name":"one__a"}`)
		if one.opened() != 2 || two.opened() != 1 {
			t.Errorf("a call to one opened %d and %d connections", one.opened()-1, two.opened()-1)
		}
		got := strings.Join(one.wire(2).received(), "\n")
		if !strings.Contains(got, `"level":"debug"`) || strings.Index(got, "debug") > strings.Index(got, "tools/call") {
			t.Errorf("the server was not told the level before the call:\n%s", got)
		}
	})
}

// Lists go on page by page: one cursor for all, which ends where they end, and
// in no circle.
func TestMergePages(t *testing.T) {
	paged := func(name string, next map[string]string) *fake {
		f := shop(name, nil)
		f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
			if m.Method != "tools/list" {
				return false
			}
			at := "first"
			if c := gjson.GetBytes(m.Params, "cursor"); c.Exists() {
				at = "<" + c.Str + ">"
			}
			more := ""
			if n, ok := next[at]; ok {
				more = `,"nextCursor":` + rawjson.Quote(n)
			}
			f.answer(m, `{"tools":[{"name":`+rawjson.Quote(at)+`}]`+more+`}`)
			return true
		}
		return f
	}
	one := paged("one", map[string]string{"first": "", "<>": "b", "<b>": "c\"\n"}) // an empty cursor is one
	two := paged("two", nil)
	circle := paged("circle", map[string]string{"first": "1", "<1>": "2", "<2>": "3", "<3>": "1"})
	self := paged("self", map[string]string{"first": "x", "<x>": "x"})
	deaf := shop("deaf", map[string]string{"tools/list": `{"tools":[{"name":"a"}],"nextCursor":"more"}`}) // it does not read cursors
	fresh := shop("fresh", nil)
	fresh.serve = func(f *fakeWire, m *jsonrpc.Message) bool { // nor does this one, which makes one each time
		if m.Method == "tools/list" {
			f.answer(m, `{"tools":[{"name":"a"}],"nextCursor":"`+rand.Text()+`"}`)
		}
		return m.Method == "tools/list"
	}
	var servers []stock
	for _, s := range []struct {
		name string
		f    *fake
	}{{"one", one}, {"two", two}, {"circle", circle}, {"self", self}, {"deaf", deaf}, {"fresh", fresh}} {
		servers = append(servers, stock{name: s.name, prefix: s.name + "__", f: s.f})
	}
	log := &syncBuffer{}
	allLogged(t, slog.NewTextHandler(log, nil), servers, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		count := map[string]int{}
		cursor := `{}`
		for page := 0; ; page++ {
			if page > 20 {
				t.Fatal("the list does not end")
			}
			a := do(t, s, "1", "tools/list", cursor)
			for _, n := range names(t, a) {
				server, _, _ := strings.Cut(n, "__")
				count[server]++
			}
			next := gjson.Get(a, "result.nextCursor")
			if !next.Exists() {
				break
			}
			if got := do(t, s, "2", "prompts/list", `{"cursor":`+next.Raw+`}`); !strings.Contains(got, "-32602") {
				t.Errorf("another list's cursor: %s", got)
			}
			cursor = `{"cursor":` + next.Raw + `}`
		}
		if count["one"] != 4 || count["two"] != 1 || count["self"] != 2 || count["circle"] != 4 || count["deaf"] != 1 || count["fresh"] != 1 {
			t.Errorf("tools seen: %v", count)
		}
		do(t, s, "3", "tools/list", `{}`)
		for _, name := range []string{"circle", "self", "deaf", "fresh"} {
			if n := strings.Count(log.String(), `level=WARN msg="list cut off" server=`+name+" "); n != 1 {
				t.Errorf("%d warnings about %s", n, name)
			}
		}
	})
}

// A list that no server knows is empty where the capability is announced.
func TestMergeNoSuchList(t *testing.T) {
	poor := func(name string) *fake {
		f := shop(name, nil)
		f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
			_, is := list.Of(m.Method)
			if is {
				f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID))
			}
			return is
		}
		return f
	}
	all(t, []stock{{name: "one", f: poor("one")}, {name: "two", prefix: "two__", f: poor("two")}}, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		from := &bridge.Caller{Revision: era.LatestModern, Capabilities: []byte("{}")}
		for k := range list.Kinds {
			if got, want := do(t, s, "1", k.Method(), `{}`), `{"jsonrpc":"2.0","id":1,"result":{"`+k.Member()+`":[]}}`; got != want {
				t.Errorf("%s: %s, want %s", k.Method(), got, want)
			}
			m, _ := g.Call(t.Context(), from.Request(k.Method(), nil), Stateless{From: from, Back: &stream{}})
			if got := bridgetest.Text(m); !strings.Contains(got, `"result":{"`+k.Member()+`":[],`) {
				t.Errorf("%s without a session: %s", k.Method(), got)
			}
		}
	})
}

// One dead server and one slow one do not keep the others away, and join when
// they can be had.
func TestMergeAbsent(t *testing.T) {
	good := shop("good", map[string]string{"tools/list": toolList("a")})
	dead := shop("dead", map[string]string{"tools/list": toolList("d")})
	slow := shop("slow", map[string]string{"tools/list": toolList("s")})
	var alive atomic.Bool
	dead.before = func(context.Context, int) error {
		if alive.Load() {
			return nil
		}
		return &bridge.Error{Server: "dead", Kind: bridge.ErrUnavailable, Public: "it could not be started"}
	}
	slow.before = func(ctx context.Context, _ int) error {
		select {
		case <-time.After(30 * time.Second):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	log := &syncBuffer{}
	allLogged(t, slog.NewTextHandler(log, nil), []stock{{name: "dead", prefix: "dead__", f: dead}, {name: "good", prefix: "good__", f: good}, {name: "slow", prefix: "slow__", f: slow}}, func(t *testing.T, g *gateway) {
		began := time.Now()
		s, st, greeting := enter(t, g)
		if took := time.Since(began); took != greetPatience {
			t.Errorf("initialize took %v, want %v", took, greetPatience)
		}
		if !strings.Contains(greeting, `"resources":{"subscribe":true,"listChanged":true}`) {
			t.Errorf("what is yet unknown is not announced: %s", greeting)
		}
		began = time.Now()
		same(t, "tools at first", names(t, do(t, s, "1", "tools/list", `{}`)), []string{"good__a"})
		if !strings.Contains(greeting, "Lists may lack these servers at first: dead (it could not be started), slow (it is still starting).") {
			t.Errorf("the greeting does not say what is missing: %s", greeting)
		}
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("the list took %v, want what a server gets that is still starting", took)
		}
		lacking := func() (all []string) {
			for _, st := range g.Status() {
				all = append(all, fmt.Sprintf("%d %s", st.Lacking, st.LackingWhy))
			}
			return all
		}
		same(t, "missing at first", lacking(), []string{"1 it could not be started", "0 ", "1 it is still starting"})
		for name, why := range map[string]string{"dead": "it could not be started", "slow": "it is still starting"} {
			if want := `level=WARN msg="left out of the list of all servers" server=` + name + " method=tools/list err="; !strings.Contains(log.String(), want) || !strings.Contains(log.String(), why) {
				t.Errorf("the log does not say that %s is missing, and that %s:\n%s", name, why, log.String())
			}
		}
		if got := do(t, s, "2", "tools/call", `{"name":"dead__d"}`); !strings.Contains(got, "could not be started") {
			t.Errorf("a call to the dead server: %s", got)
		}
		if st := g.Status(); st[0].State != "failing" || st[1].State != "ready" || st[2].State != "starting" {
			t.Errorf("status: %+v", st)
		}
		st.take()
		time.Sleep(26 * time.Second) // the slow one has started
		if got := st.take(); len(got) != 1 || !strings.Contains(got[0], "tools/list_changed") {
			t.Errorf("when the slow one came the client was told %v", got)
		}
		same(t, "missing until the client lists again", lacking(), []string{"1 it could not be started", "0 ", "1 it is still starting"})
		same(t, "tools with the slow one", names(t, do(t, s, "3", "tools/list", `{}`)), []string{"good__a", "slow__s"})
		same(t, "missing without the slow one", lacking(), []string{"1 it could not be started", "0 ", "0 "})
		alive.Store(true)
		time.Sleep(2 * time.Minute)
		if got := st.take(); len(got) != 3 {
			t.Errorf("when the dead one came back the client was told %v", got)
		}
		same(t, "tools in the end", names(t, do(t, s, "4", "tools/list", `{}`)), []string{"dead__d", "good__a", "slow__s"})
		same(t, "missing in the end", lacking(), []string{"0 ", "0 ", "0 "})
		opened := dead.opened()
		time.Sleep(10 * time.Minute)
		if dead.opened() != opened {
			t.Error("a server that works is still probed")
		}
	})
}

// A server that needs a moment to start is in the lists of all clients, whatever keeps
// its lists from being kept.
func TestMergeStarting(t *testing.T) {
	token := []bridge.Forward{{From: "X-Tok", To: "TOK"}}
	for name, o := range map[string]ServerOptions{
		"usual": {}, "forward": {Forward: token}, "uncached": {ServerSettings: ServerSettings{Cache: cache.Options{Off: true}}}, "call": {ServerSettings: ServerSettings{Share: ShareCall}}, "uncached call": {ServerSettings: ServerSettings{Share: ShareCall, Cache: cache.Options{Off: true}}},
		"principal": {ServerSettings: ServerSettings{Share: SharePrincipal}}, "paged": {},
	} {
		for _, modern := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/modern=%t", name, modern), func(t *testing.T) {
				lists := map[string]string{"tools/list": toolList("a")}
				if name == "paged" {
					lists["tools/list"] = `{"tools":[{"name":"a"}],"nextCursor":"b"}`
				}
				slow := shop("slow", lists)
				slow.before = func(ctx context.Context, _ int) error {
					select {
					case <-time.After(3 * time.Second):
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				all(t, []stock{{name: "fast", prefix: "fast__", f: shop("fast", map[string]string{"tools/list": toolList("a")})}, {name: "slow", prefix: "slow__", f: slow, o: o}}, func(t *testing.T, g *gateway) {
					for i := range 5 {
						e := &Envelope{Header: http.Header{"X-Tok": {fmt.Sprint(i)}}}
						var got string
						if modern {
							from := &bridge.Caller{Revision: era.LatestModern, Capabilities: []byte("{}"), Header: e.Header}
							m, _ := g.Call(t.Context(), from.Request("tools/list", nil), Stateless{From: from, Back: &stream{}})
							got = bridgetest.Text(m)
						} else {
							s, _, err := g.initialize(t.Context(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{ID: fmt.Sprint("id", sessions.Add(1)), Envelope: e})
							if err != nil {
								t.Fatal(err)
							}
							m, _ := s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`), e, nil)
							got = bridgetest.Text(m)
						}
						same(t, fmt.Sprint("client ", i), names(t, got), []string{"fast__a", "slow__a"})
						time.Sleep(1500 * time.Millisecond)
					}
				})
			})
		}
	}
}

// The first client of all has the tools of all servers, if these are not too slow.
func TestMergeFirst(t *testing.T) {
	var servers []stock
	for _, name := range []string{"one", "two"} {
		f := shop(name, map[string]string{"tools/list": toolList("a")})
		f.before = func(context.Context, int) error {
			time.Sleep(7 * time.Second)
			return nil
		}
		servers = append(servers, stock{name: name, prefix: name + "__", f: f})
	}
	servers = append(servers, stock{name: "fast", prefix: "fast__", f: shop("fast", map[string]string{"tools/list": toolList("a")})})
	all(t, servers, func(t *testing.T, g *gateway) {
		s, st, _ := enter(t, g)
		same(t, "tools", names(t, do(t, s, "1", "tools/list", `{}`)), []string{"one__a", "two__a", "fast__a"})
		if got := st.take(); len(got) != 0 {
			t.Errorf("the client was told %v", got)
		}
	})
}

// A list that takes too long is left out once, announced, and then there.
func TestMergeSlowList(t *testing.T) {
	good := shop("good", map[string]string{"tools/list": toolList("a")})
	slow := shop("slow", nil)
	asked := 0
	slow.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method != "tools/list" {
			return false
		}
		asked++
		id := string(m.ID)
		go func() {
			time.Sleep(25 * time.Second)
			f.say(`{"jsonrpc":"2.0","id":` + id + `,"result":` + toolList("s") + `}`)
		}()
		return true
	}
	all(t, []stock{{name: "slow", prefix: "slow__", f: slow, o: ServerOptions{ServerSettings: ServerSettings{Cache: cache.Options{Off: true}}}}, {name: "good", prefix: "good__", f: good}}, func(t *testing.T, g *gateway) {
		s, st, _ := enter(t, g)
		same(t, "at first", names(t, do(t, s, "1", "tools/list", `{}`)), []string{"good__a"})
		same(t, "meanwhile", names(t, do(t, s, "2", "tools/list", `{}`)), []string{"good__a"})
		time.Sleep(20 * time.Second)
		if got := st.take(); len(got) != 1 || !strings.Contains(got[0], "tools/list_changed") {
			t.Errorf("the client was told %v", got)
		}
		same(t, "then", names(t, do(t, s, "3", "tools/list", `{}`)), []string{"slow__s", "good__a"})
		if asked != 1 {
			t.Errorf("the slow one was asked %d times, want once", asked)
		}
	})
	// While nothing has come an empty list would be wrong.
	asked = 0
	all(t, []stock{{name: "slow", prefix: "slow__", f: slow, o: ServerOptions{ServerSettings: ServerSettings{Cache: cache.Options{Off: true}}}}, {name: "dead", prefix: "dead__", f: &fake{before: func(context.Context, int) error { return errors.New("no") }}}}, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		same(t, "the only one", names(t, do(t, s, "1", "tools/list", `{}`)), []string{"slow__s"})
		done := make(chan string)
		go func() { done <- do(t, s, "2", "tools/list", `{}`) }()
		synctest.Wait()
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`), nil)
		if got := <-done; got != "" {
			t.Errorf("a cancelled list was answered %s", got)
		}
		if got := strings.Join(slow.wire(2).received(), "\n"); !strings.Contains(got, "notifications/cancelled") {
			t.Errorf("the server was not told that the list is cancelled:\n%s", got)
		}
		time.Sleep(30 * time.Second) // until the fake has spoken
	})
}

// When no server can be had, initialize says so, each time. One that is back is
// there for the next client at once.
func TestMergeNothing(t *testing.T) {
	var alive atomic.Bool
	back := shop("a", map[string]string{"tools/list": toolList("x")})
	no := func(context.Context, int) error {
		return &bridge.Error{Server: "x", Kind: bridge.ErrUnavailable, Public: "it could not be started"}
	}
	back.before = func(ctx context.Context, n int) error {
		if alive.Load() {
			return nil
		}
		return no(ctx, n)
	}
	all(t, []stock{{name: "a", prefix: "a__", f: back}, {name: "b", prefix: "b__", f: &fake{before: no}}}, func(t *testing.T, g *gateway) {
		for i := range 3 {
			_, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{ID: fmt.Sprint(i)})
			if err == nil || !strings.Contains(bridgetest.Text(m), "it could not be started") {
				t.Errorf("Initialize = %s, %v", bridgetest.Text(m), err)
			}
		}
		alive.Store(true)
		s, _, _ := enter(t, g)
		same(t, "tools", names(t, do(t, s, "1", "tools/list", `{}`)), []string{"a__x"})
	})
}

// Progress, logs, questions and changes of each server reach the client, and
// its answers the server that asked.
func TestMergeUp(t *testing.T) {
	talk := func(name string) *fake {
		f := shop(name, map[string]string{"resources/list": `{"resources":[{"uri":"` + name + `:1"}]}`})
		serve := f.serve
		f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
			if m.Method != "tools/call" {
				return serve(f, m)
			}
			f.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(m.Token()) + `,"progress":1,"by":"` + name + `"}}`)
			f.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + name + `"}}`)
			f.say(`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"by":"` + name + `","_meta":{"progressToken":"t"}}}`)
			return true // and leaves the call open
		}
		return f
	}
	one, two := talk("one"), talk("two")
	all(t, []stock{{name: "one", prefix: "one__", f: one}, {name: "two", prefix: "two__", f: two}}, func(t *testing.T, g *gateway) {
		s, st, _ := enter(t, g)
		backs := map[string]*stream{"one": {}, "two": {}}
		for i, name := range []string{"one", "two"} {
			m := bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s__x","_meta":{"progressToken":"p"}}}`, i, name))
			s.Go(func() { _, _ = s.Call(m, nil, backs[name]) })
		}
		synctest.Wait()
		for name, back := range backs {
			got := back.take()
			if len(got) != 3 || !strings.Contains(got[0], `"progressToken":"p","progress":1,"by":"`+name+`"`) || !strings.Contains(got[1], `"data":"`+name+`"`) || !strings.Contains(got[2], `"by":"`+name+`"`) {
				t.Fatalf("the stream of the call to %s got %q", name, got)
			}
			id, token := gjson.Get(got[2], "id"), gjson.Get(got[2], "params._meta.progressToken")
			s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":5,"progressToken":`+token.Raw+`}}`), nil)
			if err := s.Answer(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":`+id.Raw+`,"result":{"for":"`+name+`"}}`)); err != nil {
				t.Error(err)
			}
		}
		for name, f := range map[string]*fake{"one": one, "two": two} {
			got := strings.Join(f.wire(1).received(), "\n")
			if !strings.Contains(got, `"id":1,"result":{"for":"`+name+`"}`) || !strings.Contains(got, `"progress":5,"progressToken":"t"`) || strings.Count(got, `"progress":5`) != 1 {
				t.Errorf("%s got\n%s", name, got)
			}
		}
		do(t, s, "5", "resources/subscribe", `{"uri":"two:1"}`)
		two.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"two:1"}}`)
		one.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		got := st.take()
		slices.Sort(got)
		if len(got) != 2 || !strings.Contains(got[0], "two:1") || !strings.Contains(got[1], "list_changed") {
			t.Errorf("the client was told %q", got)
		}
		if log := strings.Join(one.wire(1).received(), "\n"); strings.Contains(log, "subscribe") {
			t.Error("the wrong server was subscribed to")
		}
		do(t, s, "6", "resources/unsubscribe", `{"uri":"two:1"}`)
		if log := strings.Join(two.wire(1).received(), "\n"); !strings.Contains(log, "resources/unsubscribe") {
			t.Error("the subscription was not ended")
		}
		do(t, s, "7", "logging/setLevel", `{"level":"error"}`)
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`), nil)
		for _, f := range []*fake{one, two} {
			if log := strings.Join(f.wire(1).received(), "\n"); !strings.Contains(log, `"level":"error"`) || !strings.Contains(log, "roots/list_changed") {
				t.Errorf("a server in use was not told the level and the roots:\n%s", log)
			}
		}
	})
}

// A server that announces nothing that could be listed is asked for all lists; one
// that announces something is asked for that.
func TestMergeUnannounced(t *testing.T) {
	one, two := shop("one", map[string]string{"tools/list": toolList("a")}), shop("two", map[string]string{"prompts/list": `{"prompts":[{"name":"p"}]}`})
	one.result = `{"protocolVersion":"2025-11-25","capabilities":{"logging":{}},"serverInfo":{"name":"one","version":"1"}}`
	two.result = `{"protocolVersion":"2025-11-25","capabilities":{"prompts":{}},"serverInfo":{"name":"two","version":"1"}}`
	all(t, []stock{{name: "one", prefix: "one__", f: one}, {name: "two", prefix: "two__", f: two}}, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		same(t, "tools", names(t, do(t, s, "1", "tools/list", `{}`)), []string{"one__a"})
		same(t, "prompts", names(t, do(t, s, "2", "prompts/list", `{}`)), []string{"two__p"})
		same(t, "tools without a session", names(t, visitor{}.call(t, g, "tools/list", "")), []string{"one__a"})
		if got := strings.Join(two.wire(1).received(), "\n"); strings.Contains(got, "tools/list") {
			t.Errorf("the server without tools got %s", got)
		}
	})
}

// A server that comes back as another one is met anew; the session goes on.
func TestMergeComesBackOther(t *testing.T) {
	one, two := shop("one", map[string]string{"tools/list": toolList("a")}), shop("two", map[string]string{"tools/list": toolList("b")})
	all(t, []stock{{name: "one", prefix: "one__", f: one}, {name: "two", prefix: "two__", f: two}}, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		do(t, s, "1", "tools/list", `{}`)
		one.result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"one","version":"2"}}`
		one.wire(1).die()
		synctest.Wait()
		time.Sleep(10 * time.Second)
		if got := do(t, s, "2", "tools/call", `{"name":"one__a"}`); !strings.Contains(got, "initialize again") {
			t.Errorf("the call that found out: %s", got)
		}
		time.Sleep(10 * time.Second)
		if got := do(t, s, "3", "tools/call", `{"name":"one__a"}`); gjson.Get(got, "result.by").Str != "one" {
			t.Errorf("then: %s", got)
		}
		if got := do(t, s, "4", "tools/call", `{"name":"two__b"}`); gjson.Get(got, "result.by").Str != "two" {
			t.Errorf("the other: %s", got)
		}
	})
}

// Odd names, and servers without a prefix, are found by what was listed, also
// by a session that has not listed anything.
func TestMergeNames(t *testing.T) {
	long := strings.Repeat("long", 20)
	one := shop("one", map[string]string{"tools/list": toolList("do it/now", long, "same")})
	two := shop("two", map[string]string{"tools/list": toolList("plain", "same")})
	three := shop("three", map[string]string{"tools/list": toolList("same", "one__x")})
	all(t, []stock{{name: "one", prefix: "one__", f: one}, {name: "two", f: two}, {name: "three", f: three}}, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		got := names(t, do(t, s, "1", "tools/list", `{}`))
		want := []string{"one__do_it_now_deff334f", "one__longlonglonglonglonglonglonglonglonglonglonglonglo_fa1960ae", "one__same", "plain", "same", "three__same", "three__one__x"}
		same(t, "tools", got, want)
		for i, by := range []string{"one", "one", "one", "two", "two", "three", "three"} {
			a := do(t, s, "2", "tools/call", `{"name":`+rawjson.Quote(got[i])+`}`)
			own := []string{"do it/now", long, "same", "plain", "same", "same", "one__x"}[i]
			if gjson.Get(a, "result.by").Str != by || gjson.Get(a, "result.params.name").Str != own {
				t.Errorf("%s: %s", got[i], a)
			}
		}
	})
	all(t, []stock{{name: "one", prefix: "one__", f: one}, {name: "two", f: two}}, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		for name, by := range map[string]string{"one__longlonglonglonglonglonglonglonglonglonglonglonglo_fa1960ae": "one", "plain": "two"} {
			if a := do(t, s, "1", "tools/call", `{"name":`+rawjson.Quote(name)+`}`); gjson.Get(a, "result.by").Str != by {
				t.Errorf("before any list, %s: %s", name, a)
			}
		}
	})
}

// Many servers are listed in one round trip each, all at once.
func TestMergeListsAtOnce(t *testing.T) {
	var servers []stock
	var asked atomic.Int64
	for i := range 20 {
		var own []string
		for j := range 50 {
			own = append(own, fmt.Sprint("tool", j))
		}
		f := shop("s", nil)
		f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
			if m.Method != "tools/list" {
				return false
			}
			asked.Add(1)
			id := string(m.ID)
			go func() {
				time.Sleep(time.Second)
				f.say(`{"jsonrpc":"2.0","id":` + id + `,"result":` + toolList(own...) + `}`)
			}()
			return true
		}
		servers = append(servers, stock{name: fmt.Sprint("s", i), prefix: fmt.Sprint("s", i, "__"), f: f})
	}
	all(t, servers, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		began := time.Now()
		list := names(t, do(t, s, "1", "tools/list", `{}`))
		if len(list) != 1000 || list[0] != "s0__tool0" || list[999] != "s19__tool49" {
			t.Errorf("%d tools: %q … %q", len(list), list[0], list[len(list)-1])
		}
		if took := time.Since(began); took != time.Second || asked.Load() != 20 {
			t.Errorf("took %v and %d requests, want as long as one server takes, and one request each", took, asked.Load())
		}
	})
}

// A server that cannot be asked about a resource that nobody lists is no reason
// not to ask the others.
func TestMergeReadAroundLost(t *testing.T) {
	one := shop("one", map[string]string{"resources/list": `{"resources":[{"uri":"x:1","name":"a"}]}`})
	two := shop("two", map[string]string{"resources/list": `{"resources":[{"uri":"x:2","name":"b"}]}`})
	served := one.serve
	one.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "resources/read" {
			f.die()
			return true
		}
		return served(f, m)
	}
	all(t, []stock{{name: "one", prefix: "one__", f: one}, {name: "two", prefix: "two__", f: two}}, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		do(t, s, "1", "resources/list", `{}`)
		if got := do(t, s, "2", "resources/read", `{"uri":"x:unlisted"}`); gjson.Get(got, "result.by").Str != "two" {
			t.Error(got)
		}
	})
}

// Slow servers do not keep others from being started, and not all start at once.
func TestStarts(t *testing.T) {
	var mu sync.Mutex
	most, now := 0, 0
	var servers []stock
	for i := range 100 {
		f := &fake{before: func(ctx context.Context, _ int) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			defer func() { mu.Lock(); now--; mu.Unlock() }()
			took := 50 * time.Millisecond
			if i < 20 {
				took = 40 * time.Second
			}
			select {
			case <-time.After(took):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}}
		servers = append(servers, stock{name: fmt.Sprint("s", i), prefix: fmt.Sprint("s", i, "__"), f: f})
	}
	all(t, servers, func(t *testing.T, g *gateway) {
		enter(t, g)
		ready := 0
		for _, st := range g.Status() {
			if st.State == "ready" {
				ready++
			}
		}
		if ready != 80 {
			t.Errorf("%d servers are ready after %v, want all 80 that are not slow", ready, greetPatience)
		}
		mu.Lock() // those that are slow go on
		defer mu.Unlock()
		if most > 20+maxStarts {
			t.Errorf("%d were started at once", most)
		}
	})
}

// A call costs the same whether there are two servers or many.
func BenchmarkMerge(b *testing.B) {
	for _, n := range []int{2, 20, 200} {
		b.Run(fmt.Sprint(n, " servers"), func(b *testing.B) {
			var o Options
			for i := range n {
				o.Servers = append(o.Servers, ServerOptions{Name: fmt.Sprint("s", i), ServerSettings: ServerSettings{Prefix: fmt.Sprint("s", i, "__")}, Adapter: &instant{}})
			}
			br := newGateway(o)
			defer br.Close(b.Context())
			s, _, err := br.initialize(b.Context(), bridgetest.Parse(b, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{ID: "x"})
			if err != nil {
				b.Fatal(err)
			}
			m := bridgetest.Parse(b, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s%d__x","arguments":{}}}`, n-1))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Call(m, nil, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// instant is a server that answers within Send.
type instant struct{}

func (*instant) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	i := &instantWire{}
	i.Conn = conn.New("instant", i, rest, conn.Timeouts{})
	g, err := conn.Handshake(ctx, i.Conn, from, "")
	i.server = g
	return i, err
}

type instantWire struct {
	*conn.Conn
	server *bridge.Greeting
}

func (i *instantWire) Send(_ context.Context, o conn.Outgoing) error {
	result := `{}`
	if o.Method == "initialize" {
		result = everything
	}
	if o.Line.Free(); o.Call > 0 {
		m, err := jsonrpc.Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":%s}`, o.Call, result))
		if err != nil {
			return err
		}
		i.Deliver(m)
	}
	return nil
}

func (i *instantWire) Server() *bridge.Greeting { return i.server }

func (i *instantWire) Close(context.Context) error { i.Fail(bridge.ErrShutdown); return nil }

// The first list has a server that starts within ListWait. A server whose connection is open has 10 s for its answer.
func TestListWait(t *testing.T) {
	for _, test := range []struct {
		opens, answers, took time.Duration // from the beginning of the list
		listed               bool
	}{
		{15 * time.Second, 0, 15 * time.Second, true},
		{25 * time.Second, 0, 20 * time.Second, false},
		{3 * time.Second, 9 * time.Second, 12 * time.Second, true},
		{3 * time.Second, time.Hour, 13 * time.Second, false},
		{15 * time.Second, time.Hour, 20 * time.Second, false},
	} {
		quick, slow := shop("quick", map[string]string{"tools/list": toolList("a")}), shop("slow", nil)
		slow.before = func(ctx context.Context, _ int) error {
			select {
			case <-time.After(greetPatience + test.opens):
			case <-ctx.Done():
			}
			return context.Cause(ctx)
		}
		slow.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
			if m.Method == "tools/list" {
				time.AfterFunc(test.answers, func() { f.answer(m, toolList("b")) })
			}
			return m.Method == "tools/list"
		}
		all(t, []stock{{name: "quick", f: quick}, {name: "slow", f: slow}}, func(t *testing.T, g *gateway) {
			s, _, _ := enter(t, g)
			began := time.Now()
			want := []string{"a", "b"}
			if !test.listed {
				want = want[:1]
			}
			same(t, fmt.Sprint(test), names(t, do(t, s, "1", "tools/list", `{}`)), want)
			if took := time.Since(began); took != test.took {
				t.Errorf("%v: the list took %v", test, took)
			}
		})
	}
}
