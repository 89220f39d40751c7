package filter

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/mcp-bridge/bridge/internal/glob"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Kind is a kind of list: tools, prompts, resources or templates.
type Kind = list.Kind

// Options choose and change the visible items of one server. The zero value shows everything as it
// is.
type Options struct {
	Tools     Rules // of tools/list
	Prompts   Rules // of prompts/list
	Resources Rules // and templates
}

// Rules choose and change the visible items of one kind: tools, prompts, or resources with
// templates. Clients cannot use hidden items either. Patterns (see glob.Match) match the server's
// own names, the URIs of resources, and the templates. The zero value shows everything as it is.
type Rules struct {
	Allow []string // if not empty, an item that matches none is hidden
	Deny  []string // an item that matches one is hidden; Deny wins over Allow
	// Rename maps the server's names to the names that clients see. Resources are called by their URI, so it
	// changes only their shown name.
	Rename map[string]string
	// Override changes descriptions, by the server's own name or URI.
	Override map[string]Override
	// InlineRefs replaces local references in the schemas of tools by what they name, for clients that do not
	// understand $ref.
	InlineRefs bool
}

// Override changes the description of one tool, prompt or resource. A nil member changes nothing.
type Override struct {
	Title       *string // for people; an empty one removes it
	Description *string // for models; an empty one removes it
	// Annotations replace the members of the same name. null removes one.
	Annotations map[string]json.RawMessage
}

// Grant names the items that a principal may use. Patterns are as in Rules.
type Grant struct {
	// Servers are patterns of servers' names. Empty means all.
	Servers []string
	// Allow and Deny are patterns of tools, by the names that clients see at the server's own
	// address. Deny wins. An empty Allow means all.
	Allow, Deny []string
}

// Shows reports whether clients see the item of the server's name, which is no URI. It may be
// invisible although it passes: another item may have its name.
func (r *Rules) Shows(name string) bool {
	_, ok := compile(*r, false).external(name)
	return ok
}

// Passes reports whether Allow and Deny show the item of the server's name, which is no URI.
func (r *Rules) Passes(name string) bool { return passes(r.Allow, r.Deny, name) }

// Idle returns the patterns and names that are about none of the server's items, after their key: "deny.read_*".
func (r *Rules) Idle(items []string) (all []string) {
	for key, patterns := range map[string][]string{
		"allow":    r.Allow,
		"deny":     r.Deny,
		"rename":   slices.Collect(maps.Keys(r.Rename)),
		"override": slices.Collect(maps.Keys(r.Override)),
	} {
		for _, p := range patterns {
			is := func(item string) bool { return item == p || (key == "allow" || key == "deny") && glob.Match(p, item) }
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

// Passes reports whether the grant includes a tool, by the name that clients see at the server's own
// address.
func (g Grant) Passes(tool string) bool { return passes(g.Allow, g.Deny, tool) }

// everything reports whether the grant includes all tools.
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
