package gateway

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// peer is a server in memory of the client's own era. Its tool ask wants a
// name, task makes a task, and whatever else says what it was called with.
type peer struct{ *fake }

const peerResult = `{"resultType":"complete","supportedVersions":["2026-07-28","2099-01-01"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},"ttlMs":5,"cacheScope":"public","x":1}`

func newPeer() *peer {
	p := &peer{&fake{result: peerResult}}
	p.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		switch {
		case m.Method == "server/discover":
			f.answer(m, p.result)
		case m.Method == era.Listen:
			f.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(m.ID) + `},"notifications":` + gjson.GetBytes(m.Params, "notifications").Raw + `}}`)
		case m.Method == "tools/call" && m.Name() == "ask":
			f.answer(m, `{"requestState":"S/`+string(m.ID)+`","inputRequests":{"k":{"method":"roots/list","params":{}}},"resultType":"input_required"}`)
		case m.Method == "tools/call" && m.Name() == "task":
			f.answer(m, `{"resultType":"task","taskId":"T1","status":"working"}`)
		case m.Method == "tasks/get":
			f.answer(m, `{"resultType":"complete","taskId":`+gjson.GetBytes(m.Params, "taskId").Raw+`,"status":"working"}`)
		case m.IsRequest():
			f.answer(m, `{"got":`+string(m.Params)+`}`)
		}
		return true
	}
	return p
}

func (p *peer) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	f := &fakeWire{f: p.fake, from: from, rest: rest, queue: make(chan func(), 1<<10), done: make(chan struct{})}
	f.Conn = conn.New("fake", f, rest, p.times)
	f.wg.Go(f.run)
	var v conn.Verdict
	var err error
	if f.server, v, err = conn.Discover(ctx, f.Conn, from); err != nil || v != conn.SaysModern {
		_ = f.Close(ctx)
		return nil, &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it is of no known era", Err: err}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opens = append(p.opens, time.Now())
	p.wires = append(p.wires, f)
	f.n = len(p.wires)
	return f, nil
}

const statelessReserved = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + ableVisitor

// D4: a request goes as it is, over one connection for all of a principal's
// clients; answers lack nothing that they must have.
func TestRelay(t *testing.T) {
	p := newPeer()
	run(t, ServerOptions{Adapter: p}, func(t *testing.T, g *gateway) {
		want := `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","got":{"name":"x","requestState":"theirs","inputResponses":{},` + statelessReserved + `,"v":1}}}}`
		for range 2 {
			if got := (visitor{meta: `,"v":1`}).call(t, g, "tools/call", `"name":"x","requestState":"theirs","inputResponses":{}`); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
		bridgetest.Lacks(t, visitor{meta: `,"dev.mcp-bridge/lane":"l"`}.call(t, g, "tools/call", `"name":"x"`), "lane")
		visitor{caps: "{}"}.call(t, g, "tools/call", `"name":"x"`)
		bridgetest.Contains(t, visitor{}.call(t, g, "server/discover", ""), `"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`, `"ttlMs":5`, `"x":1`)
		if p.opened() != 1 {
			t.Errorf("%d connections", p.opened())
		}
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"ask"`), `"requestState":"S/`)
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"x","requestState":1`), "-32602")
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"x","inputResponses":{"r1":{}}`), `"inputResponses":{"r1":{}}`) // a server may do without a state
	})
}

