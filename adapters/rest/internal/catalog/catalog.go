// Package catalog reads catalogues: lists of tools that change while the bridge runs. Workflow
// engines publish such lists. A catalogue is JSON or YAML: a list of tools, or an object with a
// list named tools.
//
//	tools:
//	  - name: calculate
//	    description: Computes an expression.
//	    inputSchema:
//	      type: object
//	      properties: { expression: { type: string } }
//	      required: [expression]
//	    request: POST /webhook/calculate
//
// Requests, bodies, headers, results and settings (timeout, retry, cache, error and limits) mean
// the same as for tools of the configuration. Package tools makes tools of the entries.
package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/document"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

// MaxTools bounds the tools of a catalogue.
const MaxTools = 5000

// Tool is a tool of a catalogue: an entry as if the configuration had it, with the tool's name as its
// Key, but without Args.
type Tool struct {
	toolset.Entry
	// InputSchema is a JSON Schema of an object.
	InputSchema []byte
	// Annotations are the catalogue's hints, by name.
	Annotations map[string]bool
}

// Hints are the names of the annotations that say what a tool may do.
var Hints = []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}

// Parse parses a catalogue. It leaves out unusable tools, with a warning for each. It returns an error
// if the text is no catalogue, or if the catalogue has tools and none is usable.
func Parse(data []byte) (tools []Tool, warnings []string, err error) {
	if len(data) > document.MaxCatalog {
		return nil, nil, fmt.Errorf("the catalogue is larger than %d bytes", document.MaxCatalog)
	}
	doc, err := openapi.JSON(data, 2*document.MaxCatalog)
	if err != nil {
		return nil, nil, fmt.Errorf("the catalogue is neither JSON nor YAML: %w", err)
	}
	list := gjson.ParseBytes(doc)
	if list.IsObject() {
		list = list.Get("tools")
	}
	if !list.IsArray() {
		return nil, nil, errors.New("the catalogue has no list of tools")
	}
	n := 0
	names := map[string]bool{}
	list.ForEach(func(_, item gjson.Result) bool {
		if n++; n > MaxTools {
			err = fmt.Errorf("the catalogue has more than %d tools", MaxTools)
			return false
		}
		t, why := read(item)
		if why == nil && names[t.Key] {
			why = errors.New("another tool has the same name")
		}
		if why != nil {
			warnings = append(warnings, fmt.Sprintf("tool %d (%s): %s", n, label(item), why))
			return true
		}
		names[t.Key] = true
		tools = append(tools, *t)
		return true
	})
	switch {
	case err != nil:
		return nil, nil, err
	case n > 0 && len(tools) == 0:
		return nil, nil, fmt.Errorf("the catalogue has no usable tool: %s", warnings[0])
	}
	return tools, warnings, nil
}

// label returns a tool's name for messages.
func label(item gjson.Result) string {
	name := []rune(item.Get("name").String())
	switch {
	case len(name) == 0:
		return "without a name"
	case len(name) > 64:
		return fmt.Sprintf("%q…", string(name[:64]))
	}
	return fmt.Sprintf("%q", string(name))
}

func read(item gjson.Result) (*Tool, error) {
	if !item.IsObject() {
		return nil, errors.New("is not an object")
	}
	t := &Tool{}
	for _, m := range []struct {
		name string
		into *string
		must bool
	}{
		{"name", &t.Key, true}, {"request", &t.Request, true}, {"title", &t.Title, false},
		{"description", &t.About, false}, {"result", &t.Result, false},
	} {
		v := item.Get(m.name)
		switch {
		case v.Type == gjson.String:
			*m.into = v.Str
		case v.Exists() && v.Type != gjson.Null:
			return nil, errors.New(m.name + " is not text")
		}
		if m.must && *m.into == "" {
			return nil, errors.New(m.name + " is missing")
		}
	}
	var err error
	if t.InputSchema, err = schema(item.Get("inputSchema")); err != nil {
		return nil, err
	}
	if body := item.Get("body"); body.Exists() {
		t.Body = []byte(body.Raw)
	}
	if t.Headers, err = headers(item.Get("headers")); err != nil {
		return nil, err
	}
	if err = settings(item, &t.Entry); err != nil {
		return nil, err
	}
	hints := item.Get("annotations")
	t.Title = cmp.Or(t.Title, hints.Get("title").String())
	for _, name := range Hints {
		if hint := hints.Get(name); hint.IsBool() {
			if t.Annotations == nil {
				t.Annotations = map[string]bool{}
			}
			t.Annotations[name] = hint.Bool()
		}
	}
	return t, nil
}

// schema returns the input schema of a tool. If the tool has none, the schema allows every object.
func schema(v gjson.Result) ([]byte, error) {
	switch kind := v.Get("type"); {
	case !v.Exists() || v.Type == gjson.Null:
		return []byte(`{"type":"object"}`), nil
	case !v.IsObject():
		return nil, errors.New("inputSchema is not an object")
	case !kind.Exists():
		if v.Raw == "{}" {
			return []byte(`{"type":"object"}`), nil
		}
		return slices.Concat([]byte(`{"type":"object",`), []byte(v.Raw[1:])), nil
	case kind.Str != "object":
		return nil, errors.New("inputSchema must be of type object")
	}
	return []byte(v.Raw), nil
}

func headers(v gjson.Result) (map[string]string, error) {
	if !v.Exists() || v.Type == gjson.Null {
		return nil, nil
	}
	out := map[string]string{}
	ok := v.IsObject()
	v.ForEach(func(name, value gjson.Result) bool {
		ok = ok && value.Type == gjson.String
		out[name.Str] = value.Str
		return ok
	})
	if !ok {
		return nil, errors.New("headers must map names to texts")
	}
	return out, nil
}
