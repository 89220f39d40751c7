package config

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// checkAmong returns the rules about a server that are broken together with other parts of the configuration. owners
// maps the prefixes of the servers that were checked before to their names.
func (c *Config) checkAmong(s *Server, owners map[string]string) (all breaches) {
	if owner, taken := owners[s.Prefix]; taken && owner != s.Name {
		all.add("prefix", "is that of server %q too: choose another one, since the names of their tools would be the same", owner)
	} else if s.Prefix != "" {
		owners[s.Prefix] = s.Name
	}
	c.checkIdentity(&all, s)
	c.checkReferences(&all, s)
	switch {
	case s.Place != PlaceWorkers:
	case s.Stdio == nil:
		all.add("place", "cannot be workers for this server: leave it out, since only stdio has a process that workers can run")
	case !c.Cluster.Enabled():
		all.add("place", "is workers, which needs a cluster: add cluster, or leave place out")
	}
	return all
}

// checkGroups adds the broken rules about groups. Their names are those of addresses, as the names of servers are.
func (c *Config) checkGroups(all *breaches) {
	for _, name := range slices.Sorted(maps.Keys(c.Groups)) {
		group := "groups: " + name
		if err := checkName(name); err != nil {
			all.add(group, "is no name for an address: %s", strings.Replace(err.Error(), "a server's", "a group's", 1))
		}
		is := func(name string) func(Server) bool { return func(s Server) bool { return s.Name == name } }
		if slices.ContainsFunc(c.Servers, is(name)) || slices.Contains(c.off, name) {
			all.add(group, "is the name of a server too: choose another one, since both have the address /%s/mcp", name)
		}
		if len(c.Groups[name].Servers) == 0 {
			all.add(group, "has no servers: name at least one")
		}
		for i, one := range c.Groups[name].Servers {
			if !slices.ContainsFunc(c.Servers, is(one)) && !slices.Contains(c.off, one) {
				all.add(fmt.Sprintf("%s: servers: item %d", group, i+1), "is %q, but there is no such server", strict.Clip(one))
			}
		}
	}
}

// checkIdentity adds the broken rules about scopes, identity and exchanged tokens of a server.
func (c *Config) checkIdentity(all *breaches, s *Server) {
	const needs = "is about tokens and needs oauth, the list of their issuers"
	asks := len(s.Scopes.All)+len(s.Scopes.Tools)+len(s.Scopes.Prompts)+len(s.Scopes.Resources) > 0
	if asks && len(c.OAuth) == 0 {
		all.add("scopes", needs)
	}
	check := func(key string, scopes Words) {
		if len(scopes) == 0 {
			all.add(key, "names no scope")
		}
		for _, one := range scopes {
			if wrong := token.CheckScope(one); wrong != "" {
				all.add(key, "%s", wrong)
			}
		}
	}
	if s.Scopes.All != nil {
		check("scopes: all", s.Scopes.All)
	}
	for n, by := range []map[string]Words{s.Scopes.Tools, s.Scopes.Prompts, s.Scopes.Resources} {
		for _, pattern := range slices.Sorted(maps.Keys(by)) {
			check("scopes: "+[]string{"tools", "prompts", "resources"}[n]+": "+pattern, by[pattern])
		}
	}
	exchange := "rest: auth"
	if s.Remote() != nil {
		exchange = map[bool]string{true: "http", false: "sse"}[s.HTTP != nil] + ": oauth: exchange"
	}
	for key, set := range map[string]bool{"identity": len(s.Identity) > 0, exchange: s.Exchanges()} {
		switch {
		case !set:
		case len(c.OAuth) == 0:
			all.add(key, needs)
		case key == exchange && s.Remote() != nil && slices.ContainsFunc(c.OAuth, func(o OAuth) bool {
			return o.Front != nil && strings.TrimSuffix(o.Issuer, "/") == strings.TrimSuffix(s.Remote().OAuth.Issuer, "/")
		}):
			all.add(key, "has no effect with the front of its issuer: clients have tokens of the bridge, which are never sent to others")
		case s.Share == ShareAll:
			all.with(key, "share", "cannot be used with share: all: one connection serves all callers, so it cannot have the identity of one")
		case s.Cache.Shared && key == exchange:
			all.with(key, "cache", "gives each caller a token of its own: answers for one are not for all, so cache cannot be shared")
		}
	}
	taken := map[string]bool{}
	for _, f := range s.Forward {
		taken[strings.ToUpper(f.To)] = true
	}
	if c := s.Remote(); c != nil {
		for name := range c.Headers {
			taken[strings.ToUpper(name)] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Identity)) {
		rule := ""
		switch {
		case s.Stdio != nil && variableRule(name) != "":
			rule = "must be a variable with letters, digits and '_', such as MCP_USER, that does not control what a program runs or trusts"
		case s.Stdio == nil && (headerRule(name) != "" || slices.Contains(credentials, http.CanonicalHeaderKey(name))):
			rule = "must be a header that neither the bridge nor the server uses for something else, such as X-User"
		}
		switch {
		case rule != "":
		case taken[strings.ToUpper(name)], s.Stdio != nil && s.Stdio.Passes(name), s.Rest != nil && s.Rest.Sends(name):
			rule = "is also set by headers, env, auth or forward: without the claim, the server would take that value for the caller"
		default:
			rule = auth.CheckClaim(s.Identity[name])
		}
		if taken[strings.ToUpper(name)] = true; rule != "" {
			all.add("identity: "+name, "%s", rule)
		}
	}
}

// checkReferences adds the broken rules of references to the caller in the values of arguments.
func (c *Config) checkReferences(all *breaches, s *Server) {
	s.references(func(key, reference string) {
		claim, isClaim := strings.CutPrefix(reference, arguments.Claim)
		header, isHeader := strings.CutPrefix(reference, arguments.Header)
		switch {
		case isHeader && !slices.ContainsFunc(s.Forward, func(f bridge.Forward) bool { return strings.EqualFold(f.From, header) }):
			all.add(key, "needs the header %q in forward: the bridge reads no other header of clients", strict.Clip(header))
		case isClaim && len(c.OAuth) == 0:
			all.add(key, "is about tokens and needs oauth, the list of their issuers")
		case reference == arguments.Caller && len(c.Access) == 0:
			all.add(key, "needs access: without it, callers have no names")
		case !isHeader && (!isClaim || claim == "") && reference != arguments.Caller && reference != "caller.file":
			all.add(key, "has ${%s}, which is no reference: write ${caller.name}, ${caller.claims.NAME} or ${header.NAME}", strict.Clip(reference))
		}
	})
}
