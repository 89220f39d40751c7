package toolset_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

const shop = `openapi: 3.1.0
paths:
  /orders:
    parameters: [{ name: X-Tenant, in: header, required: true, schema: { type: string } }]
    get:
      operationId: listOrders
      tags: [orders]
      parameters: [{ name: page, in: query, schema: { type: integer } }, { name: kind, in: query, schema: { type: string } }]
      responses: { "200": { description: OK, content: { application/json: { schema: { type: object, properties: { data: { type: array } } } } } } }
    post:
      operationId: addOrder
      tags: [orders]
      requestBody: { required: true, content: { application/json: { schema: { type: object, required: [item, by], properties: { item: { type: string }, by: { type: object, required: [name], properties: { name: { type: string }, vat: { type: string } } } } } } } }
      responses: { "200": { description: OK } }
  /orders/{id}:
    delete: { operationId: cancel, parameters: [{ name: id, in: path, required: true, schema: { type: integer } }], responses: { "200": { description: OK } } }
`

// imported returns the document and its tools by name.
func imported(t *testing.T) (*openapi.Document, map[string]*openapi.Tool) {
	t.Helper()
	doc, err := openapi.Load(t.Context(), openapi.Source{Data: []byte(shop)})
	if err != nil {
		t.Fatal(err)
	}
	tools, _ := openapi.Tools(doc, openapi.Options{})
	all := map[string]*openapi.Tool{}
	for _, one := range tools {
		all[one.Name] = one
	}
	return doc, all
}

// seen writes the arguments of a tool, those that are required with !.
func seen(tool *toolset.Tool) string {
	schema := gjson.ParseBytes(tool.InputSchema)
	var all []string
	schema.Get("properties").ForEach(func(k, _ gjson.Result) bool {
		name := k.String()
		if slices.ContainsFunc(schema.Get("required").Array(), func(one gjson.Result) bool { return one.String() == name }) {
			name += "!"
		}
		all = append(all, name)
		return true
	})
	return strings.Join(all, " ")
}

// TestOverride lays entries over tools of a document.
func TestOverride(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for _, test := range []struct {
		name        string
		tool        string
		entry       toolset.Entry
		shared      toolset.Shared
		seen        string // the arguments
		given, want string // before and after Prepare, or its error; empty when there is none
		confines    bool
	}{
		{name: "untouched", tool: "listOrders", seen: "X-Tenant! page kind"},
		{name: "renamed", tool: "listOrders", entry: toolset.Entry{Args: []toolset.Arg{{Name: "X-Tenant", As: "tenant"}}}, seen: "tenant! page kind",
			given: `{"tenant":"a","X-Tenant":"b"}`, want: `argument "X-Tenant" is called "tenant" here`},
		{name: "renamed, beside a value", tool: "listOrders", entry: toolset.Entry{Args: []toolset.Arg{{Name: "X-Tenant", As: "tenant"}, {Name: "kind", Value: raw(`"k"`)}}}, seen: "tenant! page",
			given: `{"tenant":"a","page":2}`, want: `{"X-Tenant":"a","page":2,"kind":"k"}`, confines: true},
		{name: "a name that stays, beside a value", tool: "listOrders", entry: toolset.Entry{Args: []toolset.Arg{{Name: "page", As: "page", About: "Of many"}, {Name: "kind", Value: raw(`"k"`)}}}, seen: "X-Tenant! page",
			given: `{"X-Tenant":"a","page":2}`, want: `{"X-Tenant":"a","page":2,"kind":"k"}`, confines: true},
		{name: "a value", tool: "listOrders", entry: toolset.Entry{Args: []toolset.Arg{{Name: "X-Tenant", Value: raw(`"acme"`)}}}, seen: "page kind",
			given: `{"page":1}`, want: `{"page":1,"X-Tenant":"acme"}`, confines: true},
		{name: "a default", tool: "listOrders", entry: toolset.Entry{Args: []toolset.Arg{{Name: "page", Default: raw("1")}}}, seen: "X-Tenant! page kind",
			given: `{"X-Tenant":"a"}`, want: `{"X-Tenant":"a","page":1}`},
		{name: "off", tool: "listOrders", entry: toolset.Entry{Args: []toolset.Arg{{Name: "page", Off: true}, {Name: "kind", Value: raw("1")}}}, seen: "X-Tenant!",
			given: `{"page":2}`, want: `argument "page": the operator of the bridge sets it, so leave it out`, confines: true},
		{name: "a header", tool: "listOrders", entry: toolset.Entry{Headers: map[string]string{"x-tenant": "t-{kind}"}}, seen: "page kind",
			given: `{"X-Tenant":"b","kind":"k",":header:x-tenant":"c"}`, want: `{"kind":"k",":header:x-tenant":"t-k"}`, confines: true},
		{name: "a query", tool: "listOrders", entry: toolset.Entry{Query: raw(`{"page":1,"sort":["{by}","id"]}`), Args: args(t, "by? string")}, seen: "X-Tenant! kind by",
			given: `{"page":9,"query sort":["x"]}`, want: `{"query page":1,"query sort":["id"]}`, confines: true},
		{name: "members of the body", tool: "addOrder", entry: toolset.Entry{Body: raw(`{"by":{"vat":"1"},"item":"{X-Tenant}"}`)}, seen: "X-Tenant! body!",
			given: `{"X-Tenant":"a","body":{"item":"mine","by":{"name":"n"},"more":true}}`, want: `{"X-Tenant":"a",":body":{"item":"a","by":{"name":"n","vat":"1"},"more":true}}`, confines: true},
		{name: "the whole body", tool: "addOrder", entry: toolset.Entry{Body: raw(`["{X-Tenant}"]`)}, seen: "X-Tenant!",
			given: `{"X-Tenant":"a","body":{}}`, want: `{"X-Tenant":"a",":body":["a"]}`, confines: true},
		{name: "around the body", tool: "addOrder", entry: toolset.Entry{Body: raw(`{"data":"{body}"}`)}, seen: "X-Tenant! body!",
			given: `{"X-Tenant":"a","body":{"item":1.50}}`, want: `{"X-Tenant":"a",":body":{"data":{"item":1.50}}}`, confines: true},
		{name: "shared", tool: "listOrders", shared: toolset.Shared{Args: []toolset.Arg{{Name: "X-Tenant", Value: raw(`"acme"`)}}}, seen: "page kind",
			given: `{}`, want: `{"X-Tenant":"acme"}`},
		{name: "an entry wins over shared", tool: "listOrders", entry: toolset.Entry{Args: []toolset.Arg{{Name: "X-Tenant", About: "Yours"}}},
			shared: toolset.Shared{Args: []toolset.Arg{{Name: "X-Tenant", Value: raw(`"acme"`)}}}, seen: "X-Tenant! page kind"},
		{name: "filled", tool: "listOrders", shared: toolset.Shared{Filled: map[string]string{"X-Tenant": "headers"}}, seen: "page kind"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, tools := imported(t)
			original := string(tools[test.tool].InputSchema)
			test.entry.Key = test.tool
			tool, faults := test.entry.Override(tools[test.tool], test.shared)
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			if got := seen(tool); got != test.seen {
				t.Errorf("the arguments are %s, want %s", got, test.seen)
			}
			if string(tools[test.tool].InputSchema) != original {
				t.Error("the tool of the document has changed")
			}
			if got := test.entry.Confines(); got != test.confines {
				t.Errorf("Confines() = %t, want %t", got, test.confines)
			}
			if tool.Prepare == nil {
				if test.given != "" {
					t.Error("there is no Prepare")
				}
				return
			}
			got, err := tool.Prepare([]byte(test.given))
			if err != nil {
				got = []byte(err.Error())
			}
			if string(got) != test.want {
				t.Errorf("Prepare(%s) = %s, want %s", test.given, got, test.want)
			}
		})
	}
}

