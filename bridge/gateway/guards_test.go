package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/guard/approve"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/results"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/arguments"
)

// grants lets principals of these names use everything.
func grants(names ...string) map[string]filter.Grant {
	all := map[string]filter.Grant{}
	for _, n := range names {
		all[n] = filter.Grant{}
	}
	return all
}

// limited runs f in a bubble with a bridge of these options, and checks that
// nothing is left of its limits.
func limited(t *testing.T, o Options, f func(t *testing.T, g *gateway)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o.Log = slog.New(slog.DiscardHandler)
		g := newGateway(o)
		f(t, g)
		g.Close(context.Background())
		for _, st := range g.Status() {
			if st.Slots+st.Queued+st.Slotless != 0 {
				t.Errorf("left at %s: %d places, %d in the queue, %d that ask", st.Name, st.Slots, st.Queued, st.Slotless)
			}
		}
		if !g.quota.Idle() {
			t.Error("a caller has something left")
		}
	})
}

func tool(name string) string { return `{"name":"` + name + `"}` }

// What one principal may have, and that the others are not concerned.
func TestDoor(t *testing.T) {
	f := &fake{serve: func(_ *fakeWire, m *jsonrpc.Message) bool { return m.Method == "slow" || m.Name() == "slow" }}
	o := Options{Servers: []ServerOptions{{Name: "fake", Adapter: f}}, Grants: grants("p", "q"), Common: Common{PerPrincipal: limits.PerPrincipal{Sessions: 2, Calls: 3, Rate: limits.Rate{PerSecond: 0.1, Burst: 11}}}}
	limited(t, o, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "p")
		second, _ := begin(t, g, "p")
		_, a, err := initialize(t, g, "p", bridgetest.InitializeParams)
		if !errors.Is(err, bridge.ErrOverloaded) {
			t.Errorf("the third session: %v", err)
		}
		bridgetest.Contains(t, a, "one caller may have 2 sessions open (per_principal: sessions); end those that are not used", `"data":{"bridge":"overloaded","retryAfterMs":1000}`)
		other, _ := begin(t, g, "q")

		// Calls of its sessions and of its clients without sessions count together.
		start(t, s, `{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		start(t, second, `{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		from := &bridge.Caller{Principal: "p", Revision: era.LatestModern, Capabilities: []byte(`{"extensions":{"x-vendor.new":{}}}`), Params: []byte(bridgetest.InitializeParams)}
		modern := func(ctx context.Context) (string, error) {
			m, err := g.Call(ctx, bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}`), Stateless{Server: "fake", From: from, Back: &stream{}})
			return bridgetest.Text(m), err
		}
		go func() {
			_, err := modern(ctx)
			done <- err
		}()
		synctest.Wait()
		const want = "one caller may have 3 calls under way (per_principal: calls)"
		bridgetest.Contains(t, do(t, s, "2", "x", `{}`), want, `"data":{"bridge":"overloaded","retryAfterMs":1000}`)
		got, err := modern(t.Context())
		if bridgetest.Contains(t, got, want); !errors.Is(err, bridge.ErrOverloaded) {
			t.Error(err)
		}
		bridgetest.Contains(t, do(t, s, "3", "ping", `{}`), `"result"`)
		bridgetest.Contains(t, do(t, other, "2", "x", `{}`), `"result"`)
		cancel()
		if err := <-done; !errors.Is(err, bridge.ErrCancelled) {
			t.Error(err)
		}
		bridgetest.Contains(t, do(t, s, "2", "x", `{}`), `"result"`)

		second.End(bridge.ErrEnded)
		synctest.Wait()
		third, _ := begin(t, g, "p")
		third.End(bridge.ErrEnded)
		for range 3 {
			bridgetest.Contains(t, do(t, s, "2", "x", `{}`), `"result"`)
		}
		bridgetest.Contains(t, do(t, s, "2", "x", `{}`), "the bridge may be called 6/m burst 11 by one caller (per_principal: rate)", `"data":{"bridge":"rate_limited","retryAfterMs":10000}`)
		if r := g.Totals().Refused; r["sessions"] != 1 || r["calls"] != 2 || r["rate"] != 1 {
			t.Errorf("refused: %v", r)
		}
	})
}

// Who is added has a share of the connections of each server at once. What a principal's clients without sessions do not
// use makes room for what they need, and nothing of others does.
func TestShares(t *testing.T) {
	limited(t, Options{Servers: []ServerOptions{{Name: "fake", Adapter: &fake{}, ServerSettings: ServerSettings{MaxChildren: 4}}}, Grants: grants("p")}, func(t *testing.T, g *gateway) {
		if err := g.Apply(Change{Names: []string{"fake"}, Settings: &Settings{Grants: grants("p", "q")}}); err != nil {
			t.Fatal(err)
		}
		call := func(principal string, n int) string {
			return visitor{principal: principal, caps: capsOf(n)}.call(t, g, "tools/call", `"name":"x"`)
		}
		bridgetest.Contains(t, call("q", 0), `"result"`)
		for n := range 6 {
			bridgetest.Contains(t, call("p", n), `"result"`)
			time.Sleep(time.Second)
		}
		if of := g.table.Load().servers[0].laneShares; of.Has("p") != 3 || of.Has("q") != 1 {
			t.Errorf("connections: %d and %d", of.Has("p"), of.Has("q"))
		}
		for range 3 {
			begin(t, g, "p")
		}
		_, a, err := initialize(t, g, "p", bridgetest.InitializeParams)
		if bridgetest.Contains(t, a, "one caller has too many connections to it", `"bridge":"overloaded"`); err == nil {
			t.Error("one caller has all connections")
		}
		if _, a, err := initialize(t, g, "q", bridgetest.InitializeParams); err != nil {
			t.Errorf("another caller: %s", a)
		}
	})
}

// faulty is a server whose calls of tools end as one says: without an answer
// when it returns an error. It counts what reaches it.
type faulty struct {
	fake
	outcome func(n int) error // of the nth call of a tool; nil means that all are answered
	calls   atomic.Int64
	pings   atomic.Int64
	mute    atomic.Bool // pings are not answered
	closed  atomic.Bool // no connection can be opened
}

func newFaulty(outcome func(n int) error) *faulty {
	f := &faulty{outcome: outcome}
	f.before = func(context.Context, int) error {
		if f.closed.Load() {
			return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it could not be started"}
		}
		return nil
	}
	f.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
		switch m.Method {
		case "ping":
			f.pings.Add(1)
			return f.mute.Load()
		case "tools/call":
			n := f.calls.Add(1)
			if f.outcome == nil {
				return false
			}
			if err := f.outcome(int(n)); err != nil {
				id, _ := strconv.ParseInt(string(m.ID), 10, 64)
				w.Abort(id, err)
				return true
			}
		}
		return false
	}
	return f
}

func failure(kind error) *bridge.Error {
	return &bridge.Error{Server: "fake", Kind: kind, Public: "it failed"}
}

func always(err error) func(int) error { return func(int) error { return err } }

func state(g *gateway) Status { return g.Status()[0] }

// While the server is left alone no connection is opened either, whoever wants
// one, and however its clients share them (stacklok/toolhive#5861).
func TestBreakerGatesOpenings(t *testing.T) {
	for _, share := range []Share{ShareSession, SharePrincipal, ShareCall, ShareAll} {
		t.Run(string(share), func(t *testing.T) {
			f := newFaulty(nil)
			f.closed.Store(true)
			run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: share, Breaker: breaker.Options{Failures: 3}}}, func(t *testing.T, g *gateway) {
				for i := 0; state(g).Breaker == "closed"; i++ {
					if i > 20 {
						t.Fatal("never opened")
					}
					_, _, _ = initialize(t, g, fmt.Sprint("p", i), bridgetest.InitializeParams)
				}
				if n := f.opened(); n != 3 {
					t.Errorf("opened after %d attempts", n)
				}
				var wg sync.WaitGroup
				for i := range 50 {
					wg.Go(func() {
						switch {
						case i%2 == 0:
							_, a, err := initializeAs(t, g, fmt.Sprint("id", i), fmt.Sprint("p", i))
							if !errors.Is(err, bridge.ErrOpen) || !strings.Contains(a, "circuit_open") {
								t.Errorf("initialize: %s, %v", a, err)
							}
						default:
							if got := (visitor{principal: fmt.Sprint("p", i)}).call(t, g, "tools/call", `"name":"x"`); !strings.Contains(got, "circuit_open") {
								t.Errorf("a client without a session: %s", got)
							}
						}
					})
				}
				wg.Wait()
				if n := f.opened(); n != 3 {
					t.Errorf("%d connections were opened while the server was left alone", n-3)
				}
			})
		})
	}
}

func initializeAs(t testing.TB, g *gateway, id, principal string) (*sitting, string, error) {
	s, m, err := join(t, g, SessionOptions{Server: "fake", ID: id, Principal: principal})
	return s, m, err
}

// Await reports a sign of life of any connection, although an open circuit keeps calls from the server.
func TestBreakerAwait(t *testing.T) {
	f := newFaulty(nil)
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: ShareAll, Breaker: breaker.Options{Failures: 2}}, Idle: -1}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		f.outcome = func(int) error { return failure(bridge.ErrUnavailable) }
		f.mute.Store(true)
		f.closed.Store(true)
		for range 2 {
			do(t, s, "1", "tools/call", `{"name":"x"}`)
		}
		var told atomic.Int64
		stop := g.table.Load().servers[0].health.Await(s.caller, func() { told.Add(1) })
		defer stop()
		time.Sleep(10 * time.Minute)
		if n, p := told.Load(), f.pings.Load(); n != 0 || p < 4 || p > 10 {
			t.Errorf("told %d times; %d pings in 10 min", n, p)
		}
		f.mute.Store(false)
		time.Sleep(3 * time.Minute)
		if told.Load() != 1 || state(g).Breaker != "closed" || f.open() != 1 {
			t.Errorf("told %d times; %s; %d connections", told.Load(), state(g).Breaker, f.opened())
		}
	})
}

// lister is a legacy server that counts how often it is asked for its list, which has that number.
type lister struct {
	*fake
	asked int
}

func newLister() *lister {
	l := &lister{fake: &fake{}}
	l.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method != "tools/list" {
			return false
		}
		l.asked++
		f.answer(m, fmt.Sprintf(`{"tools":[{"name":"t%d"}],"x":1.0}`, l.asked))
		return true
	}
	return l
}

// knowing is a server whose adapter says by itself what has changed.
type knowing struct {
	*lister
	changed func(string)
	stopped bool
}

func (k *knowing) AnnounceChanges(changed func(string)) func() {
	k.changed = changed
	return func() { k.stopped = true }
}

// The next list shows a change that the adapter itself announces, also when nobody is
// connected.
func TestCacheAnnounced(t *testing.T) {
	for _, share := range []Share{ShareSession, ShareCall} {
		k := &knowing{lister: newLister()}
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: k, Idle: 10 * time.Second, ServerSettings: ServerSettings{Share: share, Cache: cache.Options{Lists: time.Minute}}}}, Log: slog.New(slog.DiscardHandler)})
			v := visitor{}
			bridgetest.Contains(t, v.call(t, g, "tools/list", ""), `"t1"`)
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if n := g.lanes.Open(); n != 0 {
				t.Fatalf("%d connections are open", n)
			}
			bridgetest.Contains(t, v.call(t, g, "tools/list", ""), `"t1"`)
			k.changed("notifications/resources/list_changed")
			bridgetest.Contains(t, v.call(t, g, "tools/list", ""), `"t1"`)
			k.changed("notifications/tools/list_changed")
			bridgetest.Contains(t, v.call(t, g, "tools/list", ""), `"t2"`)

			s, _ := begin(t, g, "")
			if share == ShareSession { // a list that is a sleeping connection's own is dropped, too
				k.wire(k.open()).say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				synctest.Wait()
				bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t3"`)
				time.Sleep(20 * time.Second)
				bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t3"`)
				k.changed("notifications/tools/list_changed")
				bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t4"`)
			}
			g.Close(context.Background())
			if !k.stopped {
				t.Error("the adapter was not told that nobody wants to know any more")
			}
		})
	}
}

