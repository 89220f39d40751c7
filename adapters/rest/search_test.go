package rest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
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
		n    int
		mode string
		want int // tools listed
	}{
		{3, "", 3},
		{3, ModeSearch, 4},
		{3, ModeTools, 3},
		{200, "", 4},
		{200, ModeAuto, 4},
		{200, ModeTools, 200},
	} {
		c := Config{OpenAPI: file(t, many(test.n)), BaseURL: api.URL, Mode: test.mode}
		up := connect(t, adapter(t, c, Options{}), &adaptertest.Client{})
		found := names(t, up)
		if got := len(strings.Fields(found)); got != test.want || strings.Contains(found, searchTool) != (test.mode == ModeSearch || test.want != test.n) {
			t.Errorf("%d operations, mode %q: %d tools, want %d: %s", test.n, test.mode, got, test.want, found)
		}
	}
}

func TestSearch(t *testing.T) {
	api := newAPI(t)
	c := api.pets()
	c.Mode = ModeSearch
	c.Expose = []string{"not slow"}
	c.Tools = []toolset.Entry{
		{Key: "listPets", Args: []toolset.Arg{{Name: "kind", Value: []byte(`"cat"`)}}},
		{Key: "deletePet", Off: true},
	}
	up := connect(t, adapter(t, c, Options{}), &adaptertest.Client{})
	// Tools with an entry in the configuration stay listed.
	if got, want := names(t, up), "search_operations describe_operations read_operation call_operation listPets"; got != want {
		t.Errorf("tools = %s, want %s", got, want)
	}
	if about := gjson.GetBytes(up.Server().Result, "instructions").String(); !strings.Contains(about, "Pets has 4 operations") || !strings.Contains(about, searchTool) {
		t.Errorf("instructions = %q", about)
	}
	for _, test := range []struct{ name, tool, args, want string }{
		{"words", searchTool, `{"query":"adding pets"}`, "addPet: POST /pets (Add a pet)\n"},
		{"plural", searchTool, `{"query":"event"}`, "watchEvents: GET /events (Watch what happens)"},
		{"tag", searchTool, `{"tag":"Admin"}`, "watchEvents: GET /events (Watch what happens)"},
		{"method", searchTool, `{"method":"POST"}`, "addPet: POST /pets (Add a pet)"},
		{"everything", searchTool, `{}`, "listPets: GET /pets (List pets)\naddPet: POST /pets (Add a pet)\ngetPet: GET /pets/{id} (Get a pet)\nwatchEvents: GET /events (Watch what happens)"},
		{"nothing", searchTool, `{"query":"deletePet slow xyz","tag":"none"}`, "Nothing fits. Try other words, or fewer. There are the tags pets, admin."},
		{"describe", describeTool, `{"ids":["getPet","listPets"]}`, "getPet: GET /pets/{id}\nGet a pet\nArguments: {\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\"}},\"required\":[\"id\"],\"additionalProperties\":false}\n\nlistPets: GET /pets\n"},
		{"describe unknown", describeTool, `{"ids":["getPets"]}`, `There is no operation "getPets". There is getPet.`},
		{"read", readTool, `{"id":"getPet","arguments":{"id":"7"}}`, `{"method":"GET"`},
		{"read what writes", readTool, `{"id":"addPet","arguments":{"body":{"name":"Rex"}}}`, "addPet may change something: use call_operation."},
		{"read unknown", readTool, `{"id":"getPets"}`, `There is no operation "getPets". There is getPet.`},
		{"arguments of the first", searchTool, `{"query":"get a pet"}`, "\n\nArguments of getPet: {\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\"}}"},
		{"call", callTool, `{"id":"getPet","arguments":{"id":"7"}}`, `{"method":"GET"`},
		{"call of a changed one", callTool, `{"id":"listPets","arguments":{"limit":3}}`, `{"method":"GET"`},
		{"call without arguments", callTool, `{"id":"listPets"}`, `{"method":"GET"`},
		{"call of what is off", callTool, `{"id":"deletePet","arguments":{"id":1}}`, `There is no operation "deletePet".`},
		{"call of what is hidden", callTool, `{"id":"slow"}`, `There is no operation "slow".`},
		{"wrong arguments", callTool, `{"id":"getPet","arguments":{"id":"x"}}`, "id: "},
		{"wrong use", callTool, `{"name":"getPet"}`, "name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if text, _ := call(t, up, test.tool, test.args); !strings.Contains(text, test.want) {
				t.Errorf("%s\nwant %s in it", text, test.want)
			}
		})
	}
	if got, want := api.last(t), "GET /pets?kind=cat X-Api-Key=top-secret-key"; got != want {
		t.Errorf("request = %s, want %s", got, want)
	}
	// The tools can also be called by their own names.
	if text, isError := call(t, up, "getPet", `{"id":1}`); isError {
		t.Errorf("getPet: %s", text)
	}
}

func TestSearchPages(t *testing.T) {
	up := connect(t, adapter(t, Config{OpenAPI: file(t, many(45)), BaseURL: "http://localhost", Mode: ModeSearch}, Options{}), &adaptertest.Client{})
	seen := map[string]bool{}
	for offset := 0; offset < 60; offset += 20 {
		text, _ := call(t, up, searchTool, fmt.Sprintf(`{"query":"thing","offset":%d}`, offset))
		for line := range strings.Lines(text) {
			if name, _, ok := strings.Cut(line, ": GET"); ok {
				seen[name] = true
			}
		}
	}
	if len(seen) != 45 {
		t.Errorf("%d operations on three pages, want 45", len(seen))
	}
}

