package openapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// show writes a parameter as a request needs it.
func show(p *Parameter) string {
	return fmt.Sprintf("%s %s %s explode=%t reserved=%t %s%s%s", p.In, p.Name, p.Style, p.Explode, p.AllowReserved, p.Type, p.CollectionFormat, p.ContentType)
}

func TestParameters(t *testing.T) {
	head3 := "openapi: 3.0.3\npaths:\n  /a/{id}:\n    parameters:\n      - {name: id, in: path, required: true, schema: {type: integer}}\n    get:\n      parameters:\n"
	head2 := "swagger: '2.0'\npaths:\n  /a/{id}:\n    parameters:\n      - {name: id, in: path, required: true, type: integer}\n    get:\n      parameters:\n"
	for _, c := range []struct{ head, param, want, warning string }{
		{head3, "{name: a, in: query, schema: {type: array, items: {}}}", "query a form explode=true reserved=false array", ""},
		{head3, "{name: a, in: query, explode: false, schema: {type: array}}", "query a form explode=false reserved=false array", ""},
		{head3, "{name: a, in: query, style: spaceDelimited, allowReserved: true, schema: {type: array}}", "query a spaceDelimited explode=false reserved=true array", ""},
		{head3, "{name: a, in: query, style: deepObject, explode: false, schema: {type: object}}", "query a deepObject explode=true reserved=false object", ""},
		{head3, "{name: a, in: query, style: matrix, schema: {type: string}}", "query a form explode=true reserved=false string", `doc.yaml:8: GET /a/{id}: parameter "a": style "matrix" is not valid in query`},
		{head3, "{name: X-A, in: header, schema: {$ref: '#/components/schemas/S'}}", "header X-A simple explode=false reserved=false ", "there is nothing at"},
		{head3, "{name: c, in: cookie, schema: {type: [string, 'null']}}", "cookie c form explode=true reserved=false string", ""},
		{head3, "{name: a, in: query, content: {application/json: {schema: {type: object}}}}", "query a form explode=true reserved=false objectapplication/json", ""},
		{head3, "{name: id, in: path, required: true, style: label, explode: true, schema: {type: array}}", "path id label explode=true reserved=false array", ""},
		{head3, "{name: q, in: querystring, content: {application/x-www-form-urlencoded: {schema: {type: object}}}}", "querystring q form explode=true reserved=false objectapplication/x-www-form-urlencoded", ""},
		{head3, "{name: Authorization, in: header, schema: {type: string}}", "", ""},
		{head3, "{name: accept, in: header, schema: {type: string}}", "", ""},
		{head3, "{name: 'a b', in: header, schema: {type: string}}", "", "cannot be the name of a header"},
		{head3, "{name: a, in: nowhere}", "", `parameter "a" is in "nowhere"`},
		{head3, "{in: query}", "", "without a name"},
		{head3, "{name: other, in: path, required: true, schema: {type: string}}", "", "the path has no {other}"},
		{head3, "{name: x_http_method, in: header}", "", "GET /a/{id}: header x_http_method is left out"},
		{head3, "{name: X-Original-URL, in: header}", "", "GET /a/{id}: header X-Original-URL is left out"},
		{head3, "{name: _method, in: query}", "", "GET /a/{id}: query _method is left out"},
		{head2, "{name: a, in: query, type: array, items: {type: string}}", "query a form explode=false reserved=false arraycsv", ""},
		{head2, "{name: a, in: query, type: array, collectionFormat: multi}", "query a form explode=true reserved=false arraymulti", ""},
		{head2, "{name: a, in: query, type: array, collectionFormat: pipes}", "query a pipeDelimited explode=false reserved=false arraypipes", ""},
		{head2, "{name: a, in: query, type: array, collectionFormat: ssv}", "query a spaceDelimited explode=false reserved=false arrayssv", ""},
		{head2, "{name: a, in: header, type: array, collectionFormat: tsv}", "header a simple explode=false reserved=false arraytsv", ""},
		{head2, "{name: a, in: query, type: string}", "query a form explode=false reserved=false string", ""},
	} {
		tools, warnings := make1(t, c.head+"        - "+c.param+"\n", Options{})
		if c.warning != "" {
			warned(t, warnings, c.warning)
		} else if len(warnings) > 0 {
			t.Errorf("%s: %q", c.param, warnings)
		}
		var got []string
		for _, p := range tools[0].Operation.Parameters {
			if s := show(p); !strings.HasPrefix(s, "path id simple") {
				got = append(got, s)
			}
		}
		if s := strings.Join(got, "; "); s != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.param, s, c.want)
		}
	}
}

