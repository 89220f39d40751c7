package era_test

import (
	"testing"

	"github.com/mcp-bridge/bridge/bridge/era"
)

const (
	v1 = era.Rev20241105
	v2 = era.Rev20250326
	v3 = era.Rev20250618
	v4 = era.Rev20251125
	v5 = era.Rev20260728
)

// unchanged checks that an unchanged result is passed on, not copied.
func unchanged(t *testing.T, name string, in, out []byte) {
	t.Helper()
	if len(in) != len(out) || len(in) > 0 && &in[0] != &out[0] {
		t.Errorf("%s: a copy, or a change to %s", name, out)
	}
}

// becomes checks what f makes of a payload, which stays as it is. "" means that f passes it on.
func becomes(t *testing.T, name, in, want string, f func(in []byte) []byte) {
	t.Helper()
	payload := []byte(in)
	if got := f(payload); want == "" {
		unchanged(t, name, payload, got)
	} else if string(got) != want {
		t.Errorf("%s: %s became\n     %s\nwant %s", name, in, got, want)
	}
	if string(payload) != in {
		t.Errorf("%s: the input has become %s", name, payload)
	}
}

// TestResult checks the rows of D5 about results; "" means that nothing changes..
func TestResult(t *testing.T) {
	const tool = `{"name":"t","title":"T","inputSchema":{"type":"object","oneOf":[{"required":["a"]}],"x":1.0},"annotations":{"readOnlyHint":true},"_meta":{"ui":{}},"vendor":12345678901234567890}`
	for _, tc := range []struct {
		name, method, in, from, to, want string
	}{
		// structuredContent that is no object
		{"array, in the text already", "tools/call", `{"content":[{"type":"text","text":"[1, 2.0]"}],"structuredContent":[1,2.0],"isError":false}`, v5, v4, `{"content":[{"type":"text","text":"[1, 2.0]"}],"isError":false}`},
		{"array, not in the text", "tools/call", `{"content":[{"type":"text","text":"two"}],"structuredContent":[1,2.0],"isError":true}`, v5, v4, `{"content":[{"type":"text","text":"two"},{"type":"text","text":"[1,2.0]"}],"isError":true}`},
		{"array, in a text of more", "tools/call", `{"content":[{"type":"text","text":"[1,2.0] found"}],"structuredContent":[1,2.0]}`, v5, v4, `{"content":[{"type":"text","text":"[1,2.0] found"},{"type":"text","text":"[1,2.0]"}]}`},
		{"number, text of other digits", "tools/call", `{"content":[{"type":"text","text":"1.0"}],"structuredContent":1.00}`, v5, v3, `{"content":[{"type":"text","text":"1.0"},{"type":"text","text":"1.00"}]}`},
		{"string, as its own text", "tools/call", `{"content":[{"type":"text","text":"a\"b"}],"structuredContent":"a\u0022b"}`, v5, v4, `{"content":[{"type":"text","text":"a\"b"}]}`},
		{"null is a value", "tools/call", `{"content":[],"structuredContent":null}`, v5, v4, `{"content":[{"type":"text","text":"null"}]}`},
		{"null was none before", "tools/call", `{"content":[],"structuredContent":null}`, v4, v3, `{"content":[]}`},
		{"no content", "tools/call", `{"structuredContent":[]}`, v5, v4, `{"content":[{"type":"text","text":"[]"}]}`},
		{"content that is none", "tools/call", `{"content":{"a":1},"structuredContent":[]}`, v5, v4, `{"content":[{"type":"text","text":"{\"a\":1}"},{"type":"text","text":"[]"}]}`},
		{"object", "tools/call", `{"content":[],"structuredContent":{"a":1}}`, v5, v4, ""},
		{"object to who does not know it", "tools/call", `{"content":[],"structuredContent":{"a":1}}`, v3, v2, `{"content":[{"type":"text","text":"{\"a\":1}"}]}`},
		{"object in text of other order", "tools/call", `{"content":[{"type":"text","text":"{ \"b\": 2, \"a\": \"\\u00e9\" }"}],"structuredContent":{"a":"é","b":2}}`, v4, v1, `{"content":[{"type":"text","text":"{ \"b\": 2, \"a\": \"\\u00e9\" }"}]}`},
		{"twice", "tools/call", `{"structuredContent":1,"content":[],"structuredContent":{"a":1}}`, v5, v4, `{"content":[{"type":"text","text":"1"}],"structuredContent":{"a":1}}`},
		{"to a newer client", "tools/call", `{"content":[],"structuredContent":[1]}`, v4, v5, ""},
		{"to a client of the same revision", "tools/call", `{"content":[],"structuredContent":[1]}`, v4, v4, ""},

		// content blocks
		{"resource_link", "tools/call", `{"content":[{"type":"resource_link","uri":"file:///a","name":"a","description":"A \"file\"","annotations":{"priority":0.50}}],"x":1}`, v5, v2, `{"content":[{"type":"text","text":"a: file:///a\nA \"file\"","annotations":{"priority":0.50}}],"x":1}`},
		{"resource_link to who knows it", "tools/call", `{"content":[{"type":"resource_link","uri":"file:///a","name":"a"}]}`, v5, v3, ""},
		{"resource_link without a name", "tools/call", `{"content":[{"type":"resource_link","uri":"file:///a","name":7}]}`, v3, v1, `{"content":[{"type":"text","text":"file:///a"}]}`},
		{"audio", "tools/call", `{"content":[{"type":"text","text":"la"},{"type":"audio","mimeType":"audio/wav","data":"AAECAw=="}]}`, v4, v1, `{"content":[{"type":"text","text":"la"},{"type":"text","text":"[audio audio/wav, 4 bytes]"}]}`},
		{"audio, data that is none", "tools/call", `{"content":[{"type":"audio","data":[]}]}`, v4, v1, `{"content":[{"type":"text","text":"[audio of unknown type, 0 bytes]"}]}`},
		{"audio to who knows it", "tools/call", `{"content":[{"type":"audio","mimeType":"audio/wav","data":"AAECAw=="}]}`, v5, v2, ""},
		{"image, resource, unknown", "tools/call", `{"content":[{"type":"image","data":"","mimeType":"x"},{"type":"resource","resource":{"uri":"u","_meta":{}}},{"type":"video"},5,null]}`, v5, v1, ""},
		{"prompt", "prompts/get", `{"messages":[{"role":"user","content":{"type":"resource_link","uri":"u:","name":"n"}},{"role":"user","content":{"type":"text","text":"t"}}]}`, v5, v2, `{"messages":[{"role":"user","content":{"type":"text","text":"n: u:"}},{"role":"user","content":{"type":"text","text":"t"}}]}`},
		{"prompt, audio", "prompts/get", `{"messages":[{"role":"user","content":{"type":"audio","mimeType":"m","data":"AA=="}}]}`, v2, v1, `{"messages":[{"role":"user","content":{"type":"text","text":"[audio m, 1 bytes]"}}]}`},

		// definitions
		{"outputSchema of an array", "tools/list", `{"tools":[{"name":"t","outputSchema":{"type":"array"}}],"nextCursor":""}`, v5, v4, `{"tools":[{"name":"t"}],"nextCursor":""}`},
		{"outputSchema without type", "tools/list", `{"tools":[{"name":"t","outputSchema":{"oneOf":[]}},{"name":"u","outputSchema":{"type":"object"}}]}`, v5, v3, `{"tools":[{"name":"t"},{"name":"u","outputSchema":{"type":"object"}}]}`},
		{"outputSchema at all", "tools/list", `{"tools":[{"outputSchema":{"type":"object"},"name":"t"}]}`, v4, v2, `{"tools":[{"name":"t"}]}`},
		{"tool for 2025-11-25", "tools/list", `{"tools":[` + tool + `]}`, v5, v4, ""},
		{"tool for 2025-03-26", "tools/list", `{"tools":[` + tool + `]}`, v5, v2, `{"tools":[{"name":"t","inputSchema":{"type":"object","oneOf":[{"required":["a"]}],"x":1.0},"annotations":{"readOnlyHint":true,"title":"T"},"vendor":12345678901234567890}]}`},
		{"tool for 2024-11-05", "tools/list", `{"tools":[` + tool + `]}`, v5, v1, `{"tools":[{"name":"t","inputSchema":{"type":"object","oneOf":[{"required":["a"]}],"x":1.0},"vendor":12345678901234567890}]}`},
		{"title without annotations", "tools/list", `{"tools":[{"title":"T","name":"t"}]}`, v3, v2, `{"tools":[{"name":"t","annotations":{"title":"T"}}]}`},
		{"title that annotations have", "tools/list", `{"tools":[{"title":"T","name":"t","annotations":{"title":"A"}}]}`, v3, v2, `{"tools":[{"name":"t","annotations":{"title":"A"}}]}`},
		{"icons, execution", "tools/list", `{"tools":[{"icons":[],"name":"t","execution":{"taskSupport":"optional","x":1}}]}`, v4, v3, `{"tools":[{"name":"t"}]}`},
		{"taskSupport for modern clients", "tools/list", `{"tools":[{"icons":[],"name":"t","execution":{"taskSupport":"optional"}}]}`, v4, v5, `{"tools":[{"icons":[],"name":"t"}]}`},
		{"what else execution has", "tools/list", `{"tools":[{"name":"t","execution":{"taskSupport":"optional","x":1}}]}`, v4, v5, `{"tools":[{"name":"t","execution":{"x":1}}]}`},
		{"taskSupport of modern servers", "tools/list", `{"tools":[{"name":"t","execution":{"taskSupport":"optional"}}]}`, v5, v4, `{"tools":[{"name":"t"}]}`},
		{"what else execution of modern servers has", "tools/list", `{"tools":[{"name":"t","execution":{"taskSupport":"optional","x":1}}]}`, v5, v4, `{"tools":[{"name":"t","execution":{"x":1}}]}`},
		{"taskSupport among 2025-11-25", "tools/list", `{"tools":[{"name":"t","execution":{"taskSupport":"optional"}}]}`, v4, v4, ""},
		{"prompts", "prompts/list", `{"prompts":[{"name":"p","title":"P","icons":[],"_meta":{},"arguments":[{"name":"a","title":"A","required":true}]}]}`, v5, v2, `{"prompts":[{"name":"p","arguments":[{"name":"a","required":true}]}]}`},
		{"prompts for 2025-06-18", "prompts/list", `{"prompts":[{"name":"p","title":"P","icons":[],"_meta":{},"arguments":[{"name":"a","title":"A"}]}]}`, v5, v3, `{"prompts":[{"name":"p","title":"P","_meta":{},"arguments":[{"name":"a","title":"A"}]}]}`},
		{"prompts for 2025-11-25", "prompts/list", `{"prompts":[{"name":"p","title":"P","icons":[],"_meta":{}}]}`, v5, v4, ""},
		{"resources for 2025-11-25", "resources/list", `{"resources":[{"uri":"u:","title":"R","icons":[],"annotations":{"lastModified":"x"}}]}`, v5, v4, ""},
		{"resources", "resources/list", `{"resources":[{"uri":"u:","name":"r","title":"R","icons":[],"size":10,"annotations":{"lastModified":"x","priority":1}},{"uri":"v:","annotations":{"lastModified":"x"}}]}`, v4, v2, `{"resources":[{"uri":"u:","name":"r","size":10,"annotations":{"priority":1}},{"uri":"v:"}]}`},
		{"templates", "resources/templates/list", `{"resourceTemplates":[{"uriTemplate":"u:{x}","name":"r","title":"R","_meta":{"a":1}}]}`, v3, v1, `{"resourceTemplates":[{"uriTemplate":"u:{x}","name":"r"}]}`},
		{"contents", "resources/read", `{"contents":[{"uri":"u:","text":"t","_meta":{"a":1}}],"_meta":{"b":1}}`, v5, v2, `{"contents":[{"uri":"u:","text":"t"}],"_meta":{"b":1}}`},
		{"contents for 2025-06-18 (R-167)", "resources/read", `{"contents":[{"uri":"ui://u","text":"t","_meta":{"ui":{}}}]}`, v5, v3, ""},
		{"server for 2025-06-18", "initialize", `{"protocolVersion":"2025-06-18","serverInfo":{"name":"s","title":"S","version":"1","icons":[],"description":"d","websiteUrl":"w"},"capabilities":{"x":{}}}`, v4, v3, `{"protocolVersion":"2025-06-18","serverInfo":{"name":"s","title":"S","version":"1"},"capabilities":{"x":{}}}`},
		{"server for 2024-11-05", "initialize", `{"serverInfo":{"title":"S","name":"s","version":"1"}}`, v3, v1, `{"serverInfo":{"name":"s","version":"1"}}`},

		// wrong types
		{"tools that are none", "tools/list", `{"tools":{"title":"T"}}`, v5, v1, ""},
		{"a tool that is none", "tools/list", `{"tools":["title",null,[{"title":1}]]}`, v5, v1, ""},
		{"a result that is none", "tools/call", `["structuredContent"]`, v5, v1, ""},
		{"other method", "x/y", `{"tools":[{"title":"T"}],"structuredContent":1}`, v5, v1, ""},
	} {
		becomes(t, tc.name, tc.in, tc.want, func(in []byte) []byte { return era.Result(tc.method, in, tc.from, tc.to) })
	}
}

