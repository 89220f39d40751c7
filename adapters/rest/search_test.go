package rest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

// many is a document with n operations, each of which takes a while to read.
func many(n int) string {
	var b strings.Builder
	b.WriteString("openapi: 3.0.3\ninfo: { title: Many, version: '1' }\npaths:\n")
	for i := range n {
		fmt.Fprintf(&b, "  /things%d/{id}:\n    get:\n      operationId: getThing%d\n      summary: Get thing %d\n      description: %s\n      tags: [t%d]\n"+
			"      parameters: [{ name: id, in: path, required: true, schema: { type: integer } }]\n      responses: { '200': { description: OK } }\n",
			i, i, i, strings.Repeat("Long. ", 100), i%3)
	}
	return b.String()
}

func TestModes(t *testing.T) {
	api := newAPI(t)
	for _, test := range []struct {
		n      int
		mode   string
		search bool
	}{
		{3, "", false},
		{3, ModeSearch, true},
		{3, ModeTools, false},
		{200, "", true},
		{200, ModeAuto, true},
		{200, ModeTools, false},
	} {
		c := Config{OpenAPI: file(t, many(test.n)), BaseURL: api.URL, Mode: test.mode}
		a := adapter(t, c, Options{})
		if search, decided := a.OffersSearch(); decided != (test.mode == ModeSearch || test.mode == ModeTools) || search == (test.mode == ModeTools) {
			t.Errorf("%d operations, mode %q: search %t, decided %t before the document was read", test.n, test.mode, search, decided)
		}
		found := names(t, connect(t, a, nil))
		if search, decided := a.OffersSearch(); len(strings.Fields(found)) != test.n || search != test.search || !decided {
			t.Errorf("%d operations, mode %q: search %t, decided %t: %s", test.n, test.mode, search, decided, found)
		}
	}
}

// The pages of a long list have every tool once, and respect their size.
func TestPages(t *testing.T) {
	const n = 600
	up := connect(t, adapter(t, Config{OpenAPI: file(t, many(n)), BaseURL: "http://localhost", Mode: ModeTools}, Options{}), nil)
	cursor, pages, seen := "", 0, map[string]bool{}
	for {
		page := ask(t, up, "tools/list", `{"cursor":"`+cursor+`"}`)
		pages++
		for _, name := range page.Get("tools.#.name").Array() {
			if seen[name.String()] {
				t.Errorf("%s is there twice", name)
			}
			seen[name.String()] = true
		}
		if len(page.Raw) > tools.PageSize+1<<10 {
			t.Errorf("a page has %d bytes", len(page.Raw))
		}
		if cursor = page.Get("nextCursor").String(); cursor == "" {
			break
		}
	}
	if len(seen) != n || pages < 2 {
		t.Errorf("%d tools on %d pages, want %d on several", len(seen), pages, n)
	}
}

// talkative is a document with n operations whose output schemas make up most of the list.
func talkative(n int) string {
	var properties []string
	for i := range 50 {
		properties = append(properties, fmt.Sprintf("member%d: { type: string }", i))
	}
	var b strings.Builder
	b.WriteString("openapi: 3.0.3\ninfo: { title: Talkative, version: '1' }\npaths:\n")
	for i := range n {
		fmt.Fprintf(&b, "  /things%d:\n    get:\n      operationId: getThing%[1]d\n      responses: { '200': { description: OK, content: { application/json: { schema: { type: object, properties: { %s } } } } } }\n", i, strings.Join(properties, ", "))
	}
	return b.String()
}

// A list that is too long omits output schemas first, and tools only then. A mode that the operator
// sets stays. A tool whose output schema was omitted answers like one without.
func TestOutputSchemasDoNotDecide(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	for _, test := range []struct {
		n             int
		mode          string
		tools, output int
	}{{10, "", 10, 10}, {50, "", 50, 0}, {50, ModeTools, 50, 50}, {50, ModeSearch, 50, 50}} {
		up := connect(t, adapter(t, Config{OpenAPI: file(t, talkative(test.n)), BaseURL: api.URL, Mode: test.mode}, Options{}), nil)
		tools := ask(t, up, "tools/list", "{}").Get("tools").Array()
		output := 0
		for _, tool := range tools {
			if tool.Get("outputSchema").Exists() {
				output++
			}
		}
		if len(tools) != test.tools || output != test.output {
			t.Errorf("%d operations, mode %q: %d tools, %d output schemas, want %d and %d", test.n, test.mode, len(tools), output, test.tools, test.output)
		}
		if text, wrong := call(t, up, "getThing1", "{}"); wrong || !strings.Contains(text, `"Rex"`) {
			t.Errorf("getThing1: %s", text)
		}
	}
}

// With read_only nothing that may change something is reachable, by any name. A document or a catalogue
// cannot declare that an operation only reads: only the configuration can.
func TestReadOnly(t *testing.T) {
	api := newAPI(t)
	document := file(t, `{"openapi": "3.2.0", "paths": {
		"/items": {
			"get": {"operationId": "list"}, "head": {"operationId": "look"}, "options": {"operationId": "ask"},
			"trace": {"operationId": "trace"}, "query": {"operationId": "query"},
			"post": {"operationId": "find", "x-mcp": {"readOnlyHint": true}},
			"delete": {"operationId": "drop", "x-mcp": {"annotations": {"readOnlyHint": true}}},
			"put": {"operationId": "said", "x-mcp": {"readOnlyHint": true}}},
		"/next": {"get": {"operationId": "next", "x-mcp": {"readOnlyHint": false}}},
		"/wrote": {"get": {"operationId": "wrote"}}}}`)
	for _, mode := range []string{ModeTools, ModeSearch} {
		c := Config{OpenAPI: document, BaseURL: api.URL, ReadOnly: true, Mode: mode, Tools: []toolset.Entry{{Key: "said", Writes: is(false)}, {Key: "wrote", Writes: is(true)}, {Key: "own", Request: "POST /own"}},
			Catalog: Catalog{File: file(t, `[{"name":"flow","request":"POST /flow","annotations":{"readOnlyHint":true}},{"name":"view","request":"GET /view"}]`)}}
		up := connect(t, adapter(t, c, Options{}), nil)
		if got, want := names(t, up), "list look ask said view"; got != want {
			t.Errorf("%s: tools = %s, want %s", mode, got, want)
		}
		for _, tool := range strings.Fields("list said view trace query find drop next wrote own flow") {
			m := raw(t, up, "tools/call", `{"name":"`+tool+`"}`)
			if reachable := slices.Contains([]string{"list", "said", "view"}, tool); strings.Contains(string(m.Error), "Unknown tool") == reachable {
				t.Errorf("%s, %s: %s%s", mode, tool, m.Error, m.Result)
			}
		}
	}
}
