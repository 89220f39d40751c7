package overlay_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/overlay"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
	"github.com/mcp-bridge/bridge/internal/openapitest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

const document = `info: {title: Pets, tags: [a]}
paths:
  /pets:
    get: {operationId: list, parameters: [{name: q}], x-internal: true}
    post: {operationId: add}
  /owners: {get: {operationId: owners, deprecated: true}}
`

// applied applies actions, written as YAML, to a document.
func applied(t testing.TB, document, actions string) (json, told string, err error) {
	t.Helper()
	root, _, err := tree.Parse([]byte(document), 3, func(line int32, text string) { t.Fatalf("line %d: %s", line, text) })
	if err != nil {
		t.Fatal(err)
	}
	before, _ := root.AppendJSON(nil, 1<<20)
	o, err := overlay.Parse("fix.yaml", []byte("overlay: 1.0.0\ninfo: {title: Fix, version: \"1\"}\nactions:\n"+actions))
	if err != nil {
		return "", "", err
	}
	var all []string
	out, err := o.Apply(root, func(line int, text string) { all = append(all, fmt.Sprint(line, ": ", text)) })
	if after, _ := root.AppendJSON(nil, 1<<20); string(before) != string(after) {
		t.Errorf("the document itself has changed: %s", after)
	}
	if err != nil {
		return "", "", err
	}
	b, _ := out.AppendJSON(nil, 1<<20)
	return string(b), strings.Join(all, "; "), nil
}

