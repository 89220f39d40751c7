package access

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/glob"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// names are how the settings of a server have named things: by its own names, those that
// clients see, and what stood before these where all servers are one.
type names struct {
	Tools, Prompts map[string]string
	Prefix         string
	Until          time.Time // how long a former prefix counts; zero for one that counts now
}

// need is what the messages of a request need, as scopes. Only Grant has to be set.
type need struct {
	// Grant tells whether the rule of the caller lets it use a server, or a tool of it.
	Grant func(server, tool string) bool
	// Former are names by servers that open sessions may go on with, and prefixes that
	// may be used still.
	Former map[string][]names
	// All are the scopes so far.
	All []string
}

// Add adds scopes that are not among them yet.
func (n *need) Add(scopes []string) {
	for _, one := range scopes {
		if !slices.Contains(n.All, one) {
			n.All = append(n.All, one)
		}
	}
}

// subject is what a message is about.
type subject struct {
	by       func(*config.Scopes) map[string]config.Words
	name     string // or the URI
	doubtful bool   // it is whatever the server takes it for
	located  bool   // it is a URI
	tool     bool
	args     []byte // of a tool
}

// matches reports whether a pattern is about it, in whatever spelling of a URI.
func (a *subject) matches(pattern, name string) bool {
	switch {
	case a.doubtful:
		return true
	case a.located:
		return !(&filter.Rules{Deny: []string{pattern}}).PassesURI(name)
	}
	return glob.Match(pattern, name)
}

// match adds what the patterns of a server ask for that fit the subject, which has that
// name there.
func (n *need) match(c *config.Server, a *subject, name string) {
	name = cmp.Or(name, a.name)
	if a.tool && !a.doubtful && !n.Grant(c.Name, name) {
		return // it is hidden from the caller, whatever its scopes
	}
	if a.tool && c.Rest != nil && rest.IsCall(ownOf(c.Tools.Rename, name)) {
		n.match(c, a.called(c), "")
	}
	called := []string{name}
	for _, was := range n.Former[c.Name] { // sessions keep the names that they have begun with
		switch {
		case a.tool:
			called = append(called, shownAs(c.Tools.Rename, ownOf(was.Tools, name)))
		case !a.located:
			called = append(called, shownAs(c.Prompts.Rename, ownOf(was.Prompts, name)))
		}
	}
	for pattern, scopes := range a.by(&c.Scopes) {
		if slices.ContainsFunc(called, func(name string) bool { return a.matches(pattern, name) }) {
			n.Add(scopes)
		}
	}
}

// shownAs returns the name under which clients see something of a server.
func shownAs(renamed map[string]string, own string) string {
	if name, is := renamed[own]; is {
		return name
	}
	return own
}

// ownOf returns the name that a server itself has for what clients see under that one.
func ownOf(renamed map[string]string, name string) string {
	for own, shown := range renamed {
		if shown == name {
			return own
		}
	}
	return name
}

// called returns the operation of an HTTP API that a tool is to call.
func (a *subject) called(c *config.Server) *subject {
	times, own := 0, ""
	rawjson.Each(a.args, func(name, value []byte) {
		if string(name) == "id" {
			times++
			own, _ = rawjson.Text(value)
		}
	})
	return &subject{by: a.by, name: shownAs(c.Tools.Rename, own), doubtful: times != 1 || own == "", tool: true}
}

// subjects returns what a message is about that may need scopes.
func subjects(m *jsonrpc.Message) []subject {
	tools := func(s *config.Scopes) map[string]config.Words { return s.Tools }
	prompts := func(s *config.Scopes) map[string]config.Words { return s.Prompts }
	resources := func(s *config.Scopes) map[string]config.Words { return s.Resources }
	switch m.Method {
	case "tools/call":
		return []subject{{by: tools, name: m.Name(), doubtful: m.Doubtful() || m.Name() == "", tool: true, args: []byte(gjson.GetBytes(m.Params, "arguments").Raw)}}
	case "prompts/get":
		return []subject{{by: prompts, name: m.Name(), doubtful: m.Doubtful() || m.Name() == ""}}
	case "resources/read", "resources/subscribe":
		return []subject{{by: resources, name: m.URI(), doubtful: m.Doubtful() || m.URI() == "", located: true}}
	case era.Complete:
		ref, no := list.ReferenceOf(m)
		switch {
		case no != nil: // it can be about anything
			return []subject{{by: prompts, doubtful: true}, {by: resources, doubtful: true, located: true}}
		case ref.URI != "":
			return []subject{{by: resources, name: ref.URI, located: true}}
		}
		return []subject{{by: prompts, name: ref.Name, doubtful: ref.Name == ""}}
	case era.Listen:
		wants, fault := subscribe.ReadListen(m.Params)
		all := make([]subject, 0, len(wants.URIs))
		for _, uri := range wants.URIs {
			all = append(all, subject{by: resources, name: uri, located: true})
		}
		if fault != "" {
			all = append(all, subject{by: resources, doubtful: true, located: true})
		}
		return all
	}
	return nil
}

