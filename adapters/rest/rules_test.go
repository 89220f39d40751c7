package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/internal/openapitest"
)

const shop = `openapi: 3.1.0
paths:
  /orders:
    parameters: [{ name: X-Tenant, in: header, required: true, schema: { type: string } }, { name: debug, in: query, schema: { type: boolean } }]
    get:
      operationId: listOrders
      tags: [orders, lists]
      parameters: [{ name: page, in: query, schema: { type: integer } }]
      responses: { "200": { description: OK, content: { application/json: { schema: { type: object, properties: { data: { type: array } } } } } } }
    post:
      operationId: findOrders
      tags: [orders]
      responses: { "200": { description: OK, content: { application/json: { schema: { type: object } } } } }
  /orders/{id}:
    get:
      tags: [orders]
      parameters: [{ name: id, in: path, required: true, schema: { type: integer } }, { name: X-Tenant, in: header, required: true, schema: { type: string } }]
      responses: { "200": { description: OK } }
  /status: { get: { operationId: status, responses: { "200": { description: OK, content: { application/json: { schema: { type: object } } } } } } }
`

func shopOf(t *testing.T, rules []toolset.Rule, tools ...toolset.Entry) Config {
	t.Helper()
	api := newAPI(t)
	return Config{OpenAPI: file(t, shop), BaseURL: api.URL, Rules: rules, Tools: tools}
}

func is(v bool) *bool { return &v }

