package openapi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/overlay"
)

// A bad operation costs only itself and a warning with its line.
func TestBadOperations(t *testing.T) {
	text := `openapi: 3.0.0
info: {title: T, version: 1.0}
servers: nothing
security: {a: []}
paths:
  /list: [1]
  /null:
  /a:
    get: [not, an, operation]
    post: text
    put:
      operationId: good
      parameters: {wrong: kind}
      responses: {200: wrong, 201: {content: {application/json: {schema: 5}}}}
  /b:
    get: {parameters: [{in: query, required: true}], operationId: lost}
    get: {operationId: twice}
  /c: {$ref: '#/paths/~1a'}
  /gone: {$ref: '#/paths/~1nowhere'}
  x-extra: {get: {}}
components: {securitySchemes: {a: {type: apiKey}, b: {type: wrong}, c: {type: http, scheme: Bearer}}}
`
	doc := load(t, text)
	tools, warnings := make1(t, text, Options{})
	same(t, names(tools), []string{"good_" + hash("PUT /a"), "twice", "good_" + hash("PUT /c")})
	var lost []string
	for _, op := range doc.Lost {
		lost = append(lost, op.Key())
	}
	same(t, lost, []string{" /list", "GET /a", "POST /a", "GET /c", "POST /c", " /gone"})
	rules, err := ParseRules([]string{"all", "not GET", "not /list"})
	if err != nil {
		t.Fatal(err)
	}
	same(t, len(doc.LostOf(rules)), 3)
	for _, want := range []string{
		"doc.yaml:3: servers is a string and not a list",
		"doc.yaml:4: security is an object and not a list",
		"doc.yaml:6: path /list is a list, not an object: left out",
		"doc.yaml:7: path /null is null, not an object: left out",
		"doc.yaml:9: GET /a is not an operation: left out",
		"doc.yaml:10: POST /a is not an operation: left out",
		"doc.yaml:13: PUT /a: parameters is an object, not a list",
		"doc.yaml:14: response 200 cannot be read",
		`doc.yaml:17: "get" is given twice: the last one counts`,
		`doc.yaml:21: security scheme "a": an apiKey needs a name`,
		`doc.yaml:21: security scheme "b": type "wrong" is unknown`,
	} {
		warned(t, warnings, want)
	}
}

// A warning names each thing that a document uses and does not declare.
func TestUndeclared(t *testing.T) {
	for text, want := range map[string]string{
		"openapi: 3.1.0\nwebhooks: {}\n":                                                                          "doc.yaml:1: the document has no operations: nothing of it becomes a tool",
		"openapi: 3.1.0\npaths: {}\n":                                                                             "doc.yaml:2: the document has no operations: nothing of it becomes a tool",
		"openapi: 3.1.0\npaths: {/a: {get: {security: [{key: []}]}}}\n":                                           `doc.yaml:2: security needs the scheme "key", which the document does not declare`,
		"openapi: 3.1.0\nsecurity: [{key: []}]\npaths: {/a: {get: {}}}\n":                                         `doc.yaml:2: security needs the scheme "key", which the document does not declare`,
		"openapi: 3.1.0\npaths: {'/a/{}': {get: {}}, /b: {get: {}}}\n":                                            "doc.yaml:2: GET /a/{} is left out: a part of its path has no name",
		"openapi: 3.1.0\nservers: [{url: 'https://{r}.x.example', variables: {r: {}}}]\npaths: {/a: {get: {}}}\n": `doc.yaml:2: variable "r" of a server has no default`,
	} {
		_, warnings := make1(t, text, Options{})
		warned(t, warnings, want)
		same(t, len(warnings), 1)
	}
	doc := load(t, "openapi: 3.1.0\nservers: [{url: 'https://{r}.x.example', variables: {r: {enum: [eu, us]}}}]\npaths: {/a: {get: {}}}\n")
	same(t, doc.Servers[0].Variables[0].Default, "eu")
}