// of adds what a message needs at the own address of a server.
func (n *need) of(c *config.Server, m *jsonrpc.Message) {
	n.Add(c.Scopes.All)
	for _, about := range subjects(m) {
		n.match(c, &about, about.name)
	}
}

// longest is how much of a prefix surely begins a name that was cut: see externalName in
// bridge/internal/aggregate.
const longest = 55

// ofAll adds what a message needs where all servers are one: what it needs at each server
// that it may go to. As a rule the prefix of a name leaves one.
func (n *need) ofAll(servers []config.Server, m *jsonrpc.Message) {
	var tasks []string
	switch {
	case strings.HasPrefix(m.Method, "tasks/") && m.Method != "tasks/list":
		tasks = []string{gjson.GetBytes(m.Params, "taskId").Str}
	case m.Method == era.Listen:
		wants, _ := subscribe.ReadListen(m.Params) // a fault makes it a doubtful one
		tasks = wants.Tasks
	}
	about := subjects(m)
	prefixed := map[string]bool{} // names that begin with the prefix of a server
	for i := range servers {
		for _, a := range about {
			prefixed[a.name] = prefixed[a.name] || n.Grant(servers[i].Name, "") && (begins(prefixes(&servers[i]), a.name) ||
				begins(slices.DeleteFunc(n.formers(servers, &servers[i], a.name), func(p string) bool { return p == "" }), a.name))
		}
	}
	for i := range servers {
		c := &servers[i]
		if !n.Grant(c.Name, "") {
			continue // to the caller it does not exist
		}
		if slices.ContainsFunc(tasks, func(id string) bool { return ofTask(servers, id) == c.Name || ofTask(servers, id) == "" }) {
			n.Add(c.Scopes.All)
		}
		for _, a := range about {
			// A session that began when there was one server goes on with its names.
			if a.located || a.doubtful || !prefixed[a.name] {
				n.Add(c.Scopes.All)
				n.match(c, &a, a.name)
				continue
			}
			for _, prefix := range append(prefixes(c), n.formers(servers, c, a.name)...) {
				own, whole := strings.CutPrefix(a.name, prefix)
				if whole {
					n.Add(c.Scopes.All)
					n.match(c, &a, own)
				}
				if shortened(a.name) && strings.HasPrefix(a.name, prefix[:min(len(prefix), longest)]) {
					any := a
					any.doubtful = true // its name is not known
					n.Add(c.Scopes.All)
					n.match(c, &any, "")
				}
			}
		}
	}
}

// ofTask returns the name of the server whose task that is, where all are one; empty for one
// that may be anybody's, such as that of a session that began when there was one server.
func ofTask(servers []config.Server, id string) string {
	name, _, _ := strings.Cut(id, ":")
	if slices.ContainsFunc(servers, func(c config.Server) bool { return c.Name == name }) {
		return name
	}
	return ""
}

// prefixes returns what may stand before the names of a server, where all are one. A name
// without a prefix may be that of anybody.
func prefixes(c *config.Server) []string { return []string{c.Prefix, c.Name + "__"} }

// formers returns what stood before the names of a server until a moment ago, and may still
// stand before that one: it may not where another server has a prefix that the name has.
func (n *need) formers(servers []config.Server, c *config.Server, name string) (all []string) {
	var holder *config.Server // the one with the longest prefix
	for i := range servers {
		if p := servers[i].Prefix; p != "" && strings.HasPrefix(name, p) && (holder == nil || len(p) > len(holder.Prefix)) {
			holder = &servers[i]
		}
	}
	if holder != nil && holder.Name != c.Name {
		return nil
	}
	for _, was := range n.Former[c.Name] {
		if was.Prefix != c.Prefix && (was.Until.IsZero() || time.Now().Before(was.Until)) {
			all = append(all, was.Prefix)
		}
	}
	return all
}

// begins reports whether a name may be that of something of a server, where all are one.
func begins(prefixes []string, name string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		return strings.HasPrefix(name, prefix) || shortened(name) && strings.HasPrefix(name, prefix[:min(len(prefix), longest)])
	})
}

// shortened reports whether a name looks as if it had been too long, or had characters
// that clients do not take: such a name ends with a hash (see externalName in
// bridge/internal/aggregate).
func shortened(name string) bool {
	i := len(name) - 9
	return i > 0 && name[i] == '_' && strings.Trim(name[i+1:], "0123456789abcdef") == ""
}

// At adds what the messages need by a configuration.
func (n *need) At(server string, c *config.Config, messages []*jsonrpc.Message) {
	all := server == ""
	if all && len(c.Servers) == 1 {
		server = c.Servers[0].Name // it is served as it is; a session may have begun when there were more
	}
	for i := range c.Servers {
		if c.Servers[i].Name == server {
			n.Add(c.Servers[i].Scopes.All)
		}
	}
	for _, m := range messages {
		if all {
			n.ofAll(c.Servers, m)
		}
		for i := range c.Servers {
			if c.Servers[i].Name == server {
				n.of(&c.Servers[i], m)
			}
		}
	}
}
