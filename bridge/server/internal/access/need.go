package access

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/glob"
	"github.com/mcp-bridge/bridge/internal/list"
)

// names are the names that a server's settings define: the server's own names, the names that clients see, and the
// server's prefix in the aggregate.
type names struct {
	Tools, Prompts map[string]string
	Prefix         string
	Until          time.Time // when an old prefix expires; zero for a current prefix
}

// need collects the scopes that the messages of a request need. Of its fields, only Grant is required.
type need struct {
	// Grant reports whether the caller's rule allows a server, or a tool of it.
	Grant func(server, tool string) bool
	// OldNames holds, for each server, its old prefixes and the old names that open sessions may still use.
	OldNames map[string][]names
	// All are the scopes so far.
	All []string
}

// Add adds scopes, each once.
func (n *need) Add(scopes []string) {
	for _, one := range scopes {
		if !slices.Contains(n.All, one) {
			n.All = append(n.All, one)
		}
	}
}

// subject is the tool, prompt or resource that a message names.
type subject struct {
	by        func(*config.Scopes) map[string]config.Words // returns the patterns for subjects of this kind, with their scopes
	name      string                                       // the name, or the URI of a resource
	ambiguous bool                                         // the message is ambiguous: the server decides which subject it names
	isURI     bool                                         // name is a URI
	tool      bool
}

// matches reports whether a pattern fits the subject, in any spelling of a URI. Every pattern fits an ambiguous
// subject.
func (s *subject) matches(pattern, name string) bool {
	switch {
	case s.ambiguous:
		return true
	case s.isURI:
		return !(&filter.Rules{Deny: []string{pattern}}).PassesURI(name)
	}
	return glob.Match(pattern, name)
}

// match adds the scopes of a server's patterns that fit the subject. name is the subject's name at that server; empty
// means a.name.
func (n *need) match(s *config.Server, a *subject, name string) {
	name = cmp.Or(name, a.name)
	if a.tool && !a.ambiguous && !n.Grant(s.Name, name) {
		return // the tool is hidden from the caller, whatever its scopes are
	}
	called := []string{name}
	for _, was := range n.OldNames[s.Name] { // sessions keep the names that they started with
		switch {
		case a.tool:
			called = append(called, shownAs(s.Tools.Rename, ownOf(was.Tools, name)))
		case !a.isURI:
			called = append(called, shownAs(s.Prompts.Rename, ownOf(was.Prompts, name)))
		}
	}
	for pattern, scopes := range a.by(&s.Scopes) {
		if slices.ContainsFunc(called, func(name string) bool { return a.matches(pattern, name) }) {
			n.Add(scopes)
		}
	}
}

// shownAs returns the name that clients see for a server's own name.
func shownAs(renamed map[string]string, own string) string {
	if name, is := renamed[own]; is {
		return name
	}
	return own
}

// ownOf returns a server's own name for a name that clients see.
func ownOf(renamed map[string]string, name string) string {
	for own, shown := range renamed {
		if shown == name {
			return own
		}
	}
	return name
}

// subjects returns the subjects of a message that may need scopes.
func subjects(m *jsonrpc.Message) []subject {
	tools := func(s *config.Scopes) map[string]config.Words { return s.Tools }
	prompts := func(s *config.Scopes) map[string]config.Words { return s.Prompts }
	resources := func(s *config.Scopes) map[string]config.Words { return s.Resources }
	switch m.Method {
	case "tools/call":
		return []subject{{
			by:        tools,
			name:      m.Name(),
			ambiguous: m.Doubtful() || m.Name() == "",
			tool:      true,
		}}
	case "prompts/get":
		return []subject{{
			by:        prompts,
			name:      m.Name(),
			ambiguous: m.Doubtful() || m.Name() == "",
		}}
	case "resources/read", "resources/subscribe":
		return []subject{{
			by:        resources,
			name:      m.URI(),
			ambiguous: m.Doubtful() || m.URI() == "",
			isURI:     true,
		}}
	case era.Complete:
		ref, no := list.ReferenceOf(m)
		switch {
		case no != nil: // the reference cannot be read: the server may take it for anything
			return []subject{{by: prompts, ambiguous: true}, {by: resources, ambiguous: true, isURI: true}}
		case ref.URI != "":
			return []subject{{
				by:    resources,
				name:  ref.URI,
				isURI: true,
			}}
		}
		return []subject{{
			by:        prompts,
			name:      ref.Name,
			ambiguous: ref.Name == "",
		}}
	case era.Listen:
		wants, fault := subscribe.ReadListen(m.Params)
		all := make([]subject, 0, len(wants.URIs))
		for _, uri := range wants.URIs {
			all = append(all, subject{
				by:    resources,
				name:  uri,
				isURI: true,
			})
		}
		if fault != "" {
			all = append(all, subject{
				by:        resources,
				ambiguous: true,
				isURI:     true,
			})
		}
		return all
	}
	return nil
}

// atServer adds the needs of a message at a server's own address.
func (n *need) atServer(s *config.Server, m *jsonrpc.Message) {
	n.Add(s.Scopes.All)
	for _, about := range subjects(m) {
		n.match(s, &about, about.name)
	}
}