// with principals, what the server gives a client to come back with is
// good for that client's principal only.
func TestRelayHandles(t *testing.T) {
	p := newPeer()
	run(t, ServerOptions{Adapter: p, ServerSettings: ServerSettings{Share: ShareAll}}, func(t *testing.T, g *gateway) {
		ann, bob := visitor{principal: "ann"}, visitor{principal: "bob"}
		answer := ann.call(t, g, "tools/call", `"name":"ask"`)
		bridgetest.Lacks(t, answer, `"S/`)
		retry := `"requestState":"` + stateOf(t, answer) + `","name":"x"`
		bridgetest.Contains(t, ann.call(t, g, "tools/call", retry), `"requestState":"S/`, `"name":"x"`)
		bridgetest.Contains(t, bob.call(t, g, "tools/call", retry), "-32602")
		bridgetest.Contains(t, ann.call(t, g, "tools/call", `"name":"x","requestState":"S/2"`), "-32602")
		bridgetest.Contains(t, ann.call(t, g, "tools/call", `"name":"x","requestState":"`+stateOf(t, answer)+`","requestState":"S/2"`), "-32602")

		for _, like := range []string{"RequestState", `reque\u017ftState`, `request\u017ftate`, "requeststate"} {
			bridgetest.Contains(t, ann.call(t, g, "tools/call", `"name":"x","`+like+`":"S/2"`), "-32602", "in case only")
			bridgetest.Contains(t, ann.call(t, g, "tools/call", retry+`,"`+like+`":"S/2"`), "-32602", "in case only")
		}

		answer = ann.call(t, g, "tools/call", `"name":"task"`)
		bridgetest.Lacks(t, answer, `"T1"`)
		id := gjson.Get(answer, "result.taskId").Str
		if got := ann.call(t, g, "tasks/get", `"taskId":"`+id+`"`); gjson.Get(got, "result.taskId").Str != id {
			t.Errorf("got %s, want the id that the client knows", got)
		}
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			bridgetest.Contains(t, bob.call(t, g, method, `"taskId":"`+id+`"`), "-32602")
			bridgetest.Contains(t, ann.call(t, g, method, `"taskId":"T1"`), "-32602")
			bridgetest.Contains(t, ann.call(t, g, method, ``), "-32602")
		}
		bridgetest.Contains(t, ann.call(t, g, "tasks/cancel", `"taskId":"`+id+`","taskId":"T2"`), `"taskId":"T1"`)
		bridgetest.Lacks(t, ann.call(t, g, "tasks/cancel", `"taskId":"`+id+`","taskId":"T2"`), `"T2"`)
		bridgetest.Lacks(t, ann.call(t, g, "tasks/cancel", `"taskId":"`+id+`","TaskId":"T2"`), `"T2"`)
		bridgetest.Contains(t, bob.call(t, g, era.Listen, `"notifications":{"taskIds":["`+id+`"]}`), "-32602")

		for _, others := range []string{`"notifications":{"TaskIds":["T2"]}`, `"notifications":{"taskIds":["` + id + `"]},"Notifications":{"taskIds":["T2"]}`, `"notifications":{"ta\u0073kId\u017f":["T2"]}`} {
			bridgetest.Contains(t, ann.call(t, g, era.Listen, others), "-32602", "in other letters")
		}

		v := ann.ask(t, g, "7", era.Listen, `"notifications":{"taskIds":["`+id+`"],"toolsListChanged":true}`)
		bridgetest.Contains(t, strings.Join(v.take(), ""), `"taskIds":["`+id+`"]`, `"toolsListChanged":true`)
		call := listenID(t, p.wire(1))
		p.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + call + `},"taskId":"T1","status":"working"}}`)
		got := strings.Join(v.take(), "")
		bridgetest.Contains(t, got, `"taskId":"`+id+`"`, `subscriptionId":7`)
		bridgetest.Lacks(t, got, `"T1"`)
		v.cancel(nil)
		<-v.done
		if p.opened() != 1 {
			t.Errorf("%d connections", p.opened())
		}
	})
}

// listenID returns the server's number of the last subscription.
func listenID(t *testing.T, f *fakeWire) string {
	t.Helper()
	id := ""
	for _, line := range f.log() {
		if m := bridgetest.Parse(t, line); m.Method == era.Listen {
			id = string(m.ID)
		}
	}
	return id
}

// R-113, D4: a subscription survives the loss of the connection. The client is
// told what may have changed, and no second acknowledgement.
func TestRelayListen(t *testing.T) {
	p := newPeer()
	run(t, ServerOptions{Adapter: p}, func(t *testing.T, g *gateway) {
		v := visitor{}.ask(t, g, "1", era.Listen, `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:"]}`)
		bridgetest.Contains(t, strings.Join(v.take(), ""), "acknowledged")
		for i := range 3 {
			p.wire(i + 1).die()
			time.Sleep(maxBackOff + 10*time.Second)
			got := v.take()
			if len(got) != 2 || v.over() {
				t.Fatalf("got %q", got)
			}
			bridgetest.Contains(t, got[0], `tools/list_changed`, `subscriptionId":1`)
			bridgetest.Contains(t, got[1], `resources/updated`, `"uri":"a:"`, `subscriptionId":1`)
		}
		p.wire(4).say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete"}}`, listenID(t, p.wire(4))))
		<-v.done
		bridgetest.Contains(t, v.answer, `"resultType":"complete"`)
		if p.opened() != 4 {
			t.Errorf("%d connections", p.opened())
		}
	})
}

