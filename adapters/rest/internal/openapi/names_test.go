package openapi

import (
	"strings"
	"testing"
)

func names(tools []*Tool) []string {
	var out []string
	for _, t := range tools {
		out = append(out, t.Name)
	}
	return out
}

func TestToolNames(t *testing.T) {
	long := strings.Repeat("abcdefghij", 9)
	for _, c := range []struct {
		paths string
		o     Options
		want  []string
	}{
		{"/a: {get: {operationId: getA}}", Options{}, []string{"getA"}},
		{"/a: {get: {operationId: 'repos/get-one.now'}}", Options{}, []string{"repos_get-one_now"}},
		{"/a: {get: {operationId: find pet by id}}", Options{Prefix: "x_"}, []string{"x_find_pet_by_id"}},
		{"'/noid/{x}/things': {get: {}}", Options{}, []string{"get_noid_x_things"}},
		{"/a: {get: {operationId: '---'}, post: {operationId: ''}}", Options{}, []string{"get_a", "post_a"}},
		{"/: {get: {}}", Options{}, []string{"get"}},
		{"/a: {get: {operationId: " + long + "}}", Options{}, []string{long[:55] + "_" + hash("GET /a")}},
		{"/a: {get: {operationId: " + long + "}}", Options{Prefix: "github_"}, []string{"github_" + long[:48] + "_" + hash("GET /a")}},
		{"/a: {get: {operationId: " + long + "}}", Options{NameLimit: 40}, []string{long[:31] + "_" + hash("GET /a")}},
		// All but the exact owner get another name, in any order.
		{"/a: {get: {operationId: a.b}}, /b: {get: {operationId: a_b}}, /c: {get: {operationId: a/b}}", Options{}, []string{"a_b_" + hash("GET /a"), "a_b", "a_b_" + hash("GET /c")}},
		{"/a: {get: {operationId: same}}, /b: {get: {operationId: same}}", Options{}, []string{"same_" + hash("GET /a"), "same_" + hash("GET /b")}},
		{"/a: {get: {operationId: a, x-mcp: {name: mine}}}", Options{}, []string{"mine"}},
		{"'/rpc#a': {post: {}}, '/rpc#b': {post: {}}", Options{}, []string{"post_rpc_a", "post_rpc_b"}},
	} {
		tools, _ := make1(t, "openapi: 3.1.0\npaths: {"+c.paths+"}\n", c.o)
		same(t, names(tools), c.want)
	}
}

func TestArgumentNames(t *testing.T) {
	long := strings.Repeat("abcdefghij", 9)
	for _, c := range []struct{ params, want []string }{
		{[]string{"query a", "query b"}, []string{"a", "b"}},
		{[]string{"query id", "path id", "header id"}, []string{"id_query", "id", "id_header"}},
		{[]string{"query id", "cookie id"}, []string{"id_query", "id_cookie"}},
		{[]string{"query body", "path body"}, []string{"body_query", "body_path"}},
		{[]string{"query StartTime", "query StartTime<", "query StartTime>"}, []string{"StartTime", "StartTime_", "StartTime__query"}},
		{[]string{"query a<", "query a_"}, []string{"a__query", "a_"}},
		{[]string{"query a[]", "query a{}", "query a()"}, []string{"a__", "a___query", "a___query_2"}},
		{[]string{"query filter[name]", "query $top", "header x.y"}, []string{"filter_name_", "_top", "x.y"}},
		{[]string{"query id", "header id", "path id", "query id_query"}, []string{"id_query_2", "id_header", "id", "id_query"}},
		{[]string{"query 名前", "query ключ", "header 名前", "query _"}, []string{"arg_" + hash("名前") + "_query", "arg_" + hash("ключ"), "arg_" + hash("名前") + "_header", "_"}},
		{[]string{"query " + long}, []string{long[:55] + "_" + hash(long)}},
	} {
		var params []*Parameter
		for _, p := range c.params {
			in, name, _ := strings.Cut(p, " ")
			params = append(params, &Parameter{Name: name, In: Place(in)})
		}
		got := nameArguments(params)
		same(t, got, c.want)
		for _, n := range got {
			if !propertyName.MatchString(n) {
				t.Errorf("%q cannot be the name of a property", n)
			}
		}
	}
}

func TestExpose(t *testing.T) {
	const doc = `
openapi: 3.0.0
paths:
  /repos/{owner}: {get: {operationId: repos/get, tags: [repos]}, delete: {operationId: repos/delete, tags: [repos]}}
  /search/code: {get: {operationId: search/code, tags: [search, code]}}
  /search: {get: {operationId: search}}
  /search/{a}/deep/x: {get: {operationId: deep}}
  /off: {get: {operationId: off, x-mcp: false}, put: {operationId: off2, x-mcp: {enabled: false}}}
  /all: {x-mcp: false, get: {operationId: off3}, put: {operationId: on, x-mcp: true}}
`
	for _, c := range []struct {
		rules []string
		want  string
	}{
		{nil, "repos_get repos_delete search_code search deep on"},
		{[]string{"all"}, "repos_get repos_delete search_code search deep on"},
		{[]string{"none"}, ""},
		{[]string{"tag repos"}, "repos_get repos_delete"},
		{[]string{"tag code, repos", "not DELETE"}, "repos_get search_code"},
		{[]string{"not DELETE"}, "repos_get search_code search deep on"},
		{[]string{"none", "GET /search/**"}, "search_code search deep"},
		{[]string{"none", "GET /search/*"}, "search_code"},
		{[]string{"/search/*/deep/*"}, "deep"},
		{[]string{"all", "not /search/**", "search"}, "repos_get repos_delete search on"},
		{[]string{"repos/*", "not repos/delete"}, "repos_get"},
		{[]string{"DELETE /repos/{owner}"}, "repos_delete"},
	} {
		rules, err := ParseRules(c.rules)
		if err != nil {
			t.Fatal(err)
		}
		tools, warnings := make1(t, doc, Options{Expose: rules})
		if got := strings.Join(names(tools), " "); got != c.want {
			t.Errorf("%q exposes %s, want %s", c.rules, got, c.want)
		}
		if s := strings.Join(warnings, "; "); strings.Contains(s, "expose") {
			t.Errorf("%q: %s", c.rules, s)
		}
	}
	rules, _ := ParseRules([]string{"tag nothing"})
	_, warnings := make1(t, doc, Options{Expose: rules})
	warned(t, warnings, `expose: "tag nothing" matches no operation`)
	if _, err := ParseRules([]string{"tag ", " "}); err == nil || !strings.Contains(err.Error(), "names no tag") || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("error is %v", err)
	}
}

