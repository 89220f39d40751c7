package rest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

const orders = `openapi: 3.1.0
info: { title: Orders, version: "1" }
components:
  schemas:
    Party: { type: object, required: [name, vat], properties: { name: { type: string }, vat: { type: string } } }
    Order:
      type: object
      required: [item, source, buyer]
      properties:
        item: { type: string }
        source: { type: string }
        buyer: { $ref: "#/components/schemas/Party" }
        seller: { $ref: "#/components/schemas/Party" }
        "odd name": { type: string }
        next: { $ref: "#/components/schemas/Order" }
paths:
  /orders/{shop}:
    parameters: [{ name: shop, in: path, required: true, schema: { type: string } }]
    post:
      operationId: order
      parameters: [{ name: X-Trace, in: header, required: true, schema: { type: string } }]
      requestBody: { required: true, content: { application/json: { schema: { $ref: "#/components/schemas/Order" } } } }
      responses: { "200": { description: OK } }
    delete: { operationId: cancel, responses: { "200": { description: OK } } }
    put: { operationId: touch, responses: { "200": { description: OK } } }
  /page: { post: { operationId: page, parameters: [{ name: q, in: query, schema: { type: string } }, { name: size, in: query, schema: { type: integer } }], responses: { "200": { description: OK } } } }
  /list: { post: { operationId: list, requestBody: { required: true, content: { application/json: { schema: { type: array, items: { type: integer } } } } }, responses: { "200": { description: OK } } } }
  /form: { post: { operationId: form, requestBody: { content: { application/x-www-form-urlencoded: { schema: { type: object, properties: { a: { type: string }, b: { type: integer } } } } } }, responses: { "200": { description: OK } } } }
  /file: { post: { operationId: file, requestBody: { content: { application/octet-stream: { schema: { type: string, format: binary } } } }, responses: { "200": { description: OK } } } }
  /jobs: { get: { operationId: jobs, parameters: [{ name: a, in: query, schema: {} }, { name: b, in: query, schema: { type: string, default: "b0" } }, { name: x-trace, in: header, schema: { type: string } }] } }
  /search:
    get:
      operationId: search
      parameters:
        - { name: filter, in: query, schema: { type: object } }
        - { name: region, in: query, schema: { type: string } }
        - { name: ids, in: query, explode: false, schema: { type: array, items: { type: string } } }
        - { name: only, in: query, style: pipeDelimited, explode: false, schema: { type: array, items: { type: string } } }
        - { name: page, in: query, schema: { type: integer } }
  /text: { post: { operationId: text, requestBody: { content: { text/plain: { schema: { type: string } } } }, responses: { "200": { description: OK } } } }
`

