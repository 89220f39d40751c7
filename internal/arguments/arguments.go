// Package arguments changes the arguments of a tool. An operator fixes, hides, renames and describes them, and gives
// defaults. [Changes.Edit] makes the input schema for clients of the server's, and [Changes.Fill] the arguments for the
// server of a client's.
//
// Clients that send what the operator sets are refused. All else of a call keeps its bytes.
package arguments

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/glob"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Change is what an operator makes of one argument.
type Change struct {
	Name string // the server's name of the argument
	Off  bool   // an optional argument that clients do not see and the server does not get
	// Value, raw JSON, is sent in each call, and clients do not see the argument. References in its texts are replaced: see
	// Fill. nil is no value, and differs from null.
	Value json.RawMessage
	// Default, raw JSON, is sent if the client leaves the argument out, and shown to clients. nil is no default.
	Default json.RawMessage
	As      string          // the name that clients see; empty means Name
	About   string          // the description that clients see; empty means the server's
	Schema  json.RawMessage // a JSON Schema; its members replace those of the argument's
	File    string          // the file that Value was read from, if any
	Loose   bool            // the change is for many tools, so a tool may lack the argument
}

// Check returns the fault of a change that is visible without the tool, or "".
func (c *Change) Check() string {
	switch {
	case c.As != "" && (len(c.As) > 64 || !address.IsPlain(c.As)):
		return "as must have 1 to 64 letters, digits, '_', '.' and '-'"
	case c.confines() && (c.As != "" || c.About != "" || c.Default != nil || len(c.Schema) > 0 || c.Off && c.Value != nil):
		return "clients do not see it: remove its other settings"
	}
	return ""
}

// confines reports whether only the operator sets the argument.
func (c *Change) confines() bool { return c.Off || c.Value != nil }

// shown returns the name that clients see.
func (c *Change) shown() string { return cmp.Or(c.As, c.Name) }

// Described returns the schema of the argument with Schema, About and Default.
func (c *Change) Described(schema []byte) []byte {
	if !rawjson.IsObject(schema) { // true allows anything
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

// Overrides are the changes to the arguments of a server's tools: by a tool's name or a pattern of names (see glob.Match),
// and by the argument's name.
type Overrides map[string]map[string]Change

// Of returns the changes for a tool. For one argument, the tool's name counts before patterns, and a longer pattern
// before a shorter one.
func (o Overrides) Of(tool string) (all Changes) {
	weight := func(key string) int {
		if key == tool {
			return math.MaxInt
		}
		return len(key)
	}
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(o)), func(key string) bool { return key != tool && !glob.Match(key, tool) })
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(weight(b), weight(a)), strings.Compare(a, b)) })
	for _, key := range keys {
		for _, name := range slices.Sorted(maps.Keys(o[key])) {
			if all.of(name) == nil {
				one := o[key][name]
				one.Name, one.Loose = name, key != tool
				all = append(all, one)
			}
		}
	}
	return all
}

// Changes are the changes to the arguments of one tool.
type Changes []Change

// of returns the change of the argument that has that name at the server, or nil.
func (c Changes) of(name string) *Change {
	if i := slices.IndexFunc(c, func(one Change) bool { return one.Name == name }); i >= 0 {
		return &c[i]
	}
	return nil
}

// Clash returns why an argument of a tool cannot have the name that a further change gives it, or "". names are those of
// all arguments of the tool.
func (c Changes) Clash(further *Change, names []string) string {
	as := further.shown()
	i := slices.IndexFunc(c, func(one Change) bool { return one.shown() == as })
	switch {
	case as == further.Name:
		return ""
	case slices.Contains(names, as):
		return as + " is the name of another argument"
	case i >= 0:
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
// are declared at the top of the schema can be changed. Clients must not send the others either if the operator sets them.
func (c Changes) Fit(schema []byte) (fit Changes, faults []Fault) {
	top, names := gjson.ParseBytes(schema), []string{}
	top.Get("properties").ForEach(func(k, _ gjson.Result) bool {
		names = append(names, k.String())
		return true
	})
	for _, one := range c {
		declared, text := slices.Contains(names, one.Name), fit.Clash(&one, names)
		switch {
		case !declared:
			if text = "is not declared at the top of the tool's input schema"; one.Loose && !mayDeclare(top, one.Name) {
				text = ""
			} else if near := validate.Nearest(one.Name, names); near != "" {
				text += ": did you mean " + near + "?"
			}
		case one.Off && slices.ContainsFunc(top.Get("required").Array(), func(v gjson.Result) bool { return v.String() == one.Name }):
			text = "is required: it cannot be hidden; give it a value"
		}
		if text != "" {
			faults = append(faults, Fault{one.Name, text, one.Value != nil || one.Off && declared})
		}
		if text == "" && declared {
			fit = append(fit, one)
		} else if one.confines() {
			fit = append(fit, Change{Name: one.Name, Off: true})
		}
	}
	return fit, faults
}

// mayDeclare reports whether a schema may declare an argument other than at its top.
func mayDeclare(schema gjson.Result, name string) bool {
	elsewhere := []string{"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas"}
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
			value = rawjson.Rewrite(value, func(arg string, schema []byte) (string, []byte) {
				one := c.of(arg)
				if one == nil {
					return arg, schema
				} else if one.confines() {
					return arg, nil
				}
				return one.shown(), one.Described(schema)
			})
		case "required":
			var left []string
			for _, v := range gjson.ParseBytes(value).Array() {
				if one := c.of(v.String()); one == nil {
					left = append(left, v.String())
				} else if !one.confines() && one.Default == nil {
					left = append(left, one.shown())
				}
			}
			if value = nil; len(left) > 0 {
				value = rawjson.List(left)
			}
		case "allOf", "anyOf", "oneOf": // they may require what is declared at the top
			value = rawjson.EditItems(value, c.Edit)
		case "if", "then", "else", "not":
			value = c.Edit(value)
		}
		return name, value
	})
}

