package arguments

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
)

// Schema is the JSON Schema of a tool's arguments, or the form of a question. This package reads only a part of the
// schema; the server checks the rest.
type Schema struct{ root gjson.Result }

// Argument is one property of a schema, or one argument of a prompt.
type Argument struct {
	Name     string
	Required bool
	Schema   gjson.Result // without references; the zero value for an argument of a prompt
	About    string
}

// Of returns the Schema of a JSON value. A Schema of the zero value has no arguments.
func Of(v gjson.Result) Schema { return Schema{v} }

// Arguments returns the properties in the order of the text.
func (s Schema) Arguments() []Argument { return s.members(s.root) }

// members returns the members of an object.
func (s Schema) members(of gjson.Result) []Argument {
	top := s.follow(of)
	required := map[string]bool{}
	for _, name := range top.Get("required").Array() {
		required[name.String()] = true
	}
	var all []Argument
	top.Get("properties").ForEach(func(name, v gjson.Result) bool {
		beside := v.Get("description").String() // a description beside a reference is more specific than the description of the target
		v = s.follow(v)
		about := cmp.Or(beside, v.Get("description").String())
		all = append(all, Argument{name.String(), required[name.String()], v, about})
		return true
	})
	return all
}

// open reports whether the schema may allow arguments that it does not name.
func (s Schema) open() bool {
	top := s.follow(s.root)
	if more := top.Get("additionalProperties"); more.Exists() && more.Type != gjson.False {
		return true
	}
	return slices.ContainsFunc([]string{"patternProperties", "anyOf", "oneOf", "allOf", "if", "dependentSchemas"}, func(key string) bool {
		return top.Get(key).Exists()
	})
}

// maxReferences bounds the length of a chain of references.
const maxReferences = 8

// follow returns the target of a reference in the schema, or v if v is not a reference.
func (s Schema) follow(v gjson.Result) gjson.Result {
	for range maxReferences {
		to, ok := strings.CutPrefix(v.Get("$ref").String(), "#/")
		if !ok {
			return v
		}
		at := s.root
		for part := range strings.SplitSeq(to, "/") {
			if plain, err := url.PathUnescape(part); err == nil {
				part = plain
			}
			at = member(at, strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
		}
		v = at
	}
	return v
}

// member returns the member of an object. The member's name may have any characters.
func member(object gjson.Result, name string) (found gjson.Result) {
	object.ForEach(func(key, v gjson.Result) bool {
		if key.String() == name {
			found = v
		}
		return !found.Exists()
	})
	return found
}

// kinds returns the types that a value may have, by their names in JSON Schema. An empty result means any type.
func (s Schema) kinds(v gjson.Result) []string {
	left := maxLooks
	return s.kindsWithin(v, &left)
}

// maxLooks bounds the parts of a schema that are read for the types of one value, because parts may refer to each other
// in circles.
const maxLooks = 100

func (s Schema) kindsWithin(v gjson.Result, left *int) []string {
	if *left--; *left < 0 {
		return nil
	}
	v = s.follow(v)
	var all []string
	add := func(kinds ...string) {
		for _, k := range kinds {
			if !slices.Contains(all, k) {
				all = append(all, k)
			}
		}
	}
	switch t := v.Get("type"); {
	case t.IsArray():
		for _, one := range t.Array() {
			add(one.String())
		}
	case t.Exists():
		add(t.String())
	case v.Get("enum").IsArray():
		for _, one := range v.Get("enum").Array() {
			add(kindOf(one))
		}
	case v.Get("const").Exists():
		add(kindOf(v.Get("const")))
	default:
		for _, key := range []string{"anyOf", "oneOf"} {
			for _, one := range v.Get(key).Array() {
				kinds := s.kindsWithin(one, left)
				if kinds == nil {
					return nil
				}
				add(kinds...)
			}
		}
		if parts := v.Get("allOf").Array(); len(parts) > 0 && all == nil {
			for _, one := range parts {
				if kinds := s.kindsWithin(one, left); kinds != nil {
					return kinds
				}
			}
		}
	}
	return all
}

// items returns the schema of an array's items, even for an optional array.
func (s Schema) items(v gjson.Result) gjson.Result {
	v = s.follow(v)
	for _, key := range []string{"anyOf", "oneOf"} {
		for _, one := range v.Get(key).Array() {
			if one = s.follow(one); one.Get("type").String() == "array" {
				v = one
			}
		}
	}
	return s.follow(v.Get("items"))
}

// kindOf returns the type of a value, by its name in JSON Schema.
func kindOf(v gjson.Result) string {
	switch {
	case v.Type == gjson.String:
		return "string"
	case v.Type == gjson.Number:
		return "number"
	case v.IsBool():
		return "boolean"
	case v.IsArray():
		return "array"
	case v.IsObject():
		return "object"
	}
	return "null"
}

// TypeName returns the type of an argument as it is shown.
func (s Schema) TypeName(v gjson.Result) string {
	var names []string
	for _, k := range s.kinds(v) {
		switch {
		case k == "null" && len(s.kinds(v)) > 1:
			continue // null only means optional
		case k == "array":
			if item := s.kinds(s.items(v)); len(item) > 0 {
				k = strings.Join(item, "|") + "[]"
			}
		}
		names = append(names, k)
	}
	if names == nil {
		return "any"
	}
	return strings.Join(names, "|")
}

// choices returns the raw values of an enum, or nothing without an enum.
func (s Schema) choices(v gjson.Result) []string {
	v = s.follow(v)
	list := v.Get("enum").Array()
	if c := v.Get("const"); c.Exists() {
		list = append(list, c)
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		for _, one := range v.Get(key).Array() {
			if c := one.Get("const"); c.Exists() {
				list = append(list, c)
			}
		}
	}
	var all []string
	for _, one := range list {
		all = append(all, one.Raw)
	}
	return all
}

// Plain returns a value as people write it: a string without its quotes.
func Plain(raw string) string {
	if v := gjson.Parse(raw); v.Type == gjson.String {
		return v.String()
	}
	return raw
}

// Table returns the arguments as a table, with the members of arguments that are objects.
func (s Schema) Table(args []Argument, indent string) string {
	t := terminal.Table{Head: []string{"ARGUMENT", "TYPE", "REQUIRED", "DEFAULT", "VALUES", "DESCRIPTION"}}
	for _, a := range args {
		s.row(&t, a)
		for _, m := range s.members(a.Schema) {
			m.Name = a.Name + "." + m.Name
			s.row(&t, m)
		}
	}
	return t.Format(indent, 0, nil)
}

func (s Schema) row(t *terminal.Table, a Argument) {
	required, kind := "", ""
	if a.Required {
		required = "yes"
	}
	if a.Schema.Exists() {
		kind = s.TypeName(a.Schema)
	}
	var values []string
	list := s.choices(a.Schema)
	if len(list) == 0 {
		list = s.choices(s.items(a.Schema))
	}
	for _, raw := range list {
		values = append(values, Plain(raw))
	}
	t.Add(a.Name, kind, required, Plain(a.Schema.Get("default").Raw), strings.Join(values, ", "), a.About)
}
