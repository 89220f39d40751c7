package rest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/internal/adapters/rest/toolset"
)

// many is a document with n operations, of which each takes a while to read.
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
		{3, ModeSearch, 3},
		{3, ModeTools, 3},
		{200, "", 3},
		{200, ModeAuto, 3},
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
	// What the configuration speaks of stays listed.
	if got, want := names(t, up), "search_operations describe_operations call_operation listPets"; got != want {
		t.Errorf("tools = %s, want %s", got, want)
	}
	if about := gjson.GetBytes(up.Server().Result, "instructions").String(); !strings.Contains(about, "4 operations") || !strings.Contains(about, searchTool) {
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
	// The tools are there by their names as well.
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

// Pages of a long list have every tool once, and stay within their size.
func TestPages(t *testing.T) {
	const n = 900
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
