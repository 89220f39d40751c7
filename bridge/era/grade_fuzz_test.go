package era_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/era"
)

// lifted holds payloads of peers. On the way to a newer peer and back they lose nothing.
var lifted = []struct{ since, what, method, payload string }{
	{v1, "result", "tools/call", `{"content":[{"type":"text","text":"é\u00e9"},{"type":"resource","resource":{"uri":"u:","blob":""}}],"isError":true,"n":1.00}`},
	{v2, "result", "tools/call", `{"content":[{"type":"audio","data":"AA==","mimeType":"audio/wav"}]}`},
	{v3, "result", "tools/call", `{"content":[{"type":"resource_link","uri":"u:","name":"n","_meta":{}}],"structuredContent":{"b":1,"a":12345678901234567890}}`},
	{v1, "result", "tools/list", `{ "tools" : [ {"inputSchema":{"type":"object"},"name":"t"} ], "nextCursor" : "" }`},
	{v2, "result", "tools/list", `{"tools":[{"name":"t","inputSchema":{"type":"object"},"annotations":{"title":"T","destructiveHint":false}}]}`},
	{v3, "result", "tools/list", `{"tools":[{"name":"t","title":"T","inputSchema":{"type":"object"},"outputSchema":{"type":"object"},"_meta":{"x/y":1}}]}`},
	{v4, "result", "tools/list", `{"tools":[{"name":"t","icons":[{"src":"data:"}],"inputSchema":{"type":"object"}}]}`},
	{v1, "result", "prompts/list", `{"prompts":[{"name":"p","arguments":[{"name":"a","required":false}]}]}`},
	{v1, "result", "prompts/get", `{"messages":[{"role":"user","content":{"type":"image","data":"","mimeType":"image/png"}}]}`},
	{v3, "result", "resources/list", `{"resources":[{"uri":"u:","name":"n","title":"N","annotations":{"lastModified":"2025-01-12T15:00:58Z"}}]}`},
	{v1, "result", "resources/read", `{"contents":[]}`},
	{v1, "question", sample, `{"messages":[{"role":"user","content":{"type":"text","text":"t"}}],"maxTokens":100,"includeContext":"none"}`},
	{v2, "question", sample, `{"messages":[{"role":"user","content":{"type":"audio","data":"","mimeType":"m"}}],"maxTokens":100}`},
	{v3, "question", elicit, `{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string","enum":["r"],"enumNames":["Red"]},"b":{"type":"boolean","default":true},"c":{"type":"integer","maximum":1.0}}}}`},
	{v4, "question", elicit, `{"message":"m","mode":"form","requestedSchema":{"type":"object","properties":{"a":{"type":"array","items":{"anyOf":[{"const":"r","title":"Red"}]},"default":["r"]}}}}`},
	{v1, "question", roots, `{"_meta":{"x/y":1}}`},
	{v1, "answer", sample, `{"role":"assistant","content":{"type":"text","text":"t"},"model":"m","stopReason":"endTurn"}`},
	{v4, "answer", sample, `{"role":"assistant","content":[{"type":"text","text":"t"},{"type":"tool_use","id":"1","name":"n","input":{}}],"model":"m"}`},
	{v3, "answer", elicit, `{"action":"accept","content":{"a":1.50}}`},
	{v1, "answer", roots, `{"roots":[{"uri":"file:///a","name":"a"}]}`},
	{v1, "error", "resources/read", `{"code":-32002,"message":"gone","data":{"uri":"u:","n":1.0}}`},
	{v1, "error", "tools/call", `{"code":-32602,"message":"m","data":{"uri":"u:"}}`},
	{v1, "error", "tools/call", `{"code":-32000,"message":"m"}`},
	{v1, "notification", "notifications/progress", `{"progressToken":1,"progress":1.0,"total":2}`},
	{v2, "notification", "notifications/progress", `{"progressToken":"1","progress":1,"message":"m"}`},
	{v1, "params", "completion/complete", `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}}`},
	{v3, "params", "completion/complete", `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""},"context":{"arguments":{}}}`},
}