func TestApply(t *testing.T) {
	for _, test := range []struct {
		name, document, actions string
		want, told              string
	}{
		{"a member", "a: {b: 1, c: {d: 1}}", `- {target: $.a, update: {b: 2, c: {e: [1]}, f: null}}`, `{"a":{"b":2,"c":{"d":1,"e":[1]},"f":null}}`, ""},
		{"the whole document", "a: 1", `- {target: $, update: {b: 2}}`, `{"a":1,"b":2}`, ""},
		{"an entry of a list", "a: [1]", `- {target: $.a, update: {b: 2}}`, `{"a":[1,{"b":2}]}`, ""},
		{"several entries", "a: [1]", `- {target: $.a, update: [2, 3]}`, `{"a":[1,2,3]}`, ""},
		{"lists within", "a: {b: [1]}", `- {target: $.a, update: {b: [2]}}`, `{"a":{"b":[1,2]}}`, ""},
		{"another kind within", "a: {b: [1]}", `- {target: $.a, update: {b: {c: 1}}}`, `{"a":{"b":{"c":1}}}`, ""},
		{"remove", "a: {b: 1, c: [1, 2, 3]}", "- {target: $.a.b, remove: true}\n- {target: \"$.a.c[0,2]\", remove: true}", `{"a":{"c":[2]}}`, ""},
		{"remove wins", "a: {b: 1}", "- {target: $.a, remove: true, update: {c: 1}}", `{}`, ""},
		{"in order", "a: {b: {}}", "- {target: $.a.b, update: {c: {}}}\n- {target: $.a.b.c, update: {d: 1}}\n- {target: $.a.b, remove: true}", `{"a":{}}`, ""},
		{"one within the other", "a: {t: 1, b: {t: 1}}", `- {target: "$..[?@.t]", update: {u: 1}}`, `{"a":{"t":1,"b":{"t":1,"u":1},"u":1}}`, ""},
		{"nothing", "a: 1", `- {target: $.b, remove: true}`, `{"a":1}`, "4: target $.b selects nothing"},
		{"a filter", document, `- {target: "$.paths.*.*[?@ == true]", remove: true}`, `{"info":{"title":"Pets","tags":["a"]},"paths":{"/pets":{"get":{"operationId":"list","parameters":[{"name":"q"}]},"post":{"operationId":"add"}},"/owners":{"get":{"operationId":"owners"}}}}`, ""},
		{"by an identifier", document, `- {target: "$.paths.*[?@.operationId == 'add' || @.deprecated]", remove: true}`, `{"info":{"title":"Pets","tags":["a"]},"paths":{"/pets":{"get":{"operationId":"list","parameters":[{"name":"q"}],"x-internal":true}},"/owners":{}}}`, ""},
		{"a pattern", document, `- {target: "$.paths.*[?match(@.operationId, 'add|list') || search($.nothing, 'a')]", remove: true}`, `{"info":{"title":"Pets","tags":["a"]},"paths":{"/pets":{},"/owners":{"get":{"operationId":"owners","deprecated":true}}}}`, ""},
		{"a pattern of no use", document, `- {target: "$.paths.*[?match(@.operationId, '(') || match(@, 'a') || search(@.operationId, 'owner')]", remove: true}`, `{"info":{"title":"Pets","tags":["a"]},"paths":{"/pets":{"get":{"operationId":"list","parameters":[{"name":"q"}],"x-internal":true},"post":{"operationId":"add"}},"/owners":{}}}`, ""},
		{"an alias", "a: &x {b: 1}\nc: *x", `- {target: $.c, update: {b: 2}}`, `{"a":{"b":1},"c":{"b":2}}`, ""},
		{"numbers", "a: [{n: 12345678901234567890}, {n: 1.50}]", `- {target: "$.a[?@.n < 2]", update: {small: true}}`, `{"a":[{"n":12345678901234567890},{"n":1.50,"small":true}]}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, told, err := applied(t, test.document, test.actions)
			if err != nil || got != test.want || told != test.told {
				t.Errorf("got %s, told %q, error %v\nwant %s, %q", got, told, err, test.want, test.told)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	for _, test := range []struct{ name, actions, want string }{
		{"no actions", "  []", "fix.yaml:1: actions must be a list of at least one action"},
		{"no action", "- 1", "fix.yaml:4: an action must be an object with target, and update or remove"},
		{"no target", "- {update: {}}", "fix.yaml:4: an action needs a target: a JSONPath expression such as $.paths['/pets'].get"},
		{"nothing to do", "- {target: $.info}", "fix.yaml:4: an action needs update, or remove: true"},
		{"no JSONPath", "- target: $.a\n  remove: true\n- target: $.paths[\n  remove: true", "fix.yaml:6: target $.paths[: "},
		{"a slip", "- target: $.info\n  udpate: {}", `fix.yaml:5: unknown key "udpate": allowed are target, description, update, remove`},
		{"remove it is not", "- {target: $.info, remove: 1}", "fix.yaml:4: remove must be true or false"},
		{"a text", "- {target: $.info.title, update: {a: 1}}", "fix.yaml:4: target $.info.title: it selects a string, but an update is for objects and lists: select the value that contains it"},
		{"a text for an object", "- {target: $.info, update: a}", "fix.yaml:4: target $.info: it selects an object, and update is a string"},
		{"all", "- {target: $, remove: true}", "fix.yaml:4: target $: the whole document would be removed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, _, err := applied(t, document, test.actions); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("error %v, want %s", err, test.want)
			}
		})
	}
	for text, want := range map[string]string{
		"a: 1":     "fix.yaml:1: is not an OpenAPI overlay, which begins with overlay: 1.0.0",
		"":         "fix.yaml: is empty",
		"a: [":     "fix.yaml: line 1: ",
		"openapi:": "fix.yaml:1: is not an OpenAPI overlay",
	} {
		if _, err := overlay.Parse("fix.yaml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}

// A value from an overlay has the position of its target: references resolve from there.
func TestPlace(t *testing.T) {
	root, _, _ := tree.Parse([]byte("a: 1\nb:\n  c: 1\n"), 3, nil)
	o, err := overlay.Parse("fix.yaml", []byte("overlay: 1.0.0\nactions:\n- target: $.b\n  update: {d: {$ref: other.yaml}}\n"))
	if err != nil || !o.Far {
		t.Fatalf("error %v, far %t", err, o.Far)
	}
	out, err := o.Apply(root, nil)
	if n := out.Get("b").Get("d").Get("$ref"); err != nil || n.Line != 2 || n.File != 3 {
		t.Errorf("it is at line %d of file %d, error %v, want 2 of 3", n.Line, n.File, err)
	}
}

// A document that multiplies itself is not searched.
func TestMultiplied(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 {x: 1, y: 2}\n")
	for i := 1; i < 60; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [*a%d, *a%d]\n", i, i, i-1, i-1)
	}
	if _, _, err := applied(t, b.String(), "- {target: $..x, remove: true}"); err == nil || !strings.Contains(err.Error(), "which is the limit with overlays") {
		t.Errorf("error %v", err)
	}
}

// Overlays change only their targets in real documents.
func TestRealDocuments(t *testing.T) {
	for _, name := range []string{"petstore-3.0.yaml", "museum-3.1.yaml", "kubernetes-core-3.0.json", "openai-3.1.yaml"} {
		t.Run(name, func(t *testing.T) {
			if (name == "kubernetes-core-3.0.json" || name == "openai-3.1.yaml") && !scaletest.Whole { // the large ones
				scaletest.Unraced(t)
			}
			data, err := os.ReadFile(openapitest.Shared(t, name))
			if err != nil {
				t.Fatal(err)
			}
			root, _, err := tree.Parse(data, 0, func(int32, string) {})
			if err != nil {
				t.Fatal(err)
			}
			o, err := overlay.Parse("fix.yaml", []byte("overlay: 1.0.0\nactions:\n- target: $.paths.*.*.tags\n  remove: true\n- target: $.paths.*[?@.operationId]\n  update: {tags: [all]}\n- target: $.paths.*[?@.operationId]\n  update: {x-checked: {by: me}}\n"))
			if err != nil {
				t.Fatal(err)
			}
			out, err := o.Apply(root, func(line int, text string) { t.Errorf("line %d: %s", line, text) })
			if err != nil {
				t.Fatal(err)
			}
			operations := 0
			for i := range out.Get("paths").Members() {
				item := &out.Get("paths").Members()[i].Node
				for j := range item.Members() {
					if op := &item.Members()[j].Node; op.Get("operationId") != nil {
						operations++
						if got := op.Strings("tags"); len(got) != 1 || got[0] != "all" || op.Get("x-checked").Str("by") != "me" {
							t.Errorf("%s has the tags %q", op.Str("operationId"), got)
						}
					}
				}
			}
			if operations == 0 {
				t.Error("there are no operations")
			}
			for _, part := range []string{"components", "info"} {
				a, _ := root.Get(part).AppendJSON(nil, 64<<20)
				b, _ := out.Get(part).AppendJSON(nil, 64<<20)
				if string(a) != string(b) {
					t.Errorf("%s has changed", part)
				}
			}
		})
	}
}

// Any overlay is refused or applied.
func FuzzOverlay(f *testing.F) {
	f.Add("overlay: 1.0.0\nactions: [{target: $.paths, update: {a: [1]}}]", document)
	f.Add("overlay: 1.0.0\nactions: [{target: '$..*', remove: true}]", document)
	f.Add(`{"overlay":"1.0.0","actions":[{"target":"$..[?length(@.a) > 1]","update":{"b":{}}}]}`, `{"a":[{"a":"xx"}]}`)
	f.Add("overlay: 1.0.0\nactions: [{target: '$[?match(@.a, \"(a+)+$\")]', update: [1]}]", "[{a: aaaa}]")
	f.Fuzz(func(t *testing.T, text, document string) {
		if len(text) > 2000 || len(document) > 2000 || strings.Count(text, "..") > 2 {
			return
		}
		o, err := overlay.Parse("fix.yaml", []byte(text))
		if err != nil {
			if !strings.Contains(err.Error(), "fix.yaml") {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		root, _, err := tree.Parse([]byte(document), 0, func(int32, string) {})
		if err != nil {
			return
		}
		out, err := o.Apply(root, func(int, string) {})
		if (out == nil) != (err != nil) {
			t.Errorf("Apply returns %v and %v", out, err)
		}
	})
}