// TestAdditions lists what clients see of an entry's additions, and the resulting requests.
func TestAdditions(t *testing.T) {
	body := func(s string) json.RawMessage { return json.RawMessage(s) }
	for _, test := range []struct {
		name          string
		flat          bool
		tool          toolset.Entry
		seen          string // the properties of the arguments and what is required of them, in short
		args, request string // text instead of a request if it has no method in it
	}{
		{"headers alone", false, toolset.Entry{Key: "order", Headers: map[string]string{"X-Tenant": "{shop}!"}}, "shop X-Trace body(item source buyer seller odd_name next)",
			`{"shop":"a","X-Trace":"t","body":{"item":"x","source":"s","buyer":{"name":"n","vat":"v"}}}`, `POST /orders/a X-Tenant=a! X-Trace=t {"item":"x","source":"s","buyer":{"name":"n","vat":"v"}}`},
		{"a header in place of an argument", false, toolset.Entry{Key: "order", Headers: map[string]string{"x-trace": "fixed"}}, "shop body(item source buyer seller odd_name next)",
			`{"shop":"a","body":{"item":"x","source":"s","buyer":{"name":"n","vat":"v"}}}`, `POST /orders/a X-Trace=fixed {"item":"x","source":"s","buyer":{"name":"n","vat":"v"}}`},
		{"a header of its argument", false, toolset.Entry{Key: "order", Headers: map[string]string{"X-Trace": "b-{X-Trace}"}}, "shop X-Trace body(item source buyer seller odd_name next)",
			`{"shop":"a","X-Trace":"t","body":{"item":"x","source":"s","buyer":{"name":"n","vat":"v"}}}`, `POST /orders/a X-Trace=b-t {"item":"x","source":"s","buyer":{"name":"n","vat":"v"}}`},
		{"members", false, toolset.Entry{Key: "order", Body: body(`{"source":"bridge","buyer":{"vat":"AT-{shop}"},"extra":[1.50,"{shop}"],"odd name":"o"}`)}, "shop X-Trace body(item buyer(name) seller next)",
			`{"shop":"a","X-Trace":"t","body":{"item":"x","buyer":{"name":"n"}}}`, `POST /orders/a X-Trace=t {"item":"x","buyer":{"name":"n","vat":"AT-a"},"source":"bridge","extra":[1.50,"a"],"odd name":"o"}`},
		{"a whole member", false, toolset.Entry{Key: "order", Body: body(`{"source":"bridge","buyer":{"vat":"1","name":"{shop}"}}`)}, "shop X-Trace body(item seller odd_name next)",
			`{"shop":"a","X-Trace":"t","body":{"item":"x"}}`, `POST /orders/a X-Trace=t {"item":"x","source":"bridge","buyer":{"vat":"1","name":"a"}}`},
		{"all of it", false, toolset.Entry{Key: "order", Body: body(`["{shop}"]`)}, "shop X-Trace", `{"shop":"a","X-Trace":"t"}`, `POST /orders/a X-Trace=t ["a"]`},
		{"around it", false, toolset.Entry{Key: "order", Body: body(`{"data":"{body}"}`)}, "shop X-Trace body(item source buyer seller odd_name next)",
			`{"shop":"a","X-Trace":"t","body":{"item":"x","source":"s","buyer":{"name":"n","vat":"v"},"odd_name":"o"}}`, `POST /orders/a X-Trace=t {"data":{"item":"x","source":"s","buyer":{"name":"n","vat":"v"},"odd name":"o"}}`},
		{"not the client's", false, toolset.Entry{Key: "order", Body: body(`{"source":"bridge"}`)}, "", `{"shop":"a","X-Trace":"t","body":{"item":"x","source":"mine","buyer":{"name":"n","vat":"v"}}}`,
			`POST /orders/a X-Trace=t {"item":"x","source":"bridge","buyer":{"name":"n","vat":"v"}}`},
		{"flat", true, toolset.Entry{Key: "order", Body: body(`{"source":"bridge","label":"{item}"}`)}, "shop X-Trace item buyer(name vat) seller(name vat) odd_name next(item source buyer seller odd_name next)",
			`{"shop":"a","X-Trace":"t","item":"x","odd_name":"o","buyer":{"name":"n","vat":"v"}}`, `POST /orders/a X-Trace=t {"odd name":"o","buyer":{"name":"n","vat":"v"},"source":"bridge","label":"x"}`},
		{"where there was none", false, toolset.Entry{Key: "touch", Body: body(`{"at":"{shop}"}`)}, "shop", `{"shop":"a"}`, `PUT /orders/a {"at":"a"}`},
		{"with changed arguments", false, toolset.Entry{Key: "touch", Body: body(`{"at":"{shop}"}`), Args: []toolset.Arg{{Name: "shop", As: "store"}}}, "store", `{"store":"a"}`, `PUT /orders/a {"at":"a"}`},
		{"with fixed ones", false, toolset.Entry{Key: "touch", Body: body(`{"at":"{shop}"}`), Args: []toolset.Arg{{Name: "shop", Value: body(`"f"`)}}}, "", `{}`, `PUT /orders/f {"at":"f"}`},
		{"a list", false, toolset.Entry{Key: "list", Body: body(`{"ids":"{body}"}`)}, "body", `{"body":[1,2]}`, `POST /list {"ids":[1,2]}`},
		{"a form", false, toolset.Entry{Key: "form", Body: body(`{"b":2}`)}, "body(a)", `{"body":{"a":"x y"}}`, `POST /form a=x%20y&b=2`},
		{"a form without", false, toolset.Entry{Key: "form", Body: body(`{"b":2}`)}, "body(a)", `{}`, `POST /form b=2`},
		{"text", false, toolset.Entry{Key: "text", Body: body(`"> {body}"`)}, "body", `{"body":"x"}`, `POST /text > x`},
		{"an added argument in the query", false, toolset.Entry{Key: "cancel", Query: body(`{"since":"{since}","n":1.50,"tags":["{tags}","x"],"of":"{shop}/{since}"}`), Args: args(t, "since? string = now", "tags? any")}, "shop since tags",
			`{"shop":"a"}`, `DELETE /orders/a?n=1.50&tags=x&of=a%2Fnow`},
		{"and given", false, toolset.Entry{Key: "cancel", Query: body(`{"since":"{since}","tags":["{tags}","x"],"of":"{shop}/{since}"}`), Args: args(t, "since? string = now", "tags? string")}, "shop since tags",
			`{"shop":"a","since":"1&2","tags":"t"}`, `DELETE /orders/a?since=1%262&tags=t&tags=x&of=a%2F1%262`},
		{"a list in the query", false, toolset.Entry{Key: "touch", Query: body(`{"tags":"{tags}"}`), Args: args(t, "tags [string]")}, "shop tags", `{"shop":"a","tags":["b","c,d"]}`, `PUT /orders/a?tags=b&tags=c%2Cd`},
		{"in a header", false, toolset.Entry{Key: "order", Headers: map[string]string{"X-Tenant": "{who}"}, Args: args(t, "who string")}, "shop X-Trace body(item source buyer seller odd_name next) who",
			`{"shop":"a","X-Trace":"t","who":"me","body":{"item":"x","source":"s","buyer":{"name":"n","vat":"v"}}}`, `POST /orders/a X-Tenant=me X-Trace=t {"item":"x","source":"s","buyer":{"name":"n","vat":"v"}}`},
		{"in the body", false, toolset.Entry{Key: "touch", Body: body(`{"note":"{note}","by":["{by}"]}`), Args: args(t, "note string", "by? integer")}, "shop note by", `{"shop":"a","note":"n","by":"7"}`, `PUT /orders/a {"note":"n","by":[7]}`},
		{"in a flat body", true, toolset.Entry{Key: "form", Body: body(`{"b":"{n}"}`), Args: args(t, "n integer")}, "a n", `{"a":"x","n":2}`, `POST /form a=x&b=2`},
		{"in the place of all of the body", false, toolset.Entry{Key: "list", Body: body(`["{n}"]`), Args: args(t, "n integer")}, "n", `{"n":2}`, `POST /list [2]`},
		{"required", false, toolset.Entry{Key: "touch", Query: body(`{"n":"{n}"}`), Args: args(t, "n integer")}, "shop n", `{"shop":"a"}`, `n: is missing`},
		{"checked", false, toolset.Entry{Key: "touch", Query: body(`{"n":"{n}"}`), Args: args(t, "n integer")}, "shop n", `{"shop":"a","n":"x"}`, `n: must be an integer`},
		{"a parameter of the query", false, toolset.Entry{Key: "page", Query: body(`{"size":100}`)}, "q", `{"q":"x"}`, `POST /page?q=x&size=100`},
		{"around its argument", false, toolset.Entry{Key: "page", Query: body(`{"q":"is:open {q}","size":100}`)}, "q", `{"q":"x"}`, `POST /page?q=is%3Aopen%20x&size=100`},
		{"an argument that the document has learnt of since", false, toolset.Entry{Key: "page", Query: body(`{"q":"{q}"}`), Args: args(t, "q? string")}, "q size", `{"q":"x","size":2}`, `POST /page?size=2&q=x`},
		{"with another name", false, toolset.Entry{Key: "page", Query: body(`{"q":"is:open {q}"}`), Args: []toolset.Arg{{Name: "q", As: "words"}, {Name: "size", Value: body("5")}}}, "words", `{"words":"x"}`, `POST /page?size=5&q=is%3Aopen%20x`},
		{"in the styles of the document or of the type", false, toolset.Entry{Key: "search", Query: body(`{"ids":["a","b"],"only":"{only}","from":"{page}","most":"{most}","more":["c","d"]}`), Args: args(t, "most integer")}, "filter region only page most",
			`{"only":["x","y"],"page":2.0,"most":3.0}`, "GET /search?page=2&ids=a,b&only=x%7Cy&from=2&most=3&more=c&more=d"},
		{"beside a spread object", false, toolset.Entry{Key: "search", Query: body(`{"tenant":"acme","region":"eu"}`)}, "filter ids only page", `{"filter":{"kind":"x"}}`, "GET /search?kind=x&tenant=acme&region=eu"},
		{"a spread object cannot replace it", false, toolset.Entry{Key: "search", Query: body(`{"tenant":"acme","region":"eu"}`)}, "", `{"filter":{"tenant":"other"}}`, "filter: must not have a member called tenant, as another parameter is"},
		{"nor a parameter that is set", false, toolset.Entry{Key: "search", Query: body(`{"tenant":"acme","region":"eu"}`)}, "", `{"filter":{"region":"us"}}`, "filter: must not have a member called region, as another parameter is"},
		{"a header of arguments", false, toolset.Entry{Key: "jobs", Headers: map[string]string{"X-Trace": "{a}-{x-trace}"}}, "a b x-trace", `{"a":"1","x-trace":"t"}`, "GET /jobs?a=1 X-Trace=1-t"},
		{"a header that is not sent", false, toolset.Entry{Key: "jobs", Headers: map[string]string{"X-Trace": "{a}-{x-trace}"}}, "", `{"x-trace":"t"}`, "GET /jobs"}, // nor is its argument
		{"a header without the other argument", false, toolset.Entry{Key: "jobs", Headers: map[string]string{"X-Trace": "{a}-{x-trace}"}}, "", `{"a":"1"}`, "GET /jobs?a=1"},
		{"a line break", false, toolset.Entry{Key: "order", Headers: map[string]string{"X-Tenant": "of {shop}"}, Body: body(`1`)}, "", `{"shop":"a\nb","X-Trace":"t"}`, "shop: what comes into the header X-Tenant has a line break"},
	} {
		t.Run(test.name, func(t *testing.T) {
			api := newAPI(t)
			test.tool.Line = 3
			up := connect(t, adapter(t, Config{OpenAPI: file(t, orders), BaseURL: api.URL, FlattenBody: test.flat, Tools: []toolset.Entry{test.tool}}, Options{}), nil)
			seen := ask(t, up, "tools/list", "{}").Get(`tools.#(name=="` + test.tool.Key + `").inputSchema`)
			if got := strings.TrimSuffix(strings.TrimPrefix(properties(seen), "("), ")"); test.seen != "" && got != test.seen {
				t.Errorf("clients see %s, want %s\n%s", got, test.seen, seen)
			}
			text, isError := call(t, up, test.tool.Key, test.args)
			if strings.Contains(test.request, " /") == isError || isError && !strings.Contains(text, test.request) {
				t.Fatalf("%s (error: %t)", text, isError)
			}
			if isError {
				return
			}
			if got := api.last(t); got != test.request {
				t.Errorf("request = %s\nwant      %s", got, test.request)
			}
		})
	}
}