// TestOverrideFaults: faults name the entry, the argument and the line.
func TestOverrideFaults(t *testing.T) {
	for _, test := range []struct {
		tool  string
		entry toolset.Entry
		want  string
	}{
		{"listOrders", toolset.Entry{Args: []toolset.Arg{{Name: "pages", About: "x"}}}, "args: pages: GET /orders has no such argument: did you mean page?"},
		{"listOrders", toolset.Entry{Args: []toolset.Arg{{Name: "page", As: "kind"}}}, "args: page: kind is the name of another argument"},
		{"listOrders", toolset.Entry{Args: []toolset.Arg{{Name: "X-Tenant", Off: true}}}, "args: X-Tenant: is required: it cannot be off; give it a value"},
		{"cancel", toolset.Entry{Body: json.RawMessage(`{}`)}, "body is there, and a DELETE of this API has none"},
		{"addOrder", toolset.Entry{Body: json.RawMessage(`{"a":["{itme}"]}`)}, "body has {itme}, and no argument is called that"},
		{"addOrder", toolset.Entry{Body: json.RawMessage(`{"a":"{x}","b":"{itme}"}`), Args: args(t, "x? string")}, "body has {itme}, and no argument is called that"},
		{"listOrders", toolset.Entry{Query: json.RawMessage(`{"a":{"b":1}}`)}, "query: a: must be text, a number, true or false, or a list of these"},
	} {
		_, tools := imported(t)
		test.entry.Key, test.entry.Line = test.tool, 3
		_, faults := test.entry.Override(tools[test.tool], toolset.Shared{})
		if len(faults) != 1 || !strings.Contains(faults.Error(), "tools: "+test.tool+": "+test.want) {
			t.Errorf("%v, want %s", faults, test.want)
		}
	}
}

// TestPickArgument offers the argument by which models choose parts of an answer.
func TestPickArgument(t *testing.T) {
	_, tools := imported(t)
	tool := &toolset.Tool{Tool: tools["listOrders"], Call: tools["listOrders"]}
	if tool.OutputSchema == nil {
		t.Fatal("the document gives no output schema")
	}
	tool.OfferPick()
	if got := seen(tool); got != "X-Tenant! page kind _pick" || !tool.Picks || tool.OutputSchema != nil || tool.Call.OutputSchema != nil {
		t.Errorf("the arguments are %s, picks %t, output %s", got, tool.Picks, tool.OutputSchema)
	}
	before := tool.Tool
	if tool.OfferPick(); tool.Tool != before {
		t.Error("the argument is offered twice")
	}
	if tools["listOrders"].OutputSchema == nil || strings.Contains(string(tools["listOrders"].InputSchema), "_pick") {
		t.Error("the tool of the document has changed")
	}
	if got := string(toolset.WithoutPick([]byte(`{"a":1,"_pick":"x","b":2}`))); got != `{"a":1,"b":2}` {
		t.Errorf("WithoutPick() = %s", got)
	}
}
