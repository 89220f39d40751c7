package rest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/wire"
	"github.com/mcp-bridge/bridge/bridge/validate"
)

// shared is what holds for the parameters of all operations, as one tool has
// them.
type shared struct {
	args []Arg // of Config.Args, by the tool's names for its arguments
	// filled are arguments that Config.Headers and Config.Auth send, whatever
	// clients say; to the keys that do.
	filled map[string]string
}

func (s *shared) empty() bool { return len(s.args) == 0 && len(s.filled) == 0 }

// confines reports whether clients could choose more without it.
func (s *shared) confines() bool { return slices.ContainsFunc(s.args, confines) }

// confines reports whether an argument keeps something from clients.
func confines(a Arg) bool { return a.Off || a.Value != nil }

// commonFault is about an entry of Config.Args.
func (a *Arg) commonFault(format string, args ...any) Fault {
	return Fault{Key: "args: " + a.Name + ": ", Line: a.Line, Text: fmt.Sprintf(format, args...), common: true}
}

// argFaults reports what can be seen to be wrong with Args without a document.
func (c *Config) argFaults() []string {
	if len(c.Args) > 0 && c.OpenAPI == "" {
		return []string{"args is of no use without openapi: it is about the parameters of a document; tools with a request have args of their own"}
	}
	var all []string
	seen := map[string]bool{}
	for i := range c.Args {
		a := &c.Args[i]
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
		case confines(*a) && a.saysMore():
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

// commonArgs are Config.Args while they are laid over the tools of a document.
type commonArgs struct {
	args  []Arg
	used  map[string]bool
	told  map[string]bool
	known []string // names of parameters
}

func (c *Config) commonArgs() *commonArgs {
	return &commonArgs{args: c.Args, used: map[string]bool{}, told: map[string]bool{}}
}

// of returns what holds for the parameters of a tool of the document. Members of
// bodies are none. reach may be nil.
func (c *commonArgs) of(t *openapi.Tool, reach *wire.Reach) shared {
	s := shared{filled: map[string]string{}}
	for _, one := range t.Arguments {
		if one.Parameter == nil {
			continue
		}
		if reach != nil {
			if key := reach.Fills(t.Operation, one.Parameter); key != "" {
				s.filled[one.Name] = key
			}
		}
		for i := range c.args {
			if a := c.args[i]; a.Name == one.Parameter.Name || one.Place == openapi.InHeader && strings.EqualFold(a.Name, one.Parameter.Name) {
				c.used[a.Name] = true
				a.Name = one.Name
				s.args = append(s.args, a)
			}
		}
		if len(c.args) > 0 && !slices.Contains(c.known, one.Parameter.Name) {
			c.known = append(c.known, one.Parameter.Name)
		}
	}
	return s
}

// news returns faults without those that were told of the same argument for
// another operation.
func (c *commonArgs) news(faults Faults) Faults {
	return slices.DeleteFunc(faults, func(f Fault) bool {
		again := f.common && c.told[f.Key]
		c.told[f.Key] = c.told[f.Key] || f.common
		return again
	})
}

// unused tells of arguments that no operation has.
func (c *commonArgs) unused() Faults {
	var faults Faults
	for i := range c.args {
		a := &c.args[i]
		if c.used[a.Name] {
			continue
		}
		f := a.commonFault("no operation that is exposed has a parameter of that name")
		if near := validate.Nearest(a.Name, c.known); near != "" {
			f.Text += ": did you mean " + near + "?"
		}
		faults = append(faults, f)
	}
	return faults
}