// whatever a server says to a subscription, the client hears the
// acknowledgement first, and nothing that it has not asked for.
func TestRelayListenUnasked(t *testing.T) {
	p := newPeer()
	rest := p.serve
	p.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method != era.Listen {
			return rest(f, m)
		}
		say := func(method, params string) {
			f.say(`{"jsonrpc":"2.0","method":"notifications/` + method + `","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(m.ID) + `}` + params + `}}`)
		}
		say("tools/list_changed", `,"n":1`)
		rest(f, m)
		say("tools/list_changed", `,"n":2`)
		say("prompts/list_changed", "")
		say("resources/updated", `,"uri":"a:"`)
		say("message", `,"level":"info","data":1`)
		say("tasks", `,"taskId":"T1"`)
		say("tasks", `,"taskId":"T2"`)
		say("ext/news", "")
		f.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(m.Token()) + `,"progress":1}}`)
		return true
	}
	run(t, ServerOptions{Adapter: p}, func(t *testing.T, g *gateway) {
		v := visitor{meta: `,"progressToken":1`}.ask(t, g, "1", era.Listen, `"notifications":{"toolsListChanged":true,"taskIds":["T2"]}`)
		time.Sleep(changeEvery) // so often it is told of the same change
		synctest.Wait()
		got := v.take()
		want := []string{`/acknowledged"`, `"n":1`, `"taskId":"T2"`, `ext/news"`, `"n":2`}
		if len(got) != len(want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		for i := range want {
			bridgetest.Contains(t, got[i], want[i], `subscriptionId":1`)
		}
		v.cancel(nil)
		<-v.done
	})
}

// B10: a server ends a subscription by a result, by taking it back, or by both in
// any order. It cannot take back anything else.
func TestRelayListenTakenBack(t *testing.T) {
	for _, ends := range [][]string{
		{`"method":"notifications/cancelled","params":{"requestId":$id}`},
		{`"id":$id,"result":{"resultType":"complete"}`, `"method":"notifications/cancelled","params":{"requestId":$id}`},
		{`"method":"notifications/cancelled","params":{"requestId":$id}`, `"id":$id,"result":{"resultType":"complete"}`},
	} {
		p := newPeer()
		rest := p.serve
		p.serve = func(f *fakeWire, m *jsonrpc.Message) bool { return m.Name() == "mute" || rest(f, m) }
		run(t, ServerOptions{Adapter: p}, func(t *testing.T, g *gateway) {
			v := visitor{}.ask(t, g, `"s"`, era.Listen, `"notifications":{"toolsListChanged":true}`)
			call := visitor{}.ask(t, g, "1", "tools/call", `"name":"mute"`)
			synctest.Wait()
			f := p.wire(1)
			for n := range 9 {
				if id := fmt.Sprint(n); id != listenID(t, f) {
					f.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
				}
			}
			f.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x` + listenID(t, f) + `"}}`)
			synctest.Wait()
			if v.over() || call.over() {
				t.Fatalf("ended too early: %s, %s", v.answer, call.answer)
			}
			for _, line := range ends {
				f.say(`{"jsonrpc":"2.0",` + strings.ReplaceAll(line, "$id", listenID(t, f)) + `}`)
			}
			synctest.Wait()
			if !v.over() || call.over() || p.opened() != 1 {
				t.Errorf("the subscription is over: %t, the call: %t; %d connections", v.over(), call.over(), p.opened())
			}
			bridgetest.Contains(t, v.answer, `"id":"s","result":{"resultType":"complete"`, `subscriptionId":"s"`)
			for _, x := range []*visiting{v, call} {
				x.cancel(nil)
				<-x.done
			}
		})
	}
}

// A server that comes back as a legacy one knows nothing of requestState of
// before, and the bridge nothing of the server's.
func TestRelayThenLegacy(t *testing.T) {
	p := newPeer()
	old := &fake{}
	both := &either{now: p}
	run(t, ServerOptions{Adapter: both}, func(t *testing.T, g *gateway) {
		v := visitor{}.ask(t, g, "1", era.Listen, `"notifications":{"toolsListChanged":true}`)
		bridgetest.Contains(t, strings.Join(v.take(), ""), "acknowledged")
		state := stateOf(t, visitor{}.call(t, g, "tools/call", `"name":"ask"`))
		both.now = old
		p.wire(1).die()
		<-v.done
		bridgetest.Contains(t, v.answer, `"resultType":"complete"`)
		synctest.Wait()
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"x","requestState":"`+state+`"`), "-32602")
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"x"`), `"complete"`)
		bridgetest.Lacks(t, strings.Join(old.wire(1).received(), ""), state)
	})
}