// A header with a missing argument is not sent, unless the argument has a default within other
// text. Alone, the API applies its default.
func TestHeaderHoles(t *testing.T) {
	api := newAPI(t)
	own := args(t, "a? any", "b? string = b0")
	for _, test := range []struct {
		header, args string
		own, over    string // what is sent; empty if nothing is
	}{
		{"order-{a}", `{"a":"1"}`, "order-1", "order-1"},
		{"order-{a}", `{}`, "", ""},
		{"order-{a}", `{"a":null}`, "", ""},
		{"order-{a}.", `{"a":""}`, "order-.", "order-."},
		{"{a}-{b}", `{"a":"1"}`, "1-b0", "1-b0"},
		{"{a}-{b}", `{"a":"1","b":"2"}`, "1-2", "1-2"},
		{"{a}-{b}", `{"b":"2"}`, "", ""},
		{"{b}", `{}`, "", ""},
		{"{a}", `{"a":null}`, "", ""},
		{"fixed", `{}`, "fixed", "fixed"},
	} {
		headers := map[string]string{"X-Trace": test.header}
		up := connect(t, adapter(t, Config{OpenAPI: file(t, orders), BaseURL: api.URL, Tools: []toolset.Entry{
			{Key: "own", Request: "GET /own{?a,b}", Args: own, Headers: headers}, {Key: "jobs", Headers: headers},
		}}, Options{}), nil)
		for tool, want := range map[string]string{"own": test.own, "jobs": test.over} {
			if text, isError := call(t, up, tool, test.args); isError {
				t.Fatal(text)
			}
			_, got, sent := strings.Cut(api.last(t), "X-Trace=")
			if got != want || sent != (want != "") {
				t.Errorf("%s: %s with %s: the header is %q, want %q", tool, test.header, test.args, got, want)
			}
		}
	}
}

