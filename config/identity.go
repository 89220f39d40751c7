package config

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/token"
)

// Scopes are the scopes that a token needs for calls of a server. Callers with keys need none. Patterns match the names
// that clients see at the server's own address, and the URIs of resources. If several patterns match, the token needs
// the scopes of all of them.
type Scopes struct {
	// All are the scopes for every call.
	All Words `yaml:"all"`
	// Tools, Prompts and Resources hold additional scopes, by pattern.
	Tools     map[string]Words `yaml:"tools"`
	Prompts   map[string]Words `yaml:"prompts"`
	Resources map[string]Words `yaml:"resources"`
}

// Forwards returns what the server gets of a client's request: the entries of Forward, the claims of Identity, and the
// token if the bridge exchanges it.
func (s *Server) Forwards() []bridge.Forward {
	if len(s.Identity) == 0 && !s.Exchanges() {
		return s.Forward
	}
	all := slices.Clone(s.Forward)
	if s.Exchanges() {
		all = append(all, bridge.Forward{Token: true})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Identity)) {
		to := name
		if s.Stdio == nil {
			to = http.CanonicalHeaderKey(name)
		}
		all = append(all, bridge.Forward{Claim: s.Identity[name], To: to})
	}
	return all
}

// Exchanges reports whether the bridge exchanges each caller's token for a token of the server.
func (s *Server) Exchanges() bool {
	c := s.Remote()
	return c != nil && c.OAuth != nil && c.OAuth.Exchange != "" || s.Rest != nil && s.Rest.Auth.Exchanges()
}

// credentials are the headers that hold credentials.
var credentials = []string{"Authorization", "Cookie", "X-Api-Key"}

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