// A parameter of the operation replaces the path's, and the last of two counts.
func TestParametersAreMerged(t *testing.T) {
	tools, warnings := make1(t, `
openapi: 3.1.0
paths:
  /a/{x}:
    parameters:
      - {name: x, in: path, schema: {type: string}, description: of the path}
      - {name: q, in: query, schema: {type: string}}
    get:
      parameters:
        - {name: r, in: query, schema: {type: string}}
        - {name: q, in: query, schema: {type: integer}}
        - {name: r, in: query, schema: {type: boolean}}
`, Options{})
	same(t, len(warnings), 1)
	warned(t, warnings, `doc.yaml:12: GET /a/{x}: parameter "r" in query is given twice`)
	same(t, string(tools[0].InputSchema), `{"type":"object","properties":{"x":{"type":"string","description":"of the path"},"q":{"type":"integer"},"r":{"type":"boolean"}},"required":["x"],"additionalProperties":false}`)
}

// Headers that name another method stay where the method may change something anyway.
func TestMethodOverridesOfWrites(t *testing.T) {
	tools, warnings := make1(t, "openapi: 3.0.0\npaths: {/a: {post: {parameters: [{name: X-HTTP-Method-Override, in: header}, {name: _method, in: query}]}}}\n", Options{})
	same(t, len(tools[0].Arguments), 2)
	same(t, len(warnings), 0)
}

// An operation with a dead reference among its parameters or in its body is left out. A dead reference in a schema or
// an answer costs only that part.
func TestDeadReferencesOfRequests(t *testing.T) {
	const dead = "{$ref: '#/components/none/x'}"
	for _, c := range []struct {
		name, item string
		lost       bool
	}{
		{"a parameter", "post: {parameters: [" + dead + "]}", true},
		{"the parameters", "post: {parameters: " + dead + "}", true},
		{"a parameter of the path", "parameters: [" + dead + "], post: {}", true},
		{"the body", "post: {requestBody: " + dead + "}", true},
		{"the types of the body", "post: {requestBody: {content: " + dead + "}}", true},
		{"the only type of the body", "post: {requestBody: {content: {application/json: " + dead + "}}}", true},
		{"a body that is no object", "post: {requestBody: text}", true},
		{"one type of the body", "post: {requestBody: {content: {text/plain: " + dead + ", application/json: {}}}}", false},
		{"no body", "post: {requestBody: }", false},
		{"a body without types", "post: {requestBody: {content: {}}}", false},
		{"a schema", "post: {requestBody: {content: {application/json: {schema: " + dead + "}}}}", false},
		{"an answer", "post: {responses: {200: " + dead + "}}", false},
	} {
		doc := load(t, "openapi: 3.2.0\npaths: {/a: {"+c.item+"}}\n")
		if got := len(doc.Lost) == 1 && len(doc.Operations) == 0; got != c.lost {
			t.Errorf("%s: lost %v, served %v; want lost %v", c.name, doc.Lost, doc.Operations, c.lost)
		}
		if c.lost {
			var all []string
			for _, w := range doc.Warnings {
				all = append(all, w.String())
			}
			warned(t, all, "doc.yaml:2: POST /a is left out: ")
		}
	}
}