// A request without its key is not repeated.
func TestNoKey(t *testing.T) {
	var asked atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%2 == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(api.Close)
	up := connect(t, adapter(t, Config{BaseURL: api.URL, Tools: []toolset.Entry{
		{Key: "order", Request: "POST /orders", Args: args(t, "id? string"), Headers: map[string]string{"Idempotency-Key": "order-{id}"}, Attempts: 2},
	}}, Options{}), nil)
	if _, isError := call(t, up, "order", `{"id":"7"}`); isError || asked.Load() != 2 {
		t.Errorf("with a key: %d requests (error: %t), want 2", asked.Load(), isError)
	}
	if _, isError := call(t, up, "order", `{}`); !isError || asked.Load() != 3 {
		t.Errorf("without: %d requests (error: %t), want 1", asked.Load()-2, isError)
	}
}

func TestWrongAdditions(t *testing.T) {
	lines := map[string]int{"body": 10, "body: a": 11, "query": 40, "query: b": 41, "headers": 20, "headers: X-Y": 21, "retry": 30, "cache": 31}
	yes := true
	for _, test := range []struct {
		tool toolset.Entry
		want string
	}{
		{toolset.Entry{Key: "cancel", Body: json.RawMessage(`{}`)}, "10 tools: cancel: body is there, and a DELETE of this API has none"},
		{toolset.Entry{Key: "file", Body: json.RawMessage(`"x"`)}, "10 tools: file: body is there, and that of the API is a file, which no template can make"},
		{toolset.Entry{Key: "form", Body: json.RawMessage(`"x"`)}, "10 tools: form: body must be a mapping: that of the API is a form (application/x-www-form-urlencoded)"},
		{toolset.Entry{Key: "text", Body: json.RawMessage(`{"a":1}`)}, "10 tools: text: body must be text: that of the API is text/plain"},
		{toolset.Entry{Key: "list", Body: json.RawMessage(`{"a":1}`)}, "10 tools: list: body is a mapping, and that of the API is of the type array: put {body} into it, or write all of it"},
		{toolset.Entry{Key: "order", Body: json.RawMessage(`{"a":["{itme}"]}`)}, "11 tools: order: body has {itme}, and no argument is called that; write {{itme}} for the text itself"},
		{toolset.Entry{Key: "order", Headers: map[string]string{"X-Y": "{body.item}"}}, "21 tools: order: headers: X-Y: has {body.item}, and no argument is called that; write {{body.item}} for the text itself"},
		{toolset.Entry{Key: "order", Headers: map[string]string{"Host": "x"}}, "20 tools: order: headers: Host is set by the bridge itself: remove it"},
		{toolset.Entry{Key: "order", Headers: map[string]string{"X-Trace": "x"}, Args: []toolset.Arg{{Name: "X-Trace", Line: 5, About: "x"}}}, "5 tools: order: args: X-Trace: clients do not see it: body, headers or query of the entry set its place"},
		{toolset.Entry{Key: "list", Body: json.RawMessage(`[1]`), Headers: map[string]string{"X-Y": "{body}"}}, "21 tools: list: headers: X-Y: uses {body}, which clients do not see: the entry sets its place"},
		{toolset.Entry{Key: "form", Body: json.RawMessage(`{"a":"{body}"}`), Args: []toolset.Arg{{Name: "body", Line: 5, Off: true}}}, "10 tools: form: body uses {body}, but that argument is off"},
		{toolset.Entry{Key: "cancel", Args: []toolset.Arg{{Name: "since", Line: 5, Schema: json.RawMessage(`{"type":"string"}`)}}}, "5 tools: cancel: args: since: DELETE /orders/{shop} has no such argument, and no template uses it: put {since} into query, headers or body"},
		{toolset.Entry{Key: "cancel", Args: []toolset.Arg{{Name: "shp", Line: 5, Schema: json.RawMessage(`{"enum":["a"]}`)}}, Query: json.RawMessage(`{"b":"{shop}"}`)}, "5 tools: cancel: args: shp: DELETE /orders/{shop} has no such argument, and no template uses it: put {shp} into query, headers or body; or did you mean shop?"},
		{toolset.Entry{Key: "cancel", Args: []toolset.Arg{{Name: "shp", Line: 5, Schema: json.RawMessage(`{"minLength":2}`)}}}, "5 tools: cancel: args: shp: DELETE /orders/{shop} has no such argument: did you mean shop?"},
		{toolset.Entry{Key: "cancel", Args: []toolset.Arg{{Name: "since", Line: 5, About: "x"}}}, "5 tools: cancel: args: since: DELETE /orders/{shop} has no such argument; one that is added needs a type"},
		{toolset.Entry{Key: "cancel", Query: json.RawMessage(`{"b":"{since}"}`), Args: []toolset.Arg{{Name: "since", Line: 5, As: "x", Schema: json.RawMessage(`{}`)}}}, "5 tools: cancel: args: since: as is for arguments of the document: name this one x"},
		{toolset.Entry{Key: "cancel", Query: json.RawMessage(`{"b":"{since}"}`), Args: []toolset.Arg{{Name: "since", Line: 4, Schema: json.RawMessage(`{}`)}, {Name: "since", Line: 5, Optional: true, Schema: json.RawMessage(`{}`)}}}, "5 tools: cancel: args: since: is given twice"},
		{toolset.Entry{Key: "cancel", Args: []toolset.Arg{{Name: "shop", Line: 5, Optional: true, Schema: json.RawMessage(`{"type":"string"}`)}}}, "5 tools: cancel: args: shop: is required by the document: remove the ?"},
		{toolset.Entry{Key: "cancel", Query: json.RawMessage(`{"a":1,"b":{"c":2}}`)}, "41 tools: cancel: query: b: must be text, a number, true or false, or a list of these"},
		{toolset.Entry{Key: "cancel", Query: json.RawMessage(`{"b":["{x}"]}`)}, "41 tools: cancel: query: b: has {x}, and no argument is called that; write {{x}} for the text itself"},
		{toolset.Entry{Key: "cancel", Query: json.RawMessage(`{"":1}`)}, "40 tools: cancel: query has a parameter without a name"},
		{toolset.Entry{Key: "page", Query: json.RawMessage(`{"q":1,"b":"{q}"}`)}, "41 tools: page: query: b: uses {q}, which clients do not see: the entry sets its place"},
		{toolset.Entry{Key: "order", Headers: map[string]string{"x-trace": "t"}, Body: json.RawMessage(`{"trace":"{X-Trace}"}`)}, "10 tools: order: body uses {X-Trace}, which clients do not see: the entry sets its place"},
		{toolset.Entry{Key: "order", Attempts: 2}, "30 tools: order: retry: a repeated POST may take effect twice: set writes: false if it changes nothing, or send a header Idempotency-Key"},
		{toolset.Entry{Key: "order", Cache: &yes}, "31 tools: order: cache is for GET: answers to POST are not cached"},
	} {
		test.tool.Line, test.tool.Lines = 3, lines
		c := Config{OpenAPI: file(t, orders), BaseURL: "https://x.example.com", Tools: []toolset.Entry{test.tool}}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", test.want, err)
		}
		_, err := c.Inspect(t.Context(), "orders", quiet(Options{}))
		faults, _ := err.(toolset.Faults)
		if len(faults) != 1 || strconv.Itoa(faults[0].Line)+" "+faults[0].String() != test.want {
			t.Errorf("%v\nwant %s", faults, test.want)
		}
	}
}