func raw(text string) json.RawMessage { return json.RawMessage(text) }

// depots returns a server with two tools, which answers calls with their arguments.
func depots() *fake {
	return &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		switch m.Method {
		case "tools/list":
			f.answer(m, `{"tools":[{"name":"plain","inputSchema":{"type":"object","properties":{"repo":{"type":"string"}}}},{"name":"get","inputSchema":{"type":"object","properties":{"tenant":{"type":"string"}}}}]}`)
		case "tools/call":
			f.answer(m, `{"content":[],"structuredContent":{"got":`+gjson.GetBytes(m.Append(nil, nil, nil), "params.arguments").Raw+"}}")
		default:
			return false
		}
		return true
	}}
}

// The operator's values hold in a group, and for tools that are found by a search and called by its tools.
func TestArgumentsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := filter.Rules{Override: map[string]filter.Override{"pl*": {Args: map[string]arguments.Change{"repo": {Value: raw(`"acme/x"`)}}}}}
		g := newGateway(Options{
			Log:    slog.New(slog.DiscardHandler),
			Groups: []Group{{Name: "team", Servers: []string{"fake"}, Listing: Listing{ToolsMode: ToolsSearch}}},
			Servers: []ServerOptions{
				{Name: "fake", ServerSettings: ServerSettings{Prefix: "f_", Lists: filter.Lists{Tools: rules}}, Adapter: depots()},
				{Name: "other", ServerSettings: ServerSettings{Prefix: "o_"}, Adapter: shop("other", nil)},
			},
		})
		defer g.Close(context.Background())
		s := sessionAt(t, g, "team", "", "")
		for args, want := range map[string]string{
			`{"name":"search_tools","arguments":{"names":["f_plain"]}}`:                               `\"inputSchema\":{\"type\":\"object\",\"properties\":{}}`,
			`{"name":"call_tool","arguments":{"name":"f_plain"}}`:                                     `"got":{"repo":"acme/x"}`,
			`{"name":"call_tool","arguments":{"name":"f_plain","arguments":"{\"x\":1}"}}`:             `"got":{"x":1,"repo":"acme/x"}`,
			`{"name":"call_tool","arguments":{"name":"f_plain","repo":"evil/x"}}`:                     `the operator of the bridge sets it`,
			`{"name":"call_tool","arguments":{"name":"f_plain","arguments":{"repo":"evil/x"}}}`:       `the operator of the bridge sets it`,
			`{"name":"call_tool","arguments":{"name":"f_plain","arguments":"{\"repo\":\"evil/x\"}"}}`: `the operator of the bridge sets it`,
			`{"name":"f_plain","arguments":{"Repo":"evil/x"}}`:                                        `the operator of the bridge sets it`,
		} {
			for i, got := range through(t, g, s, "", "tools/call", args) {
				if !strings.Contains(got, want) {
					t.Errorf("%d: %s: %s, want %s", i, args, got, want)
				}
			}
		}
	})
}