func TestNoDocument(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "is empty",
		"# nothing":               "is empty",
		"[]":                      "is a list, not an OpenAPI document",
		"hello":                   "is a string, not an OpenAPI document",
		"a: 1":                    "openapi, swagger and paths are missing",
		`{"openapi": "3.0.0"`:     "line 1",
		"openapi: [":              "line",
		"{\"a\":\n\n\"b\" \"c\"}": "line 3: a comma or } is expected",
		"\x00\x01\x02":            "",
		"\ufeff\n<!doctype html>": "is HTML or XML, not an OpenAPI document: use the JSON or YAML document behind the page",
		"openapi: 3.0.0\n\tx: 1":  "line 2",
	} {
		_, err := Load(t.Context(), Source{Location: "x.yaml", Data: []byte(text)})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "x.yaml: ") {
			t.Errorf("%q: error is %v, want %q", text, err, want)
		}
	}
	if _, err := Load(t.Context(), Source{Location: filepath.Join(t.TempDir(), "none.yaml")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
	if _, err := Load(t.Context(), Source{Location: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Errorf("error is %v", err)
	}
	if _, err := Load(t.Context(), Source{Location: "https://x.example/a"}); err == nil {
		t.Error("a URL was read without a fetcher")
	}
	if _, err := Load(t.Context(), Source{Data: []byte("openapi: 3.0.0"), MaxBytes: 5}); err == nil {
		t.Error("a document that is too large was read")
	}
}

// JSON and YAML are recognized by their content, and give the same.
func TestJSONAndYAML(t *testing.T) {
	for name, text := range map[string]string{
		"json":         `{"openapi":"3.0.0","paths":{"/a":{"get":{"operationId":"a\u00e4\"b","deprecated":true}}}}`,
		"yaml":         "openapi: 3.0.0\npaths:\n  /a:\n    get:\n      operationId: \"aä\\\"b\"\n      deprecated: true\n",
		"flow":         "{openapi: 3.0.0, paths: {/a: {get: {operationId: 'aä\"b', deprecated: true}}}}",
		"json with ,":  "{\"openapi\":\"3.0.0\",\"paths\":{\"/a\":{\"get\":{\"operationId\":\"a\u00e4\\\"b\",\"deprecated\":true},}}}",
		"bom":          "\ufeff{\"openapi\":\"3.0.0\",\"paths\":{\"/a\":{\"get\":{\"operationId\":\"aä\\\"b\",\"deprecated\":true}}}}",
		"merged":       "x: &x {deprecated: true, operationId: no}\nopenapi: 3.0.0\npaths:\n  /a:\n    get:\n      <<: *x\n      operationId: \"aä\\\"b\"\n",
		"alias as key": "x: &x /a\nopenapi: 3.0.0\npaths:\n  *x :\n    get: {operationId: \"aä\\\"b\", deprecated: true}\n",
	} {
		doc := load(t, text)
		if len(doc.Operations) != 1 || doc.Operations[0].ID != `aä"b` || !doc.Operations[0].Deprecated || len(doc.Warnings) > 0 {
			t.Errorf("%s: %+v %v", name, doc.Operations, doc.Warnings)
		}
	}
	// The keys of responses are numbers in YAML.
	doc := load(t, "openapi: 3.0.0\npaths: {/a: {get: {responses: {200: {description: yes}, 4XX: {}}}}}\n")
	same(t, doc.Operations[0].Responses[0].Status, "200")
}

func TestLines(t *testing.T) {
	doc := load(t, "{\n \"openapi\": \"3.0.0\",\n \"paths\": {\n  \"/a\": {\n   \"get\": {\n    \"x\": \"a\\n\\\"b\"\n   },\n   \"post\":\n    [1]\n  }\n }\n}")
	same(t, doc.Operations[0].Line, 5)
	same(t, doc.Warnings, []Warning{{File: "doc.yaml", Line: 9, Text: "POST /a is not an operation: left out"}})
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"api/main.yaml": "openapi: 3.1.0\npaths:\n  /a: {$ref: 'paths/a.yaml'}\n  /b: {get: {responses: {200: {content: {application/json: {schema: {$ref: '../outside.json'}}}}}}}\n" +
			"  /c: {get: {responses: {200: {content: {application/json: {schema: {$ref: 'link.json'}}}}}}}\n" +
			"  /d: {post: {requestBody: {content: {application/json: {schema: {properties: {$ref: 'parts/p.json#/map'}}}}}}}\n", // in place of a map
		"api/paths/a.yaml":     "parameters: [{$ref: '../parts/p.json#/list/0'}]\npost:\n  operationId: a\n  requestBody: {content: {application/json: {schema: {$ref: '../parts/s%20s.yaml#/Pet'}}}}\n",
		"api/parts/p.json":     `{"list": [{"name": "p", "in": "query", "schema": {"$ref": "#/string"}}], "string": {"type": "string"}, "map": {"name": {"type": "string"}}}`,
		"api/parts/s s.yaml":   "Pet: {properties: {mother: {$ref: '#/Pet'}, owner: {$ref: 'owner.json'}}}\n",
		"api/parts/owner.json": `{"properties": {"pet": {"$ref": "s s.yaml#/Pet"}}}`,
		"outside.json":         `{"type": "object", "properties": {"out": {}}}`,
	})
	if err := os.Symlink(filepath.Join("..", "outside.json"), filepath.Join(dir, "api", "link.json")); err != nil {
		t.Skip(err)
	}
	main := filepath.Join(dir, "api", "main.yaml")
	doc, err := Load(t.Context(), Source{Location: main})
	if err != nil {
		t.Fatal(err)
	}
	tools, more := Tools(doc, Options{})
	checkTools(t, tools, Options{})
	same(t, names(tools), []string{"a", "get_b", "get_c", "post_d"})
	same(t, string(tools[3].InputSchema), `{"type":"object","properties":{"body":{"type":"object","properties":{"name":{"type":"string"}}}},"additionalProperties":false}`)
	same(t, string(tools[0].InputSchema), `{"type":"object","properties":{"p":{"type":"string"},"body":{"type":"object","properties":{"mother":{"$ref":"#/$defs/Pet"},"owner":{"$ref":"#/$defs/owner"}}}},"additionalProperties":false,`+
		`"$defs":{"Pet":{"type":"object","properties":{"mother":{"$ref":"#/$defs/Pet"},"owner":{"$ref":"#/$defs/owner"}}},"owner":{"type":"object","properties":{"pet":{"$ref":"#/$defs/Pet"}}}}}`)
	same(t, tools[0].Operation.File, "paths/a.yaml")
	var warnings []string
	for _, w := range append(doc.Warnings, more...) {
		warnings = append(warnings, w.String())
	}
	warned(t, warnings, `main.yaml:4: $ref "../outside.json": is outside of the document's folder: add its own folder, or one above that, to trusted`)
	warned(t, warnings, `main.yaml:5: $ref "link.json": `) // a link that leads out
	same(t, len(warnings), 2)
	for _, f := range []string{"api/main.yaml", "api/paths/a.yaml", "api/parts/p.json", "api/parts/s s.yaml", "api/parts/owner.json"} {
		if !slices.Contains(doc.Files, filepath.Join(dir, filepath.FromSlash(f))) {
			t.Errorf("%s is not among %v", f, doc.Files)
		}
	}
	// Everything that is read counts. A document beyond the bounds cannot be loaded, rather than in
	// part.
	if _, err = Load(t.Context(), Source{Location: main, MaxBytes: 450}); err == nil || !strings.Contains(err.Error(), "main.yaml: the document and its referenced files have more than 450 bytes") {
		t.Error(err)
	}
	if _, err = Load(t.Context(), Source{Location: main, MaxFiles: 3}); err == nil || !strings.Contains(err.Error(), "main.yaml: the document and the files that it refers to are more than 3 files") {
		t.Error(err)
	}
	// With higher bounds, all of it is read.
	doc, err = Load(t.Context(), Source{Location: main, Folders: []string{dir}})
	if err != nil || len(doc.Warnings) > 0 {
		t.Errorf("%v %v", err, doc.Warnings)
	}
	tools, _ = Tools(doc, Options{})
	same(t, strings.Contains(string(tools[1].OutputSchema), `"out"`), true)
}