func TestDescriptions(t *testing.T) {
	for _, c := range []struct{ op, want string }{
		{"summary: List pets, description: All of them.", "List pets\n\nAll of them."},
		{"summary: List pets., description: List pets. All of them.", "List pets. All of them."},
		{"description: Only this, deprecated: true", "Only this\n\nDeprecated."},
		{"summary: A, responses: {201: {description: Created}, 200: {description: The pet}}", "A\n\nReturns The pet."},
		{"summary: A, responses: {200: {description: OK}, 404: {description: None}}", "A"},
		{"summary: A, responses: {200: {description: Returned if it is there}}", "A\n\nReturned if it is there."},
		{"responses: {}", "GET /a"},
		{"summary: A, x-mcp: {description: Mine, title: T}", "Mine"},
		{"description: " + strings.Repeat("ä", 600), strings.Repeat("ä", 498) + "…"},
	} {
		tools, _ := make1(t, "openapi: 3.0.0\npaths: {/a: {get: {"+c.op+"}}}\n", Options{})
		same(t, tools[0].Description, c.want)
	}
}

func TestTitles(t *testing.T) {
	tools, _ := make1(t, "openapi: 3.0.0\npaths: {/a: {get: {summary: '<p>List <b class=\"x\">pets</b> &amp; List<Dogs></p>'}}}\n", Options{})
	same(t, tools[0].Title, "List pets & List<Dogs>")
}

// A body that can only be empty is no argument.
func TestEmptyBodies(t *testing.T) {
	for body, want := range map[string]bool{
		"content: {application/x-www-form-urlencoded: {schema: {type: object, properties: {}}}}":                               false,
		"content: {application/json: {schema: {type: object, properties: {}, additionalProperties: false}}}":                   false,
		"required: true, content: {application/json: {schema: {type: object, properties: {}, additionalProperties: false}}}":   true,
		"content: {application/json: {schema: {type: object, properties: {}}}}":                                                true,
		"content: {application/x-www-form-urlencoded: {schema: {type: object}}}":                                               true,
		"content: {application/x-www-form-urlencoded: {schema: {properties: {}, additionalProperties: {type: string}}}}":       true,
		"content: {application/x-www-form-urlencoded: {schema: {properties: {}, allOf: [{properties: {a: {type: string}}}]}}}": true,
	} {
		tools, _ := make1(t, "openapi: 3.0.0\npaths: {/a: {post: {requestBody: {"+body+"}}}}\n", Options{})
		if got := len(tools[0].Arguments) > 0; got != want {
			t.Errorf("%s: an argument: %t", body, got)
		}
	}
}

func TestAnnotations(t *testing.T) {
	tools, _ := make1(t, `
openapi: 3.2.0
paths:
  /a:
    get: {}
    put: {}
    post: {}
    delete: {}
    options: {}
    head: {}
    patch: {}
    query: {}
    additionalOperations: {LOCK: {}, "not ok": {}}
  /b:
    post: {x-mcp: {readOnlyHint: true}}
    put: {x-mcp: {annotations: {destructiveHint: false, openWorldHint: false}}}
`, Options{})
	want := map[string]Annotations{
		"get_a": {ReadOnly: true, Idempotent: true, OpenWorld: true}, "head_a": {ReadOnly: true, Idempotent: true, OpenWorld: true},
		"options_a": {ReadOnly: true, Idempotent: true, OpenWorld: true}, "query_a": {ReadOnly: true, Idempotent: true, OpenWorld: true},
		"put_a": {Destructive: true, Idempotent: true, OpenWorld: true}, "delete_a": {Destructive: true, Idempotent: true, OpenWorld: true},
		"post_a": {Destructive: true, OpenWorld: true}, "patch_a": {Destructive: true, OpenWorld: true}, "lock_a": {Destructive: true, OpenWorld: true},
		"post_b": {ReadOnly: true, Idempotent: true, OpenWorld: true}, "put_b": {Idempotent: true},
	}
	same(t, len(tools), len(want))
	for _, tool := range tools {
		if tool.Annotations != want[tool.Name] {
			t.Errorf("%s: %+v", tool.Name, tool.Annotations)
		}
	}
}

func TestItem(t *testing.T) {
	tools, _ := make1(t, "openapi: 3.0.0\npaths: {'/a#x': {get: {operationId: a, summary: \"Say \\\"A\\\"\", responses: {200: {content: {application/json: {schema: {type: object}}}}}}}}\n", Options{})
	same(t, string(tools[0].AppendItem(nil)), `{"name":"a","title":"Say \"A\"","description":"Say \"A\"","inputSchema":{"type":"object","properties":{},"additionalProperties":false},"outputSchema":{"type":"object"},`+
		`"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":true},"_meta":{"http":{"method":"GET","path":"/a#x"}}}`)
}
