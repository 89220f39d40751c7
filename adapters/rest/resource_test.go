package rest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

const shelves = `openapi: 3.1.0
info: { title: Shelves, version: "1" }
security: [{ key: [] }]
components: { securitySchemes: { key: { type: apiKey, in: header, name: X-Api-Key } } }
paths:
  /shelves: { get: { operationId: shelves, summary: All shelves, responses: { "200": { description: OK, content: { application/json: {} } } } } }
  /shelves/{shelf-id}/books/{id}:
    get:
      operationId: book
      parameters:
        - { name: shelf-id, in: path, required: true, schema: { type: string } }
        - { name: id, in: path, required: true, schema: { type: integer } }
        - { name: fields, in: query, schema: { type: array, items: { type: string } } }
        - { name: X-Tenant, in: header, schema: { type: string } }
      responses: { "200": { description: OK, content: { application/json: {} } } }
    delete: { operationId: burn, responses: { "204": { description: Gone } } }
  /shelves/{shelf-id}/books/new: { get: { operationId: newBook, responses: { "200": { description: OK } } } }
  /pets/{id}: { get: { operationId: pet, parameters: [{ name: id, in: path, required: true, schema: { type: integer } }], responses: { "200": { description: OK } } } }
  /slow: { get: { operationId: slow, responses: { "200": { description: OK } } } }
`

func shelvesConfig(t *testing.T, api *api) Config {
	return Config{OpenAPI: file(t, shelves), BaseURL: api.URL, Auth: Auth{Default: &wire.Credential{Key: "top-secret-key"}}, Tools: []toolset.Entry{
		{Key: "shelves", As: toolset.AsResource},
		{Key: "book", As: toolset.AsResource, Name: "a_book", Args: []toolset.Arg{{Name: "id", As: "number"}}},
		{Key: "newBook", As: toolset.AsResource, Args: []toolset.Arg{{Name: "shelf-id", Value: json.RawMessage(`"top shelf"`)}}},
		{Key: "pet", As: toolset.AsResource, Error: "title"},
		{Key: "slow", As: toolset.AsResource, Timeout: time.Millisecond},
		{Key: "file", As: toolset.AsResource, Request: "GET /files/{+path}?v=1{&page}", Args: args(t, "path string", "page? integer"), Result: "items.0.name"},
		{Key: "tags", As: toolset.AsResource, Request: "GET /tags/{names}", Args: args(t, "names [string]")},
		{Key: "sums", As: toolset.AsResource, Request: "GET /sums/{+numbers}/of/{name}", Args: args(t, "numbers [integer]", "name string")},
	}}
}

