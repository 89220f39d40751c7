package config

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/auth/jwks"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/files"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// OAuth is an identity provider that issues tokens. The bridge accepts its tokens.
type OAuth struct {
	// Issuer is the URL that identifies the issuer, exactly as in its tokens.
	Issuer string `yaml:"issuer"`
	// Audience lists the audiences that a token may have, besides the URL of the endpoint and that of the bridge.
	Audience []string `yaml:"audience"`
	// JWKS is the URL or the file with the issuer's keys. Default: the URL in the issuer's metadata.
	JWKS string `yaml:"jwks"`
	// Algorithms are the signature algorithms that tokens may use. Default: all of token.Algorithms.
	Algorithms []string `yaml:"algorithms"`
	// Scopes are the scopes that the bridge tells clients to request first.
	Scopes []string `yaml:"scopes"`
	// Implies maps a scope to the scopes that it includes.
	Implies map[string]Words `yaml:"implies"`
	// ScopeClaim is the claim that holds the scopes of a token. Default: scope and scp.
	ScopeClaim string `yaml:"scope_claim"`
	// ClockSkew is how much the clocks of the issuer and the bridge may differ: at most 5m. Default 30s.
	ClockSkew time.Duration `yaml:"clock_skew" default:"30s" max:"5m" why:"expired tokens stay valid for so long"`
	// Introspection says how to ask the issuer about opaque tokens. Default: the bridge refuses opaque tokens. At most
	// one issuer has it.
	Introspection Introspection `yaml:"introspection"`
	// Front makes the bridge the authorization server for clients: they register and get tokens at the bridge, and
	// users sign in at the issuer. At most one issuer has it. Default: clients get tokens from the issuer.
	Front *Front `yaml:"front"`
	// CAFile is a file of PEM certificates that the bridge trusts for the issuer, besides those of the system.
	CAFile string `yaml:"ca_file"`
	// Transport makes the requests to the issuer, in place of CAFile. Only a program can set it. Default: a transport
	// with CAFile and the proxies of the environment.
	Transport http.RoundTripper `yaml:"-"`
}

// Words are a list of texts. In a file, one text stands for a list of one.
type Words []string

// words reads a Words.
func (d *decoder) words(s *strict.Slot, n *yaml.Node, into *Words) bool {
	if strict.Kind(n) == strict.List {
		return d.Value(s, n, reflect.ValueOf((*[]string)(into)).Elem())
	}
	var one string
	s.Loose = true
	ok := d.Value(s, n, reflect.ValueOf(&one).Elem())
	*into = Words{one}
	return ok
}

// users reports whether the rule is for users with tokens, not for a key.
func (a *Access) users() bool {
	return a.Issuer != "" || len(a.Claims) > 0 || len(a.Scopes) > 0 || len(a.Users) > 0
}

// userRules returns the access rules for users in their order.
func (c *Config) userRules() (all []Access) {
	for _, a := range c.Access {
		if a.users() {
			all = append(all, a)
		}
	}
	return all
}

