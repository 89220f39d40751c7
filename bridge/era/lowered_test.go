package era

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// TestLowered checks what a legacy server gets of a request (D1.1).
func TestLowered(t *testing.T) {
	const reserved = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
	for _, tc := range []struct{ method, revision, params, want string }{
		{"tools/call", Rev20251125, `{"name":"x","_meta":{` + reserved + `}}`, `{"name":"x"}`},
		{"tools/call", Rev20251125, `{"_meta":{` + reserved + `},"name":"x"}`, `{"name":"x"}`},
		{"tools/call", Rev20251125, `{ "_meta" : {` + reserved + `} , "name":"x"}`, `{  "name":"x"}`},
		{"tools/call", Rev20251125, `{"_meta":{` + reserved + `}}`, `{}`},
		{"tools/call", Rev20251125, `{"a":1 , "_meta":{` + reserved + `},"b":2}`, `{"a":1 ,"b":2}`},
		{"tools/call", Rev20251125, `{"_meta":{"progressToken":1,` + reserved + `,"traceparent":"t"}}`, `{"_meta":{"progressToken":1,"traceparent":"t"}}`},
		{"tools/call", Rev20251125, `{"_meta":{` + reserved + `,"progressToken":1}}`, `{"_meta":{"progressToken":1}}`},
		{"tools/call", Rev20251125, `{"_meta":{"a":1,"dev.mcp-bridge/lane":"l",` + reserved + `,"b":2,"io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol\/logLevel":"info"}}`, `{"_meta":{"a":1,"b":2}}`},
		{"tools/call", Rev20251125, `{"task":{},"name":"x","inputResponses":{},"arguments":{"task":1,"requestState":2},"requestState":"s","_meta":{` + reserved + `}}`, `{"name":"x","arguments":{"task":1,"requestState":2}}`},
		{"tools/call", Rev20251125, `{"input\u0052esponses":{},"n":1,"_meta":{` + reserved + `,"p":1}}`, `{"n":1,"_meta":{"p":1}}`},
		{"prompts/get", Rev20251125, `{"task":1,"_meta":{` + reserved + `}}`, `{"task":1}`},
		{"tools/list", Rev20251125, `{"requestState":1,"_meta":{` + reserved + `}}`, `{"requestState":1}`},
		{Complete, Rev20250326, `{"ref":{},"context":{},"_meta":{` + reserved + `}}`, `{"ref":{}}`},
		{Complete, Rev20250618, `{"ref":{},"context":{},"_meta":{` + reserved + `}}`, `{"ref":{},"context":{}}`},
		{"tools/call", Rev20251125, `{"name":"x"}`, `{"name":"x"}`},
	} {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + tc.method + `","params":` + tc.params + `}`))
		if err != nil {
			t.Fatal(err)
		}
		got := Lowered(m, tc.revision)
		if string(got.Whole()) != tc.want || string(got.Clone().Params) != tc.want {
			t.Errorf("%s: Lowered(%s) = %s, want %s", tc.method, tc.params, got.Whole(), tc.want)
		}
	}
}

// FuzzLowered checks that a legacy server gets valid JSON without members for the bridge, whatever the params are.
func FuzzLowered(f *testing.F) {
	for _, seed := range []string{`{"name":"x","_meta":{"a":1,"io.modelcontextprotocol/logLevel":"info"}}`, `{"_meta":{},"task":1}`, `{"a":1,"_meta":{"dev.mcp-bridge/lane":1,"progressToken":2},"requestState":1,"b":2}`, `{}`, `{"_meta":[]}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, params string) {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`))
		if err != nil || m.Params == nil {
			return
		}
		out, err := jsonrpc.Parse(Lowered(m, Rev20251125).Append(nil, []byte("1"), nil))
		if err != nil {
			t.Fatalf("%s became %v", params, err)
		}
		if edits, _ := jsonrpc.Omit(out.Meta(), 0, bridged); len(edits) > 0 && strings.HasPrefix(string(out.Meta()), "{") {
			t.Errorf("%s became %s", params, out.Params)
		}
		if edits, _ := jsonrpc.Omit(out.Params, 0, func(n string) bool { return n == "requestState" || n == "inputResponses" || n == "task" }); len(edits) > 0 {
			t.Errorf("%s became %s", params, out.Params)
		}
		if again := Lowered(out, Rev20251125); string(again.Whole()) != string(out.Params) {
			t.Errorf("%s became %s, then %s", params, out.Params, again.Whole())
		}
	})
}