// GETs as resources: their lists and their requests. Commas separate the values of a list in a path. Commas
// within values are encoded, in both directions.
func TestResources(t *testing.T) {
	api := newAPI(t)
	up := connect(t, adapter(t, shelvesConfig(t, api), Options{}), nil)
	if got, want := string(up.Server().Capabilities), `{"resources":{"listChanged":true},"tools":{"listChanged":true}}`; got != want {
		t.Errorf("capabilities = %s, want %s", got, want)
	}
	if got := names(t, up); got != "burn" {
		t.Errorf("tools = %s: resources are no tools", got)
	}
	if got, want := ask(t, up, "resources/list", "{}").Raw, `{"resources":[`+
		`{"uri":"rest://pets/shelves","name":"shelves","title":"All shelves","description":"All shelves","mimeType":"application/json","_meta":{"mcp-bridge/request":"GET /shelves"}},`+
		`{"uri":"rest://pets/shelves/top%20shelf/books/new","name":"newBook","description":"GET /shelves/{shelf-id}/books/new","_meta":{"mcp-bridge/request":"GET /shelves/{shelf-id}/books/new"}},`+
		`{"uri":"rest://pets/slow","name":"slow","description":"GET /slow","_meta":{"mcp-bridge/request":"GET /slow"}}]}`; got != want {
		t.Errorf("resources:\n%s\nwant\n%s", got, want)
	}
	var templates []string
	for _, one := range ask(t, up, "resources/templates/list", "{}").Get("resourceTemplates.#.uriTemplate").Array() {
		templates = append(templates, one.Str)
	}
	if got, want := strings.Join(templates, " "), "rest://pets/shelves/{shelf_id}/books/{number}{?fields*,X_Tenant} rest://pets/pets/{id} rest://pets/files/{+path}{?page} rest://pets/tags/{names} rest://pets/sums/{+numbers}/of/{name}"; got != want {
		t.Errorf("templates = %s, want %s", got, want)
	}
	for _, test := range []struct{ uri, request, want string }{ // want: the contents, or the code and message of an error
		{"rest://pets/shelves", "GET /shelves X-Api-Key=top-secret-key", `{"method":"GET","items":[{"id":12345678901234567890,"name":"Rex"}]}`},
		{"rest://pets/shelves#part", "GET /shelves X-Api-Key=top-secret-key", `{"method":"GET"`},
		{"rest://pets/shelves/a%2Fb/books/7?fields=x&fields=y%20z&X_Tenant=t", "GET /shelves/a%2Fb/books/7?fields=x&fields=y%20z X-Api-Key=top-secret-key X-Tenant=t", `{"method":"GET"`},
		{"rest://pets/shelves/top%20shelf/books/new", "GET /shelves/top%20shelf/books/new X-Api-Key=top-secret-key", `{"method":"GET"`},
		{"rest://pets/files/a/b.txt?page=2", "GET /files/a/b.txt?v=1&page=2 X-Api-Key=top-secret-key", `"Rex"`},
		{"rest://pets/pets/404", "GET /pets/404 X-Api-Key=top-secret-key", "-32002 404 Not Found from GET /pets/404\nNo such pet"},
		{"rest://pets/pets/x", "", "-32602 the arguments are wrong: id: must be an integer"},
		{"rest://pets/files/../x", "", "-32602 path: must not have . or .."},
		{"rest://pets/pets/1?q=2", "", `-32602 the resource has no argument "q"`},
		{"rest://pets/files/x?page=1&page=2", "", `-32602 the argument "page" is given twice`},
		{"rest://pets/tags/a,b", "GET /tags/a,b X-Api-Key=top-secret-key", ""},
		{"rest://pets/tags/a%2Cb,c", "GET /tags/a%2Cb,c X-Api-Key=top-secret-key", ""},
		{"rest://pets/tags/a%2cb", "GET /tags/a%2Cb X-Api-Key=top-secret-key", ""},
		{"rest://pets/tags/a%252Cb,%C3%A4", "GET /tags/a%252Cb,%C3%A4 X-Api-Key=top-secret-key", ""},
		{"rest://pets/sums/1,2/of/x,y", "GET /sums/1,2/of/x%2Cy X-Api-Key=top-secret-key", ""},
		{"rest://pets/sums/1%2C2/of/x", "", "-32602 the arguments are wrong: numbers[0]: must be an integer"},
		{"rest://pets/tags/a,%zz", "", `-32602 the path of "rest://pets/tags/a,%zz" is not percent-encoded correctly`},
		{"rest://pets/burn", "", "-32002 Resource not found"},
		{"rest://other/shelves", "", "-32002 Resource not found"},
		{"https://pets/shelves", "", "-32002 Resource not found"},
		{"rest://petsshelves", "", "-32002 Resource not found"},
		{"rest://pets/pets/" + strings.Repeat("1", 9000), "", "-32002 Resource not found"},
		{"rest://pets/slow", "any", "-32603 GET /slow got no answer: the API did not answer in time (1ms)"},
	} {
		n := api.count()
		uri, _ := json.Marshal(test.uri)
		m := raw(t, up, "resources/read", `{"uri":`+string(uri)+`}`)
		got := gjson.GetBytes(m.Result, "contents.0.text").String()
		if m.Error != nil {
			got = gjson.GetBytes(m.Error, "code").Raw + " " + gjson.GetBytes(m.Error, "message").String()
		} else if gjson.GetBytes(m.Result, "contents.0.uri").String() != test.uri || gjson.GetBytes(m.Result, "contents.0.mimeType").String() != "application/json" {
			t.Errorf("%s: %s", test.uri, m.Result)
		}
		if !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %s, want %s", test.uri, got, test.want)
		}
		if asked := api.count() > n; test.request != "any" && (asked != (test.request != "") || asked && api.last(t) != test.request) {
			t.Errorf("%s: request %s, want %s", test.uri, api.last(t), test.request)
		}
	}
}

// Without an entry that asks for one, there are no resources.
func TestNoResources(t *testing.T) {
	up := connect(t, adapter(t, newAPI(t).pets(), Options{}), nil)
	for _, method := range []string{"resources/list", "resources/templates/list", "resources/read"} {
		if m := raw(t, up, method, `{"uri":"rest://pets/pets"}`); gjson.GetBytes(m.Error, "code").Int() != -32601 {
			t.Errorf("%s: %s%s", method, m.Result, m.Error)
		}
	}
}

