package metatools

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// identifier matches the names that JavaScript accepts behind a dot.
var identifier = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

// signature writes what a script needs for a call of the tool, as TypeScript: the description as a comment, the types
// of the arguments if types is set, and the type of the result.
func (t *tool) signature(types bool) []byte {
	d := gjson.ParseBytes(t.item)
	var b strings.Builder
	if about := strings.TrimSpace(d.Get("description").Str); about != "" {
		b.WriteString("/** " + strings.ReplaceAll(about, "*/", "* /") + " */\n")
	}
	b.WriteString("tools")
	if identifier.MatchString(t.name) {
		b.WriteString("." + t.name)
	} else {
		b.WriteString("[" + rawjson.Quote(t.name) + "]")
	}
	args, result := "object", "unknown"
	if types {
		args = typeOf(d.Get("inputSchema"), 0)
		if out := d.Get("outputSchema"); out.IsObject() {
			result = typeOf(out, 0)
		}
	}
	b.WriteString("(args: " + args + "): Promise<" + result + ">")
	return []byte(b.String())
}

// maxTypes bounds the depth of a type. Deeper types are unknown.
const maxTypes = 6

// typeOf returns a JSON schema as a type. Keywords that types cannot express are left out.
func typeOf(schema gjson.Result, depth int) string {
	if depth > maxTypes || !schema.IsObject() {
		return "unknown"
	}
	if value := schema.Get("const"); value.Exists() {
		return value.Raw
	}
	if values := schema.Get("enum"); values.IsArray() {
		var all []string
		for _, v := range values.Array() {
			all = append(all, v.Raw)
		}
		return strings.Join(all, " | ")
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if parts := schema.Get(key); parts.IsArray() {
			return union(parts.Array(), depth)
		}
	}
	kind := schema.Get("type")
	if kind.IsArray() {
		return union(kind.Array(), depth)
	}
	switch kind.Str {
	case "string", "boolean", "null":
		return kind.Str
	case "integer", "number":
		return "number"
	case "array":
		item := typeOf(schema.Get("items"), depth+1)
		if strings.Contains(item, " | ") {
			item = "(" + item + ")"
		}
		return item + "[]"
	}
	if kind.Str == "object" || schema.Get("properties").IsObject() {
		return objectType(schema, depth)
	}
	return "unknown"
}

// union returns the type of a value that has one of several types, by schemas or by the names of types.
func union(parts []gjson.Result, depth int) string {
	var all []string
	for _, p := range parts {
		if p.Type == gjson.String {
			p = gjson.Parse(`{"type":` + p.Raw + `}`)
		}
		all = append(all, typeOf(p, depth+1))
	}
	return strings.Join(all, " | ")
}

// objectType returns the type of an object with its members.
func objectType(schema gjson.Result, depth int) string {
	required := map[string]bool{}
	for _, name := range schema.Get("required").Array() {
		required[name.Str] = true
	}
	var members []string
	schema.Get("properties").ForEach(func(name, property gjson.Result) bool {
		key, optional := name.Str, "?"
		if !identifier.MatchString(key) {
			key = strconv.Quote(key)
		}
		if required[name.Str] {
			optional = ""
		}
		members = append(members, key+optional+": "+typeOf(property, depth+1))
		return true
	})
	if len(members) == 0 {
		return "{ [name: string]: unknown }"
	}
	return "{ " + strings.Join(members, "; ") + " }"
}