// An entry that no longer fits the document removes its tool if it restricts clients: without the
// entry they could choose freely.
func TestEntryKeepsItsTool(t *testing.T) {
	gone := toolset.Arg{Name: "gone", About: "x"}
	for _, test := range []struct {
		name string
		tool toolset.Entry
		want bool
	}{
		{"about", toolset.Entry{About: "x", Args: []toolset.Arg{gone}}, true},
		{"another name", toolset.Entry{Args: []toolset.Arg{{Name: "gone", As: "here"}}}, true},
		{"the value of what is gone", toolset.Entry{Args: []toolset.Arg{{Name: "gone", Value: []byte(`"acme"`)}}}, false},
		{"a value", toolset.Entry{Args: []toolset.Arg{gone, {Name: "shop", Value: []byte(`"acme"`)}}}, false},
		{"off", toolset.Entry{Args: []toolset.Arg{{Name: "gone", Off: true}}}, false},
		{"headers", toolset.Entry{Args: []toolset.Arg{gone}, Headers: map[string]string{"X-Tenant": "acme"}}, false},
		{"query", toolset.Entry{Query: []byte(`{"tenant":"acme","x":"{gone}"}`)}, false},
		{"body", toolset.Entry{Key: "order", Body: []byte(`{"tenant":"acme","x":"{gone}"}`)}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.tool.Key == "" {
				test.tool.Key = "cancel"
			}
			doc, err := openapi.Load(t.Context(), openapi.Source{Data: []byte(orders)})
			if err != nil {
				t.Fatal(err)
			}
			imported, _ := openapi.Tools(doc, openapi.Options{})
			s := tools.Settings{Entries: []toolset.Entry{test.tool}}
			m, err := s.Make(doc, nil)
			if err != nil || len(m.Tools) < len(imported)-1 || len(m.Faults) == 0 {
				t.Errorf("%d of %d tools, faults: %v, %v", len(m.Tools), len(imported), m.Faults, err)
			}
			there := slices.ContainsFunc(m.Tools, func(one *toolset.Tool) bool { return one.Name == test.tool.Key })
			if there != test.want {
				t.Errorf("the tool is there: %t, want %t", there, test.want)
			}
		})
	}
}