// A file of a call may be a resource of this server, and no other address.
func TestResourceFiles(t *testing.T) {
	api := newAPI(t)
	c := shelvesConfig(t, api)
	c.OpenAPI = file(t, shelves+`  /put: { put: { operationId: put, requestBody: { content: { application/octet-stream: {} } }, responses: { "200": { description: OK } } } }
  /many: { post: { operationId: many, requestBody: { content: { multipart/form-data: { schema: { type: object, properties: { files: { type: array, items: { type: string, format: binary } } } } } } }, responses: { "200": { description: OK } } } }
`)
	c.Limits.File = 600
	a := adapter(t, c, Options{})
	up := connect(t, a, nil)
	if list := ask(t, up, "tools/list", "{}").Raw; strings.Count(list, "or the rest:// address of a resource of this server") != 2 {
		t.Errorf("clients are not told: %s", list)
	}
	n := api.count()
	plan, err := a.Plan(t.Context(), "put", []byte(`{"body":"rest://pets/shelves"}`))
	if err != nil || !strings.Contains(plan, "(what is at rest://pets/shelves)") || api.count() > n {
		t.Errorf("dry run: %s, %v", plan, err)
	}
	const books = `{"method":"GET","items":[{"id":12345678901234567890,"name":"Rex"}]}`
	for _, test := range []struct {
		tool, args, want string // of the request, or of the error
		asked            int
	}{
		{"put", `{"body":"rest://pets/shelves"}`, "PUT /put X-Api-Key=top-secret-key " + books, 2},
		{"put", `{"body":"rest://pets/files/a%20b.txt?page=2"}`, "PUT /put X-Api-Key=top-secret-key " + books, 2}, // unshaped, whatever result does for readers
		{"put", `{"body":{"text":"rest://pets/shelves"}}`, "PUT /put X-Api-Key=top-secret-key rest://pets/shelves", 1},
		{"many", `{"body":{"files":["rest://pets/files/a%20b.txt","data:,x"]}}`, `Content-Disposition: form-data; name="files"; filename="a b.txt"`, 2},
		{"put", `{"body":"https://example.com/x"}`, `body: the bridge fetches no files from addresses such as "https://example.com/x": give the file itself`, 0},
		{"put", `{"body":"file:///etc/passwd"}`, "body: the bridge fetches no files from addresses", 0},
		{"put", `{"body":"rest://other/shelves"}`, `body: "rest://other/shelves" cannot be read: there is no such resource`, 0},
		{"put", `{"body":"rest://pets/put"}`, "cannot be read: there is no such resource", 0},
		{"put", `{"body":"rest://pets/pets/404"}`, "cannot be read: 404 Not Found from GET /pets/404\nNo such pet", 1},
		{"put", `{"body":"rest://pets/pets/x"}`, "cannot be read: the arguments are wrong: id: must be an integer", 0},
		{"many", `{"body":{"files":[` + strings.Repeat(`"rest://pets/shelves",`, 8) + `"rest://pets/shelves"]}}`, "body.files: more than 8 files have addresses", 8},
		{"put", `{"body":"rest://pets/slow"}`, "cannot be read: GET /slow got no answer: the API did not answer in time (1ms)", -1}, // the timeout may end before the request
	} {
		n := api.count()
		text, isError := call(t, up, test.tool, test.args)
		if !isError {
			text = api.last(t)
		}
		if !strings.Contains(text, test.want) || test.asked >= 0 && api.count()-n != test.asked {
			t.Errorf("%s: %s (error: %t), %d requests, want %s and %d", test.args, text, isError, api.count()-n, test.want, test.asked)
		}
	}
	c.Limits.File = 100
	if text, isError := call(t, connect(t, adapter(t, c, Options{}), nil), "many", `{"body":{"files":["rest://pets/shelves","rest://pets/shelves"]}}`); !isError || !strings.Contains(text, "body.files: the files with addresses have more than 100 bytes together") {
		t.Errorf("two that are too large together: %s", text)
	}
	// A file that is too large is refused, and without resources no address is accepted.
	c.Limits.File = 50
	if text, isError := call(t, connect(t, adapter(t, c, Options{}), nil), "put", `{"body":"rest://pets/shelves"}`); !isError || !strings.Contains(text, "the file has 67 bytes, and 50 are allowed") {
		t.Errorf("too large: %s", text)
	}
	c.Tools = nil
	if text, isError := call(t, connect(t, adapter(t, c, Options{}), nil), "put", `{"body":"rest://pets/shelves"}`); !isError || !strings.Contains(text, "the bridge fetches no files from addresses") {
		t.Errorf("without resources: %s", text)
	}
}
