package config

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/internal/similar"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// checkIncomplete adds faults for sections that set nothing. It adds warnings for settings that depend on who the
// caller is, if access does not distinguish callers.
func (d *decoder) checkIncomplete(top *strict.Section, c *Config) {
	if m, set := top.Marks["tls"]; set && !m.Bad && c.TLS == (TLS{}) {
		d.Fault(m.Line, "tls needs both cert_file and key_file; without tls it is HTTP")
	}
	if m, set := top.Marks["access_log"]; set && !m.Bad && c.AccessLog == (AccessLog{}) {
		d.Fault(m.Line, "access_log needs to: stdout, stderr or a file")
	}
	if m, set := top.Marks["cluster"]; set && !m.Bad && !c.Cluster.Enabled() {
		d.Fault(m.Line, "cluster needs redis, the address of the store that all instances use, such as redis://redis.example.com:6379")
	}
	d.warnUnreachable(top, c)
	d.warnOneAccount(c)
	d.warnEmail(top, c)
	d.warnLaterScopes(c)
	if _, set := top.Marks["access"]; set {
		return
	}
	const alone = "needs access: without it everybody is one caller"
	if m, set := top.Marks["per_principal"]; set && !m.Bad {
		d.Warn(m.Line, "per_principal %s", alone)
	}
	if m := top.Marks["public_status"]; c.PublicStatus && !m.Bad {
		d.Warn(m.Line, "public_status needs access: without it everybody sees the status anyway")
	}
	for i, s := range c.Servers {
		if m, _ := d.sections[i].At("limits: per_principal"); s.Limits.PerPrincipal > 0 {
			d.Warn(m.Line, "%slimits: per_principal %s", d.sections[i].Where, alone)
		}
	}
}

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

// warnPatterns warns of patterns that match nothing: names with the prefix that only the aggregate adds, and patterns
// of resources that are no URIs. It also looks at the keys of mappings, which warnSpelling does not see.
func (d *decoder) warnPatterns(c *Config) {
	for i, sec := range d.sections {
		s := &c.Servers[i]
		warn := func(key, say string) {
			m, _ := sec.At(key)
			d.Warn(m.Line, "%s%s %s", sec.Where, key, say)
		}
		items := func(key string, patterns []string) map[string]string {
			all := map[string]string{}
			for i, p := range patterns {
				all[fmt.Sprintf("%s: item %d", key, i+1)] = p
			}
			return all
		}
		tables := map[string]string{}
		keys := func(key string, names iter.Seq[string]) {
			for name := range names {
				tables[key+": "+name] = name
			}
		}
		hidden := func(key string, r *filter.Rules, names iter.Seq[string]) {
			for _, name := range slices.Sorted(names) {
				if !isPattern(name) && !r.Passes(name) {
					warn(key+name, "has no effect: allow and deny hide it")
				}
			}
		}
		keys("limits: tools", maps.Keys(s.Limits.Tools))
		keys("scopes: tools", maps.Keys(s.Scopes.Tools))
		keys("scopes: prompts", maps.Keys(s.Scopes.Prompts))
		for _, key := range slices.Sorted(maps.Keys(tables)) {
			if expression.MatchString(tables[key]) {
				warn(key, noExpression)
			}
		}
		for _, of := range []struct {
			what  string
			rules *filter.Rules
		}{{"tools", &s.Tools}, {"prompts", &s.Prompts}} {
			what, r := of.what, of.rules
			maps.Copy(tables, items(what+": allow", r.Allow))
			maps.Copy(tables, items(what+": deny", r.Deny))
			keys(what+": rename", maps.Keys(r.Rename))
			keys(what+": override", maps.Keys(r.Override))
			hidden(what+": rename: ", r, maps.Keys(r.Rename)) // only a warning: the operator may hide it for a while
			hidden(what+": override: ", r, maps.Keys(r.Override))
		}
		for _, key := range slices.Sorted(maps.Keys(tables)) {
			if s.Prefix != "" && strings.HasPrefix(tables[key], s.Prefix) {
				warn(key, fmt.Sprintf("begins with the prefix %q, which names have only at /mcp: write the server's own name", s.Prefix))
			}
		}
		uris := items("resources: allow", s.Resources.Allow)
		maps.Copy(uris, items("resources: deny", s.Resources.Deny))
		for _, key := range slices.Sorted(maps.Keys(uris)) {
			if pattern := uris[key]; !strings.Contains(pattern, ":") && !strings.ContainsAny(pattern[:min(1, len(pattern))], "*?{") {
				warn(key, "has no scheme, and URIs begin with one: write the whole URI, as in file:///srv/*")
			}
		}
	}
}

// flagKeys adds a fault for each key that is a flag of the command, or of another program. It returns the other keys.
func (d *decoder) flagKeys(list []strict.Entry) []strict.Entry {
	return slices.DeleteFunc(list, func(e strict.Entry) bool {
		say := map[string]string{
			"verbose":   "write log_level: debug",
			"debug":     "write log_level: debug",
			"logformat": "that is a flag: mcp-bridge serve --log-format json",
			"insecure":  "that is a flag: mcp-bridge serve --insecure",
		}[similar.Fold(e.Key)]
		if say == "" || d.Foreign {
			return false
		}
		d.Fault(e.Line, "unknown key %q: %s", strict.Clip(e.Key), say)
		return true
	})
}
