package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// arg makes an argument of its short form: "name type = default". A ? behind the name makes it
// optional.
func arg(t testing.TB, text string) toolset.Arg {
	t.Helper()
	name, kind, _ := strings.Cut(text, " ")
	schema, def, err := toolset.ParseArg(kind)
	if err != nil {
		t.Fatal(err)
	}
	a := toolset.Arg{Schema: schema, Default: def, Line: 7}
	a.Name, a.Optional = strings.CutSuffix(name, "?")
	return a
}

func args(t testing.TB, texts ...string) []toolset.Arg {
	t.Helper()
	var all []toolset.Arg
	for _, text := range texts {
		all = append(all, arg(t, text))
	}
	return all
}

// TestOwnTools lists what clients see of tools with a request, and the resulting requests.
func TestOwnTools(t *testing.T) {
	yes, no := true, false
	const spread = "GET /own?tenant=acme&the%5Fregion=eu&f={f*}{&page}"
	for _, test := range []struct {
		name    string
		tool    toolset.Entry
		schema  string
		hints   string // readOnly, destructive, idempotent
		args    string
		request string // empty: nothing is sent
		text    string // in the result
	}{
		{
			name: "path and query", tool: toolset.Entry{Request: "GET /forecast/{city}{?days,units}", Args: args(t, "city string", "days? integer = 3", "units? metric | imperial")},
			schema: `{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","default":3},"units":{"type":"string","enum":["metric","imperial"]}},"required":["city"],"additionalProperties":false}`,
			hints:  "true false true", args: `{"city":"São Paulo/b","days":5}`, request: "GET /forecast/S%C3%A3o%20Paulo%2Fb?days=5",
		},
		{
			name: "plain", tool: toolset.Entry{Request: "GET /forecast/{city}{?days}", Args: args(t, "city string", "days? integer = 3")},
			args: `{"city":"São Paulo"}`, request: "GET /forecast/S%C3%A3o%20Paulo", // the default is not sent
		},
		{name: "fixed query", tool: toolset.Entry{Request: "GET /search?type=code&q={query}{&page}", Args: args(t, "query string", "page? integer")}, args: `{"query":"a&b=c","page":2}`, request: "GET /search?type=code&q=a%26b%3Dc&page=2"},
		{name: "left over, GET", tool: toolset.Entry{Request: "GET /search", Args: args(t, "q string", "tags? [string]")}, args: `{"q":"x","tags":["a","b"]}`, request: "GET /search?q=x&tags=a&tags=b"},
		{name: "lists", tool: toolset.Entry{Request: "GET /s{?a,b*}", Args: args(t, "a [string]", "b [string]")}, args: `{"a":["1","2"],"b":["3","4"]}`, request: "GET /s?a=1,2&b=3&b=4"},
		{name: "spread object", tool: toolset.Entry{Request: spread, Args: args(t, "f object", "page? integer")}, args: `{"f":{"kind":"x"}}`, request: "GET /own?tenant=acme&the%5Fregion=eu&kind=x"},
		{name: "spread over the request", tool: toolset.Entry{Request: spread, Args: args(t, "f object", "page? integer")}, args: `{"f":{"tenant":"other"}}`, text: "f: must not have a member called tenant, as another parameter is"},
		{name: "spread over a name in code", tool: toolset.Entry{Request: spread, Args: args(t, "f object", "page? integer")}, args: `{"f":{"the_region":"us"}}`, text: "f: must not have a member called the_region, as another parameter is"},
		{name: "spread over an argument", tool: toolset.Entry{Request: spread, Args: args(t, "f object", "page? integer")}, args: `{"f":{"page":1}}`, text: "f: must not have a member called page, as another parameter is"},
		{name: "raw path", tool: toolset.Entry{Request: "GET /files/{+path}", Args: args(t, "path string")}, args: `{"path":"a/b c"}`, request: "GET /files/a/b%20c"},
		{name: "climbing", tool: toolset.Entry{Request: "GET /files/{+path}", Args: args(t, "path string")}, args: `{"path":"../secret"}`, text: "must not have"},
		{name: "left over, POST", tool: toolset.Entry{Request: "POST /notes/{id}", Args: args(t, "id integer", "text string", "n? number")}, hints: "false true false", args: `{"n":1.50,"id":4,"text":"a\"b"}`, request: `POST /notes/4 {"text":"a\"b","n":1.50}`},
		{name: "wrong", tool: toolset.Entry{Request: "POST /notes", Args: args(t, "text string")}, args: `{"test":"x"}`, text: "text"},
		{
			name: "body", args: `{"place":"here \"","reading":{"t":12345678901234567890}}`,
			tool: toolset.Entry{
				Request: "POST /reports", Args: args(t, "place string", "tags? [string]", "reading object"), Headers: map[string]string{"X-Trace": "at {place}"},
				Body: json.RawMessage(`{"where":{"name":"{place}"},"labels":"{tags}","data":["{reading}","{tags}"],"source":"bridge","text":"{{place}}: {place}, {tags}.","n":1.0}`),
			},
			request: `POST /reports X-Trace=at here " {"where":{"name":"here \""},"data":[{"t":12345678901234567890}],"source":"bridge","text":"{place}: here \", .","n":1.0}`,
		},
		{
			name: "body with all", args: `{"place":"here","tags":["a"],"reading":{"t":12345678901234567890}}`,
			tool: toolset.Entry{
				Request: "POST /reports", Args: args(t, "place string", "tags? [string]", "reading object"), Headers: map[string]string{"X-Trace": "at {place}", "X-Tenant": "{tags}"},
				Body: json.RawMessage(`{"where":{"name":"{place}"},"labels":"{tags}","data":["{reading}","{tags}"],"source":"bridge","text":"{{place}}: {place}, {tags}.","n":1.0}`),
			},
			request: `POST /reports X-Tenant=["a"] X-Trace=at here {"where":{"name":"here"},"labels":["a"],"data":[{"t":12345678901234567890},["a"]],"source":"bridge","text":"{place}: here, [\"a\"].","n":1.0}`,
		},
		{
			name: "body with some", args: `{"place":"here"}`,
			tool:    toolset.Entry{Request: "POST /reports", Args: args(t, "place string", "tags? [string]"), Headers: map[string]string{"X-Tenant": "{tags}"}, Body: json.RawMessage(`{"labels":"{tags}","all":["{tags}"],"at":"{place}"}`)},
			request: `POST /reports {"all":[],"at":"here"}`,
		},
		{
			name: "numbers within text", args: `{"n":12345678901234567.25,"m":1.50,"e":12e2}`,
			tool:    toolset.Entry{Request: "POST /r", Args: args(t, "n number", "m number", "e number"), Headers: map[string]string{"X-Trace": "{n}"}, Body: json.RawMessage(`{"x":"{n}, {m}, {e}"}`)},
			request: `POST /r X-Trace=12345678901234567.25 {"x":"12345678901234567.25, 1.50, 1200"}`,
		},
		{name: "checked first", tool: toolset.Entry{Request: "POST /r", Args: args(t, "n integer"), Body: json.RawMessage(`{"x":"{n}"}`)}, args: `{"n":"many"}`, text: "n"},
		{name: "numbers for texts", tool: toolset.Entry{Request: "POST /r/{s}{?q}", Args: args(t, "s string", "q string"), Body: json.RawMessage(`{"x":"{s}"}`)}, args: `{"s":5,"q":1.50}`, request: `POST /r/5?q=1.50 {"x":"5"}`},
		{name: "coerced first", tool: toolset.Entry{Request: "POST /r", Args: args(t, "n integer"), Body: json.RawMessage(`{"x":"{n}"}`)}, args: `{"n":"5"}`, request: `POST /r {"x":5}`},
		{name: "body of one", tool: toolset.Entry{Request: "PUT /r", Args: args(t, "all [integer]"), Body: json.RawMessage(`"{all}"`)}, hints: "false true true", args: `{"all":[1,2]}`, request: `PUT /r [1,2]`},
		{name: "harmless POST", tool: toolset.Entry{Request: "POST /query", Args: args(t, "q string"), Writes: &no}, hints: "true false true", args: `{"q":"x"}`, request: `POST /query {"q":"x"}`},
		{name: "harmful GET", tool: toolset.Entry{Request: "GET /fire", Writes: &yes}, hints: "false true false", args: `{}`, request: "GET /fire"},
		{name: "result", tool: toolset.Entry{Request: "GET /x", Result: "items.#.name"}, args: `{}`, request: "GET /x", text: `["Rex"]`},
		{name: "fixed value", tool: toolset.Entry{Request: "GET /x{?a,b}", Args: []toolset.Arg{{Name: "a", Value: json.RawMessage(`"acme"`), Schema: json.RawMessage(`{"type":"string"}`)}, arg(t, "b? string")}}, schema: `{"type":"object","properties":{"b":{"type":"string"}},"additionalProperties":false}`, args: `{"b":"1"}`, request: "GET /x?a=acme&b=1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			api := newAPI(t)
			test.tool.Key = "own"
			a := adapter(t, Config{BaseURL: api.URL, Tools: []toolset.Entry{test.tool}}, Options{})
			up := connect(t, a, nil)
			seen := ask(t, up, "tools/list", "{}").Get("tools.0")
			if got := seen.Get("inputSchema").Raw; test.schema != "" && got != test.schema {
				t.Errorf("inputSchema = %s\nwant          %s", got, test.schema)
			}
			hints := seen.Get("annotations.readOnlyHint").Raw + " " + seen.Get("annotations.destructiveHint").Raw + " " + seen.Get("annotations.idempotentHint").Raw
			if test.hints != "" && hints != test.hints {
				t.Errorf("hints = %s, want %s", hints, test.hints)
			}
			text, isError := call(t, up, "own", test.args)
			if !strings.Contains(text, test.text) || isError != (test.request == "") {
				t.Errorf("text = %q (error: %t), want %q in it", text, isError, test.text)
			}
			if test.request == "" {
				if api.count() > 0 {
					t.Errorf("the API was asked %s", api.last(t))
				}
			} else if got := api.last(t); got != test.request {
				t.Errorf("request = %s\nwant      %s", got, test.request)
			}
		})
	}
}

