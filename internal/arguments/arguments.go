// Package arguments changes the arguments of a tool. An operator fixes, hides, renames and describes them, and gives
// defaults. [Changes.Edit] makes the input schema for clients of the server's, and [Changes.Fill] the arguments for the
// server of a client's.
//
// Clients that send what the operator sets are refused. All else of a call keeps its bytes: numbers keep their digits,
// and large texts are not copied.
package arguments

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Change is what an operator makes of one argument.
type Change struct {
	// Name is the server's name of the argument.
	Name string
	// Off removes an optional argument: clients do not see it, and the server does not get it.
	Off bool
	// Value, raw JSON, is sent in each call. Clients do not see the argument. Within texts, ${NAME} is a reference: see
	// Fill. nil is no value, and differs from null.
	Value json.RawMessage
	// Default, raw JSON, is sent if the client leaves the argument out. Clients see it. nil is no default.
	Default json.RawMessage
	// As is the name that clients see. Empty means Name.
	As string
	// About is the description that clients see. Empty means the server's.
	About string
	// Schema is a JSON Schema. Its members replace those of the argument's schema.
	Schema json.RawMessage
	// Loose means that the tool need not have the argument: the change is for many tools.
	Loose bool
}

// Changes are the changes to the arguments of one tool.
type Changes []Change

// confines reports whether only the operator sets the argument.
func (c *Change) confines() bool { return c.Off || c.Value != nil }

// shown returns the name that clients see.
func (c *Change) shown() string {
	if c.As != "" {
		return c.As
	}
	return c.Name
}

// of returns the change of the argument that has that name at the server, or nil.
func (c Changes) of(name string) *Change {
	if i := slices.IndexFunc(c, func(one Change) bool { return one.Name == name }); i >= 0 {
		return &c[i]
	}
	return nil
}

// Rewrites reports whether Fill may change the arguments that a client sends.
func (c Changes) Rewrites() bool {
	return slices.ContainsFunc(c, func(one Change) bool {
		return one.Value != nil || one.Default != nil || one.shown() != one.Name
	})
}

// Clash returns why an argument of a tool cannot have the name that a further change gives it, or "". names are those of
// all arguments of the tool.
func (c Changes) Clash(further *Change, names []string) string {
	as := further.shown()
	if as == further.Name {
		return ""
	}
	if slices.Contains(names, as) {
		return as + " is the name of another argument"
	}
	if i := slices.IndexFunc(c, func(one Change) bool { return one.shown() == as && one.Name != further.Name }); i >= 0 {
		return "gets the same name as " + c[i].Name
	}
	return ""
}

// Fault is a change that a tool cannot have.
type Fault struct {
	Name, Text string
	// Broken means that clients must not call the tool: it lacks a value that the operator promised.
	Broken bool
}

// Fit returns the changes that a tool with that input schema can have, and the faults of the others. Only arguments that
// are declared at the top of the schema can be changed.
func (c Changes) Fit(schema []byte) (fit Changes, faults []Fault) {
	top := gjson.ParseBytes(schema)
	var names, required []string
	top.Get("properties").ForEach(func(k, _ gjson.Result) bool {
		names = append(names, k.String())
		return true
	})
	for _, one := range top.Get("required").Array() {
		required = append(required, one.String())
	}
	for i := range c {
		one := &c[i]
		text := fit.Clash(one, names)
		switch declared := slices.Contains(names, one.Name); {
		case !declared && one.Loose && !mayDeclare(top, one.Name):
			if one.confines() { // clients must not send it even so
				fit = append(fit, Change{Name: one.Name, Off: true})
			}
			continue
		case !declared:
			text = "is not declared at the top of the tool's input schema"
			if near := validate.Nearest(one.Name, names); near != "" {
				text += ": did you mean " + near + "?"
			}
		case one.Off && slices.Contains(required, one.Name):
			text = "is required: it cannot be hidden; give it a value"
		}
		if text == "" {
			fit = append(fit, *one)
			continue
		}
		faults = append(faults, Fault{one.Name, text, one.Value != nil || one.Off && slices.Contains(names, one.Name)})
		if one.confines() {
			fit = append(fit, Change{Name: one.Name, Off: true})
		}
	}
	return fit, faults
}

// elsewhere are the members of a schema that may declare further arguments.
var elsewhere = []string{"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas"}

// mayDeclare reports whether a schema may declare an argument other than at its top.
func mayDeclare(schema gjson.Result, name string) bool {
	return !schema.IsObject() || rawjson.Mentions([]byte(schema.Raw), rawjson.Quote(name)) &&
		slices.ContainsFunc(elsewhere, func(word string) bool { return schema.Get(gjson.Escape(word)).Exists() })
}

// Edit returns an input schema as clients see it. Arguments with a default are not required, since Fill adds them.
func (c Changes) Edit(schema []byte) []byte {
	if !rawjson.IsObject(schema) {
		return schema
	}
	return rawjson.Rewrite(schema, func(name string, value []byte) (string, []byte) {
		switch name {
		case "properties":
			value = c.properties(value)
		case "required":
			value = c.required(value)
		case "allOf", "anyOf", "oneOf": // they may require what is declared at the top
			value = rawjson.EditItems(value, c.Edit)
		case "if", "then", "else", "not":
			value = c.Edit(value)
		}
		return name, value
	})
}

