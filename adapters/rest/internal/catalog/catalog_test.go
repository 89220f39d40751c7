package catalog

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/document"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

func TestParse(t *testing.T) {
	want := []Tool{
		{
			Entry: toolset.Entry{
				Key: "calculate", Title: "Calculator", About: "Computes.", Request: "POST /webhook/calculate",
				Body: []byte(`{"expression":"{a}","n":1.50}`), Headers: map[string]string{"X-A": "{a}"}, Result: "value",
			},
			InputSchema: []byte(`{"type":"object","properties":{"b":{"type":"number","maximum":12345678901234567890},"a":{"type":"string"}},"required":["b"]}`),
			Annotations: map[string]bool{"readOnlyHint": true, "openWorldHint": false},
		},
		{Entry: toolset.Entry{Key: "plain", Request: "GET /x"}, InputSchema: []byte(`{"type":"object"}`)},
		{Entry: toolset.Entry{Key: "loose", Title: "Loose", Request: "GET /x"}, InputSchema: []byte(`{"type":"object","properties":{}}`)},
	}
	json := `{"version":3,"tools":[
		{"name":"calculate","title":"Calculator","description":"Computes.","request":"POST /webhook/calculate","vendor":{"x":1},
		 "inputSchema":{"type":"object","properties":{"b":{"type":"number","maximum":12345678901234567890},"a":{"type":"string"}},"required":["b"]},
		 "body":{"expression":"{a}","n":1.50},"headers":{"X-A":"{a}"},"result":"value","annotations":{"readOnlyHint":true,"openWorldHint":false,"destructiveHint":"no"}},
		{"name":"plain","request":"GET /x","inputSchema":{},"title":null},
		{"name":"loose","request":"GET /x","inputSchema":{"properties":{}},"annotations":{"title":"Loose"}}]}`
	yaml := `
- name: calculate
  title: Calculator
  description: Computes.
  request: POST /webhook/calculate
  inputSchema:
    type: object
    properties:
      b: { type: number, maximum: 12345678901234567890 }
      a: { type: string }
    required: [b]
  body: { expression: "{a}", n: 1.50 }
  headers: { X-A: "{a}" }
  result: value
  annotations: { readOnlyHint: true, openWorldHint: false }
- { name: plain, request: GET /x }
- { name: loose, request: GET /x, inputSchema: { properties: {} }, annotations: { title: Loose } }
`
	for name, text := range map[string]string{"JSON": json, "YAML": yaml} {
		got, warnings, err := Parse([]byte(text))
		if err != nil || len(warnings) > 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: Parse = %+v, %q, %v", name, got, warnings, err)
		}
	}
}

// TestParseSettings reads the settings of a tool's calls.
func TestParseSettings(t *testing.T) {
	yes, no := true, false
	for _, test := range []struct {
		text string
		want toolset.Entry
	}{
		{`"timeout":null,"retry":null,"cache":null,"error":null`, toolset.Entry{}},
		{`"timeout":"1m30s","retry":3,"cache":true,"error":"detail"`, toolset.Entry{Timeout: 90 * time.Second, Attempts: 3, Cache: &yes, Error: "detail"}},
		{`"retry":"off","cache":"off","error":{"when":"error","text":"error.message"}`, toolset.Entry{Attempts: 1, Cache: &no, Error: "error.message", ErrorIf: "error"}},
		{`"retry":false,"cache":false,"error":{"when":"error"}`, toolset.Entry{Attempts: 1, Cache: &no, ErrorIf: "error"}},
		{`"limits":{"answer":2000,"other":1}`, toolset.Entry{Limits: toolset.ToolLimits{Answer: 2000}}},
		{`"limits":{}`, toolset.Entry{}},
		{`"cache":"10m"`, toolset.Entry{Cache: &yes, KeepFor: 10 * time.Minute}},
	} {
		tools, warnings, err := Parse([]byte(`[{"name":"x","request":"GET /",` + test.text + `}]`))
		test.want.Key, test.want.Request = "x", "GET /"
		if err != nil || len(tools) != 1 || len(warnings) > 0 || !reflect.DeepEqual(tools[0].Entry, test.want) {
			t.Errorf("%s: %+v, %q, %v", test.text, tools, warnings, err)
		}
	}
	tools, _, err := Parse([]byte("- { name: x, request: GET /, timeout: 5s, retry: off, cache: 60s }\n"))
	if err != nil || tools[0].Timeout != 5*time.Second || tools[0].Attempts != 1 || tools[0].KeepFor != time.Minute {
		t.Errorf("YAML: %+v, %v", tools, err)
	}
	for text, want := range map[string]string{
		`"timeout":5`: "timeout must be a duration", `"timeout":"soon"`: "timeout must be a duration", `"timeout":"-1s"`: "timeout must be a duration",
		`"retry":0`: "retry must be how often", `"retry":11`: "retry is 11: must be 1 to 10", `"retry":2.5`: "retry must be how often", `"retry":"3"`: "retry must be how often", `"retry":true`: "retry must be how often",
		`"cache":60`: "cache must be true", `"cache":"on"`: "cache must be true", `"cache":"0s"`: "cache must be true",
		`"limits":{"answer":10}`: "limits: answer is 10B: must be at least 1KiB", `"limits":{"answer":0}`: "limits: answer must be a number", `"limits":{"answer":"20KiB"}`: "limits: answer must be a number", `"limits":{"answer":1e9}`: "limits: answer must be a number",
		`"error":1`: "error must be a gjson path", `"error":{"when":[]}`: "error must be a gjson path", `"error":"` + strings.Repeat("a", MaxPath+1) + `"`: "error must be a gjson path",
	} {
		if _, _, err := Parse([]byte(`[{"name":"x","request":"GET /",` + text + `}]`)); err == nil || !strings.Contains(err.Error(), `tool 1 ("x"): `+want) {
			t.Errorf("%.80s: %v, want %s", text, err, want)
		}
	}
}

