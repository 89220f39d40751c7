package openapi

import (
	"slices"
	"strconv"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// jsonTypes are the types of JSON Schema.
var jsonTypes = []string{"string", "number", "integer", "boolean", "array", "object", "null"}

// otherTypes maps words that documents use in place of a type to that type.
var otherTypes = map[string]string{
	"int": "integer", "int32": "integer", "int64": "integer", "long": "integer",
	"float": "number", "double": "number", "decimal": "number",
	"bool": "boolean", "list": "array", "dict": "object", "map": "object", "hash": "object",
	"file": "string", "date": "string", "datetime": "string", "date-time": "string", "uuid": "string",
	"text": "string", "str": "string", "enum": "string", "binary": "string", "password": "string",
}

// typesOf returns the types that a schema names, except null, and whether it allows null. Without
// types, the schema allows every type.
func typesOf(n *tree.Node) (types []string, nullable bool) {
	t := n.Get("type")
	if t == nil {
		return nil, n.Flag("nullable") || n.Flag("x-nullable")
	}
	if t.Kind == tree.Text { // the most frequent case
		if i := slices.Index(jsonTypes[:6], t.Text); i >= 0 {
			return jsonTypes[i : i+1 : i+1], n.Flag("nullable") || n.Flag("x-nullable")
		}
	}
	for _, t := range n.Strings("type") {
		if !slices.Contains(jsonTypes, t) {
			t = strings.ToLower(t)
			if o := otherTypes[t]; o != "" {
				t = o
			}
		}
		switch {
		case t == "null":
			nullable = true
		case slices.Contains(jsonTypes, t) && !slices.Contains(types, t):
			types = append(types, t)
		}
	}
	return types, nullable || n.Flag("nullable") || n.Flag("x-nullable")
}

// whole returns a non-negative integer as JSON, or "" for any other value.
func whole(n *tree.Node) string {
	s := numeric(n)
	if s == "" {
		return ""
	}
	if i, err := strconv.ParseUint(s, 10, 31); err == nil {
		return strconv.FormatUint(i, 10)
	}
	// 1.0 and 1e3 are integers too.
	if f, err := strconv.ParseFloat(s, 64); err == nil && f >= 0 && f < 1<<31 && f == float64(int64(f)) {
		return strconv.FormatInt(int64(f), 10)
	}
	return ""
}

// numeric returns a number, with or without quotes, as JSON, or "" for any other value.
func numeric(n *tree.Node) string {
	if n == nil || n.Kind != tree.Number && n.Kind != tree.Text {
		return ""
	}
	if s := strings.TrimSpace(n.Text); tree.IsNumber(s) {
		return s
	}
	return ""
}

// positive reports whether a number is greater than 0.
func positive(s string) bool {
	digits, _, _ := strings.Cut(strings.ToLower(s), "e")
	return strings.ContainsAny(digits, "123456789") && !strings.HasPrefix(s, "-")
}

// asType converts a value to the only type in types, or returns nil if that is impossible. With
// several types, or none, it returns the value as it is. Documents need this, since YAML reads 1
// where "1" is meant, and some write false in quotes.
func asType(v *tree.Node, types []string) *tree.Node {
	if v == nil || v.Kind == tree.Null || len(types) != 1 {
		return v
	}
	as := func(k tree.Kind) *tree.Node {
		if v.Kind == k {
			return v
		}
		n := *v
		n.Kind, n.Kids = k, nil
		if k == tree.Text {
			n.Text = v.Written()
		}
		return &n
	}
	plain := v.Kind == tree.Text || v.Kind == tree.Number || v.Kind == tree.Boolean
	switch t := types[0]; {
	case t == "string" && plain:
		return as(tree.Text)
	case t == "boolean" && plain && (v.Text == "true" || v.Text == "false"):
		return as(tree.Boolean)
	case (t == "number" || t == "integer") && plain && tree.IsNumber(v.Text):
		return as(tree.Number)
	case t == "array" && v.Kind == tree.Array, t == "object" && v.Kind == tree.Object:
		return v
	}
	return nil
}

// onlyNull reports whether a schema allows only null.
func onlyNull(n *tree.Node) bool {
	types := n.Strings("type")
	return len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return t != "null" })
}