// Settings of a tool apply only to its calls.
func TestToolSettings(t *testing.T) {
	api := newAPI(t)
	yes, no := true, false
	c := api.pets()
	c.Tools = []toolset.Entry{
		{Key: "listPets", Cache: &yes, KeepFor: time.Hour, Error: "title"},
		{Key: "slow", Timeout: time.Millisecond, Attempts: 1},
		{Key: "again", Request: "GET /pets", Cache: &yes, Limits: toolset.ToolLimits{Answer: 1 << 30}},
		{Key: "missing", Request: "GET /pets/404", Error: "title", ErrorIf: "x"},
	}
	a := adapter(t, c, Options{})
	up := connect(t, a, nil)
	for _, test := range []struct {
		tool, args string
		want       int // requests after two calls
	}{{"listPets", "{}", 1}, {"again", "{}", 2}, {"getPet", `{"id":1}`, 2}} {
		n := api.count()
		call(t, up, test.tool, test.args)
		call(t, up, test.tool, test.args)
		if got := api.count() - n; got != test.want {
			t.Errorf("%s: %d requests, want %d", test.tool, got, test.want)
		}
	}
	if text, isError := call(t, up, "slow", "{}"); !isError || !strings.Contains(text, "did not answer in time (1ms)") {
		t.Errorf("slow: %s", text)
	}
	if text, _ := call(t, up, "missing", "{}"); text != "404 Not Found from GET /pets/404\nNo such pet" {
		t.Errorf("missing: %s", text)
	}
	u := madeOf(t, c, Options{})
	if s := u.ByName["again"].Settings; s.MaxAnswer != 4<<20 { // a quarter of a message
		t.Errorf("again: %+v", s)
	}
	// If the API has a cache, cache: off still applies.
	c = api.pets()
	c.Cache = 1 << 20
	c.Tools = []toolset.Entry{{Key: "getPet", Cache: &no}}
	u = madeOf(t, c, Options{})
	if !u.ByName["getPet"].Settings.Uncached || u.ByName["listPets"].Settings.Uncached {
		t.Error("the wrong answers are kept")
	}
}

