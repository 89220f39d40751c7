package lift_test

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A modern server learns with each request who asks, and its results lose what only modern clients read.
func TestModern(t *testing.T) {
	const caps = `{"tools":{},"logging":{},"experimental":{"vendor":{}}}`
	for _, tc := range []struct {
		name, method, params, sent, answer, want string
	}{
		{"without params", "tools/list", `{}`, `{` + sent + `}`, `"result":{"resultType":"complete","ttlMs":5,"cacheScope":"public","tools":[]}`, `"result":{"tools":[]}`},
		{"with params", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, `"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{}},"content":[]}`, `"result":{"content":[]}`},
		{"with _meta", "tools/call", `{"_meta":{"k":1},"name":"x"}`, `{` + strings.TrimSuffix(sent, "}") + `,"k":1},"name":"x"}`, `"result":{"_meta":{"k":1}}`, `"result":{"_meta":{"k":1}}`},
		{"members without meaning in sessions", "tools/call", `{"name":"x","requestState":"s","inputResponses":{}}`, `{` + sent + `,"name":"x"}`, `"result":{}`, `"result":{}`},
		{"reserved members of the client", "tools/call", `{"name":"x","_meta":{"io.modelcontextprotocol/logLevel":"debug"}}`, `{"name":"x",` + sent + `}`, `"result":{}`, `"result":{}`},
		{"members that appear twice", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, `"result":{"ttlMs":1,"a":1,"ttlMs":2,"_meta":{"io.modelcontextprotocol/serverInfo":{},"k":1}}`, `"result":{"_meta":{"k":1},"a":1}`},
		{"type that appears twice", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, `"result":{"resultType":"x","content":[],"resultType":"complete","n":1.0}`, `"result":{"content":[],"n":1.0}`},
		{"members between others", "tools/list", `{}`, `{` + sent + `}`, `"result":{"tools":[],"resultType":"complete","ttlMs":1,"nextCursor":"","cacheScope":"public"}`, `"result":{"tools":[],"nextCursor":""}`},
		{"a part of _meta", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, `"result":{"content":[],"_meta":{"a":1e3,"io.modelcontextprotocol\/serverInfo":{"name":"s"},"b":2}}`, `"result":{"content":[],"_meta":{"a":1e3,"b":2}}`},
		{"content over several lines", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, "\"result\":{\n\"content\":[],\"structuredContent\":[1,\n2.0]}", `"result":{ "content":[{"type":"text","text":"[1,\n2.0]"}]}`},
		{"type that is no text", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, `"result":{"resultType":5}`, `"code":-32603`},
		{"question of a list", "tools/list", `{}`, `{` + sent + `}`, `"result":{"resultType":"input_required","requestState":"s"}`, `"code":-32603`},
		{"unsupported version", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, `"error":{"code":-32022,"message":"m"}`, `"code":-32603`},
		{"resource that does not exist", "resources/read", `{"uri":"a:b"}`, `{` + sent + `,"uri":"a:b"}`, `"error":{"code":-32602,"message":"no","data":{"uri":"a:b"}}`, `"code":-32002`},
		{"unknown kind of result", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, `"result":{"resultType":"task"}`, `"message":"server fake: its answer has an unknown resultType: \"task\"","data":{"bridge":"upstream_invalid"}`},
		{"method of a task", "tasks/get", `{"taskId":"t"}`, "", "", `"code":-32601,"message":"server fake has no method tasks/get"`},
		{"method of the modern era", era.Listen, `{}`, "", "", `"code":-32601`},
		{"unknown capability", "resources/subscribe", `{"uri":"a"}`, "", "", `"code":-32601`},
		{"unknown log level", "logging/setLevel", `{"level":"loud"}`, "", "", `"code":-32602`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := play(t, era.Rev20251125, era.Rev20260728, `{}`, caps)
			bridgetest.Contains(t, s.begin(), `"protocolVersion":"2025-11-25"`, `"serverInfo":{"name":"fake","version":"unknown"}`)
			s.Serve = func(*bridge.Request) *jsonrpc.Message {
				return bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,`+tc.answer+`}`)
			}
			bridgetest.Contains(t, s.call(tc.method, tc.params), tc.want)
			want := ""
			if tc.sent != "" {
				want = tc.method + " " + tc.sent
			}
			same(t, "the server got", strings.Join(s.Got(), "\n"), want)
			s.end()
		})
	}
}

// A call before initialize, as of an aggregate, makes the handshake first. Methods of a shared extension pass.
func TestModernUnasked(t *testing.T) {
	s := play(t, era.Rev20251125, era.Rev20260728, `{"experimental":{"vendor":{}}}`, `{"experimental":{"vendor":{}}}`)
	s.Serve = func(r *bridge.Request) *jsonrpc.Message {
		if r.Method == "initialize" {
			return bridgetest.Result(t, string(s.Server().Result))
		}
		return bridgetest.Result(t, `{"resultType":"complete","by":"vendor"}`)
	}
	bridgetest.Contains(t, s.call("vendor/x", `{}`), `"result":{"by":"vendor"}`)
	got := s.Got()
	if len(got) != 2 || !strings.HasPrefix(got[0], "initialize") {
		t.Errorf("the server got %q", got)
	}
	if err := s.up.Notify(t.Context(), bridgetest.Request(t, s.from, nil, "notifications/initialized", `{}`)); err != nil || len(s.Got()) > 0 {
		t.Error("a modern server got a notification of a session")
	}
	s.own.Ask(bridgetest.Question(t, "roots/list", `{}`), func(m *jsonrpc.Message) {
		bridgetest.Contains(t, bridgetest.Text(m), "roots")
	})
	s.end()
}

// The session's log level goes with each call, and only its messages come back.
func TestModernLog(t *testing.T) {
	s := play(t, era.Rev20251125, era.Rev20260728, `{}`, `{"logging":{}}`)
	s.begin()
	s.Serve = func(r *bridge.Request) *jsonrpc.Message {
		if r.Back != nil {
			r.Back.Notify(bridgetest.Notification(t, "notifications/message", `{"level":"info","data":"less"}`))
			r.Back.Notify(bridgetest.Notification(t, "notifications/message", `{"level":"error","data":"more"}`))
			r.Back.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", ``))
		}
		return bridgetest.Result(t, `{}`)
	}
	s.call("tools/call", `{"name":"x"}`)
	bridgetest.Lacks(t, strings.Join(s.Got(), "\n"), "logLevel")
	bridgetest.Contains(t, s.call("logging/setLevel", `{"level":"warning"}`), `"result":{}`)
	s.call("tools/call", `{"name":"x"}`)
	bridgetest.Contains(t, strings.Join(s.Got(), "\n"), `"io.modelcontextprotocol/logLevel":"warning"`)
	same(t, "the client got", strings.Join(s.client.Got(), "\n"), `notifications/message {"level":"error","data":"more"}`)
	s.end()
}
