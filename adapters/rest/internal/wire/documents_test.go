package wire

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/openapitest"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

const library = `
openapi: 3.1.0
info: {title: Library, version: "1"}
servers: [{url: "https://{region}.example.com/v1", variables: {region: {default: eu, enum: [eu, us]}}}]
security: [{key: []}]
paths:
  /books/{book id}/pages/{page}:
    parameters:
      - {name: book id, in: path, required: true, schema: {type: string}}
      - {name: page, in: path, required: true, schema: {type: integer, minimum: 1}}
    get:
      operationId: getPage
      parameters:
        - {name: page, in: query, schema: {type: array, items: {type: integer}}, explode: false}
        - {name: filter, in: query, style: deepObject, explode: true, schema: {type: object, properties: {lang: {enum: [en, de]}}}}
        - {name: key, in: query, schema: {type: string}}
        - {name: X-Trace, in: header, schema: {type: string}}
        - {name: body, in: query, schema: {type: boolean}}
      responses: {"200": {description: a page, content: {application/json: {schema: {type: object, properties: {n: {type: integer}}}}}}}
    put:
      operationId: putPage
      requestBody:
        required: true
        content:
          multipart/form-data:
            schema:
              type: object
              required: [scan]
              properties:
                title: {type: string}
                scan: {type: string, format: binary}
                meta: {type: object, properties: {"a/b": {type: integer}}}
            encoding: {scan: {contentType: image/png}}
      responses: {"204": {description: done}}
components:
  securitySchemes: {key: {type: apiKey, in: query, name: key}}
`

