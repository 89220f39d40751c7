package wire

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/scaletest"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// answerer is a server without a network.
type answerer string

func (a answerer) Do(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: body(string(a)), ContentLength: int64(len(a))}, nil
}

// chunked is a server that does not announce the lengths of its answers.
type chunked string

func (c chunked) Do(r *http.Request) (*http.Response, error) {
	res, err := answerer(c).Do(r)
	res.ContentLength = -1
	return res, err
}

func benchTool() *openapi.Tool {
	t := tool("GET", "/pets/{c}", parameter("path", "simple", false), &openapi.Parameter{Name: "limit", In: "query", Style: "form"}, &openapi.Parameter{Name: "tags", In: "query", Style: "form", Explode: true})
	t.InputSchema = []byte(`{"type":"object","properties":{"c":{"type":"string"},"limit":{"type":"integer","minimum":1},"tags":{"type":"array","items":{"enum":["a","b"]}}},"required":["c"],"additionalProperties":false}`)
	t.OutputSchema = []byte(`{"type":"object","properties":{"id":{"type":["integer","null"]},"name":{"type":["string","null"]}}}`)
	return t
}

// largeText and largeList are answers of about 1 MB: one text, and an array of
// 16,000 objects.
func largeText() string {
	return `{"text":"` + strings.Repeat(`The quick brown fox.\n`, 48000) + `"}`
}

func largeList(items int) string {
	var b strings.Builder
	for i := range items {
		fmt.Fprintf(&b, `,{"id":%d,"name":"item number %d","tags":["a","b"],"open":true}`, i, i)
	}
	return "[" + b.String()[1:] + "]"
}

const (
	textSchema = `{"type":"object","properties":{"text":{"type":["string","null"]}}}`
	listSchema = `{"type":"object","properties":{"result":{"type":["array","null"],"items":{"$ref":"#/$defs/item"}}},"$defs":{"item":{"type":["object","null"],"properties":` +
		`{"id":{"type":["integer","null"]},"name":{"type":["string","null"]},"tags":{"type":["array","null"],"items":{"type":["string","null"]}},"open":{"type":["boolean","null"]}}}}}`
)

// largest is how many objects a list of 8 MB has, and as much is read by default.
const largest = 120000

// large is a call with 1 MB or 8 MB in one direction.
type large struct {
	name         string
	args, answer string
	schema       string // of the answer
	limit        int    // to which the answer is cut; 0: not at all
	chunked      bool   // the length is not announced
}

func largeCalls() []large {
	longest := largeList(largest)
	return []large{
		{name: "request", args: `{"body":` + largeText() + `}`, answer: `{}`},
		{name: "text", answer: largeText()},
		{name: "text with a schema", answer: largeText(), schema: textSchema},
		{name: "objects", answer: largeList(16000)},
		{name: "objects with a schema", answer: largeList(16000), schema: listSchema},
		{name: "objects, cut", answer: largeList(16000), schema: listSchema, limit: 100 << 10},
		{name: "objects within an object, cut", answer: `{"result":` + largeList(16000) + `}`, limit: 100 << 10},
		{name: "objects within lines, cut", answer: strings.ReplaceAll(largeList(16000), ",", ",\n  "), schema: listSchema, limit: 100 << 10},
		{name: "8 MB, cut", answer: longest, limit: 100 << 10},
		{name: "8 MB of unknown length, cut", answer: longest, limit: 100 << 10, chunked: true},
		{name: "8 MB within lines, cut", answer: strings.ReplaceAll(largeList(largest*5/6), ",", ",\n "), limit: 100 << 10},
		{name: "more than 8 MB, cut", answer: largeList(largest + largest/8), limit: 100 << 10},
		{name: "8 MB", answer: longest, schema: listSchema},
	}
}

func largeCall(b testing.TB, tc large) (*Source, *Call) {
	most := tc.limit
	if most == 0 {
		most = 8 << 20
	}
	s := newSource(b, Options{BaseURL: "http://api.example.com", Default: &Credential{Bearer: "the-secret-token"}, Limits: Limits{Answer: setting.Size(most)}})
	s.http = answerer(tc.answer)
	if tc.chunked {
		s.http = chunked(tc.answer)
	}
	t := tool("POST", "/things")
	if tc.args != "" {
		t = with(t, &openapi.MediaType{Type: "application/json"})
		t.InputSchema = []byte(`{"type":"object","properties":{"body":{"type":"object","properties":{"text":{"type":"string"}}}},"required":["body"],"additionalProperties":false}`)
	}
	if tc.schema != "" {
		t.OutputSchema, t.Wrapped = []byte(tc.schema), tc.schema == listSchema
	}
	return s, &Call{Tool: t, Args: []byte(tc.args)}
}

// TestLargeAllocations bounds the allocations of a call with a large body, and so its peak.
func TestLargeAllocations(t *testing.T) {
	scaletest.Unraced(t)
	for _, tc := range largeCalls() {
		s, c := largeCall(t, tc)
		size, most := float64(max(len(tc.args), len(tc.answer))), 4.0
		if tc.limit > 0 { // the body, and one copy of it: it had to grow, or had white space
			most = 2.5
		}
		if _, err := s.Call(t.Context(), c); err != nil { // the first one compiles schemas
			t.Fatal(err)
		}
		const calls = 2
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range calls {
			_, _ = s.Call(t.Context(), c)
		}
		runtime.ReadMemStats(&after)
		if took := float64(after.TotalAlloc-before.TotalAlloc) / float64(calls) / size; took > most {
			t.Errorf("%s: a call allocates %.1f times its body, more than %.1f times", tc.name, took, most)
		}
	}
}
