package era

import (
	"cmp"
	"testing"
)

// Members that no schema allows to be null are left out, and nothing else is touched.
func TestWithoutNulls(t *testing.T) {
	tests := []struct {
		name, method string
		modern       bool
		in, want     string // no want: the same bytes
	}{
		{"a list of tools", "tools/list", false,
			`{"tools":[{"name":"a","title":null,"description":null,"annotations":{"title":null,"readOnlyHint":true},"outputSchema":null,"icons":null,"_meta":null,"inputSchema":{"type":"object","properties":null,"required":null}},null],"nextCursor":null,"_meta":null}`,
			`{"tools":[{"name":"a","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object"}},null]}`},
		{"values of a schema", "tools/list", false,
			`{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{"title":{"default":null,"enum":[null]},"required":null}}}]}`, ""},
		{"a list of prompts", "prompts/list", false,
			`{"prompts":[{"name":"p","arguments":[{"name":"x","required":null,"description":null}]},{"name":"q","arguments":null}]}`,
			`{"prompts":[{"name":"p","arguments":[{"name":"x"}]},{"name":"q"}]}`},
		{"no list", "resources/list", false, `{"resources":null}`, `{"resources":[]}`},
		{"resources", "resources/list", true, `{"ttlMs":0,"resources":[{"uri":"a:b","size":null,"annotations":{"audience":null}}]}`, `{"ttlMs":0,"resources":[{"uri":"a:b","annotations":{}}]}`},
		{"templates", "resources/templates/list", true, `{"resourceTemplates":[{"uriTemplate":"a:{b}","mimeType":null}]}`, `{"resourceTemplates":[{"uriTemplate":"a:{b}"}]}`},
		{"contents", "resources/read", false, `{"contents":[{"uri":"a:b","text":"t","blob":null}]}`, `{"contents":[{"uri":"a:b","text":"t"}]}`},
		{"a result of a legacy server", "tools/call", false,
			`{"content":[{"type":"text","text":"null","annotations":null},{"type":"resource","resource":{"uri":"a:b","text":"","mimeType":null}}],"structuredContent":null,"isError":null}`,
			`{"content":[{"type":"text","text":"null"},{"type":"resource","resource":{"uri":"a:b","text":""}}]}`},
		{"a result of a modern server", "tools/call", true, `{"content":null,"structuredContent":null}`, `{"content":[],"structuredContent":null}`},
		{"data", "tools/call", false, `{"content":[{"type":"text","text":"","_meta":{"title":null}}],"structuredContent":{"title":null,"content":null},"_meta":{"title":null}}`, ""},
		{"a prompt", "prompts/get", false, `{"description":null,"messages":[{"role":"user","content":{"type":"text","text":"t","_meta":null}}]}`, `{"messages":[{"role":"user","content":{"type":"text","text":"t"}}]}`},
		{"a completion", "completion/complete", false, `{"completion":{"values":null,"total":null}}`, `{"completion":{"values":[]}}`},
		{"a task, whose ttl may be null", "tasks/get", false, `{"taskId":"1","ttl":null,"statusMessage":null}`, `{"taskId":"1","ttl":null}`},
		{"a greeting", "initialize", false,
			`{"capabilities":{"tools":{"listChanged":null},"prompts":null,"experimental":{"x":null}},"instructions":null,"serverInfo":{"name":"s","version":"1","title":null}}`,
			`{"capabilities":{"tools":{},"experimental":{"x":null}},"serverInfo":{"name":"s","version":"1"}}`},
		{"a discovery", "server/discover", true, `{"capabilities":{"tools":{},"logging":null}}`, `{"capabilities":{"tools":{}}}`},
		{"an answer that declines", "elicitation/create", false, `{"action":"decline","content":null}`, `{"action":"decline"}`},
		{"a filled form", "elicitation/create", false, `{"action":"accept","content":{"title":null}}`, ""},
		{"a sample", "sampling/createMessage", false, `{"model":"m","role":"assistant","stopReason":null,"content":{"type":"text","text":"t","annotations":null}}`,
			`{"model":"m","role":"assistant","content":{"type":"text","text":"t"}}`},
		{"roots", "roots/list", false, `{"roots":[{"uri":"file:///a","name":null}]}`, `{"roots":[{"uri":"file:///a"}]}`},
		{"a vendor's method", "acme/list", false, `{"title":null,"tools":null}`, ""},
	}
	for _, tt := range tests {
		edited(t, tt.name, tt.in, cmp.Or(tt.want, tt.in), func(in []byte) []byte { return WithoutNulls(tt.method, in, tt.modern) })
	}
}

// what a greeting lacks is filled in; a result that is no greeting stays one that is none.
func TestGreeted(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"whole", `{"protocolVersion":"2024-11-05","capabilities":{"x":1},"serverInfo":{"name":"a","version":"1"}}`, ""},
		{"only the revision", `{"protocolVersion":"2024-11-05"}`, `{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"shop","version":"unknown"}}`},
		{"no revision", `{"serverInfo":{"name":"a"},"capabilities":null}`, `{"serverInfo":{"name":"a","version":"unknown"},"capabilities":{},"protocolVersion":"2025-06-18"}`},
		{"odd values", `{"protocolVersion":"2024-11-05","capabilities":[],"serverInfo":"a"}`, `{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"shop","version":"unknown"}}`},
		{"none", `{"ok":true}`, ""},
		{"a revision that is no text", `{"protocolVersion":1}`, ""},
	}
	for _, tt := range tests {
		edited(t, tt.name, tt.in, cmp.Or(tt.want, tt.in), func(in []byte) []byte { return Greeted(in, "2025-06-18", "shop") })
	}
}
