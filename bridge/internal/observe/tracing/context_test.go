package tracing

import (
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
)

// TestCarrying checks where a trace context is put and which one it replaces. All else stays, byte for byte.
func TestCarrying(t *testing.T) {
	const tp = `"traceparent":"P"`
	for _, tc := range []struct{ name, method, params, with, without string }{
		{"no params", "tools/list", ``, `{"_meta":{` + tp + `}}`, ``},
		{"no params of what is strict", "ping", ``, ``, ``},
		{"a handshake", "initialize", `{"_meta":{"traceparent":"x"}}`, `{"_meta":{"traceparent":"x"}}`, `{"_meta":{"traceparent":"x"}}`},
		{"empty params", "tools/list", `{ }`, `{"_meta":{` + tp + `} }`, `{ }`},
		{"no _meta", "tools/call", `{ "name":"x"}`, `{"_meta":{` + tp + `}, "name":"x"}`, `{ "name":"x"}`},
		{"empty _meta", "tools/call", `{"_meta":{ },"name":"x"}`, `{"_meta":{` + tp + ` },"name":"x"}`, `{"_meta":{ },"name":"x"}`},
		{"other members", "tools/call", `{"name":"x","_meta":{"k":1e400}}`, `{"name":"x","_meta":{` + tp + `,"k":1e400}}`, `{"name":"x","_meta":{"k":1e400}}`},
		{"in place", "tools/call", `{"_meta":{"a":1,"traceparent":"x","b":2}}`, `{"_meta":{` + tp + `,"a":1,"b":2}}`, `{"_meta":{"a":1,"b":2}}`},
		{"first", "tools/call", `{"_meta":{"traceparent":"x", "b":2}}`, `{"_meta":{` + tp + `,"b":2}}`, `{"_meta":{"b":2}}`},
		{"the only ones", "tools/call", `{"_meta":{"tracestate":"s","traceparent":"x"}}`, `{"_meta":{` + tp + `}}`, `{"_meta":{}}`},
		{"a state without a parent", "tools/call", `{"_meta":{"tracestate":"s","k":1}}`, `{"_meta":{` + tp + `,"k":1}}`, `{"_meta":{"k":1}}`},
		{"several times, and with escapes", "tools/call", `{"_meta":{"traceparent":"x","k":1,"trace\u0070arent":2,"tracestate":"s"}}`, `{"_meta":{` + tp + `,"k":1}}`, `{"_meta":{"k":1}}`},
		{"baggage stays", "tools/call", `{"_meta":{"baggage":"a=b"}}`, `{"_meta":{` + tp + `,"baggage":"a=b"}}`, `{"_meta":{"baggage":"a=b"}}`},
		{"a _meta that is none", "tools/call", `{"_meta":7}`, `{"_meta":7}`, `{"_meta":7}`},
		{"a progress token", "tools/call", `{"_meta":{"progressToken":"mine","traceparent":"x"}}`, `{"_meta":{` + tp + `,"progressToken":9}}`, `{"_meta":{"progressToken":9}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			line := `{"jsonrpc":"2.0","id":1,"method":"` + tc.method + `"`
			if tc.params != "" {
				line += `,"params":` + tc.params
			}
			m := bridgetest.Parse(t, line+"}")
			for want, members := range map[string][]byte{tc.with: []byte(tp), tc.without: nil} {
				if tc.with == tc.without && members == nil {
					continue
				}
				got := gjson.GetBytes(Carrying(m, members).Append(nil, []byte("2"), []byte("9")), "params").Raw
				if got != want {
					t.Errorf("with %q\ngot  %s\nwant %s", members, got, want)
				}
			}
			if got := bridgetest.Text(m); tc.params != "" && gjson.Get(got, "params").Raw != tc.params {
				t.Errorf("the request itself became %s", got)
			}
		})
	}
}