// maxCut is the length of a prefix that a shortened name keeps in any case: see externalName in
// bridge/internal/aggregate.
const maxCut = 55

// atAggregate adds the needs of a message at the aggregate: the needs of each server that the message
// may go to. Usually the prefix of the name leaves one server.
func (n *need) atAggregate(servers []config.Server, m *jsonrpc.Message) {
	var tasks []string
	switch {
	case strings.HasPrefix(m.Method, "tasks/") && m.Method != "tasks/list":
		tasks = []string{gjson.GetBytes(m.Params, "taskId").Str}
	case m.Method == era.Listen:
		wants, _ := subscribe.ReadListen(m.Params) // a fault makes the subject ambiguous
		tasks = wants.Tasks
	}
	about := subjects(m)
	prefixed := map[string]bool{} // the names that have the prefix of a server
	for i := range servers {
		for _, s := range about {
			prefixed[s.name] = prefixed[s.name] || n.Grant(servers[i].Name, "") && (hasPrefix(prefixes(&servers[i]), s.name) ||
				hasPrefix(slices.DeleteFunc(n.oldPrefixes(servers, &servers[i], s.name), func(p string) bool { return p == "" }), s.name))
		}
	}
	for i := range servers {
		s := &servers[i]
		if !n.Grant(s.Name, "") {
			continue // for the caller the server does not exist
		}
		if slices.ContainsFunc(tasks, func(id string) bool { return taskServer(servers, id) == s.Name || taskServer(servers, id) == "" }) {
			n.Add(s.Scopes.All)
		}
		for _, a := range about {
			// A session that started when there was one server keeps names without prefixes.
			if a.isURI || a.ambiguous || !prefixed[a.name] {
				n.Add(s.Scopes.All)
				n.match(s, &a, a.name)
				continue
			}
			for _, prefix := range append(prefixes(s), n.oldPrefixes(servers, s, a.name)...) {
				own, whole := strings.CutPrefix(a.name, prefix)
				if whole {
					n.Add(s.Scopes.All)
					n.match(s, &a, own)
				}
				if shortened(a.name) && strings.HasPrefix(a.name, prefix[:min(len(prefix), maxCut)]) {
					any := a
					any.ambiguous = true // the whole name is unknown
					n.Add(s.Scopes.All)
					n.match(s, &any, "")
				}
			}
		}
	}
}

// taskServer returns the server of a task of the aggregate. The result is empty if any server may have the task, such
// as a task of a session that started when there was one server.
func taskServer(servers []config.Server, id string) string {
	name, _, _ := strings.Cut(id, ":")
	if slices.ContainsFunc(servers, func(s config.Server) bool { return s.Name == name }) {
		return name
	}
	return ""
}

// prefixes returns the prefixes that a server's names may have at the aggregate. A name without a
// prefix may belong to any server.
func prefixes(s *config.Server) []string { return []string{s.Prefix, s.Name + "__"} }

// oldPrefixes returns the old prefixes of a server that the name may still have. There is none if the
// name begins with the current prefix of another server.
func (n *need) oldPrefixes(servers []config.Server, s *config.Server, name string) (all []string) {
	var holder *config.Server // the server with the longest prefix that the name has
	for i := range servers {
		if p := servers[i].Prefix; p != "" && strings.HasPrefix(name, p) && (holder == nil || len(p) > len(holder.Prefix)) {
			holder = &servers[i]
		}
	}
	if holder != nil && holder.Name != s.Name {
		return nil
	}
	for _, was := range n.OldNames[s.Name] {
		if was.Prefix != s.Prefix && (was.Until.IsZero() || time.Now().Before(was.Until)) {
			all = append(all, was.Prefix)
		}
	}
	return all
}

// hasPrefix reports whether a name at the aggregate may have one of the prefixes.
func hasPrefix(prefixes []string, name string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		return strings.HasPrefix(name, prefix) || shortened(name) && strings.HasPrefix(name, prefix[:min(len(prefix), maxCut)])
	})
}

// shortened reports whether a name ends with a hash, like the short form of a name that was too long or had
// characters that clients refuse (see externalName in bridge/internal/aggregate).
func shortened(name string) bool {
	i := len(name) - 9
	return i > 0 && name[i] == '_' && strings.Trim(name[i+1:], "0123456789abcdef") == ""
}

// At adds what the messages need under a configuration. server may be a group; empty means all servers as one.
func (n *need) At(server string, c *config.Config, messages []*jsonrpc.Message) {
	all := server == ""
	if all && len(c.Servers) == 1 {
		server = c.Servers[0].Name // one server has no aggregate; a session may have started when there were more
	}
	for i := range c.Servers {
		if c.Servers[i].Name == server {
			n.Add(c.Servers[i].Scopes.All)
		}
	}
	several := c.Servers
	if g, is := c.Groups[server]; is {
		all, several = true, slices.DeleteFunc(slices.Clone(c.Servers), func(s config.Server) bool { return !slices.Contains(g.Servers, s.Name) })
	}
	for _, m := range messages {
		if all {
			n.atAggregate(several, m)
		}
		for i := range c.Servers {
			if c.Servers[i].Name == server {
				n.atServer(&c.Servers[i], m)
			}
		}
	}
}