func TestNotification(t *testing.T) {
	const progress = `{"progressToken":1,"progress":0.50,"message":"m"}`
	for _, tc := range []struct{ method, in, from, to, want string }{
		{"notifications/progress", progress, v2, v1, `{"progressToken":1,"progress":0.50}`},
		{"notifications/progress", progress, v5, v1, `{"progressToken":1,"progress":0.50}`},
		{"notifications/progress", progress, v5, v2, ""},
		{"notifications/progress", progress, v1, v1, ""},
		{"notifications/progress", progress, v1, v5, ""},
		{"notifications/message", `{"level":"info","message":"m","data":1}`, v5, v1, ""},
		{"notifications/tools/list_changed", `{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}`, v5, v4, `{}`},
		{"notifications/resources/updated", `{"_meta":{"a":1,"io.modelcontextprotocol/subscriptionId":"7"},"uri":"u:"}`, v5, v1, `{"_meta":{"a":1},"uri":"u:"}`},
		{"notifications/resources/updated", `{"_meta":{"io.modelcontextprotocol/subscriptionId":"7"},"uri":"u:"}`, v5, v5, ""},
		{"notifications/resources/updated", `{"_meta":{"io.modelcontextprotocol/subscriptionId":"7"},"uri":"u:"}`, v4, v3, ""},
		{"notifications/tools/list_changed", ``, v5, v1, ""},
	} {
		becomes(t, tc.method+" "+tc.from+"→"+tc.to, tc.in, tc.want, func(in []byte) []byte { return era.Notification(tc.method, in, tc.from, tc.to) })
	}
}