// An unusable tool only costs itself.
func TestParseWarnings(t *testing.T) {
	for _, test := range []struct{ tool, want string }{
		{`1`, `tool 2 (without a name): is not an object`},
		{`{"request":"GET /"}`, `tool 2 (without a name): name is missing`},
		{`{"name":"x"}`, `tool 2 ("x"): request is missing`},
		{`{"name":1,"request":"GET /"}`, `tool 2 ("1"): name is not text`},
		{`{"name":"x","request":["GET"]}`, `tool 2 ("x"): request is not text`},
		{`{"name":"ok","request":"GET /"}`, `tool 2 ("ok"): another tool has the same name`},
		{`{"name":"x","request":"GET /","inputSchema":[]}`, `tool 2 ("x"): inputSchema is not an object`},
		{`{"name":"x","request":"GET /","inputSchema":{"type":"array"}}`, `tool 2 ("x"): inputSchema must be of type object`},
		{`{"name":"x","request":"GET /","headers":{"A":1}}`, `tool 2 ("x"): headers must map names to texts`},
		{`{"name":"x","request":"GET /","headers":[]}`, `tool 2 ("x"): headers must map names to texts`},
	} {
		tools, warnings, err := Parse([]byte(`[{"name":"ok","request":"GET /"},` + test.tool + `]`))
		if err != nil || len(tools) != 1 || len(warnings) != 1 || warnings[0] != test.want {
			t.Errorf("%s: %d tools, warnings %q, %v; want %q", test.tool, len(tools), warnings, err, test.want)
		}
	}
}

// The example in the documentation is a valid catalogue.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/catalogues.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, ok := strings.Cut(string(page), "```json\n{\n  \"tools\"")
	shown, _, _ = strings.Cut(shown, "```")
	tools, warnings, err := Parse([]byte(`{"tools"` + shown))
	if !ok || err != nil || len(warnings) > 0 || len(tools) != 1 {
		t.Errorf("%d tools, %q, %v", len(tools), warnings, err)
	}
}

func TestParseErrors(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{``, "is empty"},
		{`{"tools":`, "neither JSON nor YAML"},
		{`{"items":[]}`, "no list of tools"},
		{`hello`, "no list of tools"},
		{`[{"name":"x"}]`, `the catalogue has no usable tool: tool 1 ("x"): request is missing`},
		{`[` + strings.Repeat(`{},`, MaxTools) + `{}]`, "more than 5000 tools"},
		{`["` + strings.Repeat("x", document.MaxCatalog) + `"]`, "larger than"},
		{"a: &a [" + strings.Repeat("x,", 1000) + "]\nb: &b [" + strings.Repeat("*a,", 1000) + "]\ntools: [" + strings.Repeat("*b,", 1000) + "]", "is too large"},
	} {
		if tools, _, err := Parse([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Parse(%.60q) = %d tools, %v; want %q", test.text, len(tools), err, test.want)
		}
	}
	if tools, _, err := Parse([]byte(`{"tools":[]}`)); err != nil || len(tools) != 0 {
		t.Errorf("an empty catalogue = %v, %v", tools, err)
	}
}

// FuzzParse: nothing makes it panic, and what it gives can be used.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"tools":[{"name":"a","request":"GET /","inputSchema":{"type":"object"}}]}`))
	f.Add([]byte(`[{"name":"a","request":"GET /","timeout":"5s","retry":"off","cache":"1m","error":{"when":"a","text":"b"},"limits":{"answer":1024}}]`))
	f.Add([]byte("- name: a\n  request: GET /\n  inputSchema: { properties: {} }\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tools, _, err := Parse(data)
		for _, one := range tools {
			if err != nil || one.Key == "" || one.Request == "" || !strings.HasPrefix(string(one.InputSchema), "{") {
				t.Errorf("Parse(%q) = %+v, %v", data, one, err)
			}
		}
	})
}