// Documents of large providers have a file for each operation.
func TestManyFiles(t *testing.T) {
	const n = 700
	dir := t.TempDir()
	files := map[string]string{}
	var main strings.Builder
	main.WriteString("openapi: 3.0.0\npaths:\n")
	for i := range n {
		name := "paths/p" + itoa(i) + ".yaml"
		main.WriteString("  /p" + itoa(i) + ": {get: {$ref: '" + name + "'}}\n")
		files[name] = "operationId: op" + itoa(i) + "\n"
	}
	files["main.yaml"] = main.String()
	write(t, dir, files)
	doc, err := Load(t.Context(), Source{Location: filepath.Join(dir, "main.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	if len(doc.Operations) != n || len(doc.Files) != n+1 || len(doc.Warnings) > 0 {
		t.Errorf("%d operations of %d files, want %d: %v", len(doc.Operations), len(doc.Files), n, doc.Warnings)
	}
}

// fetcher has pages by URL.
type fetcher map[string]string

func (f fetcher) Fetch(_ context.Context, url string) ([]byte, error) {
	if text, ok := f[url]; ok {
		return []byte(text), nil
	}
	return nil, errors.New("404 Not Found")
}

// Public: the pages of example.com are on the internet.
func (f fetcher) Public(url string) bool { return strings.Contains(url, "example.com") }

func TestURLs(t *testing.T) {
	f := fetcher{
		"https://x.example/v1/api.yaml?key=secret": "openapi: 3.0.0\npaths:\n  /ok: {get: {parameters: [{$ref: '../p.yaml#/p'}]}}\n  /a: {get: {parameters: [{$ref: 'missing.yaml#/p'}, {$ref: 'file:///etc/passwd'}]}}\n",
		"https://x.example/p.yaml":                 "p: {name: p, in: query, schema: {type: string}}\n",
	}
	doc, err := Load(t.Context(), Source{Location: "https://x.example/v1/api.yaml?key=secret", Fetcher: f})
	if err != nil {
		t.Fatal(err)
	}
	same(t, len(doc.Operations[0].Parameters), 1)
	lost := Warning{File: "https://x.example/v1/api.yaml", Line: 4, Text: "GET /a is left out: a parameter of it cannot be read"}
	same(t, doc.Warnings, []Warning{
		{File: "https://x.example/v1/api.yaml", Line: 4, Text: `$ref "missing.yaml#/p": 404 Not Found`},
		lost,
		{File: "https://x.example/v1/api.yaml", Line: 4, Text: `$ref "file:///etc/passwd": leads nowhere from a URL`},
	})
	same(t, doc.Files[:2], []string{"https://x.example/v1/api.yaml?key=secret", "https://x.example/p.yaml"})
}

func TestServers(t *testing.T) {
	for text, want := range map[string]string{
		"openapi: 3.0.0\nservers: [{url: 'https://{r}.x.example/{v}', variables: {r: {enum: [eu, us], default: eu}, v: {default: 1}}}, {description: none}]\npaths: {}": "[{URL:https://{r}.x.example/{v} Description: Variables:[{Name:r Default:eu Enum:[eu us] Description:} {Name:v Default:1 Enum:[] Description:}] Remote:false Public:false}]",
		"swagger: 2.0\nhost: x.example\nbasePath: v1\nschemes: [http, https, ws]\npaths: {}":                                                                            "[{URL:https://x.example/v1 Description: Variables:[] Remote:false Public:false} {URL:http://x.example/v1 Description: Variables:[] Remote:false Public:false}]",
		"swagger: 2.0\nhost: x.example\npaths: {}": "[{URL:https://x.example Description: Variables:[] Remote:false Public:false}]",
		"swagger: 2.0\nbasePath: /v1\npaths: {}":   "[{URL:/v1 Description: Variables:[] Remote:false Public:false}]",
		"openapi: 3.0.0\npaths: {}":                "[]",
	} {
		same(t, load(t, text).Servers, want)
	}
	doc := load(t, "openapi: 3.0.0\nservers: [{url: /doc}]\npaths:\n  /a:\n    servers: [{url: /path}]\n    get: {}\n    put: {servers: [{url: /op}]}\n  /b: {get: {}}\n")
	var got []string
	for _, op := range doc.Operations {
		for _, s := range op.Servers {
			got = append(got, op.Key()+" "+s.URL)
		}
	}
	same(t, got, []string{"GET /a /path", "PUT /a /op"})
}

func TestSecurity(t *testing.T) {
	doc := load(t, `
openapi: 3.1.0
security: [{key: []}]
components:
  securitySchemes:
    key: {type: apiKey, in: header, name: X-Key}
    basic: {type: http, scheme: Basic}
    oauth: {type: oauth2, flows: {clientCredentials: {tokenUrl: /token, scopes: {read: R, write: W}}, implicit: {authorizationUrl: /auth}}}
    oidc: {type: openIdConnect, openIdConnectUrl: https://id.example/.well-known/openid-configuration}
    tls: {type: mutualTLS}
paths:
  /a:
    get: {}
    put: {security: []}
    post: {security: [{key: [], oauth: [read]}, {}]}
`)
	same(t, doc.Operations[0].Security, []Requirement{{{Name: "key"}}})
	same(t, len(doc.Operations[1].Security), 0)
	same(t, doc.Operations[2].Security, []Requirement{{{Name: "key"}, {Name: "oauth", Scopes: []string{"read"}}}, {}})
	var got []string
	for _, s := range doc.Schemes {
		got = append(got, s.Type+" "+string(s.In)+s.Param+s.Scheme+s.OpenIDURL)
	}
	same(t, got, []string{"apiKey headerX-Key", "http basic", "oauth2 ", "openIdConnect https://id.example/.well-known/openid-configuration", "mutualTLS "})
	same(t, doc.Schemes[2].Flows[0], Flow{Kind: "clientCredentials", TokenURL: "/token", Scopes: []string{"read", "write"}})
	doc = load(t, "swagger: '2.0'\nsecurityDefinitions: {b: {type: basic}, o: {type: oauth2, flow: application, tokenUrl: /t, scopes: {a: b}}}\npaths: {}\n")
	same(t, *doc.Schemes[0], SecurityScheme{Name: "b", Type: "http", Scheme: "basic"})
	same(t, doc.Schemes[1].Flows, []Flow{{Kind: "clientCredentials", TokenURL: "/t", Scopes: []string{"a"}}})
}

// An overlay lets plain names in paths have slashes, as docs/rest.md has it.
func TestOverlayAllowsSlashes(t *testing.T) {
	o, err := overlay.Parse("fix.yaml", []byte("overlay: 1.0.0\ninfo: {title: T, version: 1}\nactions: [{target: \"$.paths.*.*.parameters[?@.in == 'path']\", update: {allowReserved: true}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := Load(t.Context(), Source{Overlays: []*overlay.Overlay{o}, Data: []byte("openapi: 3.0.0\npaths: {'/v1/{name}': {parameters: [], get: {parameters: [{name: name, in: path}, {name: q, in: query}]}}}\n")})
	if err != nil {
		t.Fatal(err)
	}
	p := doc.Operations[0].Parameters
	same(t, []bool{p[0].AllowReserved, p[1].AllowReserved}, []bool{true, false})
}

// An inline text has no folder to read from.
func TestInline(t *testing.T) {
	const text = "openapi: 3.2.0\npaths: {/a: {get: {parameters: [{$ref: 'go.mod#/a'}]}}}\n"
	doc, err := Load(t.Context(), Source{Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	same(t, doc.Warnings, []Warning{{File: "the document", Line: 2, Text: `$ref "go.mod#/a": a document without a place of its own cannot refer to files`},
		{File: "the document", Line: 2, Text: "GET /a is left out: a parameter of it cannot be read"}})
	same(t, len(doc.Files), 0)
	// Its location names the folder.
	doc, err = Load(t.Context(), Source{Data: []byte("$self: https://x.example/d/api\n" + text), Fetcher: fetcher{"https://x.example/d/go.mod": "a: {name: a, in: query}"}})
	if err != nil || len(doc.Warnings) > 0 {
		t.Fatal(err, doc.Warnings)
	}
	same(t, doc.Location, "https://x.example/d/api")
	same(t, len(doc.Operations[0].Parameters), 1)
}