// toolsOf reads a document.
func toolsOf(t *testing.T, text string) (*openapi.Document, []*openapi.Tool) {
	t.Helper()
	doc, err := openapi.Load(t.Context(), openapi.Source{Location: "api.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	tools, _ := openapi.Tools(doc, openapi.Options{})
	return doc, tools
}

// TestDocument reads documents and compares the requests that their tools send.
func TestDocument(t *testing.T) {
	doc, tools := toolsOf(t, library)
	s := newSource(t, Options{Document: doc, Variables: map[string]string{"region": "us"}, Credentials: map[string]Credential{"key": {Key: "the-secret"}}})
	plan := func(i int, args string) string {
		p, err := s.Plan(&Call{Tool: tools[i], Args: []byte(args)})
		if err != nil {
			return err.Error()
		}
		return p.String()
	}
	want := `GET https://us.example.com/v1/books/a%2Fb/pages/3?page=1,2&filter%5Blang%5D=de&body=true&key=***
Accept: application/json, */*;q=0.1
User-Agent: mcp-bridge
X-Trace: t
`
	if got := plan(0, `{"book_id":"a/b","page":"3","page_query":[1,2],"filter":{"lang":"de"},"X-Trace":"t","body_query":"true"}`); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	want = `3 things are wrong with the arguments:
- book_id: is missing
- filter.lang: must be one of "en", "de", not "fr"
- pagequery: there is no such argument; did you mean page_query?`
	if got := plan(0, `{"page":3,"filter":{"lang":"fr"},"pagequery":1}`); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got := plan(1, `{"book_id":"x","page":1,"body":{"meta":{"a_b":7},"scan":{"text":"PNG","filename":"p.png"},"title":"T"}}`)
	i := strings.Index(got, "boundary=")
	if i < 0 {
		t.Fatal(got)
	}
	boundary := got[i+len("boundary=") : i+len("boundary=")+32]
	want = `PUT https://us.example.com/v1/books/x/pages/1?key=***
Accept: application/json, */*;q=0.8
Content-Type: multipart/form-data; boundary=BOUNDARY
User-Agent: mcp-bridge

--BOUNDARY
Content-Disposition: form-data; name="title"

T
--BOUNDARY
Content-Disposition: form-data; name="scan"; filename="p.png"
Content-Type: image/png

PNG
--BOUNDARY
Content-Disposition: form-data; name="meta"
Content-Type: application/json

{"a/b":7}
--BOUNDARY--

`
	if got = strings.ReplaceAll(strings.ReplaceAll(got, boundary, "BOUNDARY"), "\r", ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Changed names may also be given as in the document.
func TestTrueNames(t *testing.T) {
	doc, tools := toolsOf(t, `
openapi: 3.0.0
paths:
  /a/{id}:
    post:
      parameters:
        - {name: id, in: path, required: true, schema: {type: integer}}
        - {name: "match[]", in: query, required: true, schema: {type: string}}
        - {name: id, in: query, schema: {type: string}}
      requestBody: {content: {application/json: {schema: {required: ["@type"], additionalProperties: false, properties: {"@type": {type: string}, in: {additionalProperties: false, properties: {"a b": {type: integer}}}}}}}}
`)
	s := newSource(t, Options{Document: doc, BaseURL: "http://localhost"})
	const want = "/a/1?match%5B%5D=up " + `{"@type":"x","in":{"a b":2}}`
	for _, test := range []struct{ name, args, want, refused string }{
		{"shown", `{"id":1,"match__":"up","body":{"_type":"x","in":{"a_b":2}}}`, want, ""},
		{"true", `{"id":1,"match[]":"up","body":{"@type":"x","in":{"a b":2}}}`, want, ""},
		{"mixed, and a number as text", `{"id":"1","match[]":"up","body":{"@type":"x","in":{"a_b":"2"}}}`, want, ""},
		{"both", `{"id":1,"match[]":"up","match__":"up","body":{"_type":"x"}}`, "", "match[]"},
		{"still wrong", `{"id":1,"match[]":"up","body":{"@type":"x","in":{"a b":"y"}}}`, "", "body.in.a_b"},
		{"unknown", `{"id":1,"match[]":"up","body":{"@typ":"x"}}`, "", "@typ"},
	} {
		p, err := s.Plan(&Call{Tool: tools[0], Args: []byte(test.args)})
		switch {
		case test.refused != "":
			if err == nil || !strings.Contains(err.Error(), test.refused) || strings.Contains(err.Error(), "match__: is missing") {
				t.Errorf("%s: %v, want %s in it", test.name, err, test.refused)
			}
		case err != nil:
			t.Errorf("%s: %v", test.name, err)
		case p.URL.RequestURI()+" "+string(p.Body) != test.want:
			t.Errorf("%s: %s %s", test.name, p.URL.RequestURI(), p.Body)
		}
	}
}

const messages = `
openapi: 3.1.0
paths:
  /messages:
    post:
      operationId: send
      requestBody:
        content:
          multipart/form-data:
            schema:
              allOf: [{$ref: '#/components/schemas/Message'}]
              properties: {"files[0]": {type: string, contentEncoding: binary}, more: {type: array, items: {type: string, format: binary}}}
          application/json: {schema: {$ref: '#/components/schemas/Message'}}
  /pictures:
    post:
      operationId: edit
      requestBody:
        content:
          application/json: {schema: {properties: {url: {type: string}}}}
          multipart/form-data: {schema: {properties: {mask: {type: string, format: binary}, prompt: {type: string}}}}
components:
  schemas:
    Message: {type: object, properties: {content: {type: string}, embeds: {type: [array, "null"], items: {type: object}}}}
`

// If both types are possible, it is JSON unless the call has a file.
func TestJSONWithoutFiles(t *testing.T) {
	doc, tools := toolsOf(t, messages)
	flat, _ := openapi.Tools(doc, openapi.Options{FlattenBody: true})
	s := newSource(t, Options{Document: doc, BaseURL: "http://localhost"})
	const multi = "multipart/form-data"
	for _, test := range []struct {
		name       string
		tool       *openapi.Tool
		args       string
		kind, body string // of the body: its beginning
	}{
		{"no file", tools[0], `{"body":{"content":"hi","embeds":[{"title":"a"}]}}`, "application/json", `{"content":"hi","embeds":[{"title":"a"}]}`},
		{"null", tools[0], `{"body":{"content":"hi","embeds":null}}`, "application/json", `{"content":"hi","embeds":null}`},
		{"an empty list of files", tools[0], `{"body":{"content":"hi","more":[]}}`, "application/json", `{"content":"hi"`},
		{"a file", tools[0], `{"body":{"content":"hi","files_0__20cddb7b":{"text":"x"}}}`, multi, "--"},
		{"a list of files", tools[0], `{"body":{"content":"hi","more":[{"text":"x"}]}}`, multi, "--"},
		{"what the JSON does not have", tools[1], `{"body":{"prompt":"a cat"}}`, multi, "--"},
		{"flattened", flat[1], `{"prompt":"a cat"}`, multi, "--"},
	} {
		p, err := s.Plan(&Call{Tool: test.tool, Args: []byte(test.args)})
		if err != nil {
			t.Errorf("%s: %v: %s", test.name, err, test.tool.InputSchema)
			continue
		}
		if kind := p.Header.Get("Content-Type"); !strings.HasPrefix(kind, test.kind) || !strings.HasPrefix(string(p.Body), test.body) {
			t.Errorf("%s: %s\n%s", test.name, kind, p.Body)
		}
	}
}

// sample makes a value that a schema mostly allows.
func sample(root, s gjson.Result, depth int) string {
	if ref := s.Get(`\$ref`).Str; ref != "" && depth < 12 {
		at := root
		for step := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			at = at.Get(gjson.Escape(strings.NewReplacer("~1", "/", "~0", "~").Replace(step)))
		}
		return sample(root, at, depth+1)
	}
	if all := s.Get("allOf"); all.Exists() {
		var out []string
		for _, one := range all.Array() {
			if v := sample(root, one, depth+1); len(v) > 2 && v[0] == '{' {
				out = append(out, v[1:len(v)-1])
			}
		}
		return "{" + strings.Join(out, ",") + "}"
	}
	for _, word := range []string{"const", "enum.0", "default", "anyOf.0", "oneOf.0"} {
		v := s.Get(word)
		switch {
		case !v.Exists():
		case strings.HasSuffix(word, "Of.0"):
			return sample(root, v, depth+1)
		default:
			return v.Raw
		}
	}
	kind := s.Get("type")
	if kind.IsArray() {
		kind = kind.Get("0")
	}
	switch kind.Str {
	case "integer", "number":
		if v := s.Get("minimum"); v.Exists() {
			return v.Raw
		}
		return "1"
	case "boolean":
		return "true"
	case "array":
		if depth > 8 {
			return "[]"
		}
		return "[" + sample(root, s.Get("items"), depth+1) + "]"
	case "object":
		var out []string
		names := s.Get("required").Array()
		if len(names) == 0 { // one of them, so that there is something
			names = s.Get("properties.@keys|@this.0").Array()
		}
		for _, name := range names {
			out = append(out, string(rawjson.AppendString(nil, name.Str))+":"+sample(root, s.Get("properties").Get(gjson.Escape(name.Str)), depth+1))
		}
		if len(names) == 0 {
			return `{"k":"v"}`
		}
		return "{" + strings.Join(out, ",") + "}"
	}
	return `"` + strings.Repeat("a", max(3, int(s.Get("minLength").Int()))) + `"`
}

// Every operation of real documents can be called: each argument reaches its place, or its schema
// refuses it.
func TestDocuments(t *testing.T) {
	files, err := filepath.Glob("../openapi/testdata/*-*.*")
	if err != nil {
		t.Fatal(err)
	}
	callAll(t, files, 30)
}

// The same for documents of other projects.
func TestRealDocuments(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(openapitest.Shared(t, "petstore-3.0.yaml")), "*-*.*"))
	if err != nil {
		t.Fatal(err)
	}
	// Documents with large tools take long, and show nothing new.
	files = slices.DeleteFunc(files, func(name string) bool {
		info, err := os.Stat(name)
		return err != nil || info.IsDir() || info.Size() > 300<<10
	})
	callAll(t, files, 150)
}

// literal percent-encodes what a path cannot have. What is encoded already stays.
func literal(path string) string {
	return forbidden.ReplaceAllStringFunc(path, func(s string) string {
		if len(s) == 3 && s[0] == '%' {
			return s
		}
		var out strings.Builder
		for i := range len(s) {
			fmt.Fprintf(&out, "%%%02X", s[i])
		}
		return out.String()
	})
}

var forbidden = regexp.MustCompile(`%[0-9A-Fa-f]{2}|[^-._~:/@!$&'()*+,;=a-zA-Z0-9]`)

// callAll calls all operations of documents. At least so many of them must accept the made-up
// arguments.
func callAll(t *testing.T, files []string, least int) {
	all, made := 0, 0
	for _, name := range files {
		doc, err := openapi.Load(context.Background(), openapi.Source{Location: name})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		tools, _ := openapi.Tools(doc, openapi.Options{})
		srv := newRecorder(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		s := newSource(t, Options{Document: doc, BaseURL: srv.URL})
		for _, x := range tools {
			schema := gjson.ParseBytes(x.InputSchema)
			var args []string
			for _, a := range x.Arguments {
				args = append(args, strconv.Quote(a.Name)+":"+sample(schema, schema.Get("properties").Get(gjson.Escape(a.Name)), 0))
			}
			all++
			r := call(t, s, &Call{Tool: x, Args: []byte("{" + strings.Join(args, ",") + "}")})
			sent := srv.requests()
			if len(sent) == 0 {
				t.Logf("%s %s: %s", filepath.Base(name), x.Name, said(r))
				continue
			}
			made++
			q := sent[0]
			path, _, _ := strings.Cut(x.Operation.Path, "{")
			if q.method != x.Operation.Method || !strings.HasPrefix(q.uri, literal(strings.SplitN(path, "?", 2)[0])) || contains(q.uri, "{") {
				t.Errorf("%s %s: %s %s", filepath.Base(name), x.Name, q.method, q.uri)
			}
			for _, a := range x.Arguments {
				if a.Place == openapi.InHeader && q.header.Get(a.Parameter.Name) == "" {
					t.Errorf("%s %s: the header %s is not there", filepath.Base(name), x.Name, a.Parameter.Name)
				}
				if a.Place == openapi.InBody && len(q.body) == 0 && q.method != "HEAD" {
					t.Errorf("%s %s: there is no body", filepath.Base(name), x.Name)
				}
			}
		}
	}
	t.Logf("%d operations, %d requests", all, made)
	if made < least || made*10 < all*9 {
		t.Errorf("%d requests of %d operations", made, all)
	}
}
