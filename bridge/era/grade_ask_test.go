package era_test

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

const (
	sample = "sampling/createMessage"
	elicit = "elicitation/create"
	roots  = "roots/list"
)

// TestQuestion checks the rows of D5 about questions; "" means that nothing changes.;
// refusals of D8.
func TestQuestion(t *testing.T) {
	form := func(field string) string {
		return `{"message":"m","requestedSchema":{"type":"object","properties":{"a":` + field + `},"required":["a"]}}`
	}
	message := func(content string) string {
		return `{"messages":[{"role":"user","content":` + content + `}],"maxTokens":10}`
	}
	const all = `{"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"roots":{}}`
	const url = `{"mode":"url","message":"m","url":"https://example.com/a?b","elicitationId":"e"}`
	for _, tc := range []struct {
		name, method, in, from, to, capabilities, want string
		code                                           int
	}{
		// the client's capabilities
		{"not declared", sample, `{}`, v4, v4, `{"elicitation":{}}`, "", jsonrpc.CodeMethodNotFound},
		{"not declared", elicit, `{}`, v4, v5, `{}`, "", jsonrpc.CodeMethodNotFound},
		{"not declared", roots, ``, v4, v4, ``, "", jsonrpc.CodeMethodNotFound},
		{"declared as null", roots, ``, v4, v4, `{"roots":null}`, "", jsonrpc.CodeMethodNotFound},
		{"declared as false", roots, ``, v4, v4, `{"roots":false}`, "", jsonrpc.CodeMethodNotFound},
		{"roots", roots, ``, v4, v1, all, "", 0},
		{"roots with _meta", roots, `{"_meta":{"x":1}}`, v5, v1, all, "", 0},
		{"no question of these", "ping", `{"task":1}`, v4, v5, ``, "", 0},
		{"form when {} is declared", elicit, `{"mode":"form"}`, v4, v4, `{"elicitation":{}}`, "", 0},
		{"url when {} is declared", elicit, `{"mode":"url"}`, v4, v4, `{"elicitation":{}}`, "", jsonrpc.CodeInvalidParams},
		{"form when url is declared", elicit, `{}`, v5, v5, `{"elicitation":{"url":{}}}`, "", jsonrpc.CodeInvalidParams},
		{"the last mode counts", elicit, `{"mode":"form","mode":"url"}`, v4, v5, `{"elicitation":{}}`, "", jsonrpc.CodeInvalidParams},
		{"unknown mode", elicit, `{"mode":"voice"}`, v4, v5, all, "", jsonrpc.CodeInvalidParams},
		{"unknown mode declared", elicit, `{"mode":"voice"}`, v4, v5, `{"elicitation":{"voice":{}}}`, "", 0},
		{"mode of wrong type", elicit, `{"mode":5}`, v4, v5, all, "", jsonrpc.CodeInvalidParams},
		{"sampling tools not declared", sample, `{"tools":[{}],"messages":[]}`, v4, v5, `{"sampling":{}}`, "", jsonrpc.CodeInvalidParams},
		{"toolChoice not declared", sample, `{"toolChoice":{},"messages":[]}`, v5, v4, `{"sampling":{}}`, "", jsonrpc.CodeInvalidParams},
		{"sampling tools declared", sample, `{"tools":[{}],"messages":[]}`, v4, v5, all, "", 0},

		// elicitation
		{"elicitation unknown to the revision", elicit, `{}`, v5, v2, all, "", jsonrpc.CodeMethodNotFound},
		{"declared all the same, by both", elicit, `{}`, v2, v2, all, "", 0},
		{"mode form", elicit, `{"message":"m","mode":"form","requestedSchema":{}}`, v5, v3, all, `{"message":"m","requestedSchema":{}}`, 0},
		{"mode form to who knows it", elicit, `{"message":"m","mode":"form","requestedSchema":{}}`, v5, v4, all, "", 0},
		{"url to who does not know it", elicit, url, v5, v3, all, "", jsonrpc.CodeInvalidParams},
		{"url from M", elicit, `{"mode":"url","url":"https://x"}`, v5, v4, all, `{"mode":"url","url":"https://x","elicitationId":"minted"}`, 0},
		{"url whose id is none", elicit, `{"elicitationId":5,"mode":"url"}`, v5, v4, all, `{"elicitationId":"minted","mode":"url"}`, 0},
		{"url among 2025-11-25", elicit, url, v4, v4, all, "", 0},
		{"url to M", elicit, url, v4, v5, all, `{"mode":"url","message":"m","url":"https://example.com/a?b"}`, 0},
		{"task, progressToken to M", elicit, `{"task":{},"message":"m","_meta":{"progressToken":1}}`, v4, v5, all, `{"message":"m"}`, 0},
		{"other _meta to M", elicit, `{"message":"m","_meta":{"progressToken":1,"x":2}}`, v4, v5, all, `{"message":"m","_meta":{"x":2}}`, 0},
		{"task among 2025-11-25", elicit, `{"task":{},"_meta":{"progressToken":1}}`, v4, v4, all, "", 0},
		{"task to who does not know it", sample, `{"task":{},"messages":[]}`, v4, v3, all, `{"messages":[]}`, 0},
		{"defaults", elicit, form(`{"type":"string","default":"x","format":"email"}`), v4, v3, all, form(`{"type":"string","format":"email"}`), 0},
		{"default of a number", elicit, form(`{"default":1,"type":"number"}`), v4, v3, all, form(`{"type":"number"}`), 0},
		{"default of a boolean", elicit, form(`{"default":true,"type":"boolean"}`), v4, v3, all, "", 0},
		{"defaults to who knows them", elicit, form(`{"default":1,"type":"number"}`), v5, v4, all, "", 0},
		{"titled choices", elicit, form(`{"type":"string","oneOf":[{"const":"r","title":"Red"},{"title":"Gr\u00fcn","const":"g"}],"title":"Colour","default":"r"}`), v5, v3, all, form(`{"type":"string","title":"Colour","enum":["r","g"],"enumNames":["Red","Gr\u00fcn"]}`), 0},
		{"its choices are not strings", elicit, form(`{"oneOf":[{"const":1,"title":"One"}]}`), v5, v3, all, "", jsonrpc.CodeInvalidParams},
		{"no choices", elicit, form(`{"oneOf":[]}`), v5, v3, all, "", jsonrpc.CodeInvalidParams},
		{"enumNames to M", elicit, form(`{"type":"string","enum":["r"],"enumNames":["Red"]}`), v3, v5, all, "", 0},
		{"several at a time", elicit, form(`{"type":"array","items":{"type":"string","enum":["r"]}}`), v4, v3, all, "", jsonrpc.CodeInvalidParams},
		{"several at a time to who knows it", elicit, form(`{"type":"array","items":{"type":"string","enum":["r"]}}`), v5, v4, all, "", 0},

		// sampling
		{"tools to who does not know them", sample, `{"tools":[{}],"messages":[]}`, v5, v3, all, "", jsonrpc.CodeInvalidParams},
		{"no tools", sample, `{"tools":[ ],"toolChoice":{"mode":"none"},"messages":[]}`, v5, v3, all, `{"messages":[]}`, 0},
		{"one block", sample, message(`{"type":"text","text":"t"}`), v5, v1, all, "", 0},
		{"an array to who knows it", sample, message(`[{"type":"text","text":"t"}]`), v5, v4, all, "", 0},
		{"an array of one", sample, message(`[{"type":"text","text":"t"}]`), v4, v3, all, message(`{"type":"text","text":"t"}`), 0},
		{"an array of two", sample, `{"messages":[{"role":"assistant","content":[{"type":"text","text":"t"}, {"type":"image","data":""}],"_meta":{"x":1}},{"role":"user","content":{"type":"text","text":"u"}}]}`, v5, v3, all, `{"messages":[{"role":"assistant","content":{"type":"text","text":"t"},"_meta":{"x":1}},{"role":"assistant","content":{"type":"image","data":""}},{"role":"user","content":{"type":"text","text":"u"}}]}`, 0},
		{"tool_use", sample, message(`{"type":"tool_use"}`), v5, v3, all, "", jsonrpc.CodeInvalidParams},
		{"tool_result among text", sample, message(`[{"type":"text","text":"t"},{"type":"tool_result"}]`), v5, v3, all, "", jsonrpc.CodeInvalidParams},
		{"a refusal in an early message", sample, `{"messages":[{"role":"user","content":{"type":"tool_use"}},{"role":"user","content":[{"type":"text","text":"t"}]}]}`, v5, v3, all, "", jsonrpc.CodeInvalidParams},
		{"an array by nobody", sample, `{"messages":[{"content":[{"type":"text","text":"t"}]}]}`, v5, v3, all, "", jsonrpc.CodeInvalidParams},
		{"audio", sample, message(`{"type":"audio"}`), v5, v1, all, "", jsonrpc.CodeInvalidParams},
		{"audio to who knows it", sample, message(`{"type":"audio"}`), v5, v2, all, "", 0},
		{"audio in an array", sample, message(`[{"type":"audio"}]`), v5, v1, all, "", jsonrpc.CodeInvalidParams},
		{"audio in an array to who knows it", sample, message(`[{"type":"audio"}]`), v5, v2, all, message(`{"type":"audio"}`), 0},
		{"newer than agreed", sample, message(`[{"type":"text","text":"t"}]`), v3, v3, all, "", 0},
	} {
		in := []byte(tc.in)
		got, no := era.Question(tc.method, in, tc.from, tc.to, []byte(tc.capabilities), func() string { return "minted" })
		switch {
		case tc.code != 0:
			if no == nil || no.Code != tc.code || no.Message == "" || got != nil {
				t.Errorf("%s: %s, refused %+v, want %d", tc.name, got, no, tc.code)
			}
		case no != nil:
			t.Errorf("%s: refused: %+v", tc.name, *no)
		case tc.want == "":
			unchanged(t, tc.name, in, got)
		case string(got) != tc.want:
			t.Errorf("%s:\n  got %s\n want %s", tc.name, got, tc.want)
		}
	}
}

