package gateway

import (
	"context"
	"fmt"
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
