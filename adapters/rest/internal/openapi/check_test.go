package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// load reads a document from the test's text.
func load(t testing.TB, text string) *Document {
	t.Helper()
	doc, err := Load(t.Context(), Source{Location: "doc.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// make1 returns the checked tools of a document in the test, and all warnings.
func make1(t testing.TB, text string, o Options) ([]*Tool, []string) {
	t.Helper()
	doc := load(t, text)
	tools, more := Tools(doc, o)
	checkTools(t, tools, o)
	var warnings []string
	for _, w := range append(doc.Warnings, more...) {
		warnings = append(warnings, w.String())
	}
	return tools, warnings
}

func warned(t testing.TB, warnings []string, want string) {
	t.Helper()
	for _, w := range warnings {
		if strings.Contains(w, want) {
			return
		}
	}
	t.Errorf("no warning has %q: %q", want, warnings)
}

func same(t testing.TB, got, want any) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

var (
	toolName     = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	propertyName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
)

// checkTools checks tools against the rules of the strictest model providers, and with a validator.
func checkTools(t testing.TB, tools []*Tool, o Options) {
	t.Helper()
	seen := map[string]bool{}
	for _, tool := range tools {
		if !toolName.MatchString(tool.Name) {
			t.Errorf("%q cannot be the name of a tool", tool.Name)
		}
		if seen[tool.Name] {
			t.Errorf("two tools are called %q", tool.Name)
		}
		seen[tool.Name] = true
		item := tool.AppendItem(nil)
		if len(item) != tool.Size || !json.Valid(item) {
			t.Errorf("%s takes %d bytes and not %d: %.500s", tool.Name, len(item), tool.Size, item)
		}
		root := checkSchema(t, tool.Name+" input", tool.InputSchema, true)
		if root == nil {
			continue
		}
		props, _ := root["properties"].(map[string]any)
		if len(props) != len(tool.Arguments) {
			t.Errorf("%s: %d properties, but %d arguments", tool.Name, len(props), len(tool.Arguments))
		}
		for _, a := range tool.Arguments {
			if _, ok := props[a.Name]; !ok {
				t.Errorf("%s: argument %q is no property", tool.Name, a.Name)
			}
			if a.Place != InBody && (a.Parameter == nil || a.Parameter.In != a.Place) {
				t.Errorf("%s: argument %q has no parameter", tool.Name, a.Name)
			}
			if a.Place == InBody && tool.Body == nil {
				t.Errorf("%s: argument %q has no body", tool.Name, a.Name)
			}
		}
		if tool.OutputSchema != nil {
			checkSchema(t, tool.Name+" output", tool.OutputSchema, false)
		}
	}
}

// goodSchemas has the schemas that checkSchema accepted: many tools have the same schema, and most
// options do not change it.
var goodSchemas = [2]sync.Map{}

func checkSchema(t testing.TB, name string, text []byte, input bool) map[string]any {
	t.Helper()
	good := &goodSchemas[0]
	if input {
		good = &goodSchemas[1]
	}
	if root, ok := good.Load(string(text)); ok {
		return root.(map[string]any)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Errorf("%s: %v: %.2000s", name, err, text)
		return nil
	}
	root, ok := v.(map[string]any)
	if !ok || root["type"] != "object" {
		t.Errorf("%s: the root must be an object: %.300s", name, text)
		return nil
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("mem:schema", v); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	s, err := c.Compile("mem:schema")
	if err != nil {
		t.Errorf("%s: %v\n%.3000s", name, err, text)
		return root
	}
	// The check must end on any value: schemas may be recursive.
	for _, probe := range []string{`{}`, `{"body":{}}`, `{"body":[{"a":{}}],"result":{}}`} {
		p, _ := jsonschema.UnmarshalJSON(strings.NewReader(probe))
		if err := s.Validate(p); err != nil && strings.Contains(err.Error(), "infinite loop") {
			t.Errorf("%s: %v\n%.3000s", name, err, text)
		}
	}
	defs, _ := root["$defs"].(map[string]any)
	walkSchema(t, name, root, defs, input)
	var keys duplicates
	if dup := keys.find(json.NewDecoder(bytes.NewReader(text))); dup != "" {
		t.Errorf("%s: %q stands twice: %.2000s", name, dup, text)
	}
	if !t.Failed() && len(text) < 1<<16 {
		good.Store(string(text), root)
	}
	return root
}

// walkSchema checks one schema and those below it.
func walkSchema(t testing.TB, where string, v any, defs map[string]any, input bool) {
	t.Helper()
	s, ok := v.(map[string]any)
	if !ok {
		if _, ok := v.(bool); !ok {
			t.Errorf("%s is no schema: %v", where, v)
		}
		return
	}
	if ref, ok := s["$ref"].(string); ok {
		if _, ok := defs[strings.TrimPrefix(ref, "#/$defs/")]; !ok {
			t.Errorf("%s: %s leads to nothing", where, ref)
		}
	}
	if s["type"] == "array" && s["items"] == nil {
		t.Errorf("%s: an array without items", where)
	}
	for _, word := range []string{"properties", "$defs", "patternProperties", "dependentSchemas"} {
		m, _ := s[word].(map[string]any)
		for name, sub := range m {
			if input && word == "properties" && !propertyName.MatchString(name) {
				t.Errorf("%s: property %q", where, name)
			}
			walkSchema(t, where+"/"+name, sub, defs, input)
		}
	}
	for _, word := range []string{"allOf", "anyOf", "oneOf", "prefixItems"} {
		list, _ := s[word].([]any)
		for _, sub := range list {
			walkSchema(t, where+"/"+word, sub, defs, input)
		}
	}
	for _, word := range []string{"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"} {
		if sub, ok := s[word]; ok {
			walkSchema(t, where+"/"+word, sub, defs, input)
		}
	}
}

// duplicates finds repeated member names in an object.
type duplicates struct{}

func (d *duplicates) find(dec *json.Decoder) string {
	tok, err := dec.Token()
	if err != nil {
		return ""
	}
	switch tok {
	case json.Delim('['):
		for dec.More() {
			if dup := d.find(dec); dup != "" {
				return dup
			}
		}
		dec.Token()
	case json.Delim('{'):
		seen := map[string]bool{}
		for dec.More() {
			key, _ := dec.Token()
			name, _ := key.(string)
			if seen[name] {
				return name
			}
			seen[name] = true
			if dup := d.find(dec); dup != "" {
				return dup
			}
		}
		dec.Token()
	}
	return ""
}