// A server's text does not make a message of the bridge long.
func TestQuestionShort(t *testing.T) {
	_, no := era.Question(elicit, []byte(`{"mode":"`+strings.Repeat("ü", 100_000)+`"}`), v4, v4, []byte(`{"elicitation":{}}`), nil)
	if no == nil || len(no.Message) > 200 || !strings.Contains(no.Message, "elicitation.üü") {
		t.Errorf("refused: %+v", no)
	}
}

// D5, "Answers from a client"; "" means that nothing changes.
func TestAnswer(t *testing.T) {
	answer := func(content string) string { return `{"role":"assistant","content":` + content + `,"model":"m"}` }
	const text, image, audio = `{"type":"text","text":"a"}`, `{"type":"image","data":""}`, `{"type":"audio","data":""}`
	for _, tc := range []struct {
		name, method, in, from, to, want string
		refused                          bool
	}{
		{"one block to a newer server", sample, answer(text), v1, v5, "", false},
		{"one block to an older server", sample, answer(image), v5, v1, "", false},
		{"an array to who knows it", sample, answer(`[` + text + `]`), v5, v4, "", false},
		{"newer than agreed", sample, answer(`[` + text + `]`), v3, v3, "", false},
		{"an array of one", sample, answer(`[ ` + image + ` ]`), v5, v3, answer(image), false},
		{"texts", sample, answer(`[` + text + `,{"type":"text","text":"b\"c"}]`), v5, v3, answer(`{"type":"text","text":"a\nb\"c"}`), false},
		{"text and image", sample, answer(`[` + text + `,` + image + `]`), v4, v3, "", true},
		{"nothing", sample, answer(`[]`), v5, v3, "", true},
		{"audio", sample, answer(audio), v5, v1, "", true},
		{"audio to who knows it", sample, answer(audio), v5, v2, "", false},
		{"tool_use", sample, answer(`[{"type":"tool_use"}]`), v5, v3, "", true},
		{"elicitation", elicit, `{"action":"accept","content":{"a":["b"]}}`, v5, v3, "", false},
		{"roots", roots, `{"roots":[{"uri":"file:///a","_meta":{}}]}`, v5, v1, "", false},
	} {
		in := []byte(tc.in)
		got, no := era.Answer(tc.method, in, tc.from, tc.to)
		switch {
		case tc.refused:
			if no == nil || no.Code != jsonrpc.CodeInternal || got != nil {
				t.Errorf("%s: %s, refused %+v", tc.name, got, no)
			}
		case no != nil:
			t.Errorf("%s: refused: %+v", tc.name, *no)
		case tc.want == "":
			unchanged(t, tc.name, in, got)
		case string(got) != tc.want:
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestWellFormedAnswer distinguishes malformed answers from unusual ones (D1.4.6).
func TestWellFormedAnswer(t *testing.T) {
	for _, tc := range []struct {
		method, in string
		ok         bool
	}{
		{elicit, `{"action":"accept","content":{"a":1}}`, true},
		{elicit, `{"action":"decline"}`, true},
		{elicit, `{"action":"cancel","content":null,"x":1}`, true},
		{elicit, `{"action":"Accept"}`, false},
		{elicit, `{"action":["accept"]}`, false},
		{elicit, `{"action":"accept","content":[1]}`, false},
		{elicit, `{}`, false},
		{elicit, `[]`, false},
		{elicit, `null`, false},
		{elicit, ``, false},
		{sample, `{"role":"assistant","content":{"type":"text","text":""},"model":"m"}`, true},
		{sample, `{"role":"assistant","content":[],"model":"m","stopReason":"x"}`, true},
		{sample, `{"role":"system","content":{},"model":"m"}`, false},
		{sample, `{"role":"assistant","content":"text","model":"m"}`, false},
		{sample, `{"role":"assistant","content":{}}`, false},
		{sample, `{"task":{"taskId":"t"}}`, false},
		{roots, `{"roots":[]}`, true},
		{roots, `{"roots":{}}`, false},
		{roots, `{}`, false},
		{"vendor/ask", `{}`, true},
		{"vendor/ask", `1`, false},
	} {
		if wrong := era.WellFormedAnswer(tc.method, []byte(tc.in)); (wrong == "") != tc.ok {
			t.Errorf("%s %s: %q", tc.method, tc.in, wrong)
		}
	}
}
