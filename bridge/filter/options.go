package filter

import (
	"encoding/json"

	"github.com/mcp-bridge/bridge/internal/glob"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Kind is what a list has: tools, prompts, resources or templates.
type Kind = list.Kind

// Options choose and change what clients see of one server. The zero value shows
// everything as it is.
type Options struct {
	Tools     Rules // of tools/list
	Prompts   Rules // of prompts/list
	Resources Rules // and templates
}

// Rules choose and change what clients see of one kind of a server's offers: its
// tools, its prompts, or its resources and templates. What they do not see they
// cannot use either. Patterns (see glob.Match) are matched against the server's own
// names, for resources against the URI, and for templates against the template. The
// zero value lets everything through.
type Rules struct {
	Allow []string // when not empty, what matches none of these is hidden
	Deny  []string // what matches one of these is hidden; it wins over Allow
	// Rename gives names that clients see, by the server's own. For resources,
	// which are called by their URI, it changes the name that is shown.
	Rename map[string]string
	// Override changes how something is described, by the server's own name or
	// URI.
	Override map[string]Override
}

// Override changes how one tool, prompt or resource is described. What is nil
// stays as the server has it.
type Override struct {
	Title       *string // for people; empty takes it away
	Description *string // for models; empty takes it away
	// Annotations are members that replace those of the same name; null removes
	// one.
	Annotations map[string]json.RawMessage
}

// Grant is what a principal may use. Patterns are as in Rules.
type Grant struct {
	// Servers are patterns of names of servers; empty means all.
	Servers []string
	// Allow and Deny are patterns of tools, by the names that clients see at the
	// server itself. Deny wins; an empty Allow means all.
	Allow, Deny []string
}

// Shows reports whether clients see what the server calls name, which is no URI.
// They may not although it passes: its name may have been given to another.
func (r *Rules) Shows(name string) bool {
	_, ok := compile(*r, false).external(name)
	return ok
}

// Passes reports whether clients may see what the server calls name, which is no
// URI.
func (r *Rules) Passes(name string) bool { return passes(r.Allow, r.Deny, name) }

// Covers reports whether the grant is for the server of that name.
func (g Grant) Covers(server string) bool { return passes(g.Servers, nil, server) }

// Passes reports whether the grant lets a tool be used, by the name that clients
// see at the server itself.
func (g Grant) Passes(tool string) bool { return passes(g.Allow, g.Deny, tool) }

// everything reports whether all tools may be used.
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