// asked has all capabilities.
var asked = []byte(`{"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}`)

// grade grades a payload of that kind, or reports that it is refused.
func grade(what, method string, payload []byte, from, to string) ([]byte, *era.Refusal) {
	switch what {
	case "result":
		return era.Result(method, payload, from, to), nil
	case "question":
		return era.Question(method, payload, from, to, asked, func() string { return "minted" })
	case "answer":
		return era.Answer(method, payload, from, to)
	case "error":
		return era.Error(method, "u:", payload, from, to), nil
	case "notification":
		return era.Notification(method, payload, from, to), nil
	}
	return era.Params(method, payload, from, to), nil
}

// A payload that is lifted and lowered again is what it was, byte for byte.
func TestLiftedAndLowered(t *testing.T) {
	for _, tc := range lifted {
		for _, from := range era.Supported() {
			for _, to := range era.Supported() {
				if from < tc.since || to <= from {
					continue
				}
				up, no := grade(tc.what, tc.method, []byte(tc.payload), from, to)
				if no != nil {
					t.Errorf("%s of %s for %s is refused: %s", tc.what, from, to, no.Message)
					continue
				}
				if tc.what != "error" && string(up) != tc.payload {
					t.Errorf("%s of %s for %s is no longer %s but %s", tc.what, from, to, tc.payload, up)
				}
				down, no := grade(tc.what, tc.method, up, to, from)
				if no != nil || string(down) != tc.payload {
					t.Errorf("%s of %s for %s and back is no longer %s but %s (%v)", tc.what, from, to, tc.payload, down, no)
				}
			}
		}
	}
}

