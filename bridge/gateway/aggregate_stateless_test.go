package gateway

import (
	"context"
	"fmt"
	"log/slog"
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

// modernFake is a server in memory that speaks 2026-07-28 only. Its result is that of server/discover.
type modernFake struct{ *fake }

func (m *modernFake) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	f := &fakeWire{f: m.fake, from: from, rest: rest, queue: make(chan func(), 1<<10), done: make(chan struct{})}
	f.Conn = conn.New("fake", f, rest, m.times)
	f.wg.Go(f.run)
	var verdict conn.Verdict
	var err error
	if f.server, verdict, err = conn.Discover(ctx, f.Conn, from); err != nil || verdict != conn.SaysModern {
		_ = f.Close(ctx)
		return nil, &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it is of no known era", Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opens = append(m.opens, time.Now())
	m.wires = append(m.wires, f)
	f.n = len(m.wires)
	return f, nil
}

// modernShop is a server that lists what it is given, says what it was
// asked, and tells listeners what they want to hear when it is told to.
func modernShop(name string, lists map[string]string) *modernFake {
	s := &modernFake{&fake{result: `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},` +
		`"prompts":{},"extensions":{"` + era.TasksExtension + `":{}}},"instructions":"ask ` + name + `","ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"` + name + `","version":"1"}}}`}}
	s.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if list, ok := lists[m.Method]; ok {
			f.answer(m, list)
			return true
		}
		switch m.Method {
		case "server/discover":
			f.answer(m, s.result)
		case era.Listen:
			want := gjson.GetBytes(m.Params, "notifications").Raw
			f.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":%s}}`, m.ID, want))
		case "tools/call":
			if strings.HasSuffix(m.Name(), "slow") {
				f.answer(m, `{"resultType":"task","taskId":"t1","status":"working"}`)
				return true
			}
			f.answer(m, fmt.Sprintf(`{"resultType":"complete","by":%q,"tool":%q,"meta":%s}`, name, m.Name(), m.Meta()))
		case "tasks/get":
			f.answer(m, fmt.Sprintf(`{"resultType":"complete","taskId":%s,"by":%q}`, gjson.GetBytes(m.Params, "taskId").Raw, name))
		case "resources/read":
			f.answer(m, fmt.Sprintf(`{"resultType":"complete","by":%q,"contents":[],"ttlMs":0,"cacheScope":"private"}`, name))
		default:
			return false
		}
		return true
	}
	return s
}

const statelessMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"` + era.TasksExtension + `":{}}},"progressToken":"p"}`

// callStateless makes a request of a client without a session to the server of that
// name, and returns its answer, or the error.
func callStateless(t *testing.T, g *gateway, server, method, params string) string {
	t.Helper()
	m := callsStateless(t, g, t.Context(), server, method, params, &stream{})
	if m == nil {
		return ""
	}
	_, raw := m.Payload(nil)
	var text strings.Builder
	for _, piece := range raw {
		text.Write(piece)
	}
	return text.String()
}

func callsStateless(t *testing.T, g *gateway, ctx context.Context, server, method, params string, back bridge.Stream) *jsonrpc.Message {
	t.Helper()
	if params != "" {
		params += ","
	}
	m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":"mine","method":"`+method+`","params":{`+params+statelessMeta+`}}`)
	s, no := NewStateless(server, "", m)
	if no != nil {
		return no
	}
	s.Back = back
	a, _ := g.Call(ctx, m, *s)
	if a != nil && string(a.ID) != `"mine"` {
		t.Errorf("the answer has id %s", a.ID)
	}
	return a
}

// commonsOf makes a bridge to two modernFake servers.
func commonsOf(t *testing.T, one, two *modernFake) *gateway {
	t.Helper()
	return newGateway(Options{Log: slog.New(slog.DiscardHandler), Servers: []ServerOptions{
		{Name: "one", Adapter: one, ServerSettings: ServerSettings{Prefix: "one__"}}, {Name: "two", Adapter: two, ServerSettings: ServerSettings{Prefix: "two__"}},
	}})
}

// where all servers are one, a task is its principal's only too. The
// server's own id of it is not seen.
func TestCommonsTasksOfPrincipals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := modernShop("one", nil), modernShop("two", nil)
		g := commonsOf(t, one, two)
		defer g.Close(context.Background())
		ann, bob := visitor{principal: "ann"}, visitor{principal: "bob"}
		id := gjson.Get(ann.call(t, g, "tools/call", `"name":"one__slow"`), "result.taskId").Str
		if !strings.HasPrefix(id, "one:") || id == "one:t1" {
			t.Errorf("the task is %q", id)
		}
		bridgetest.Contains(t, ann.call(t, g, "tasks/get", `"taskId":"`+id+`"`), `"taskId":"`+id+`"`, `"by":"one"`)
		bridgetest.Contains(t, bob.call(t, g, "tasks/get", `"taskId":"`+id+`"`), "-32602")
		bridgetest.Contains(t, ann.call(t, g, "tasks/get", `"taskId":"one:t1"`), "-32602")
		v := ann.ask(t, g, "7", era.Listen, `"notifications":{"taskIds":["`+id+`"]}`)
		bridgetest.Contains(t, strings.Join(v.take(), ""), `"taskIds":["`+id+`"]`)
		v.cancel(nil)
		<-v.done
	})
}