// The name of the caller is that in logs.
func TestArgumentsCaller(t *testing.T) {
	f := depots()
	rules := filter.Rules{Override: map[string]filter.Override{"get": {Args: map[string]arguments.Change{"tenant": {Value: raw(`"${caller.name}"`)}}}}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: ShareAll, Lists: filter.Lists{Tools: rules}}}, func(t *testing.T, g *gateway) {
		for _, name := range []string{"ann", "bob"} { // over one connection
			s, _ := begin(t, g, name)
			bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"get"}`), `"got":{"tenant":"`+name+`"}`)
		}
		s, _ := begin(t, g, "")
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"get"}`), "${caller.name}, which this caller lacks")
	})
}

// New changes count for the next call. Clients are told that the list has changed.
func TestArgumentsReload(t *testing.T) {
	f := depots()
	o := ServerOptions{Name: "fake", Adapter: f, ServerSettings: ServerSettings{Lists: filter.Lists{Tools: filter.Rules{Override: map[string]filter.Override{"plain": {Args: map[string]arguments.Change{"repo": {Value: raw(`"a"`)}}}}}}}}
	run(t, o, func(t *testing.T, g *gateway) {
		s, st := begin(t, g, "")
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"plain"}`), `"got":{"repo":"a"}`)
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"get","arguments":{"x":1}}`), `"got":{"x":1}`)
		o.Tools.Override = map[string]filter.Override{"plain": {Args: map[string]arguments.Change{"repo": {As: "of"}}}}
		if err := g.Apply(Change{Names: []string{"fake"}, Tuned: []ServerOptions{o}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if told := strings.Join(st.take(), ""); strings.Count(told, "notifications/tools/list_changed") != 1 {
			t.Errorf("the client was told %q", told)
		}
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"plain","arguments":{"of":"b"}}`), `"got":{"repo":"b"}`)
		o.Tools.Override = nil
		if err := g.Apply(Change{Names: []string{"fake"}, Tuned: []ServerOptions{o}}); err != nil {
			t.Fatal(err)
		}
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"plain","arguments":{"repo":"c"}}`), `"got":{"repo":"c"}`)
	})
}