// TestOverrides lists what the configuration changes in tools of the document.
func TestOverrides(t *testing.T) {
	no := false
	api := newAPI(t)
	c := api.pets()
	c.Tools = []toolset.Entry{
		{Key: "deletePet", Off: true},
		{Key: "listPets", Name: "find", About: "Finds pets.", Writes: &no, Result: "items.#.name", Args: []toolset.Arg{
			{Name: "limit", As: "most", About: "How many", Default: json.RawMessage(`20`), Schema: json.RawMessage(`{"maximum":50}`)},
			{Name: "kind", Value: json.RawMessage(`"cat"`)},
		}},
		{Key: "POST /pets", Title: "Welcome", Args: []toolset.Arg{{Name: "body", About: "The pet."}}},
		{Key: "sum", Request: "GET /sum{?a}", About: "Sums.", Args: args(t, "a number")},
	}
	up := connect(t, adapter(t, c, Options{}), nil)
	if got, want := names(t, up), "find addPet getPet watchEvents slow sum"; got != want {
		t.Fatalf("tools = %s, want %s", got, want)
	}
	list := ask(t, up, "tools/list", "{}")
	for path, want := range map[string]string{
		`tools.0.inputSchema.properties`:                  `{"most":{"type":"integer","maximum":50,"description":"How many","default":20}}`,
		`tools.0.description`:                             `"Finds pets."`,
		`tools.0._meta.mcp-bridge/request`:                `"GET /pets"`,
		`tools.1.title`:                                   `"Welcome"`,
		`tools.1.inputSchema.properties.body.description`: `"The pet."`,
		`tools.5.description`:                             `"Sums."`,
	} {
		if got := list.Get(path).Raw; got != want {
			t.Errorf("%s = %s, want %s", path, got, want)
		}
	}
	if list.Get("tools.0.outputSchema").Exists() || !list.Get("tools.2.outputSchema").Exists() {
		t.Error("a shaped answer has an output schema, or another has none")
	}
	if text, _ := call(t, up, "find", `{"most":50}`); text != `["Rex"]` {
		t.Errorf("find: %s", text)
	}
	if got, want := api.last(t), "GET /pets?limit=50&kind=cat X-Api-Key=top-secret-key"; got != want {
		t.Errorf("request = %s\nwant      %s", got, want)
	}
	for _, wrong := range []string{`{"most":51}`, `{"limit":5}`, `{"kind":"dog"}`} {
		n := api.count()
		if text, isError := call(t, up, "find", wrong); !isError || api.count() > n {
			t.Errorf("find %s: %s, want an error and no request", wrong, text)
		}
	}
	// A tool with a request has the credentials too.
	call(t, up, "sum", `{"a":0.10}`)
	if got, want := api.last(t), "GET /sum?a=0.10 X-Api-Key=top-secret-key"; got != want {
		t.Errorf("request = %s\nwant      %s", got, want)
	}
	if m := raw(t, up, "tools/call", `{"name":"deletePet","arguments":{"id":1}}`); gjson.GetBytes(m.Error, "code").Int() != -32602 {
		t.Errorf("what is off can be called: %s", m.Result)
	}
}

