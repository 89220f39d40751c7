package toolset

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Shared is what holds for the parameters of all operations, as one tool has
// them.
type Shared struct {
	Args []Arg // of Config.Args, by the tool's names for its arguments
	// Filled are arguments that Config.Headers and Config.Auth send, whatever
	// clients say; to the keys that do.
	Filled map[string]string
}

// Empty reports whether nothing holds for the tool.
func (s *Shared) Empty() bool { return len(s.Args) == 0 && len(s.Filled) == 0 }

// Confines reports whether clients could choose more without it.
func (s *Shared) Confines() bool { return slices.ContainsFunc(s.Args, Confines) }

// Confines reports whether an argument keeps something from clients.
func Confines(a Arg) bool { return a.Off || a.Value != nil }

// commonFault is about an entry of Config.Args.
func (a *Arg) commonFault(format string, args ...any) Fault {
	return Fault{Key: a.where + "args: " + a.Name + ": ", Line: a.Line, Text: fmt.Sprintf(format, args...), common: true}
}

// ArgFaults reports what can be seen, without a document, to be wrong with what is
// said of the parameters of all operations.
func ArgFaults(args []Arg) []string {
	var all []string
	seen := map[string]bool{}
	for i := range args {
		a := &args[i]
		add := func(format string, args ...any) { all = append(all, a.commonFault(format, args...).String()) }
		if why := a.unusable(); why != "" {
			add("is no JSON Schema: %s", why)
		}
		switch {
		case seen[a.Name]:
			add("is there twice")
		case a.Optional:
			add("the ? is for arguments that are added: the document says what is required")
		case a.As != "" && !plainName.MatchString(a.As):
			add("as must have 1 to 64 letters, digits, '_', '.' and '-'")
		case Confines(*a) && a.saysMore():
			add("clients do not see it: nothing else can be said about it")
		}
		seen[a.Name] = true
	}
	return all
}

// saysMore reports whether something is said about an argument that is of no use
// where clients do not see it.
func (a *Arg) saysMore() bool {
	return a.As != "" || a.About != "" || a.Default != nil || len(a.Schema) > 0 || a.Off && a.Value != nil
}

// Common is what is said of the parameters of all operations, while it is laid over the
// tools of a document.
type Common struct {
	args  []Arg
	used  map[string]bool
	told  map[string]bool
	known []string // names of parameters
}

// NewCommon begins with what the configuration has for all operations.
func NewCommon(args []Arg) *Common { return newCommon(args, "") }

func newCommon(args []Arg, where string) *Common {
	args = slices.Clone(args)
	for i := range args {
		args[i].where = where
	}
	return &Common{args: args, used: map[string]bool{}, told: map[string]bool{}}
}

// Of returns what holds for the parameters of a tool of the document. Members of
// bodies are none. reach may be nil.
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
			if a := c.args[i]; a.Name == one.Parameter.Name || one.Place == openapi.InHeader && strings.EqualFold(a.Name, one.Parameter.Name) {
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

// News returns faults without those that were told of the same argument for
// another operation.
func (c *Common) News(faults Faults) Faults {
	return slices.DeleteFunc(faults, func(f Fault) bool {
		again := f.common && c.told[f.Key]
		c.told[f.Key] = c.told[f.Key] || f.common
		return again
	})
}

// Unused tells of arguments that no operation has.
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
		f := a.commonFault("no operation that %s has a parameter of that name", among)
		if near := validate.Nearest(a.Name, c.known); near != "" {
			f.Text += ": did you mean " + near + "?"
		}
		faults = append(faults, f)
	}
	return faults
}

// Confines reports whether an entry sets or hides something that clients could
// choose without it.
func (e *Entry) Confines() bool {
	return len(e.Headers) > 0 || len(e.Query) > 0 || len(e.Body) > 0 || slices.ContainsFunc(e.Args, Confines)
}