// Long results are cut and read on, by sessions and stateless clients, at each address and through call_tool. One kind of
// client does not read what the other got (C-040).
func TestResults(t *testing.T) {
	long := `{"tools":[{"name":"log","inputSchema":{"type":"object"}}]}`
	one := shop("one", map[string]string{"tools/list": long, "tools/call": `{"content":[{"type":"text","text":"` + strings.Repeat(`line\n`, 1000) + `"}]}`})
	two := shop("two", map[string]string{"tools/list": long})
	all(t, []stock{{name: "one", prefix: "one__", f: one, o: ServerOptions{ServerSettings: ServerSettings{Results: results.Options{Max: 1024}}}}, {name: "two", prefix: "two__", f: two}}, func(t *testing.T, g *gateway) {
		if err := g.Apply(Change{Names: []string{"one", "two"}, Settings: &Settings{Common: Common{SessionIdle: 1e15, SessionLeft: 1e15, ListWait: 1e15}, Groups: []Group{{Name: "dev", Servers: []string{"one"}}, {Name: "other", Servers: []string{"two"}}}}}); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			server string
			mode   ToolsMode
			call   string
			listed string
		}{
			{"one", "", `{"name":"log"}`, "log read_result"},
			{"", "", `{"name":"one__log"}`, "one__log two__log read_result"},
			{"dev", "", `{"name":"one__log"}`, "one__log read_result"},
			{"", ToolsSearch, `{"name":"call_tool","arguments":{"name":"one__log"}}`, "search_tools read_tool call_tool read_result"},
			{"other", "", "", "two__log"},
			{"two", "", "", "log"},
		} {
			s := sessionAt(t, g, tc.server, "", tc.mode)
			for i, got := range through(t, g, s, tc.mode, "tools/list", `{}`) {
				if list := strings.Join(names(t, got), " "); list != tc.listed {
					t.Errorf("%d: %q, tools=%s: the list is %s, want %s", i, tc.server, tc.mode, list, tc.listed)
				}
			}
			if tc.call == "" {
				continue
			}
			both := through(t, g, s, tc.mode, "tools/call", tc.call)
			for i, got := range both {
				content := gjson.Get(got, "result.content")
				link := content.Get("2.uri").Str
				id := link[strings.LastIndexByte(link, '/')+1:]
				if len(content.Get("0.text").Str) > 1024 || id == "" {
					t.Fatalf("%d: %q: the result is %s", i, tc.server, got)
				}
				read := through(t, g, s, tc.mode, "tools/call", `{"name":"read_result","arguments":{"id":"`+id+`","from":999,"lines":2}}`)
				if !strings.Contains(read[i], `(lines 999 to 1000 of 1001)`) || !strings.Contains(read[1-i], "does not have this result") {
					t.Errorf("%d: %q: read on: %s, and the other client: %s", i, tc.server, read[i], read[1-i])
				}
				if tc.mode == ToolsSearch { // models call it like the others
					read = through(t, g, s, tc.mode, "tools/call", `{"name":"read_tool","arguments":{"name":"read_result","arguments":{"id":"`+id+`","from":999,"lines":2}}}`)
					if !strings.Contains(read[i], `(lines 999 to 1000 of 1001)`) {
						t.Errorf("through read_tool: %s", read[i])
					}
				}
				read = through(t, g, s, tc.mode, "resources/read", `{"uri":"`+link+`"}`)
				if len(gjson.Get(read[i], "result.contents.0.text").Str) != 5000 || !strings.Contains(read[1-i], `"error"`) {
					t.Errorf("%d: %q: the resource is %.200s, for the other client %.200s", i, tc.server, read[i], read[1-i])
				}
			}
		}
	})
}