// properties lists the members of an object, shortened.
func properties(schema gjson.Result) string {
	var names []string
	schema.Get("properties").ForEach(func(k, v gjson.Result) bool {
		names = append(names, k.String()+properties(v))
		return true
	})
	if names == nil {
		return ""
	}
	return "(" + strings.Join(names, " ") + ")"
}

// Explain names the line that hides an argument.
func TestExplainHidden(t *testing.T) {
	c := Config{OpenAPI: file(t, orders), BaseURL: "https://x.example.com", Tools: []toolset.Entry{
		{Key: "order", Line: 3, Lines: map[string]int{"body": 10, "headers": 20}, Headers: map[string]string{"x-trace": "x"}, Body: json.RawMessage(`[]`)},
		{Key: "page", Line: 30, Lines: map[string]int{"query": 31, "query: q": 32}, Query: json.RawMessage(`{"q":"in {place}","size":5}`), Args: []toolset.Arg{{Name: "place", Line: 33, Schema: json.RawMessage(`{"type":"string"}`)}}},
	}}
	report, err := c.Inspect(t.Context(), "orders", quiet(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"order": "no argument X-Trace: headers set what it is for c.yaml:20\nno argument body: body sets what it is for c.yaml:10\n",
		"page": "argument place: required, {\"type\":\"string\"} c.yaml:33\nno argument q: query sets what it is for c.yaml:31\nno argument size: query sets what it is for c.yaml:31\n" +
			"query q: \"in {place}\" c.yaml:32\nquery size: 5 c.yaml:31\n",
	} {
		got := ""
		for _, l := range report.Explain("c.yaml", func(one string) bool { return one == name }, func(s string) string { return s })[0].Lines {
			if strings.HasPrefix(l.What, "no argument") || name == "page" && (strings.HasPrefix(l.What, "argument") || strings.HasPrefix(l.What, "query")) {
				got += l.What + ": " + l.Text + " " + l.From + "\n"
			}
		}
		if got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}