// A rule changes only what it matches. The last of several rules counts, and entries win over them.
func TestRules(t *testing.T) {
	t.Parallel()
	orders := openapi.Match{Tag: []string{"ord*"}}
	c := shopOf(t, []toolset.Rule{
		{Match: orders, Entry: toolset.Entry{Name: "shop_{name}", Timeout: 5 * time.Second, Output: is(false), Attempts: 5, Args: []toolset.Arg{
			{Name: "x-tenant", Value: json.RawMessage(`"blue"`)}, {Name: "debug", Off: true}, {Name: "page", Default: json.RawMessage("1")},
		}}},
		{Match: openapi.Match{Tag: []string{"lists"}, Method: []string{"get"}}, Entry: toolset.Entry{Name: "list.{name}", Timeout: 7 * time.Second, Cache: is(true), Limits: toolset.ToolLimits{Answer: 2048}}},
		{Match: openapi.Match{Path: []string{"/orders/*"}, Name: []string{"get_orders_*"}}, Entry: toolset.Entry{As: toolset.AsResource}},
		{Match: openapi.Match{Name: []string{"findOrders"}}, Entry: toolset.Entry{Writes: is(false), Result: "items"}},
	}, toolset.Entry{Key: "findOrders", Name: "find", Timeout: 9 * time.Second, Args: []toolset.Arg{{Name: "debug", About: "Says more"}}})
	a := adapter(t, c, Options{})
	up := connect(t, a, nil)
	got := ask(t, up, "tools/list", "{}").Get("tools")
	if got := names(t, up); got != "list.listOrders find status" {
		t.Errorf("tools = %s", got)
	}
	if templates := ask(t, up, "resources/templates/list", "{}"); templates.Get("resourceTemplates.#.uriTemplate").Raw != `["rest://pets/orders/{id}"]` {
		t.Errorf("templates = %s", templates)
	}
	for i, want := range []string{`{"page":{"type":"integer","default":1}}`, `{"debug":{"type":"boolean","description":"Says more"}}`, ""} {
		if one := got.Get("@this").Array()[i]; one.Get("inputSchema.properties").Raw != want && want != "" || one.Get("outputSchema").Exists() != (want == "") {
			t.Errorf("%s", one)
		}
	}
	report, err := c.Inspect(t.Context(), "pets", Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{ // timeout, uncached, limit, attempts, repeat, only reads, result, and whether only rules speak of it
		"list.listOrders": "7s false 2048 5 false true  true",
		"find":            "9s true 0 5 true true items false",
		"status":          "0s true 0 0 false true  false",
	}
	for _, tool := range toolsOf(report) {
		s := tool.Settings
		got := fmt.Sprint(s.Timeout, s.Uncached, s.MaxAnswer, s.Attempts, s.Repeat, tool.Annotations.ReadOnly, " ", tool.Result, " ", tool.Entry != nil && tool.Entry.Ruled)
		if want, ok := want[tool.Name]; ok && (got != want || tool.Name == "status" && tool.Entry != nil) {
			t.Errorf("%s: %s, want %s", tool.Name, got, want)
		}
	}
	if text, isError := call(t, up, "find", `{"debug":true}`); isError {
		t.Error(text)
	}
	if text := ask(t, up, "resources/read", `{"uri":"rest://pets/orders/7"}`).Get("contents.0.text").Str; !strings.Contains(text, "GET") {
		t.Errorf("the resource is %s", text)
	}
}

// Faults name the setting, its line and what was probably meant, and each is reported once.
func TestInspectFaults(t *testing.T) {
	const owned = `openapi: 3.0.0
paths:
  /{owner}/a: { parameters: [{ name: owner, in: path, required: true, schema: { type: string } }, { name: q, in: query, schema: { type: string } }], get: { operationId: a }, put: { operationId: b } }
`
	orders := openapi.Match{Tag: []string{"orders"}}
	for _, test := range []struct {
		doc  string
		c    Config
		line int // of the first
		want string
	}{
		{owned, Config{Args: []toolset.Arg{{Name: "owner", Line: 7, Off: true}}}, 7, "args: owner: is a part of the path of GET /{owner}/a: it cannot be off; give it a value"},
		{owned, Config{Args: []toolset.Arg{{Name: "ovner", Line: 7, Off: true}}}, 7, "args: ovner: no operation that is exposed has a parameter of that name: did you mean owner?"},
		{owned, Config{Args: []toolset.Arg{{Name: "owner", Line: 7, As: "q"}}}, 7, "args: owner: GET /{owner}/a: q is the name of another argument"},
		{shop, Config{Rules: []toolset.Rule{{Match: openapi.Match{Tag: []string{"order"}}, Entry: toolset.Entry{Timeout: 1, Lines: map[string]int{"match": 11}}}}}, 11, "rules: item 1: no exposed operation matches it: did you mean orders?"},
		{shop, Config{Rules: []toolset.Rule{{Match: orders, Entry: toolset.Entry{Args: []toolset.Arg{{Name: "id", Line: 14, Off: true}}}}}}, 14, "rules: item 1: args: id: is a part of the path of GET /orders/{id}: it cannot be off; give it a value"},
		{shelves, Config{Tools: []toolset.Entry{{Key: "burn", Line: 1, As: toolset.AsResource}}}, 1, "tools: burn: as: resource is for GET, and this is a DELETE"},
		{"", Config{Tools: []toolset.Entry{ // of two resources with the same address, one could not be read
			{Key: "code", Line: 1, As: toolset.AsResource, Request: "GET /search?type=code{&q}", Args: args(t, "q? string")},
			{Key: "users", Line: 2, Lines: map[string]int{"as": 3}, As: toolset.AsResource, Request: "GET /search?type=user{&name}", Args: args(t, "name? string")},
			{Key: "other", Line: 4, As: toolset.AsResource, Request: "GET /search/{name}", Args: args(t, "name string")},
			{Key: "same", Line: 5, As: toolset.AsResource, Request: "GET /search/{id}", Args: args(t, "id integer")},
		}}, 3, "tools: users: as: code also has the address rest://pets/search{?name}: make one of them a tool\n" +
			"tools: same: as: other also has the address rest://pets/search/{id}: make one of them a tool"},
	} {
		if test.c.BaseURL = "https://x.example.com"; test.doc != "" {
			test.c.OpenAPI = file(t, test.doc)
		}
		_, err := test.c.Inspect(t.Context(), "pets", quiet(Options{}))
		if faults, ok := errors.AsType[toolset.Faults](err); !ok || faults.Error() != test.want || faults[0].Line != test.line {
			t.Errorf("%v\nwant %s", err, test.want)
		}
	}
	c := Config{OpenAPI: "x", Args: []toolset.Arg{{Name: "a", Off: true, About: "x"}, {Name: "a"}, {Name: "b", Optional: true}, {Name: "c", As: "no good"}}}
	if got := fmt.Sprint(c.Validate()); strings.Count(got, "\n") != 3 || strings.Count(got, "args: ") != 4 {
		t.Errorf("Validate() = %s", got)
	}
	c = Config{BaseURL: "http://x", Tools: []toolset.Entry{{Key: "t", Request: "GET /"}}, Args: []toolset.Arg{{Name: "a", Off: true}}}
	if got := fmt.Sprint(c.Validate()); !strings.Contains(got, "args is of no use without openapi") {
		t.Errorf("Validate() = %s", got)
	}
}

// A rule of expose that excludes nothing is a fault, since clients could call what it means.
func TestExposeFaults(t *testing.T) {
	doc := file(t, `openapi: 3.0.0
paths:
  /users: { get: { operationId: listUsers, tags: [users] }, post: { operationId: deleteUser } }
  /users/{id}: { $ref: "#/gone" }
`)
	for _, test := range []struct {
		expose []string
		want   string
	}{
		{[]string{"all", "not deleteUsr"}, `expose: "not deleteUsr" matches no operation, so it excludes none: did you mean "not deleteUser"?`},
		{[]string{"not tag user"}, `expose: "not tag user" matches no operation, so it excludes none: did you mean "not tag users"?`},
		{[]string{"not /admin/**"}, `expose: "not /admin/**" matches no operation, so it excludes none`},
		{[]string{"not DELETE /users"}, `expose: "not DELETE /users" matches no operation, so it excludes none: did you mean "not deleteUser"?`},
		{[]string{"all", "not DELETE", "not deleteUser", "not /users/{id}", "not tag users", "not all", "none"}, ""},
		{[]string{"listUsers", "tag nobody"}, ""},
	} {
		c := Config{OpenAPI: doc, BaseURL: "http://localhost", Expose: test.expose}
		_, err := c.Inspect(t.Context(), "users", Options{})
		if got := fmt.Sprint(err); test.want == "" && err != nil || test.want != "" && got != test.want {
			t.Errorf("%q: %s, want %s", test.expose, got, test.want)
		}
	}
}

// One rule applies to many operations of real documents, whose names stay valid.
func TestRulesOfRealDocuments(t *testing.T) {
	for _, name := range []string{"kubernetes-batch-2.0.json", "xero-accounting-3.0.yaml", "twilio-api-3.0.json"} {
		c := Config{OpenAPI: openapitest.Shared(t, name), BaseURL: "http://localhost", Mode: ModeTools, Rules: []toolset.Rule{
			{Match: openapi.Match{Path: []string{"**"}}, Entry: toolset.Entry{Name: "my_{name}", Output: is(false)}},
		}}
		report, err := c.Inspect(t.Context(), "api", Options{})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, tool := range toolsOf(report) {
			if !strings.HasPrefix(tool.Name, "my_") || len(tool.Name) > 64 || seen[tool.Name] || tool.OutputSchema != nil {
				t.Errorf("%s: %s", name, tool.Name)
			}
			seen[tool.Name] = true
		}
		if len(seen) < 20 {
			t.Errorf("%s has %d tools", name, len(seen))
		}
	}
}

// Any rule is refused, or the list is valid.
func FuzzRules(f *testing.F) {
	f.Add("orders", "/orders/**", "get", "list*", "x_{name}", "page", `{"maximum":3}`, "", true)
	f.Add("*", "**", "", "", "{name}{name}", "X-Tenant", "", `"v"`, false)
	f.Add("", "/*", "POST", "get_*", "", "id", "", "", true)
	f.Fuzz(func(t *testing.T, tag, path, method, name, rename, arg, schema, value string, off bool) {
		list := func(s string) []string {
			if s == "" {
				return nil
			}
			return []string{s}
		}
		a := toolset.Arg{Name: arg, Off: off}
		if json.Valid([]byte(value)) {
			a.Value = json.RawMessage(value)
		}
		if gjson.Parse(schema).IsObject() && json.Valid([]byte(schema)) {
			a.Schema = json.RawMessage(schema)
		}
		c := Config{OpenAPI: "shop.yaml", Document: []byte(shop), BaseURL: "http://localhost", Rules: []toolset.Rule{{
			Match: openapi.Match{Tag: list(tag), Path: list(path), Method: list(method), Name: list(name)},
			Entry: toolset.Entry{Name: rename, Args: []toolset.Arg{a}, As: toolset.AsResource, Output: &off},
		}}}
		if c.Validate() != nil {
			return
		}
		report, err := c.Inspect(t.Context(), "shop", Options{})
		if err != nil {
			return
		}
		for _, tool := range toolsOf(report) {
			if len(tool.Name) > 64 || !json.Valid(tool.InputSchema) {
				t.Errorf("the tool %q has the schema %s", tool.Name, tool.InputSchema)
			}
		}
	})
}