// The pages of a long list have every tool once, and respect their size.
func TestPages(t *testing.T) {
	const n = 600
	up := connect(t, adapter(t, Config{OpenAPI: file(t, many(n)), BaseURL: "http://localhost", Mode: ModeTools}, Options{}), &adaptertest.Client{})
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
		if len(page.Raw) > pageSize+1<<10 {
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
// sets stays.
func TestOutputSchemasDoNotDecide(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		n             int
		mode          string
		tools, output int
	}{{10, "", 10, 10}, {50, "", 50, 0}, {50, ModeTools, 50, 50}, {50, ModeSearch, 4, 0}, {300, "", 4, 0}} {
		a := adapter(t, Config{OpenAPI: file(t, talkative(test.n)), BaseURL: "http://localhost", Mode: test.mode}, Options{})
		tools := ask(t, connect(t, a, nil), "tools/list", "{}").Get("tools").Array()
		output := 0
		for _, tool := range tools {
			if tool.Get("outputSchema").Exists() {
				output++
			}
		}
		if len(tools) != test.tools || output != test.output {
			t.Errorf("%d operations, mode %q: %d tools, %d output schemas, want %d and %d", test.n, test.mode, len(tools), output, test.tools, test.output)
		}
	}
}

// A tool whose output schema was omitted answers like one without.
func TestOutputLeftOut(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"a":1}`)
	}))
	defer api.Close()
	up := connect(t, adapter(t, Config{OpenAPI: file(t, talkative(50)), BaseURL: api.URL}, Options{}), nil)
	if text, wrong := call(t, up, "getThing1", "{}"); wrong || text != `{"a":1}` {
		t.Errorf("getThing1: %s", text)
	}
}

// Tools for reading are marked so, and tools name their API.
func TestSearchHints(t *testing.T) {
	c := newAPI(t).pets()
	c.Mode = ModeSearch
	tools := ask(t, connect(t, adapter(t, c, Options{}), nil), "tools/list", "{}").Get("tools").Array()
	for i, want := range []string{"search_operations true", "describe_operations true", "read_operation true", "call_operation false"} {
		if got := tools[i].Get("name").String() + " " + tools[i].Get("annotations.readOnlyHint").String(); got != want || !strings.Contains(tools[i].Get("description").String(), "of Pets") {
			t.Errorf("tool %d: %s, want %s of Pets: %s", i, got, want, tools[i].Raw)
		}
	}
}

// With read_only nothing that may change something is reachable, by any name.
func TestReadOnly(t *testing.T) {
	for _, mode := range []string{ModeTools, ModeSearch} {
		c := newAPI(t).pets()
		c.Mode, c.ReadOnly = mode, true
		no := false
		c.Tools = []toolset.Entry{{Key: "deletePet", Writes: &no}, {Key: "own", Request: "POST /own"}}
		up := connect(t, adapter(t, c, Options{}), nil)
		for tool, wrong := range map[string]string{"addPet": "Unknown tool", "own": "Unknown tool", "getPet": "", "deletePet": ""} {
			m := raw(t, up, "tools/call", `{"name":"`+tool+`","arguments":{"id":1}}`)
			if text := string(m.Error); strings.Contains(text, "Unknown tool") != (wrong != "") {
				t.Errorf("%s, %s: %s%s", mode, tool, m.Error, m.Result)
			}
		}
		if mode == ModeSearch {
			if got := names(t, up); got != "search_operations describe_operations read_operation deletePet" {
				t.Errorf("tools %s", got)
			}
			if text, _ := call(t, up, callTool, `{"id":"addPet"}`); !strings.Contains(text, "There is no operation") {
				t.Errorf("call_operation: %s", text)
			}
		}
	}
}

// A document or a catalogue cannot declare that an operation only reads: only the configuration can.
func TestReadOnlyHints(t *testing.T) {
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
	c := Config{OpenAPI: document, BaseURL: api.URL, ReadOnly: true, Mode: ModeTools, Tools: []toolset.Entry{{Key: "said", Writes: is(false)}, {Key: "wrote", Writes: is(true)}},
		Catalog: Catalog{File: file(t, `[{"name":"flow","request":"POST /flow","annotations":{"readOnlyHint":true}},{"name":"view","request":"GET /view"}]`)}}
	if got, want := names(t, connect(t, adapter(t, c, Options{}), nil)), "list look ask said view"; got != want {
		t.Errorf("tools = %s, want %s", got, want)
	}
	c.ReadOnly, c.Mode = false, ModeSearch
	up := connect(t, adapter(t, c, Options{}), &adaptertest.Client{})
	for _, name := range []string{"trace", "query", "find", "drop", "next", "wrote", "flow"} {
		if text, isError := call(t, up, readTool, `{"id":"`+name+`"}`); !isError || !strings.Contains(text, "use call_operation") || api.count() > 0 {
			t.Errorf("read_operation of %s: %s", name, text)
		}
	}
	if text, isError := call(t, up, readTool, `{"id":"said"}`); isError {
		t.Error(text)
	}
}
