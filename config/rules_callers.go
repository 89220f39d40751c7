package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/jwks"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/glob"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// checkAccess adds the broken rules about TLS, the access log, access, and the addresses for operators.
func (c *Config) checkAccess(all *breaches) {
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		all.add("tls", "needs both cert_file and key_file")
	}
	if c.AccessLog.Payloads && c.AccessLog.To == "" {
		all.add("access_log", "has payloads but no to: add to: stderr, or a file")
	}
	for _, may := range []struct {
		key, alone string
		names      []string
	}{{"admin", "may reload the file", c.Admin}, {"viewers", "sees everything", c.Viewers}} {
		for _, name := range may.names {
			if len(c.Access) == 0 {
				all.add(may.key, "needs access: without it, whoever is on this machine %s, and nobody else", may.alone)
				return
			} else if !slices.ContainsFunc(c.Access, func(a Access) bool { return a.Name == name }) {
				all.add(may.key, "has %q, but access has no such name", strict.Clip(name))
			}
		}
	}
	const everybody = "which other machines can reach, and without access everybody there could stop servers and see what others do"
	switch at := c.OperatorsListen(); {
	case c.ConsoleListen != "" && address.Overlap(at, c.Listen):
		all.with("console_listen", "listen", "is also the address for clients: choose another port, or leave it out")
	case c.ConsoleListen != "" && address.Overlap(at, c.Cluster.Listen):
		all.with("console_listen", "cluster", "is also the address for other instances (cluster: listen): choose another port")
	case len(c.Access) > 0 || Loopback(at):
	case c.ConsoleListen != "":
		all.add("console_listen", "is %s, %s: add access, or choose an address of this machine, such as 127.0.0.1:8809", strict.Clip(at), everybody)
	case c.Console != "" && c.Console != ConsoleOff:
		all.add("console", "cannot be on: listen is %s, %s", strict.Clip(at), everybody)
	}
	names, tokens := map[string]int{}, map[string]int{}
	for i, a := range c.Access {
		item := fmt.Sprintf("access: item %d", i+1)
		switch {
		case a.Name == "":
			all.add(item, "has no name: it is the principal for logs and limits")
		case !isPlain(a.Name, 64):
			all.add(item+": name", "must be 1 to 64 letters, digits, '_', '.' and '-'")
		case names[a.Name] > 0:
			all.add(item+": name", "is that of item %d too", names[a.Name])
		}
		names[a.Name] = i + 1
		switch {
		case a.users():
			c.checkUsers(all, item, &a)
		case (a.Token == "") == (a.TokenFile == ""):
			all.with(item, item+": token", "needs either token or token_file, or claims, scopes or users for a rule about users")
		case a.Token != "" && auth.Check(a.Token) != nil:
			all.add(item+": token", "%v", auth.Check(a.Token))
		case a.Token != "" && tokens[a.Token] > 0:
			all.add(item+": token", "is that of item %d too: the two could not be told apart", tokens[a.Token])
		}
		if a.Token != "" {
			tokens[a.Token] = i + 1
		}
		for _, pattern := range a.Servers {
			if !c.serves(pattern) {
				all.add(item+": servers", "has %q, but there is no such server", strict.Clip(pattern))
			}
		}
	}
}

// serves reports whether the pattern matches the name of a server or of a group.
func (c *Config) serves(pattern string) bool {
	all := slices.Concat(c.off, slices.Collect(maps.Keys(c.Groups))) // a rule stays valid if its server is switched off
	for i := range c.Servers {
		all = append(all, c.Servers[i].Name)
	}
	return slices.ContainsFunc(all, func(name string) bool { return glob.Match(pattern, name) })
}

// checkUsers adds the broken rules of an access rule for users.
func (c *Config) checkUsers(all *breaches, item string, a *Access) {
	switch {
	case a.Token != "" || a.TokenFile != "":
		all.add(item, "has a key and also claims, scopes or users: make two rules of it")
	case len(c.OAuth) == 0:
		all.with(item, "oauth", "is for users and needs oauth, the list of issuers of their tokens")
	case a.Issuer != "" && !slices.ContainsFunc(c.OAuth, func(o OAuth) bool { return o.Issuer == a.Issuer }):
		all.add(item+": issuer", "is no issuer under oauth")
	case len(a.Claims)+len(a.Scopes)+len(a.Users) == 0:
		all.add(item, "names an issuer but no users: add claims, scopes or users (users: any lets all in)")
	}
	const empty = "is empty, which would let all pass: list who may, or leave it out"
	if a.Scopes != nil && len(a.Scopes) == 0 {
		all.add(item+": scopes", empty)
	}
	if a.Users != nil && len(a.Users) == 0 {
		all.add(item+": users", empty)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Claims)) {
		if len(a.Claims[name]) == 0 {
			all.add(item+": claims: "+name, "is empty: add a pattern for the claim")
		}
	}
	for i, s := range a.Scopes {
		if wrong := token.CheckScope(s); wrong != "" {
			all.add(fmt.Sprintf("%s: scopes: item %d", item, i+1), "%s", wrong)
		}
	}
	for i, s := range a.Users {
		if s == "" {
			all.add(fmt.Sprintf("%s: users: item %d", item, i+1), "is empty")
		}
	}
}