// The greeting of each era survives the way to the other era and back.
func TestGreetingThereAndBack(t *testing.T) {
	caps := []byte(`{"roots":{},"sampling":{"tools":{}},"elicitation":{"url":{}},"extensions":{"x/y":{"n":1.0}},"vendor":true}`)
	unchanged(t, "capabilities", caps, era.ModernCapabilities(era.LegacyCapabilities(caps), v4))
	const said = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"completions":{}},"serverInfo":{"name":"s","version":"1","icons":[]},"instructions":"Do","_meta":{"a":1}}`
	if got := era.InitializeResult(era.DiscoverResult([]byte(said), era.Supported(), true), v4, "other"); string(got) != said {
		t.Errorf("%s became %s", said, got)
	}
}

// FuzzGrade grades anything between all pairs of revisions. The result is JSON, has nothing that the reader does
// not know, and does not change when it is graded again.
func FuzzGrade(f *testing.F) {
	whats := []string{"result", "question", "answer", "error", "notification", "params"}
	methods := []string{"tools/call", "tools/list", "prompts/get", "prompts/list", "resources/list", "resources/templates/list",
		"resources/read", "initialize", sample, elicit, roots, "completion/complete", "notifications/progress"}
	seed := func(what, method string, payload []byte) {
		for i, w := range whats {
			for j, m := range methods {
				if w == what && m == method {
					f.Add(byte(i), byte(j), payload)
				}
			}
		}
	}
	for _, tc := range lifted {
		seed(tc.what, tc.method, []byte(tc.payload))
	}
	files, err := filepath.Glob("testdata/2026-07-28/*/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("%d examples: %v", len(files), err)
	}
	for _, name := range files {
		payload, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		method := strings.Replace(strings.TrimSuffix(filepath.Base(name), ".json"), "_", "/", 1)
		seed(filepath.Base(filepath.Dir(name)), method, payload)
	}
	for _, s := range []string{
		`{"content":[{"type":"audio"},{"type":"resource_link"}],"structuredContent":[1,"\ud800"]}`,
		`{"structuredContent":1,"structuredContent":{},"content":null,"content":[[]]}`,
	} {
		seed("result", "tools/call", []byte(s))
	}
	seed("result", "tools/list", []byte(`{"tools":[{"title":"T","title":1,"annotations":null,"annotations":{},"outputSchema":true,"execution":{"taskSupport":1}}],"tools":7}`))
	seed("question", elicit, []byte(`{"mode":"url","elicitationId":"","task":1,"_meta":{"progressToken":[]},"_meta":1}`))
	seed("question", elicit, []byte(`{"mode":"form","requestedSchema":{"properties":{"a":{"oneOf":[{"const":"x"}],"enum":1,"default":{}}}}}`))
	seed("question", sample, []byte(`{"tools":[],"messages":[{"role":"user","content":[]},{"role":"\u0075ser","content":[{"type":"text"},{"type":"image"}]}]}`))
	seed("answer", sample, []byte(`{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":1}],"content":{}}`))
	seed("error", "tools/call", []byte(`{"code":-32042,"code":-32002.0,"message":7,"data":{"elicitations":[{"url":"https://a"}]}}`))
	f.Fuzz(func(t *testing.T, w, m byte, payload []byte) {
		if !json.Valid(payload) {
			return // as the door sees to
		}
		what, method := whats[int(w)%len(whats)], methods[int(m)%len(methods)]
		before := bytes.Clone(payload)
		for _, from := range era.Supported() {
			for _, to := range era.Supported() {
				once, no := grade(what, method, payload, from, to)
				if no != nil {
					if no.Code == 0 || no.Message == "" || len(no.Message) > 300 || no.Data != nil && !json.Valid(no.Data) {
						t.Fatalf("%s: refused: %+v", payload, *no)
					}
					continue
				}
				if !json.Valid(once) {
					t.Fatalf("%s %s %s→%s: %s became %s", what, method, from, to, payload, once)
				}
				if from == to && (what == "result" || what == "answer" || what == "notification" || what == "params") && !bytes.Equal(once, payload) {
					t.Fatalf("%s %s among %s: %s became %s", what, method, to, payload, once)
				}
				if twice, no := grade(what, method, once, from, to); no != nil || !bytes.Equal(twice, once) {
					t.Fatalf("%s %s %s→%s: %s became %s and then %s (%v)", what, method, from, to, payload, once, twice, no)
				}
				if what == "result" && from > to {
					known(t, method, once, to)
				}
			}
		}
		if !bytes.Equal(payload, before) {
			t.Fatalf("the input %s was changed to %s", before, payload)
		}
		era.WellFormedAnswer(method, payload)
		for _, out := range [][]byte{
			era.LegacyCapabilities(payload), era.ModernCapabilities(payload, v3), era.CanonicalCapabilities(payload),
			era.DiscoverResult(payload, era.Supported(), false), era.InitializeResult(payload, v3, "name"),
		} {
			if !json.Valid(out) {
				t.Fatalf("%s became %s", payload, out)
			}
		}
	})
}

// known checks with another reader that a graded result has nothing that would break a client of revision to.
func known(t *testing.T, method string, result []byte, to string) {
	var said map[string]json.RawMessage // a struct would take other spellings of the names too
	if json.Unmarshal(result, &said) != nil {
		return
	}
	items := func(name string) (all []json.RawMessage) {
		if json.Unmarshal(said[name], &all) != nil {
			return nil
		}
		return all
	}
	if method == "tools/call" {
		if s := said["structuredContent"]; s != nil && (to < v3 || s[0] != '{') {
			t.Fatalf("structuredContent for %s: %s", to, result)
		}
		for _, raw := range items("content") {
			var b map[string]any
			if json.Unmarshal(raw, &b) != nil {
				continue
			}
			if kind := b["type"]; to < v3 && kind == "resource_link" || to < v2 && kind == "audio" {
				t.Fatalf("%s for %s: %s", kind, to, result)
			}
		}
	}
	if method == "tools/list" {
		for _, raw := range items("tools") {
			var tool map[string]any
			if json.Unmarshal(raw, &tool) != nil {
				continue
			}
			schema, has := tool["outputSchema"]
			root, _ := schema.(map[string]any)
			if has && (to < v3 || root["type"] != "object") {
				t.Fatalf("outputSchema for %s: %s", to, result)
			}
		}
	}
}
