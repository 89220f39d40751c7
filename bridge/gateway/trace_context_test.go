package gateway

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

func mustNumber(t *testing.T, m *jsonrpc.Message) int64 {
	n, err := strconv.ParseInt(string(m.ID), 10, 64)
	if err != nil {
		t.Error(err)
	}
	return n
}

// Where a trace context is put, and what it takes the place of. Everything else
// stays, byte for byte.
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
				got := gjson.GetBytes(carrying(m, members).Append(nil, []byte("2"), []byte("9")), "params").Raw
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

// FuzzCarrying: whatever has been changed in a request on its way, it carries the
// trace context afterwards, and all else that it had.
func FuzzCarrying(f *testing.F) {
	f.Add(`{"name":"x","_meta":{"traceparent":"x","k":[1]}}`, uint8(0))
	f.Add(`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"name":"x"}`, uint8(1))
	f.Add(`{"task":{},"name":"x"}`, uint8(1))
	f.Add(`{ "task":1 }`, uint8(1))
	f.Add(`{"name":"x","_meta":{"progressToken":1}}`, uint8(2))
	f.Add(`{"arguments":{},"name":"y"}`, uint8(6))
	f.Add(`{}`, uint8(3))
	said := newSaid(&bridge.Caller{Revision: era.Rev20251125, Capabilities: []byte("{}"), Params: []byte(bridgetest.InitializeParams)}, "info")
	f.Fuzz(func(t *testing.T, params string, changes uint8) {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`))
		if err != nil || m.Params == nil || m.Method != "tools/call" {
			return
		}
		switch { // no request is both
		case changes&1 != 0:
			m = lowered(m, era.Rev20241105)
		case changes&2 != 0 && (m.Meta() == nil || m.Meta()[0] == '{'):
			m = said.raise(m)
		}
		if changes&4 != 0 {
			m = m.Renamed("renamed")
		}
		before, ok := paramsOf(m)
		if !ok {
			return // the change itself is another test's
		}
		c := carrying(m, []byte(`"traceparent":"P","tracestate":"S"`))
		after, ok := paramsOf(c)
		if !ok {
			t.Fatalf("%s is not JSON", c.Append(nil, nil, nil))
		}
		if again, ok := paramsOf(c.Clone()); !ok || asJSON(again) != asJSON(after) {
			t.Errorf("a copy is %s", asJSON(again))
		}
		meta, isObject := before["_meta"].(map[string]any)
		if _, has := before["_meta"]; has && !isObject {
			if asJSON(before) != asJSON(after) {
				t.Errorf("%s became %s", asJSON(before), asJSON(after))
			}
			return
		}
		if meta == nil {
			meta = map[string]any{}
		}
		meta["traceparent"], meta["tracestate"] = "P", "S"
		before["_meta"] = meta
		if asJSON(before) != asJSON(after) {
			t.Errorf("%s\nbecame %s", asJSON(before), asJSON(after))
		}
		if n := strings.Count(asJSON(after), `"traceparent":"P"`); n < 1 {
			t.Errorf("%s carries nothing", asJSON(after))
		}
	})
}

func paramsOf(m *jsonrpc.Message) (map[string]any, bool) {
	var line struct{ Params map[string]any }
	d := json.NewDecoder(strings.NewReader(string(m.Append(nil, nil, nil))))
	d.UseNumber()
	err := d.Decode(&line)
	return line.Params, err == nil && line.Params != nil
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