// Models may ask for a part of an answer; the API does not see that. Such a tool has no output
// schema, which the part would not fit.
func TestPick(t *testing.T) {
	api := newAPI(t)
	c := api.pets()
	c.Pick = true
	c.Tools = []toolset.Entry{
		{Key: "listPets", Args: []toolset.Arg{{Name: "kind", Value: json.RawMessage(`"cat"`)}}},
		{Key: "add", Request: "POST /add", Args: args(t, "n integer")},
		{Key: "put", Request: "PUT /put", Args: args(t, "n integer"), Body: json.RawMessage(`["{n}"]`)},
	}
	up := connect(t, adapter(t, c, Options{}), nil)
	if schemas := ask(t, up, "tools/list", "{}").Get("tools.#.outputSchema").Array(); len(schemas) > 0 {
		t.Errorf("there are output schemas: %s", schemas)
	}
	for _, test := range []struct{ tool, args, request, text string }{
		{"getPet", `{"id":7,"_pick":"items.#.id"}`, "GET /pets/7 X-Api-Key=top-secret-key", "[12345678901234567890]"},
		{"listPets", `{"_pick":"items.0.name"}`, "GET /pets?kind=cat X-Api-Key=top-secret-key", `"Rex"`},
		{"add", `{"n":1,"_pick":"method"}`, `POST /add X-Api-Key=top-secret-key {"n":1}`, `"POST"`},
		{"put", `{"n":1,"_pick":"method"}`, `PUT /put X-Api-Key=top-secret-key [1]`, `"PUT"`},
	} {
		if text, _ := call(t, up, test.tool, test.args); text != test.text {
			t.Errorf("%s: %s, want %s", test.tool, text, test.text)
		}
		if got := api.last(t); got != test.request {
			t.Errorf("%s: request %s, want %s", test.tool, got, test.request)
		}
	}
}

