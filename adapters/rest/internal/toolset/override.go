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

// Tool is a tool as clients see it, and what becomes of a call.
type Tool struct {
	*openapi.Tool
	// Call is the tool as package wire sees it. It is another one when Prepare
	// makes the arguments of the request of those that clients give, after they
	// were checked: its Arguments are of the former, its InputSchema (which the
	// catalog sets) of the latter.
	Call    *openapi.Tool
	Prepare func(args []byte) ([]byte, error)
	Result  string
	Picks   bool   // it has PickArg
	Unsaid  bool   // its output schema was left out of a list that was too long
	Entry   *Entry // what the configuration says of it, or nil
	// Published is what a catalogue says of it, as far as that is taken over, or
	// nil.
	Published *Entry
	Patch     func(schema []byte) []byte
	// Hidden are arguments that clients do not see because of what the
	// configuration sets, to the keys that do.
	Hidden map[string]string
	// Shared is what holds for parameters of all operations, and so for its own.
	Shared Shared
	// Settings are for its calls.
	Settings wire.Settings
}

// Full returns the input schema with nothing left out.
func (t *Tool) Full() []byte {
	if !t.Stubbed {
		return t.InputSchema
	}
	if t.Patch == nil {
		return t.Tool.Full()
	}
	return t.Patch(t.Tool.Full())
}

// Override lays an entry of the configuration, and what holds for the parameters
// of all operations, over a tool of the document.
func (e *Entry) Override(t *openapi.Tool, common Shared) (*Tool, Faults) {
	names := argumentNames(t)
	added := e.added(names)
	for _, a := range added {
		names = append(names, a.Name)
	}
	var faults Faults
	args := map[string]*Arg{} // by the document's names
	rename := map[string]string{}
	var fixed []Member
	for i := range e.Args {
		a := &e.Args[i]
		at := slices.IndexFunc(t.Arguments, func(one openapi.Argument) bool { return one.Name == a.Name })
		switch {
		case slices.Contains(added, a):
			if a.As != "" {
				faults = append(faults, e.argFault(a, "as is for arguments that the document has: call it %s", a.As))
			}
			args[a.Name] = a
			continue
		case at < 0 && args[a.Name] != nil:
			faults = append(faults, e.argFault(a, "is there twice"))
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
			faults = append(faults, e.argFault(a, "is required, as the document has it: take the ? away"))
		case a.Off && t.Arguments[at].Required:
			faults = append(faults, e.argFault(a, "is required: it cannot be off; give it a value"))
		case a.As != "" && a.As != a.Name && slices.Contains(names, a.As):
			faults = append(faults, e.argFault(a, "there is an argument %s already", a.As))
		}
		args[a.Name] = a
		if a.Value != nil {
			fixed = append(fixed, Member{Name: a.Name, Value: a.Value})
		}
		if a.As != "" && a.As != a.Name {
			if rename[a.As] != "" {
				faults = append(faults, e.argFault(a, "becomes the same as %s", rename[a.As]))
			}
			rename[a.As] = a.Name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(common.Filled)) {
		if a := args[name]; a != nil && !a.Off && a.Value == nil {
			faults = append(faults, e.argFault(a, "clients do not see it: %s of the API set what it is for", common.Filled[name]))
		}
		if args[name] == nil {
			args[name] = &Arg{Name: name, Off: true}
		}
	}
	left := Shared{Filled: common.Filled}
	for i := range common.Args {
		a := &common.Args[i]
		if args[a.Name] != nil {
			continue // the entry has its own word on it
		}
		as := a.As
		if as == a.Name {
			as = ""
		}
		switch at := slices.IndexFunc(t.Arguments, func(one openapi.Argument) bool { return one.Name == a.Name }); {
		case a.Off && t.Arguments[at].Place == openapi.InPath:
			faults = append(faults, a.commonFault("is a part of the path of %s: it cannot be off; give it a value", t.Operation.Key()))
		case as != "" && (slices.Contains(names, as) || rename[as] != ""):
			faults = append(faults, a.commonFault("%s has an argument %s already", t.Operation.Key(), as))
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
	if e.Result != "" || e.Output != nil && !*e.Output { // the document knows nothing of what comes of it
		seen.OutputSchema, seen.Wrapped = nil, false
	}
	out := &Tool{Tool: &seen, Call: &seen, Result: e.Result, Entry: e}
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
				return name, nil // not the client's to set, should it get past the check
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

// added returns the arguments of an entry that an operation with arguments of
// these names lacks. They say what they are; what does not is meant for one of
// the operation's, and its name misspelled.
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

// declares reports whether what is said of the argument is enough for one that is
// added: a type, or what stands for one.
func (a *Arg) declares() bool {
	if string(a.Schema) == "{}" { // the type any
		return true
	}
	return slices.ContainsFunc([]string{"type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf"}, func(key string) bool {
		return gjson.GetBytes(a.Schema, gjson.Escape(key)).Exists()
	})
}

// withAdded returns the input schema with the arguments that the document lacks.
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

// patched returns the input schema as the entries for its arguments have it.
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
