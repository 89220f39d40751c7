package toolset

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Tool is a tool as clients see it, with what turns its calls into requests.
type Tool struct {
	*openapi.Tool
	// Call is the tool for package wire. If Prepare is set, Call has the Arguments of the request,
	// and its InputSchema, which the catalog sets, is the one for clients.
	Call *openapi.Tool
	// Prepare, unless nil, turns the checked arguments of a client into those of the request.
	Prepare       func(args []byte) ([]byte, error)
	Result        string // gjson path to the part of an answer that is the result; empty means all
	Picks         bool   // the tool has PickArg
	OutputOmitted bool   // the tool has no output schema, since the list was too long
	Entry         *Entry // the tool's entry in the configuration, or nil
	Published     *Entry // the tool's entry in a catalogue, or nil
	// Hidden maps each argument whose place the entry sets, and which clients do not see, to the
	// entry's key for the place: headers, query or body.
	Hidden map[string]string
	// Shared are the settings for parameters of all operations that apply to the tool.
	Shared   Shared
	Settings wire.Settings
}

// Reads reports whether calls change nothing. If the configuration says nothing, the method decides.
// A hint of a document or a catalogue can make the result false, but not true: its author does not
// decide for the operator.
func (t *Tool) Reads() bool {
	if t.Entry != nil && t.Entry.Writes != nil {
		return !*t.Entry.Writes
	}
	return t.Annotations.ReadOnly && slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, t.Operation.Method)
}

// Override returns a tool of the document with the entry and the settings for parameters of all
// operations applied. For one argument, the entry replaces the settings in common.
func (e *Entry) Override(t *openapi.Tool, common Shared) (*Tool, Faults) {
	names := argumentNames(t)
	added := e.added(names)
	for _, a := range added {
		names = append(names, a.Name)
	}
	var faults Faults
	args := map[string]*Arg{} // keyed by the document's names
	var changes arguments.Changes
	for i := range e.Args {
		a := &e.Args[i]
		at := slices.IndexFunc(t.Arguments, func(one openapi.Argument) bool { return one.Name == a.Name })
		switch {
		case slices.Contains(added, a):
			if a.As != "" {
				faults = append(faults, e.argFault(a, "as is for arguments of the document: name this one %s", a.As))
			}
			args[a.Name] = a
			continue
		case at < 0 && args[a.Name] != nil:
			faults = append(faults, e.argFault(a, "is given twice"))
		case at < 0:
			f := e.argFault(a, "%s has no such argument", t.Operation.Key())
			if near := validate.Nearest(a.Name, names); near != "" {
				f.Text += ": did you mean " + near + "?"
			} else {
				f.Text += "; one that is added needs a type"
			}
			faults = append(faults, f)
			continue
		case a.Optional && t.Arguments[at].Required:
			faults = append(faults, e.argFault(a, "is required by the document: remove the ?"))
		case a.Off && t.Arguments[at].Required:
			faults = append(faults, e.argFault(a, "is required: it cannot be off; give it a value"))
		}
		change := a.change()
		if why := changes.Clash(change, names); why != "" {
			faults = append(faults, e.argFault(a, "%s", why))
		}
		args[a.Name], changes = a, append(changes, *change)
	}
	for _, name := range slices.Sorted(maps.Keys(common.Filled)) {
		if a := args[name]; a != nil && !a.Off && a.Value == nil {
			faults = append(faults, e.argFault(a, "clients do not see it: %s of the API set its place", common.Filled[name]))
		}
		if args[name] == nil {
			args[name] = &Arg{Name: name, Off: true}
			changes = append(changes, *args[name].change())
		}
	}
	left := Shared{Filled: common.Filled}
	for i := range common.Args {
		a := &common.Args[i]
		if args[a.Name] != nil {
			continue // the entry decides
		}
		change := a.change()
		if at := slices.IndexFunc(t.Arguments, func(one openapi.Argument) bool { return one.Name == a.Name }); a.Off && t.Arguments[at].Place == openapi.InPath {
			faults = append(faults, a.commonFault("is a part of the path of %s: it cannot be off; give it a value", t.Operation.Key()))
		} else if why := changes.Clash(change, names); why != "" {
			faults = append(faults, a.commonFault("%s: %s", t.Operation.Key(), why))
		}
		args[a.Name], changes = a, append(changes, *change)
		left.Args = append(left.Args, *a)
	}
	seen := *t
	seen.Name, seen.Title, seen.Description = cmp.Or(e.Name, t.Name), cmp.Or(e.Title, t.Title), cmp.Or(e.About, t.Description)
	if e.Writes != nil && *e.Writes == seen.Annotations.ReadOnly {
		w := *e.Writes
		seen.Annotations.ReadOnly, seen.Annotations.Destructive, seen.Annotations.Idempotent = !w, w, !w
	}
	if e.Result != "" || e.Output != nil && !*e.Output { // the document does not describe the result
		seen.OutputSchema, seen.Wrapped = nil, false
	}
	out := &Tool{
		Tool:   &seen,
		Call:   &seen,
		Result: e.Result,
		Entry:  e,
	}
	var wrong Faults
	out.Settings, wrong = e.settings(t.Operation)
	out.Shared = left
	out.Settings.Sets = out.Settings.Sets || slices.ContainsFunc(left.Args, func(a Arg) bool { return a.Value != nil })
	faults = append(faults, wrong...)
	over, wrong := e.additions(t, args, added)
	if faults = append(faults, wrong...); len(args) == 0 && over == nil {
		return out, faults
	}
	if over != nil {
		out.Hidden = over.hidden
	}
	seen.InputSchema = withAdded(changes.Edit(over.without(t.InputSchema)), added)
	seen.Arguments = slices.DeleteFunc(slices.Clone(t.Arguments), func(one openapi.Argument) bool {
		a := args[one.Name]
		return a != nil && (a.Off || a.Value != nil) || over.sets(one.Name)
	})
	call := seen
	call.Arguments = t.Arguments
	out.Call = &call
	out.Prepare = func(given []byte) ([]byte, error) {
		edits, why := changes.Fill(given, nil)
		if why != "" {
			return nil, param.Refusal(why)
		}
		return over.fill(jsonrpc.Apply(given, edits))
	}
	over.equip(&call)
	return out, faults
}

