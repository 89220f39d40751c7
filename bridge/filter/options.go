package filter

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/glob"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Kind is a kind of list: tools, prompts, resources or templates.
type Kind = list.Kind

// Lists hide and change items of the lists of one server. The zero value shows all items unchanged.
type Lists struct {
	// Tools, Prompts and Resources are the rules for these kinds. Those for resources are also for templates.
	Tools     Rules `yaml:"tools" effect:"live"`
	Prompts   Rules `yaml:"prompts" effect:"live"`
	Resources Rules `yaml:"resources" effect:"live"`
}

// Rules hide and change items of one kind: tools, prompts, or resources with templates. Clients cannot use hidden
// items. Patterns (see glob.Match) match the server's own names of tools and prompts, the URIs of resources, and the
// URI templates. The zero value shows all items unchanged.
type Rules struct {
	Allow []string // if not empty, an item that matches no pattern is hidden
	Deny  []string // an item that matches a pattern is hidden, even if Allow has it
	// Rename maps names of the server to the names that clients see. Clients call resources by their URI, so for them
	// Rename changes only the name in lists.
	Rename map[string]string
	// Override changes descriptions, and arguments of tools. Its keys are the server's own names, or URIs; with Args alone,
	// also patterns of tools.
	Override map[string]Override
	// InlineRefs replaces each local reference in the schemas of tools by its definition, for clients that do not
	// understand $ref.
	InlineRefs bool
}

// Override changes the description of one tool, prompt or resource. A nil field changes nothing.
type Override struct {
	Title       *string // for people; an empty title removes the server's
	Description *string // for models; an empty description removes the server's
	// Annotations replace the server's annotations of the same names. The value null removes an annotation.
	Annotations map[string]json.RawMessage
	// Args are changes to the arguments of a tool, by the server's names of these.
	Args map[string]arguments.Change
	// MaxResult is the most bytes of texts in a tool's result. 0 means the bound of the server.
	MaxResult int64
}

// MaxResults returns the bounds for results of tools, by names and patterns; nil for none.
func (r *Rules) MaxResults() (all map[string]int64) {
	for name, o := range r.Override {
		if o.MaxResult == 0 {
			continue
		}
		if all == nil {
			all = map[string]int64{}
		}
		all[name] = o.MaxResult
	}
	return all
}

// Arguments returns the changes to the arguments of tools; nil for none.
func (r *Rules) Arguments() (all arguments.Overrides) {
	for name, o := range r.Override {
		if len(o.Args) == 0 {
			continue
		}
		if all == nil {
			all = arguments.Overrides{}
		}
		all[name] = o.Args
	}
	return all
}

// Grant selects the items that a principal may use. Patterns are as in Rules.
type Grant struct {
	// Servers are patterns of server names. Empty means all servers.
	Servers []string
	// Allow and Deny are patterns of tool names, as clients see them at the server's own address. Deny wins over Allow.
	// An empty Allow means all tools.
	Allow, Deny []string
}

// Shows reports whether clients see the tool or prompt with that name of the server. An item that passes Allow and Deny
// is invisible if Rename gives its name to another item.
func (r *Rules) Shows(name string) bool {
	_, ok := compile(*r, false).external(name)
	return ok
}

// Passes reports whether Allow and Deny show the tool or prompt with that name of the server.
func (r *Rules) Passes(name string) bool { return passes(r.Allow, r.Deny, name) }

// Idle returns the patterns and names that match none of items, each with its key in front: "deny.read_*".
func (r *Rules) Idle(items []string) (all []string) {
	for key, patterns := range map[string][]string{
		"allow":    r.Allow,
		"deny":     r.Deny,
		"rename":   slices.Collect(maps.Keys(r.Rename)),
		"override": slices.Collect(maps.Keys(r.Override)),
	} {
		for _, p := range patterns {
			is := func(item string) bool { return item == p || key != "rename" && glob.Match(p, item) }
			if !slices.ContainsFunc(items, is) {
				all = append(all, key+"."+p)
			}
		}
	}
	slices.Sort(all)
	return all
}

// Covers reports whether the grant includes the server of that name.
func (g Grant) Covers(server string) bool { return passes(g.Servers, nil, server) }

// Passes reports whether the grant includes a tool. The name is the one that clients see at the server's own address.
func (g Grant) Passes(tool string) bool { return passes(g.Allow, g.Deny, tool) }

func (g Grant) everything() bool { return len(g.Allow)+len(g.Deny) == 0 }

func passes(allow, deny []string, name string) bool {
	for _, p := range deny {
		if glob.Match(p, name) {
			return false
		}
	}
	for _, p := range allow {
		if glob.Match(p, name) {
			return true
		}
	}
	return len(allow) == 0
}