// sent returns the index of the change of an argument that a client sends, or -1. For an argument that clients must not
// send it returns the refusal. Case does not count, since some servers ignore it.
func (c Changes) sent(name string) (index int, no string) {
	index = slices.IndexFunc(c, func(one Change) bool { return !one.confines() && one.shown() == name })
	for _, one := range c {
		switch {
		case index >= 0:
		case one.confines() && strings.EqualFold(one.Name, name):
			return -1, "argument " + rawjson.Quote(name) + ": the operator of the bridge sets it, so leave it out"
		case one.Name == name:
			return -1, "argument " + rawjson.Quote(name) + " is called " + rawjson.Quote(one.As) + " here"
		}
	}
	return index, ""
}

// Fill returns the edits that turn the arguments of a client, a JSON object, into those for the server. If they are
// refused, or if the caller lacks a part of a value, Fill returns the reason.
//
// look returns the text of a reference in a value, such as caller.name of ${caller.name}. It reports false if the caller
// has none. A nil look leaves values as they are.
func (c Changes) Fill(args []byte, look func(reference string) (text string, ok bool)) (edits []jsonrpc.Edit, why string) {
	given, comma := make([]bool, len(c)), ""
	rawjson.Walk(args, '{', func(start, _, _ int) bool {
		end, i := rawjson.StringEnd(args, start), 0
		if i, why = c.sent(string(rawjson.Unquote(args[start:end]))); i >= 0 {
			if given[i] = true; c[i].shown() != c[i].Name {
				edits = append(edits, jsonrpc.Edit{From: start, To: end, Text: []byte(rawjson.Quote(c[i].Name))})
			}
		}
		comma = ","
		return why == ""
	})
	at := bytes.LastIndexByte(args, '}')
	for i, one := range c {
		value, lacks := expanded(one.Value, look)
		if lacks != "" {
			why = cmp.Or(why, "argument "+rawjson.Quote(one.Name)+": the operator of the bridge sets it to ${"+lacks+"}, which this caller lacks")
		}
		e := jsonrpc.Edit{From: at, To: at, Text: value}
		name := comma + rawjson.Quote(one.Name) + ":"
		switch {
		case value != nil:
			e.Shown = []byte(name + `"[redacted]"`)
		case one.Default == nil || given[i]:
			continue
		default:
			e.Text = one.Default
		}
		e.Text, comma = append([]byte(name), e.Text...), ","
		edits = append(edits, e)
	}
	return edits, why
}

// References in values. Claim and Header go before the name of a claim of the caller's token, or of a header of its
// request.
const (
	Caller = "caller.name"
	Claim  = "caller.claims."
	Header = "header."
)

// reference matches a reference in a text of a value.
var reference = regexp.MustCompile(`\$\{((?:caller|header)\.[^{}"\\]*)\}`)

// References returns the references in a value.
func References(value []byte) (all []string) {
	for _, found := range reference.FindAllSubmatch(value, -1) {
		all = append(all, string(found[1]))
	}
	return all
}

// expanded returns a value with its references replaced. lacks is the first one that has no text.
func expanded(value []byte, look func(string) (string, bool)) (out []byte, lacks string) {
	if look == nil || len(value) == 0 {
		return value, ""
	}
	return reference.ReplaceAllFunc(value, func(found []byte) []byte {
		name := string(found[2 : len(found)-1])
		text, ok := look(name)
		if !ok {
			lacks = cmp.Or(lacks, name)
		}
		quoted := rawjson.Quote(text)
		return []byte(quoted[1 : len(quoted)-1])
	}), lacks
}