func argumentNames(t *openapi.Tool) []string {
	var names []string
	for _, a := range t.Arguments {
		names = append(names, a.Name)
	}
	return names
}

// added returns the arguments of an entry that the operation lacks and that declare a type. If an
// argument has no type, its name is probably misspelled.
func (e *Entry) added(names []string) []*Arg {
	var all []*Arg
	for i := range e.Args {
		if a := &e.Args[i]; !slices.Contains(names, a.Name) && a.declares() {
			all = append(all, a)
			names = append(slices.Clone(names), a.Name)
		}
	}
	return all
}

// declares reports whether the argument's schema has a type, or a keyword in place of a type.
func (a *Arg) declares() bool {
	if string(a.Schema) == "{}" { // the type any
		return true
	}
	return slices.ContainsFunc([]string{"type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf"}, func(key string) bool {
		return gjson.GetBytes(a.Schema, gjson.Escape(key)).Exists()
	})
}

// withAdded returns the input schema with the added arguments.
func withAdded(schema []byte, added []*Arg) []byte {
	if len(added) == 0 {
		return schema
	}
	properties := []byte(gjson.GetBytes(schema, "properties").Raw)
	if len(properties) == 0 {
		properties = []byte("{}")
	}
	var required []string
	for _, one := range gjson.GetBytes(schema, "required").Array() {
		required = append(required, one.String())
	}
	for _, a := range added {
		properties = rawjson.Set(properties, a.Name, a.change().Described(a.Schema))
		if !a.Optional {
			required = append(required, a.Name)
		}
	}
	if schema = rawjson.Set(schema, "properties", properties); len(required) > 0 {
		schema = rawjson.Set(schema, "required", rawjson.List(required))
	}
	return schema
}
