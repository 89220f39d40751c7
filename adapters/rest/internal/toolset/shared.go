package toolset

import (
	"slices"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// ArgFaults returns the faults in Config.Args that can be found without a document.
func ArgFaults(args []Arg) (all []string) {
	for _, f := range append(argFaults(args, commonList, nil), schemaFaults(args, nil)...) {
		all = append(all, f.String())
	}
	return all
}

// Common applies the entries for parameters of all operations to the tools of a document.
type Common struct {
	args     []Arg
	used     map[string]bool // by name: the entries that match a parameter
	reported map[string]bool // by Fault.Key
	known    []string        // names of the document's parameters
}

// NewCommon returns a Common of Config.Args.
func NewCommon(args []Arg) *Common { return newCommon(args, "") }

func newCommon(args []Arg, where string) *Common {
	args = slices.Clone(args)
	for i := range args {
		args[i].where = where
	}
	return &Common{
		args:     args,
		used:     map[string]bool{},
		reported: map[string]bool{},
	}
}

// Of returns the settings that apply to the parameters of a tool; members of its body are no
// parameters. If reach is nil, Filled is empty.
func (c *Common) Of(t *openapi.Tool, reach *wire.Reach) Shared {
	s := Shared{Filled: map[string]string{}}
	for _, one := range t.Arguments {
		if one.Parameter == nil {
			continue
		}
		if reach != nil {
			if key := reach.Fills(t.Operation, one.Parameter); key != "" {
				s.Filled[one.Name] = key
			}
		}
		for i := range c.args {
			if a := c.args[i]; a.Name == one.Parameter.Name || one.Place == openapi.InHeader && openapi.SameHeader(a.Name, one.Parameter.Name) {
				c.used[a.Name] = true
				a.Name = one.Name
				s.Args = append(s.Args, a)
			}
		}
		if len(c.args) > 0 && !slices.Contains(c.known, one.Parameter.Name) {
			c.known = append(c.known, one.Parameter.Name)
		}
	}
	return s
}

// Unreported drops faults that another operation already reported for the same argument.
func (c *Common) Unreported(faults Faults) Faults {
	return slices.DeleteFunc(faults, func(f Fault) bool {
		again := f.common && c.reported[f.Key]
		c.reported[f.Key] = c.reported[f.Key] || f.common
		return again
	})
}

// Unused returns faults for entries that match no parameter.
func (c *Common) Unused() Faults {
	var faults Faults
	for i := range c.args {
		a := &c.args[i]
		if c.used[a.Name] {
			continue
		}
		among := "is exposed"
		if a.where != "" {
			among = "the rule fits"
		}
		text := "no operation that " + among + " has a parameter of that name"
		if near := validate.Nearest(a.Name, c.known); near != "" {
			text += ": did you mean " + near + "?"
		}
		faults = append(faults, a.fault(nil, text))
	}
	return faults
}

// Confines reports whether an entry restricts the requests that clients can make.
func (e *Entry) Confines() bool {
	return len(e.Headers) > 0 || len(e.Query) > 0 || len(e.Body) > 0 || slices.ContainsFunc(e.Args, Confines)
}
