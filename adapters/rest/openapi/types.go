package openapi

import (
	"slices"
	"strconv"
	"strings"
)

// jsonTypes are the types of JSON Schema.
var jsonTypes = []string{"string", "number", "integer", "boolean", "array", "object", "null"}

// otherTypes are what else is found as a type, and what is meant.
var otherTypes = map[string]string{
	"int": "integer", "int32": "integer", "int64": "integer", "long": "integer",
	"float": "number", "double": "number", "decimal": "number",
	"bool": "boolean", "list": "array", "dict": "object", "map": "object", "hash": "object",
	"file": "string", "date": "string", "datetime": "string", "date-time": "string", "uuid": "string",
	"text": "string", "str": "string", "enum": "string", "binary": "string", "password": "string",
}

// typesOf returns the types that a schema itself allows, null apart; none means
// that it does not say.
func typesOf(n *node) (types []string, nullable bool) {
	t := n.get("type")
	if t == nil {
		return nil, n.flag("nullable") || n.flag("x-nullable")
	}
	if t.kind == text { // by far the most
		if i := slices.Index(jsonTypes[:6], t.text); i >= 0 {
			return jsonTypes[i : i+1 : i+1], n.flag("nullable") || n.flag("x-nullable")
		}
	}
	for _, t := range n.strings("type") {
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
	return types, nullable || n.flag("nullable") || n.flag("x-nullable")
}

// whole returns a non-negative whole number as JSON, or "".
func whole(n *node) string {
	s := numeric(n)
	if s == "" {
		return ""
	}
	if i, err := strconv.ParseUint(s, 10, 31); err == nil {
		return strconv.FormatUint(i, 10)
	}
	// 1.0 and 1e3 are whole as well
	if f, err := strconv.ParseFloat(s, 64); err == nil && f >= 0 && f < 1<<31 && f == float64(int64(f)) {
		return strconv.FormatInt(int64(f), 10)
	}
	return ""
}

// numeric returns a number as JSON, also one that stands in quotes, or "".
func numeric(n *node) string {
	if n == nil || n.kind != number && n.kind != text {
		return ""
	}
	if s := strings.TrimSpace(n.text); isNumber(s) && sensible(s) {
		return s
	}
	return ""
}

// positive reports whether a number is more than 0.
func positive(s string) bool {
	digits, _, _ := strings.Cut(strings.ToLower(s), "e")
	return strings.ContainsAny(digits, "123456789") && !strings.HasPrefix(s, "-")
}

// sensible keeps numbers away that cost a reader much: 1e999999999.
func sensible(s string) bool {
	i := strings.IndexAny(s, "eE")
	if i < 0 {
		return len(s) < 400
	}
	e, err := strconv.Atoi(strings.TrimPrefix(s[i+1:], "+"))
	return err == nil && -400 < e && e < 400 && i < 400
}

// fit returns a value as the type wants it, when there is one: YAML reads 1
// where "1" is meant, and some put false in quotes. Nil when it cannot be.
func fit(v *node, types []string) *node {
	if v == nil || v.kind == null || len(types) != 1 {
		return v
	}
	as := func(k kind) *node {
		if v.kind == k {
			return v
		}
		n := *v
		n.kind = k
		return &n
	}
	plain := v.kind == text || v.kind == number || v.kind == boolean
	switch t := types[0]; {
	case t == "string" && plain:
		return as(text)
	case t == "boolean" && plain && (v.text == "true" || v.text == "false"):
		return as(boolean)
	case (t == "number" || t == "integer") && plain && isNumber(v.text) && sensible(v.text):
		return as(number)
	case t == "array" && v.kind == array, t == "object" && v.kind == object:
		return v
	}
	return nil
}

// onlyNull reports whether a schema says that the value is null.
func onlyNull(n *node) bool {
	types := n.strings("type")
	return len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return t != "null" })
}