func (c Changes) properties(object []byte) []byte {
	return rawjson.Rewrite(object, func(name string, schema []byte) (string, []byte) {
		one := c.of(name)
		switch {
		case one == nil:
			return name, schema
		case one.confines():
			return name, nil
		}
		return one.shown(), one.Described(schema)
	})
}

// required returns the names of a list that clients must send; nil for none.
func (c Changes) required(list []byte) []byte {
	var left []string
	for _, v := range gjson.ParseBytes(list).Array() {
		if one := c.of(v.String()); one == nil {
			left = append(left, v.String())
		} else if !one.confines() && one.Default == nil {
			left = append(left, one.shown())
		}
	}
	if len(left) == 0 {
		return nil
	}
	return rawjson.List(left)
}

// Described returns the schema of the argument with Schema, About and Default.
func (c *Change) Described(schema []byte) []byte {
	if bytes.Equal(schema, []byte("true")) {
		schema = []byte("{}")
	}
	if len(c.Schema) > 0 && !rawjson.Same(c.Schema, schema) {
		schema = rawjson.Merge(schema, c.Schema)
	}
	if c.About != "" {
		schema = rawjson.Set(schema, "description", []byte(rawjson.Quote(c.About)))
	}
	if c.Default != nil {
		schema = rawjson.Set(schema, "default", c.Default)
	}
	return schema
}

// Refuses returns why the arguments of a client, a JSON object, are not accepted, or "".
func (c Changes) Refuses(args []byte) (why string) {
	rawjson.Each(args, func(name, _ []byte) {
		if _, no := c.sent(string(name)); why == "" {
			why = no
		}
	})
	return why
}

// sent returns the index of the change of an argument that a client sends, or -1. For an argument that clients must not
// send it returns the refusal. Case does not count: some servers take Repo for repo.
func (c Changes) sent(name string) (index int, no string) {
	index = slices.IndexFunc(c, func(one Change) bool { return !one.confines() && one.shown() == name })
	if index >= 0 {
		return index, ""
	}
	for i := range c {
		switch one := &c[i]; {
		case one.confines() && strings.EqualFold(one.Name, name):
			return -1, "argument " + rawjson.Quote(name) + ": the operator of the bridge sets it, so leave it out"
		case one.Name == name:
			return -1, "argument " + rawjson.Quote(name) + " is called " + rawjson.Quote(one.As) + " here"
		}
	}
	return -1, ""
}

// redacted replaces values where operators see calls.
const redacted = `"[redacted]"`

// Fill returns the edits that turn the arguments of a client, a JSON object, into those for the server. If they are
// refused, or if the caller lacks a part of a value, Fill returns the reason.
//
// look returns the text of a reference within a value, such as caller.name of ${caller.name}. It reports false if the
// caller has none. A nil look leaves values as they are.
func (c Changes) Fill(args []byte, look func(reference string) (text string, ok bool)) (edits []jsonrpc.Edit, why string) {
	given, empty := make([]bool, len(c)), true
	rawjson.Walk(args, '{', func(start, _, _ int) bool {
		end := rawjson.StringEnd(args, start)
		var i int
		if i, why = c.sent(string(rawjson.Unquote(args[start:end]))); i >= 0 {
			if given[i] = true; c[i].shown() != c[i].Name {
				edits = append(edits, jsonrpc.Edit{From: start, To: end, Text: []byte(rawjson.Quote(c[i].Name))})
			}
		}
		empty = false
		return why == ""
	})
	at := bytes.LastIndexByte(args, '}')
	for i := range c {
		one := &c[i]
		value := one.Default
		if one.Value != nil {
			lacks := ""
			if value, lacks = expanded(one.Value, look); lacks != "" && why == "" {
				why = "argument " + rawjson.Quote(one.Name) + ": the operator of the bridge sets it to ${" + lacks + "}, which this caller lacks"
			}
		}
		if value == nil || given[i] {
			continue
		}
		name := rawjson.Quote(one.Name) + ":"
		if !empty {
			name = "," + name
		}
		empty = false
		e := jsonrpc.Edit{From: at, To: at, Text: append([]byte(name), value...)}
		if one.Value != nil {
			e.Shown = []byte(name + redacted)
		}
		edits = append(edits, e)
	}
	if why != "" {
		return nil, why
	}
	return edits, ""
}

// expanded returns a value with its references replaced. lacks is the first one that has no text.
func expanded(value []byte, look func(string) (string, bool)) (out []byte, lacks string) {
	if look == nil || !bytes.Contains(value, []byte("${")) {
		return value, ""
	}
	for {
		before, rest, found := bytes.Cut(value, []byte("${"))
		if !found {
			return append(out, before...), lacks
		}
		value = rest
		if literal, escaped := bytes.CutSuffix(before, []byte("$")); escaped {
			out = append(append(out, literal...), "${"...)
			continue
		}
		reference, rest, _ := bytes.Cut(rest, []byte("}"))
		text, ok := look(string(reference))
		if !ok && lacks == "" {
			lacks = string(reference)
		}
		quoted := rawjson.Quote(text)
		out, value = append(append(out, before...), quoted[1:len(quoted)-1]...), rest
	}
}

// References returns the references within a value.
func References(value []byte) (all []string) {
	_, _ = expanded(value, func(reference string) (string, bool) {
		all = append(all, reference)
		return "", true
	})
	return all
}