type either struct{ now bridge.Adapter }

func (e *either) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	return e.now.Open(ctx, from, rest)
}

// D7, R-090: what a modern server must not say, or says about the headers that
// are the bridge's, does not reach the client.
func TestRelayErrors(t *testing.T) {
	for _, c := range []struct{ method, params, code, want string }{
		{"tools/call", `"name":"x"`, "-32020", `"code":-32603,"message":"m","data":{"originalCode":-32020}`},
		{"resources/read", `"uri":"u:"`, "-32020", `"code":-32603,"message":"m","data":{"originalCode":-32020}`},
		{"resources/read", `"uri":"u:"`, "-32002", `"code":-32602,"message":"m","data":{"uri":"u:"}`},
		{"prompts/get", `"name":"x"`, "-32042", `"code":-32603,`},
		{"tools/call", `"name":"x"`, "-32077", `"code":-32603,"message":"m","data":{"originalCode":-32077}`},
		{"tools/call", `"name":"x"`, "-32021", `"code":-32021,"message":"m"}`},
		{"tools/call", `"name":"x"`, "-32601", `"code":-32601,"message":"m"}`},
	} {
		p := newPeer()
		rest := p.serve
		p.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
			if m.Method != c.method {
				return rest(f, m)
			}
			f.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":` + c.code + `,"message":"m"}}`)
			return true
		}
		run(t, ServerOptions{Adapter: p}, func(t *testing.T, g *gateway) {
			bridgetest.Contains(t, visitor{}.call(t, g, c.method, c.params), `"id":1,"error":{`, c.want)
		})
	}
}

// a client hears no log messages that it has not asked for with that very
// request, whatever the server says.
func TestRelayLogs(t *testing.T) {
	p := newPeer()
	rest := p.serve
	p.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			n, _ := strconv.ParseInt(string(m.ID), 10, 64)
			for _, level := range []string{"debug", "warning", "error"} {
				f.sayOn(n, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"`+level+`","data":1.0}}`)
			}
			f.sayOn(n, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`+string(m.Token())+`,"progress":1}}`)
		}
		return rest(f, m)
	}
	run(t, ServerOptions{Adapter: p}, func(t *testing.T, g *gateway) {
		for _, c := range []struct {
			meta string
			want []string
		}{
			{"", []string{"progress"}},
			{`,"io.modelcontextprotocol/logLevel":"warning"`, []string{`"warning"`, `"error"`, "progress"}},
		} {
			v := visitor{meta: c.meta + `,"progressToken":"t"`}.ask(t, g, "1", "tools/call", `"name":"x"`)
			<-v.done
			got := v.take()
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i := range c.want {
				bridgetest.Contains(t, got[i], c.want[i])
			}
		}
	})
}

// a server that was found to be a modern one stays so, whatever it
// answers server/discover with later.
func TestRelayDiscoverFails(t *testing.T) {
	for _, code := range []string{"-32601", "-32603", "-32020"} {
		p := newPeer()
		rest := p.serve
		asked := 0
		p.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
			if m.Method == "server/discover" {
				if asked++; asked > 1 {
					f.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":` + code + `,"message":"m"}}`)
					return true
				}
			}
			return rest(f, m)
		}
		run(t, ServerOptions{Adapter: p}, func(t *testing.T, g *gateway) {
			bridgetest.Contains(t, visitor{}.call(t, g, "server/discover", ""), `"id":1,"result":{`, `"supportedVersions":["2026-07-28","2025-11-25",`, `"ttlMs":0`, `"cacheScope":"public"`, `"x":1`)
			if asked != 2 {
				t.Errorf("the server was asked %d times", asked)
			}
		})
	}
}

// a list that tools were left out of says once of what kind it is.
func TestRelayWeeded(t *testing.T) {
	p := newPeer()
	rest := p.serve
	p.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/list" {
			f.answer(m, `{"resultType":"complete","ttlMs":1,"cacheScope":"private","tools":[{"name":"a","inputSchema":{"properties":{"x":{"type":"number","x-mcp-header":"X"}}}},{"name":"b"}]}`)
			return true
		}
		return rest(f, m)
	}
	run(t, ServerOptions{Adapter: p}, func(t *testing.T, g *gateway) {
		visitor{}.call(t, g, "tools/call", `"name":"x"`)
		p.wire(1).server.Mirrors = true
		want := `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":1,"cacheScope":"private","tools":[{"name":"b"}]}}`
		if got := (visitor{}).call(t, g, "tools/list", ""); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}