// R-166, and the row of D5 about completion.
func TestParams(t *testing.T) {
	const complete, call = `{"ref":{},"context":{"arguments":{}},"argument":{}}`, `{"task":{"ttl":1},"name":"n","arguments":{"task":1}}`
	for _, tc := range []struct{ method, in, from, to, want string }{
		{"completion/complete", complete, v5, v2, `{"ref":{},"argument":{}}`},
		{"completion/complete", complete, v3, v1, `{"ref":{},"argument":{}}`},
		{"completion/complete", complete, v5, v3, ""},
		{"completion/complete", complete, v1, v1, ""},
		{"tools/call", call, v4, v5, `{"name":"n","arguments":{"task":1}}`},
		{"tools/call", call, v5, v4, `{"name":"n","arguments":{"task":1}}`},
		{"tools/call", call, v4, v3, `{"name":"n","arguments":{"task":1}}`},
		{"tools/call", call, v4, v4, ""},
		{"tools/call", `{"name":"n","context":1}`, v5, v1, ""},
		{"vendor/do", call, v4, v5, ""}, // its own business
		{"tools/list", ``, v5, v1, ""},
	} {
		becomes(t, tc.method+" "+tc.from+"→"+tc.to, tc.in, tc.want, func(in []byte) []byte { return era.Params(tc.method, in, tc.from, tc.to) })
	}
}
