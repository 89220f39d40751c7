package toolset

import (
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// list is a list of arguments in the configuration.
type list uint8

const (
	ownList    list = 1 << iota // of a tool of its own
	entryList                   // of an entry for an operation of the document
	commonList                  // Config.Args, or the Args of a rule
)

// staticFaults are the faults of an argument that can be found without a document. The first one counts.
// again says that the list has an argument of the same name before.
var staticFaults = []struct {
	in    list
	wrong func(a *Arg, again bool) bool
	text  string
}{
	{ownList, func(a *Arg, _ bool) bool { return !plainName.MatchString(a.Name) }, wrongName},
	{ownList | commonList, func(_ *Arg, again bool) bool { return again }, givenTwice},
	{ownList, func(a *Arg, _ bool) bool { return a.Off || a.As != "" }, "off and as are for arguments of the document"},
	{ownList, func(a *Arg, _ bool) bool { return len(a.Schema) == 0 && a.Value == nil }, "has no type: write one of " + strings.Join(types, ", ")},
	{entryList, func(a *Arg, _ bool) bool { return a.Optional && !a.declares() }, "the ? is for tools with a request, and for added arguments with a type: the document says what is required"},
	{entryList, func(a *Arg, _ bool) bool { return a.declares() && !plainName.MatchString(a.Name) }, wrongName},
	{commonList, func(a *Arg, _ bool) bool { return a.Optional }, "the ? is for added arguments: the document says what is required"},
}

const (
	wrongName  = "the name of an argument has 1 to 64 letters, digits, '_', '.' and '-'"
	givenTwice = "is given twice"
)

// argFaults returns the faults of a list of arguments that can be found without a document. e is the
// entry that has the list, or nil.
func argFaults(args []Arg, in list, e *Entry) (faults Faults) {
	seen := map[string]bool{}
	for i := range args {
		a := &args[i]
		text := ""
		for _, f := range staticFaults {
			if text == "" && f.in&in != 0 && f.wrong(a, seen[a.Name]) {
				text = f.text
			}
		}
		if text == "" && in != ownList {
			text = a.change().Check()
		}
		if text != "" {
			faults = append(faults, a.fault(e, text))
		}
		seen[a.Name] = true
	}
	return faults
}

// schemaFaults returns a fault for each argument whose schema is invalid. e is as for argFaults.
func schemaFaults(args []Arg, e *Entry) (faults Faults) {
	for i := range args {
		if why := args[i].unusable(); why != "" {
			faults = append(faults, args[i].fault(e, "is not a valid JSON Schema: "+why))
		}
	}
	return faults
}

// change is what the configuration makes of one argument of a tool.
type change struct {
	*Arg
	in    *openapi.Argument // of the document; nil for one that is added
	entry *Entry            // the entry that has it, or nil
}

// changes are what the configuration makes of the arguments of a tool, at most one for each argument.
type changes struct {
	t      *openapi.Tool
	names  []string // of all arguments
	all    []change
	edits  arguments.Changes // those of the document's arguments
	shared []Arg             // those of Config.Args and rules
	faults Faults
}

// newChanges lists the changes by an entry and those for parameters of all operations. For one argument,
// those of the entry count before the API's headers and credentials, and these before the others.
func newChanges(t *openapi.Tool, e *Entry, common Shared) *changes {
	c := &changes{t: t}
	for _, a := range t.Arguments {
		c.names = append(c.names, a.Name)
	}
	for i := range e.Args {
		if a := &e.Args[i]; a.declares() && !slices.Contains(c.names, a.Name) {
			c.names = append(c.names, a.Name)
		}
	}
	for i := range e.Args {
		c.add(change{Arg: &e.Args[i], entry: e})
	}
	for _, name := range slices.Sorted(maps.Keys(common.Filled)) {
		if old := c.of(name); old == nil {
			c.add(change{Arg: &Arg{Name: name, Off: true}})
		} else if !Confines(*old.Arg) {
			c.faults = append(c.faults, old.fault(e, "clients do not see it: "+common.Filled[name]+" of the API set its place"))
		}
	}
	for i := range common.Args {
		if a := &common.Args[i]; c.of(a.Name) == nil {
			c.add(change{Arg: a})
			c.shared = append(c.shared, *a)
		}
	}
	return c
}

// of returns the change of an argument, or nil.
func (c *changes) of(name string) *change {
	if i := slices.IndexFunc(c.all, func(one change) bool { return one.Name == name }); i >= 0 {
		return &c.all[i]
	}
	return nil
}

// arg returns what the configuration says about an argument, or nil.
func (c *changes) arg(name string) *Arg {
	if one := c.of(name); one != nil {
		return one.Arg
	}
	return nil
}

// add adds a change, and reports what is wrong with it.
func (c *changes) add(one change) {
	if i := slices.IndexFunc(c.t.Arguments, func(a openapi.Argument) bool { return a.Name == one.Name }); i >= 0 {
		one.in = &c.t.Arguments[i]
	}
	edit := one.change()
	clash := c.edits.Clash(edit, c.names)
	if one.in == nil {
		clash = ""
	}
	if text, fatal := c.wrong(&one); text != "" {
		c.faults = append(c.faults, one.fault(one.entry, text))
		if fatal {
			return
		}
		if one.entry == nil {
			clash = ""
		}
	}
	if clash != "" {
		if one.entry == nil {
			clash = c.t.Operation.Key() + ": " + clash
		}
		c.faults = append(c.faults, one.fault(one.entry, clash))
	}
	if c.all = append(c.all, one); one.in != nil {
		c.edits = append(c.edits, *edit)
	}
}

// wrong returns the fault of a change for the operation, or "". With a fatal one, it is no change at all.
func (c *changes) wrong(one *change) (text string, fatal bool) {
	key := c.t.Operation.Key()
	switch {
	case one.entry == nil:
		if one.Off && one.in.Place == openapi.InPath {
			return "is a part of the path of " + key + ": it cannot be off; give it a value", false
		}
	case one.in == nil && c.of(one.Name) != nil:
		return givenTwice, true
	case one.in == nil && !one.declares():
		text = key + " has no such argument"
		if near := validate.Nearest(one.Name, c.names); near != "" {
			return text + ": did you mean " + near + "?", true
		}
		return text + "; one that is added needs a type", true
	case one.in == nil:
		if one.As != "" {
			return "as is for arguments of the document: name this one " + one.As, false
		}
	case one.Optional && one.in.Required:
		return "is required by the document: remove the ?", false
	case one.Off && one.in.Required:
		return "is required: it cannot be off; give it a value", false
	}
	return "", false
}

// added returns the arguments that the document lacks.
func (c *changes) added() (all []*Arg) {
	for _, one := range c.all {
		if one.in == nil {
			all = append(all, one.Arg)
		}
	}
	return all
}

// shows reports whether clients see an argument of the document.
func (c *changes) shows(name string) bool {
	a := c.arg(name)
	return a == nil || !Confines(*a)
}

// change returns what becomes of the argument of an operation.
func (a *Arg) change() *arguments.Change {
	return &arguments.Change{
		Name:    a.Name,
		Off:     a.Off,
		Value:   a.Value,
		Default: a.Default,
		As:      a.As,
		About:   a.About,
		Schema:  a.Schema,
	}
}

// fallback returns the argument's own default, or else the default in the document's schema. a may be
// nil.
func (a *Arg) fallback(schema []byte) gjson.Result {
	if a == nil {
		return gjson.GetBytes(schema, "default")
	}
	if a.Default != nil {
		return gjson.ParseBytes(a.Default)
	}
	if own := gjson.GetBytes(a.Schema, "default"); own.Exists() {
		return own
	}
	return gjson.GetBytes(schema, "default")
}

// annotations returns a tool's annotations. writes, unless nil, overrides them.
func annotations(a openapi.Annotations, writes *bool) openapi.Annotations {
	if writes != nil && *writes == a.ReadOnly {
		a.ReadOnly, a.Destructive, a.Idempotent = !*writes, *writes, !*writes
	}
	return a
}
