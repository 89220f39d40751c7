package toolset

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
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
	// Patch, unless nil, applies the tool's settings to an input schema of the document.
	Patch func(schema []byte) []byte
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

// Full returns the input schema with the parts that a stubbed InputSchema omits.
func (t *Tool) Full() []byte {
	if !t.Stubbed {
		return t.InputSchema
	}
	if t.Patch == nil {
		return t.Tool.Full()
	}
	return t.Patch(t.Tool.Full())
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
	rename := map[string]string{}
	var fixed []Member
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
		case a.As != "" && a.As != a.Name && slices.Contains(names, a.As):
			faults = append(faults, e.argFault(a, "the operation already has an argument %s", a.As))
		}
		args[a.Name] = a
		if a.Value != nil {
			fixed = append(fixed, Member{Name: a.Name, Value: a.Value})
		}
		if a.As != "" && a.As != a.Name {
			if rename[a.As] != "" {
				faults = append(faults, e.argFault(a, "gets the same name as %s", rename[a.As]))
			}
			rename[a.As] = a.Name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(common.Filled)) {
		if a := args[name]; a != nil && !a.Off && a.Value == nil {
			faults = append(faults, e.argFault(a, "clients do not see it: %s of the API set its place", common.Filled[name]))
		}
		if args[name] == nil {
			args[name] = &Arg{Name: name, Off: true}
		}
	}
	left := Shared{Filled: common.Filled}
	for i := range common.Args {
		a := &common.Args[i]
		if args[a.Name] != nil {
			continue // the entry decides
		}
		as := a.As
		if as == a.Name {
			as = ""
		}
		switch at := slices.IndexFunc(t.Arguments, func(one openapi.Argument) bool { return one.Name == a.Name }); {
		case a.Off && t.Arguments[at].Place == openapi.InPath:
			faults = append(faults, a.commonFault("is a part of the path of %s: it cannot be off; give it a value", t.Operation.Key()))
		case as != "" && (slices.Contains(names, as) || rename[as] != ""):
			faults = append(faults, a.commonFault("%s already has an argument %s", t.Operation.Key(), as))
		}
		args[a.Name] = a
		if a.Value != nil {
			fixed = append(fixed, Member{Name: a.Name, Value: a.Value})
		}
		if as != "" {
			rename[as] = a.Name
		}
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
	out.Patch = func(schema []byte) []byte { return withAdded(patched(over.without(schema), args), added) }
	seen.InputSchema = out.Patch(t.InputSchema)
	seen.Arguments = slices.DeleteFunc(slices.Clone(t.Arguments), func(one openapi.Argument) bool {
		a := args[one.Name]
		return a != nil && (a.Off || a.Value != nil) || over.sets(one.Name)
	})
	if len(fixed) == 0 && len(rename) == 0 && over == nil {
		return out, faults
	}
	call := seen
	call.Arguments = t.Arguments
	out.Call = &call
	out.Prepare = func(given []byte) ([]byte, error) {
		all := RewriteMembers(given, func(name string, value []byte) (string, []byte) {
			if original := rename[name]; original != "" {
				return original, value
			}
			if a := args[name]; a != nil && (a.Off || a.Value != nil || a.As != "" && a.As != name) {
				return name, nil // clients must not set it, even if the schema allows unknown arguments
			}
			return name, value
		}, fixed...)
		return over.fill(all)
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
		properties = PutMember(properties, a.Name, a.described(a.Schema))
		if !a.Optional {
			required = append(required, a.Name)
		}
	}
	if schema = PutMember(schema, "properties", properties); len(required) > 0 {
		schema = PutMember(schema, "required", JSONList(required))
	}
	return schema
}

// patched returns the input schema with the arguments changed, renamed or removed as args says. args
// has the document's names.
func patched(schema []byte, args map[string]*Arg) []byte {
	return RewriteMembers(schema, func(name string, value []byte) (string, []byte) {
		switch name {
		case "properties":
			return name, RewriteMembers(value, func(arg string, one []byte) (string, []byte) {
				a := args[arg]
				switch {
				case a == nil:
					return arg, one
				case a.Off || a.Value != nil:
					return arg, nil
				}
				if bytes.Equal(one, []byte("true")) {
					one = []byte("{}")
				}
				if one = a.described(one); a.As != "" {
					arg = a.As
				}
				return arg, one
			})
		case "required":
			var left []string
			gjson.ParseBytes(value).ForEach(func(_, v gjson.Result) bool {
				switch a := args[v.String()]; {
				case a == nil || a.Value == nil && !a.Off && a.As == "":
					left = append(left, v.String())
				case a.As != "":
					left = append(left, a.As)
				}
				return true
			})
			if len(left) == 0 {
				return name, nil
			}
			return name, JSONList(left)
		}
		return name, value
	})
}