const dropArgs = `"arguments":{"id":"1"}`

// asking calls a tool in a session, and answers the question about it. It returns the question and the answer of the
// call.
func asking(t *testing.T, s *sitting, mode ToolsMode, params, answer string) (question, got string) {
	t.Helper()
	call := &pendingCall{done: make(chan struct{})}
	s.Go(func() {
		defer close(call.done)
		a, _ := s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{`+params+`}}`), &Envelope{Tools: mode}, &call.back)
		call.answer = bridgetest.Text(a)
	})
	if call.over() {
		return "", call.answer
	}
	asked := call.back.take()
	if len(asked) == 0 {
		t.Fatalf("%s: no question", params)
	}
	question = asked[len(asked)-1]
	if err := s.Answer(bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, bridgetest.Parse(t, question).ID, answer))); err != nil {
		t.Fatal(err)
	}
	<-call.done
	return question, call.answer
}

// again returns the params of a stateless client's call that brings the answer to the question in first.
func again(t *testing.T, params, first, answer string) string {
	t.Helper()
	key := gjson.Get(first, "result.inputRequests.@keys.0").Str
	return params + `,"requestState":"` + stateOf(t, first) + `","inputResponses":{"` + key + `":` + answer + `}`
}

func chosen(answer string) string { return `{"action":"accept","content":{"answer":"` + answer + `"}}` }

// Both kinds of clients are asked before a call of a tool that destroys, at servers of both eras, at each address and
// through call_tool. Only a yes makes the call, once (C-080, C-081).
func TestApprovals(t *testing.T) {
	stock := stores()[:2]
	for i := range stock {
		stock[i].o.Approve = []approve.Rule{{Tools: []string{approve.Destructive}}}
	}
	all(t, stock, func(t *testing.T, g *gateway) {
		if err := g.Apply(Change{Names: []string{"one", "two"}, Settings: &Settings{Common: Common{SessionIdle: 1e15, SessionLeft: 1e15, ListWait: 1e15}, Groups: []Group{{Name: "dev", Servers: []string{"one", "two"}}}}}); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			at   string
			mode ToolsMode
			by   string
			call string
		}{
			{"one", "", "one", `"name":"drop",` + dropArgs},
			{"two", "", "two", `"name":"drop",` + dropArgs},
			{"", "", "one", `"name":"one__drop",` + dropArgs},
			{"", "", "two", `"name":"two__drop",` + dropArgs},
			{"dev", "", "one", `"name":"one__drop",` + dropArgs},
			{"dev", "", "two", `"name":"two__drop",` + dropArgs},
			{"", ToolsSearch, "one", `"name":"call_tool","arguments":{"name":"one__drop","arguments":"{\"id\":\"1\"}"}`},
			{"two", ToolsSearch, "two", `"name":"call_tool","arguments":{"name":"drop",` + dropArgs + `}`},
		} {
			where := fmt.Sprintf("%q, tools=%s, %s", tc.at, tc.mode, tc.by)
			s := sessionAt(t, g, tc.at, "", tc.mode)
			for answer, made := range map[string]bool{
				chosen("Yes, this once"): true,
				chosen("No"):             false,
				`{"action":"decline"}`:   false,
			} {
				question, got := asking(t, s, tc.mode, tc.call, answer)
				bridgetest.Contains(t, question, `"method":"elicitation/create"`, `Server: `+tc.by, `Tool: \"drop\"`, `{\"id\":\"1\"}`)
				if strings.Contains(got, `"by":"`+tc.by+`"`) != made {
					t.Errorf("%s: a session answered %s: %s", where, answer, got)
				}
				v := visitor{server: tc.at, mode: tc.mode}
				first := v.call(t, g, "tools/call", tc.call)
				bridgetest.Contains(t, first, `"input_required"`, `Tool: \"drop\"`)
				got = v.call(t, g, "tools/call", again(t, tc.call, first, answer))
				if strings.Contains(got, `"by":"`+tc.by+`"`) != made {
					t.Errorf("%s: a stateless client answered %s: %s", where, answer, got)
				}
			}
			reads := strings.ReplaceAll(tc.call, "drop", "look")
			if question, got := asking(t, s, tc.mode, reads, ""); question != "" || !strings.Contains(got, `"by"`) {
				t.Errorf("%s: look: asked %q, and got %s", where, question, got)
			}
		}
	})
}