// RuleClaims returns the claims that rules for users of this issuer have.
func (o *OAuth) RuleClaims(rules []Access) []string {
	all := map[string]bool{}
	for _, a := range rules {
		if a.Issuer == "" || a.Issuer == o.Issuer {
			for name := range a.Claims {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Reach returns the transport for requests to the issuer.
func (o *OAuth) Reach() (http.RoundTripper, error) {
	if o.Transport != nil {
		return o.Transport, nil
	}
	return jwks.Transport(o.CAFile)
}

func checkPublicURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case s == "":
		return nil
	case err != nil || !address.IsHost(u.Host) || s != u.Scheme+"://"+u.Host:
		return errors.New("expected https://HOST or https://HOST:PORT, such as https://mcp.example.com, without a path: the bridge adds base_path")
	case s != strings.ToLower(s):
		return errors.New("must be in lower case, as clients compare it")
	case u.Scheme == "https" && u.Port() == "443", u.Scheme == "http" && u.Port() == "80":
		return fmt.Errorf("must not have :%s: browsers and clients leave out the default port", u.Port())
	}
	return jwks.CheckAddress(s)
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

// everybody reports whether the rule matches all users of all issuers.
func (a *Access) everybody() bool {
	return a.Issuer == "" && len(a.Claims)+len(a.Scopes) == 0 && slices.ContainsFunc(a.Users, func(p string) bool { return p == AnyUser || p == "*" })
}

// AnyUser is the pattern in Access.Users that matches every user.
const AnyUser = "any"

// warnOneAccount warns of servers where several callers share one account.
func (d *decoder) warnOneAccount(c *Config) {
	if len(c.Access) < 2 && !slices.ContainsFunc(c.Access, func(a Access) bool { return a.users() }) {
		return
	}
	for i := range c.Servers {
		if r := c.Servers[i].Remote(); r != nil && r.OAuth != nil && r.OAuth.Login {
			d.Warn(d.sections[i].Line, "%soauth: with login, all callers act as the one account that signed in", d.sections[i].Where)
		}
	}
}

// warnUnreachable warns of rules for users that come after a rule for all users.
func (d *decoder) warnUnreachable(top *strict.Section, c *Config) {
	for i := range c.Access {
		if !c.Access[i].everybody() {
			continue
		}
		for j := i + 1; j < len(c.Access); j++ {
			if c.Access[j].users() {
				m, _ := top.At(fmt.Sprintf("access: item %d", j+1))
				d.Warn(m.Line, "access: item %d is never reached: item %d matches all users, and the first match counts", j+1, i+1)
			}
		}
		return
	}
}

// warnEmail warns of rules that select users by an unverified e-mail address. With some providers, the user, or the
// administrator of a guest's company, can choose that address.
func (d *decoder) warnEmail(top *strict.Section, c *Config) {
	for i, a := range c.Access {
		if len(a.Claims["email"]) > 0 && !slices.Equal(a.Claims["email_verified"], Words{"true"}) {
			m, _ := top.At(fmt.Sprintf("access: item %d", i+1))
			d.Warn(m.Line, "access: item %d: email may be what a user has written, not the user's own: add email_verified: true, or choose users by another claim", i+1)
		}
	}
}

// warnLaterScopes warns of scopes that calls need but no issuer lists under Scopes. Clients request the listed scopes
// first, and many clients cannot request more later.
func (d *decoder) warnLaterScopes(c *Config) {
	if len(c.OAuth) == 0 {
		return
	}
	first := map[string]bool{}
	for i := range c.OAuth {
		o := &c.OAuth[i]
		all := slices.Clone(o.Scopes)
		for n := 0; n < len(all); n++ { // all grows in the loop
			for _, implied := range o.Implies[all[n]] {
				if !slices.Contains(all, implied) {
					all = append(all, implied)
				}
			}
			first[all[n]] = true
		}
	}
	for i := range c.Servers {
		s := &c.Servers[i].Scopes
		var later []string
		for _, by := range []map[string]Words{{"": s.All}, s.Tools, s.Prompts, s.Resources} {
			for _, scopes := range by {
				later = append(later, scopes...)
			}
		}
		slices.Sort(later)
		later = slices.DeleteFunc(slices.Compact(later), func(scope string) bool { return first[scope] })
		if len(later) > 0 {
			m, _ := d.sections[i].At("scopes")
			d.Warn(m.Line, "%sscopes: no issuer has %s under scopes: many clients cannot request more scopes later, so list all scopes there", d.sections[i].Where, strings.Join(later, " "))
		}
	}
}

// resolveOAuth makes the paths of an issuer's files absolute, and checks the files.
func (d *decoder) resolveOAuth(sec *strict.Section, o *OAuth) {
	if o.JWKS != "" && !strings.Contains(o.JWKS, "://") {
		o.JWKS = d.absolute(o.JWKS)
		if data, err := readFile(o.JWKS); err != nil {
			d.unusable(sec, "jwks", files.Reason(err).Error())
		} else if err := jwks.Check(data); err != nil {
			d.unusable(sec, "jwks", err)
		}
	}
	if o.CAFile != "" {
		o.CAFile = d.absolute(o.CAFile)
		if _, err := jwks.Transport(o.CAFile); err != nil {
			d.unusable(sec, "ca_file", err)
		}
	}
}