func TestWrongOverrides(t *testing.T) {
	c := newAPI(t).pets()
	c.Expose = []string{"not tag admin"}
	c.Tools = []toolset.Entry{
		{Key: "getPets", Line: 1},
		{Key: "GET /pet", Line: 2},
		{Key: "getPet", Line: 3, Args: []toolset.Arg{{Name: "id", Line: 4, Off: true}, {Name: "ids", Line: 5}}},
		{Key: "GET /pets/{id}", Line: 6},
		{Key: "deletePet", Line: 7, About: "x"},
		{Key: "addPet", Line: 8, Name: "listPets"},
		{Key: "listPets", Line: 9, Args: []toolset.Arg{{Name: "limit", As: "kind", Line: 10}, {Name: "kind", As: "x", Line: 11}, {Name: "limit", As: "x", Line: 12}}},
	}
	_, err := c.Inspect(t.Context(), "pets", quiet(Options{}))
	want := `1 tools: getPets: the document has no such operation, and a tool of your own needs a request: did you mean "getPet"?
2 tools: GET /pet: the document has no such operation, and a tool of your own needs a request: did you mean "GET /pets"?
6 tools: GET /pets/{id}: is the same operation as getPet, on line 3
10 tools: listPets: args: limit: kind is the name of another argument
12 tools: listPets: args: limit: gets the same name as kind
4 tools: getPet: args: id: is required: it cannot be off; give it a value
5 tools: getPet: args: ids: GET /pets/{id} has no such argument: did you mean id?
7 tools: deletePet: has no effect: expose or the document hides the operation
8 tools: addPet: GET /pets also has the name listPets: choose another one
`
	faults, _ := err.(toolset.Faults)
	got := ""
	for _, f := range faults {
		got += strconv.Itoa(f.Line) + " " + f.String() + "\n"
	}
	if got != want {
		t.Errorf("faults:\n%s\nwant:\n%s", got, want)
	}
}