// Stateless clients are asked however connections are shared, and only the caller that was asked can answer. If all clients
// share a connection to a legacy server, that connection carries no questions: an operator decides.
func TestApprovalShared(t *testing.T) {
	for _, modern := range []bool{false, true} {
		for _, share := range []Share{ShareSession, SharePrincipal, ShareAll, ShareCall} {
			synctest.Test(t, func(t *testing.T) {
				o := ServerOptions{
					Name:    "one",
					Adapter: shop("one", map[string]string{"tools/list": lookAndDrop}),
					ServerSettings: ServerSettings{
						Share:   share,
						Approve: []approve.Rule{{Tools: []string{"drop"}}},
					},
				}
				if modern {
					o.Adapter = modernShop("one", map[string]string{"tools/list": `{"resultType":"complete",` + lookAndDrop[1:len(lookAndDrop)-1] + `,"ttlMs":0,"cacheScope":"private"}`})
				}
				g := newGateway(Options{Servers: []ServerOptions{o}, Log: slog.New(slog.DiscardHandler), Grants: grants("p", "q")})
				defer g.Close(context.Background())
				const drop = `"name":"drop",` + dropArgs
				p, q := visitor{server: "one", principal: "p"}, visitor{server: "one", principal: "q"}
				call := p.ask(t, g, "1", "tools/call", drop)
				if !modern && share == ShareAll {
					if call.over() || len(g.Approvals().Waiting()) != 1 {
						t.Errorf("no operator is asked: %s", call.answer)
					}
					g.Close(context.Background()) // which is a no
					<-call.done
					bridgetest.Lacks(t, call.answer, `"by"`)
					return
				}
				<-call.done
				retry := again(t, drop, call.answer, chosen("Yes, this once"))
				if got := q.call(t, g, "tools/call", retry); strings.Contains(got, `"by"`) {
					t.Errorf("modern=%t, share=%s: another caller answered: %s", modern, share, got)
				}
				bridgetest.Contains(t, p.call(t, g, "tools/call", retry), `"by":"one"`)
			})
		}
	}
}