// checkOAuth adds the broken rules about oauth. A token alone gives no access: a rule in access has to match, too
// (I-031).
func (c *Config) checkOAuth(all *breaches) {
	issuers := map[string]int{}
	asked, fronted := 0, 0 // items that have introspection, and front; 0 for none
	for i := range c.OAuth {
		o, item := &c.OAuth[i], fmt.Sprintf("oauth: item %d", i+1)
		u, err := url.Parse(o.Issuer)
		switch {
		case o.Issuer == "":
			all.add(item, "has no issuer: write the name that is in its tokens, such as https://idp.example.com")
		case err != nil || jwks.CheckAddress(o.Issuer) != nil:
			all.add(item+": issuer", "%v", jwks.CheckAddress(o.Issuer))
		case oauth.CheckIssuer(o.Issuer) != nil:
			all.add(item+": issuer", "%v", oauth.CheckIssuer(o.Issuer))
		case strings.ContainsAny(o.Issuer, "?#") || u.Opaque != "":
			all.add(item+": issuer", "must have neither a query nor a fragment")
		case issuers[o.Issuer] > 0:
			all.add(item+": issuer", "is that of item %d too", issuers[o.Issuer])
		}
		issuers[o.Issuer] = i + 1
		if strings.Contains(o.JWKS, "://") && jwks.CheckAddress(o.JWKS) != nil {
			all.add(item+": jwks", "%v", jwks.CheckAddress(o.JWKS))
		}
		for j, a := range o.Algorithms {
			if !slices.Contains(token.Algorithms, a) {
				all.add(fmt.Sprintf("%s: algorithms: item %d", item, j+1), "must be one of %s: with others, whoever can check a token can also make one", strings.Join(token.Algorithms, ", "))
			}
		}
		if in := o.Introspection; in != (Introspection{}) {
			where := item + ": introspection"
			if asked > 0 {
				all.add(where, "is that of item %d too: only one issuer may have it, since an opaque token does not name its issuer", asked)
			} else if key, rule := in.Wrong(); rule != "" {
				all.add(where+key, "%s", rule)
			}
			asked = i + 1
		}
		if o.Front != nil {
			switch {
			case fronted > 0:
				all.add(item+": front", "is that of item %d too: the bridge can be the front of one issuer only", fronted)
			case c.PublicURL == "":
				all.add(item+": front", "needs public_url: clients know the authorization server by it")
			case o.Front.StateDir != "" && c.Cluster.Enabled():
				all.add(item+": front: state_dir", "has no effect in a cluster, which stores logins in Redis: leave it out")
			case o.Issuer == c.PublicURL+c.BasePath:
				all.add(item+": issuer", "is the address of the bridge: name the provider where users sign in")
			}
			fronted = i + 1
			for j, a := range c.Access {
				if (a.Issuer == "" || a.Issuer == o.Issuer) && len(a.Scopes) > 0 && len(a.Claims)+len(a.Users) == 0 && o.Front.ScopePrefix == "" {
					all.add(fmt.Sprintf("access: item %d: scopes", j+1), "would let in everybody with an account, since with front users grant the scopes themselves: add claims or users")
				}
			}
		}
		for j, a := range o.Audience {
			if a == "" {
				all.add(fmt.Sprintf("%s: audience: item %d", item, j+1), "is empty")
			}
		}
		for j, s := range o.Scopes {
			if wrong := token.CheckScope(s); wrong != "" {
				all.add(fmt.Sprintf("%s: scopes: item %d", item, j+1), "%s", wrong)
			} else if s == "offline_access" {
				all.add(fmt.Sprintf("%s: scopes: item %d", item, j+1), "is a scope that clients add themselves: leave it out")
			}
		}
		for _, name := range slices.Sorted(maps.Keys(o.Implies)) {
			for _, s := range append([]string{name}, o.Implies[name]...) {
				if wrong := token.CheckScope(s); wrong != "" {
					all.add(item+": implies: "+name, "%s", wrong)
				}
			}
		}
	}
	switch users := slices.ContainsFunc(c.Access, func(a Access) bool { return a.users() }); {
	case len(c.OAuth) > 0 && !users:
		all.add("oauth", "lets nobody in: add a rule to access for its users, such as { name: staff, claims: { groups: mcp-users } }")
	case len(c.OAuth) == 0 && c.PublicURL != "":
		all.with("public_url", "oauth", "has an effect only with oauth: add oauth, or leave it out")
	}
	if len(c.OAuth) > 0 && c.PublicURL == "" && (!Loopback(c.Listen) || len(c.TrustedProxies)+len(c.AllowedHosts) > 0) {
		all.with("oauth", "public_url", "needs public_url: clients request tokens for the address of the bridge, such as https://mcp.example.com")
	}
}