// A missing credential is named with its setting, by check and by the result of a refused call.
func TestAuthWanted(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	t.Cleanup(api.Close)
	doc := file(t, `openapi: 3.0.0
components: { securitySchemes: { key: { type: apiKey, in: header, name: X-Key }, token: { type: http, scheme: bearer }, id: { type: apiKey, in: query, name: id } } }
paths:
  /a: { get: { operationId: a, security: [{ key: [] }, { token: [] }], parameters: [{ name: q, in: query, schema: { type: string } }] } }
  /b: { get: { operationId: b, security: [{ key: [], id: [] }] } }
  /c: { get: { operationId: c, security: [{}, { key: [] }] } }
  /d: { get: { operationId: d } }
  /e: { get: { operationId: e, security: [{ token: [] }], parameters: [{ name: id, in: query, schema: { type: string } }] } }
`)
	const way = "auth: { key: { value: KEY } } (--header 'X-Key: KEY'), or auth: { token: { bearer: TOKEN } } (--header 'Authorization: Bearer TOKEN')"
	c := Config{OpenAPI: doc, BaseURL: api.URL}
	r, err := c.Inspect(t.Context(), "api", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(r.Warnings), "[api.yaml: 3 of 5 operations need credentials, and none are set: add "+way+"]"; got != want {
		t.Errorf("warnings %s, want %s", got, want)
	}
	up := connect(t, adapter(t, c, Options{}), nil)
	for tool, want := range map[string]string{
		"a": "401 Unauthorized from GET /a\nThe operation needs credentials, and the bridge has none for it. Its operator can set " + way + ".",
		"b": "401 Unauthorized from GET /b\nThe operation needs credentials, and the bridge has none for it. Its operator can set auth: { key: { value: KEY }, id: { value: KEY } }.",
		"c": "401 Unauthorized from GET /c", "d": "401 Unauthorized from GET /d",
	} {
		if got, _ := call(t, up, tool, "{}"); got != want {
			t.Errorf("%s: %s\nwant %s", tool, got, want)
		}
	}
	other := Config{OpenAPI: doc, BaseURL: api.URL, Auth: Auth{Schemes: map[string]wire.Credential{"id": {Key: "key-12345"}}}}
	if got, _ := call(t, connect(t, adapter(t, other, Options{}), nil), "e", "{}"); !strings.Contains(got, "can set auth: { token: { bearer: TOKEN } }") {
		t.Errorf("a parameter's credential, and none that the operation needs: %s", got)
	}
	for _, set := range []Config{{Headers: map[string]string{"X-Key": "k"}}, {Auth: Auth{Default: &wire.Credential{Bearer: "k"}}}} {
		set.OpenAPI, set.BaseURL = c.OpenAPI, c.BaseURL
		if r, err := set.Inspect(t.Context(), "api", Options{}); err != nil || len(r.Warnings) > 0 {
			t.Errorf("with credentials: %v %v", r.Warnings, err)
		}
		if got, _ := call(t, connect(t, adapter(t, set, Options{}), nil), "a", "{}"); got != "401 Unauthorized from GET /a" {
			t.Errorf("refused credentials: %s", got)
		}
	}
}

// A document without an address, or with a relative one, has tools that cannot be called.
func TestToolsWithoutAddress(t *testing.T) {
	for _, servers := range []string{"", "servers: [{ url: /v1 }]\n"} {
		a := adapter(t, Config{OpenAPI: file(t, "openapi: 3.0.0\n"+servers+"paths: { /a: { get: { operationId: a } } }\n")}, Options{})
		up := connect(t, a, nil)
		if got := names(t, up); got != "a" {
			t.Errorf("tools = %s", got)
		}
		if got, bad := call(t, up, "a", "{}"); !bad || !strings.Contains(got, "does not say where the API is") || !strings.Contains(got, "--base-url") {
			t.Errorf("%q: %s", servers, got)
		}
	}
}