func TestPathTemplates(t *testing.T) {
	for path, want := range map[string]string{
		"/a/{b}/{c}":          "/a/{b}/{c} b c",
		"/a/{b}:act":          "/a/{b}:act b",
		"/files/{+path}":      "/files/{path} path/",
		"/files/{path*}":      "/files/{path} path/",
		"/files/{path+}":      "/files/{path} path/",
		"/files/{path...}":    "/files/{path} path/",
		"/files/{path:path}":  "/files/{path} path/",
		"/files/{path:.*}":    "/files/{path} path/",
		"/v1/{name=a/*/b/*}":  "/v1/{name} name/",
		"/v1/{name=*}":        "/v1/{name} name",
		"/n/{id:[0-9]+}":      "/n/{id} id",
		"/rpc#one":            "/rpc",
		"/responses?beta=yes": "/responses?beta=yes",
		"plain":               "/plain",
		"/":                   "/",
	} {
		doc := load(t, "openapi: 3.0.0\npaths:\n  '"+path+"': {get: {}}\n")
		op := doc.Operations[0]
		got := op.Path
		for _, p := range op.Parameters {
			if got += " " + p.Name; p.AllowReserved {
				got += "/"
			}
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
		if op.Key() != "GET "+path {
			t.Errorf("key of %s is %s", path, op.Key())
		}
	}
}

// A value in the query of a path is no argument. A name without a value is one.
func TestPathQueries(t *testing.T) {
	for path, want := range map[string]string{
		"/p{?a,b*}":        "/p: query a, query b*",
		"/p{?a}{&c:3}":     "/p: query a, query c",
		"/q?mode=a":        "/q?mode=a: ",
		"/q?mode=&x=1":     "/q?x=1: query mode",
		"/q?mode={mode}":   "/q: query mode",
		"/q?mode":          "/q: query mode",
		"/q?other=1":       "/q?other=1: query mode",
		"/q?other={other}": "/q: query mode, query other",
		"/q?m={mode}":      "/q: query m",
		"/q?mode={other}":  "/q: query mode",
	} {
		param := "mode"
		if strings.HasPrefix(path, "/p") {
			param = "a"
		}
		doc := load(t, "openapi: 3.0.0\npaths: {'"+path+"': {get: {parameters: [{name: "+param+", in: query, schema: {type: string}}]}}}\n")
		op := doc.Operations[0]
		var all []string
		for _, p := range op.Parameters {
			if s := string(p.In) + " " + p.Name; p.Explode && p.at.line == 0 { // not of the document
				all = append(all, s+"*")
			} else {
				all = append(all, s)
			}
		}
		slices.Sort(all)
		got := op.Path + ": " + strings.Join(all, ", ")
		if got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// Texts of YAML that look like numbers stay as they are where the type is a string.
func TestTextsLikeNumbers(t *testing.T) {
	tools, _ := make1(t, `
openapi: 3.1.0
paths:
  /a:
    get:
      parameters:
        - {name: a, in: query, schema: {type: string, enum: [01, 02, +1, 1_0, True, 1.50], default: 01}}
        - {name: b, in: query, schema: {type: integer, enum: [01, 2]}}
        - {name: c, in: query, schema: {type: string, const: 007}}
`, Options{})
	same(t, string(tools[0].InputSchema), `{"type":"object","properties":{"a":{"type":"string","enum":["01","02","+1","1_0","True","1.50"],"default":"01"},"b":{"type":"integer","enum":[1,2]},"c":{"type":"string","const":"007"}},"additionalProperties":false}`)
	same(t, tools[0].Operation.Parameters[2].Value, "007")
}

// Lines of JSON, and parts without names, are given as a list.
func TestSequences(t *testing.T) {
	tools, warnings := make1(t, `
openapi: 3.2.0
paths:
  /lines: {post: {requestBody: {required: true, content: {application/jsonl: {itemSchema: {type: object, properties: {a: {type: integer}}}}}}}}
  /parts:
    post:
      requestBody:
        content:
          multipart/mixed:
            schema: {type: array, prefixItems: [{type: object}, {type: string, format: binary}], items: {type: string}}
            prefixEncoding: [{}, {contentType: image/png}]
            itemEncoding: {contentType: text/plain}
  /stream: {post: {requestBody: {content: {multipart/mixed: {itemSchema: {type: string}, itemEncoding: {headers: {X-N: {required: true, schema: {type: integer}}}}}}}}}
`, Options{})
	same(t, string(tools[0].InputSchema), `{"type":"object","properties":{"body":{"type":"array","items":{"type":"object","properties":{"a":{"type":"integer"}}}}},"required":["body"],"additionalProperties":false}`)
	var parts []string
	for _, f := range tools[1].Body.Items {
		parts = append(parts, fmt.Sprint(f.Type, " ", f.File, " ", f.ContentType))
	}
	same(t, parts, []string{"object false ", "string true image/png", "string false text/plain"})
	same(t, strings.Contains(string(tools[1].InputSchema), `"$ref":"#/$defs/File"`), true)
	same(t, len(tools[2].Body.Items), 1)
	warned(t, warnings, "header X-N of a part has no value in its schema, and no argument: it is not sent")
}

// Parameters of schemes that the operation uses are no arguments; those of other schemes are. Headers that
// only the connection sets are none, even if the document requires them: the tool could never be called.
// Nor are headers that a server may take for one of these, or for a withheld one.
func TestNoArguments(t *testing.T) {
	tools, warnings := make1(t, `
openapi: 3.0.0
components:
  securitySchemes:
    key: {type: apiKey, in: query, name: api_key}
    token: {type: apiKey, in: header, name: X-Token}
    head: {type: apiKey, in: header, name: X-Api-Key}
    sid: {type: apiKey, in: cookie, name: sid}
    other: {type: apiKey, in: query, name: other}
paths:
  /a:
    get:
      security: [{key: []}, {token: [], sid: []}, {head: []}]
      parameters:
        - {name: other, in: query, required: true, schema: {type: string}}
        - {name: api_key, in: query, required: true, schema: {type: string}}
        - {name: x-token, in: header, schema: {type: string}}
        - {name: sid, in: cookie, schema: {type: string}}
        - {name: sid, in: query, schema: {type: string}}
        - {name: api_key, in: header, schema: {type: string}}
        - {name: Host, in: header, required: true, schema: {type: string}}
        - {name: content-length, in: header, required: true, schema: {type: integer}}
        - {name: Transfer-Encoding, in: header, schema: {type: string}}
        - {name: Connection, in: header, schema: {type: string}}
        - {name: X-Host, in: header, schema: {type: string}}
        - {name: x_api_key, in: header, schema: {type: string}}
        - {name: x_user, in: header, schema: {type: string}}
        - {name: content_length, in: header, schema: {type: string}}
        - {name: x_trace, in: header, schema: {type: string}}
`, Options{Withheld: []string{"X-User"}})
	var got []string
	for _, a := range tools[0].Arguments {
		got = append(got, string(a.Place)+" "+a.Name)
	}
	same(t, got, []string{"query other", "query sid", "header api_key", "header X-Host", "header x_trace"})
	same(t, warnings, []string(nil))
	same(t, strings.Contains(string(tools[0].InputSchema), `"required":["other"]`), true)
}

func TestBodyIsChosen(t *testing.T) {
	file := "multipart/form-data: {schema: {type: object, properties: {f: {type: string, format: binary}}}}"
	for _, c := range []struct{ content, want string }{
		{"application/xml: {}, application/json: {}", "application/json"},
		{"application/x-www-form-urlencoded: {}, application/vnd.x+json: {}", "application/vnd.x+json"},
		{"application/json-patch+json: {}, application/merge-patch+json: {}", "application/merge-patch+json"},
		{"text/plain: {}, application/x-www-form-urlencoded: {}", "application/x-www-form-urlencoded"},
		{"application/json: {}, " + file, "multipart/form-data"},
		{"application/json: {}, multipart/form-data: {}", "application/json"},
		{"application/octet-stream: {}, text/plain: {}", "text/plain"},
		{"'application/json; charset=utf-8': {}, '*/*': {}", "application/json; charset=utf-8"},
		{"image/png: {}", "image/png"},
	} {
		tools, _ := make1(t, "openapi: 3.0.0\npaths: {/a: {post: {requestBody: {content: {"+c.content+"}}}}}\n", Options{})
		same(t, tools[0].Body.Type, c.want)
	}
}

func TestBodies(t *testing.T) {
	file := `{"$ref":"#/$defs/File"}`
	for _, c := range []struct{ content, want, fields string }{
		{"application/octet-stream: {schema: {type: string, format: binary}}", file, ""},
		{"application/pdf: {}", file, ""},
		{"'*/*': {schema: {type: object}}", `{"type":"object"}`, ""},
		{"'*/*': {}", `{}`, ""},
		{"text/plain: {schema: {type: string, maxLength: 5}}", `{"type":"string"}`, ""},
		{"application/xml: {schema: {type: object}}", `{"type":"string","description":"(application/xml)"}`, ""},
		{"application/xml: {schema: {xml: {name: order}, properties: {id: {type: integer, xml: {attribute: true}}, done: {readOnly: true}, rows: {type: array, xml: {name: row}}}}}",
			`{"type":"string","description":"(application/xml: <order> with id integer as attribute, row array)"}`, ""},
		{"application/json: {schema: {type: string, format: binary}}", `{"type":"string"}`, ""},
		{"multipart/form-data: {schema: {type: object, properties: {f: {type: string, format: binary}, n: {type: integer}, l: {type: array, items: {type: string, format: binary}}}}}",
			`{"type":"object","properties":{"f":{"$ref":"#/$defs/File"},"n":{"type":"integer"},"l":{"type":"array","items":{"$ref":"#/$defs/File"}}}}`, "f:file n:integer l:files"},
		{"multipart/form-data: {schema: {type: object, properties: {f: {contentMediaType: image/png}, o: {type: object, properties: {x: {type: string, format: binary}}}}}}",
			`{"type":"object","properties":{"f":{"$ref":"#/$defs/File"},"o":{"type":"object","properties":{"x":{"type":"string"}}}}}`, "f:file o:object"},
		{"application/x-www-form-urlencoded: {schema: {type: object, properties: {b: {type: string}, a: {type: array, items: {type: string}}}}, encoding: {a: {style: spaceDelimited, explode: false}}}",
			`{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"array","items":{"type":"string"}}}}`, "b:string a:array/spaceDelimited"},
		{"multipart/mixed: {schema: {type: object, properties: {j: {type: object}}}, encoding: {j: {contentType: application/xml, headers: {X-A: {schema: {const: one}}, Content-Type: {}}}}}",
			`{"type":"object","properties":{"j":{"type":"object"}}}`, "j:object application/xml X-A=one"},
	} {
		tools, _ := make1(t, "openapi: 3.1.0\npaths: {/a: {post: {requestBody: {required: true, content: {"+c.content+"}}}}}\n", Options{})
		want := `{"type":"object","properties":{"body":` + c.want + `},"required":["body"],"additionalProperties":false`
		if got := string(tools[0].InputSchema); !strings.HasPrefix(got, want) {
			t.Errorf("%s:\n got %s\nwant %s", c.content, got, want)
		}
		var fields []string
		for _, f := range tools[0].Body.Fields {
			s := f.Name + ":" + f.Type
			if f.File && f.Array {
				s = f.Name + ":files"
			} else if f.File {
				s = f.Name + ":file"
			}
			if f.Styled {
				s += "/" + f.Style
			}
			if f.ContentType != "" {
				s += " " + f.ContentType
			}
			for _, p := range f.Headers {
				s += " " + p.Name + "=" + p.Value
			}
			fields = append(fields, s)
		}
		same(t, strings.Join(fields, " "), c.fields)
	}
}

func TestSwaggerForms(t *testing.T) {
	tools, _ := make1(t, `
swagger: "2.0"
consumes: [application/json, application/x-www-form-urlencoded]
paths:
  /up:
    post:
      parameters:
        - {name: photo, in: formData, type: file, required: true, description: A photo}
        - {name: tags, in: formData, type: array, items: {type: string}, collectionFormat: pipes}
  /form:
    post:
      parameters:
        - {name: a, in: formData, type: integer, maximum: 3}
  /body:
    post:
      parameters:
        - {name: thing, in: body, required: true, description: The thing, schema: {type: object, properties: {a: {type: string, x-nullable: true}}}}
`, Options{})
	same(t, tools[0].Body.Type, "multipart/form-data")
	same(t, *tools[0].Body.Fields[1], Field{Name: "tags", Array: false, Type: "array", CollectionFormat: "pipes"})
	same(t, tools[0].Body.Fields[0].File, true)
	same(t, tools[0].Arguments[0].Required, true)
	same(t, tools[1].Body.Type, "application/x-www-form-urlencoded")
	same(t, string(tools[1].InputSchema), `{"type":"object","properties":{"body":{"type":"object","properties":{"a":{"type":"integer","maximum":3}}}},"additionalProperties":false}`)
	same(t, tools[2].Body.Type, "application/json")
	same(t, string(tools[2].InputSchema), `{"type":"object","properties":{"body":{"type":"object","description":"The thing","properties":{"a":{"type":["string","null"]}}}},"required":["body"],"additionalProperties":false}`)
}

func TestResponseHeaders(t *testing.T) {
	doc := load(t, `
openapi: 3.0.3
info: { title: x, version: "1" }
paths:
  /x:
    get:
      responses:
        "200":
          description: ok
          headers: { link: { $ref: "#/components/headers/link" }, X-Total-Count: { schema: { type: integer } }, "no header": {} }
components: { headers: { link: { schema: { type: string } } } }
`)
	same(t, doc.Operations[0].Responses[0].Headers, []string{"Link", "X-Total-Count"})
}
