package config

import (
	"fmt"
	"slices"

	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/glob"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// TLS holds the certificate of the bridge. The files are read again after a change.
type TLS struct {
	// CertFile holds the certificate, followed by its intermediate certificates.
	CertFile string `yaml:"cert_file"`
	// KeyFile holds the key of the certificate. Both are PEM files. Both are set, or neither.
	KeyFile string `yaml:"key_file"`
}

// Access is one caller, or a rule for users.
type Access struct {
	// Name is the principal, which shares no state with others. Logs show it.
	Name string `yaml:"name"`
	// Token is the caller's secret, sent as Authorization: Bearer TOKEN or X-API-Key: TOKEN.
	Token string `yaml:"token"`
	// TokenFile holds the secret in place of Token. It is read again after a change.
	TokenFile string `yaml:"token_file"`
	// Issuer, Claims, Scopes and Users replace a key: the rule is for users with a token of
	// an issuer (Config.OAuth) that matches all that are set. Each user is a separate caller.
	//
	// Issuer is one of Config.OAuth. Default: all of them.
	Issuer string `yaml:"issuer"`
	// Claims holds patterns for the values of claims, by their names. One pattern of each
	// claim has to match.
	Claims map[string]Words `yaml:"claims"`
	// Scopes are the scopes that the token must have.
	Scopes []string `yaml:"scopes"`
	// Users are patterns for the subject of the token; AnyUser matches all.
	Users Words `yaml:"users"`
	// Servers are patterns for the names of allowed servers. Default: all.
	Servers []string `yaml:"servers,some"`
	// Tools filters their tools. Default: all.
	Tools Choice `yaml:"tools"`
	// Operator shows the state of the bridge and of all servers in /readyz and /metrics, also of
	// those that Servers excludes. Default false.
	Operator bool `yaml:"operator"`
}

// Choice filters tools by the names that clients see. Patterns are those of Rules.
type Choice struct {
	// Allow lists the allowed tools. Default: all.
	Allow []string `yaml:"allow,some"`
	// Deny lists the hidden tools. It wins over Allow. Default: none.
	Deny []string `yaml:"deny"`
}

// AccessLog sets where to write a line for each call.
type AccessLog struct {
	// To is "stdout", "stderr" or a file to append to. Empty means no log.
	To string `yaml:"to"`
	// Payloads also writes requests and answers, without values that look like secrets: for
	// debugging only.
	Payloads bool `yaml:"payloads"`
}

// Values of Config.Ready.
const (
	ReadyAny = "any" // one working server is enough
	ReadyAll = "all" // all have to work
)

// Values of Config.Reload.
const (
	ReloadOn  = "on"  // also after a change of the file
	ReloadOff = "off" // only by a signal or over HTTP
)

// Values of Config.LogLevel.
const (
	LogDebug = "debug"
	LogInfo  = "info"
	LogWarn  = "warn"
	LogError = "error"
)

// Values of Config.Console.
const (
	ConsoleOn       = "on"
	ConsolePayloads = "payloads" // on, with the contents of messages
	ConsoleOff      = "off"
)

// checkAccess adds the broken rules about access and the addresses for operators.
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

// serves reports whether there is a server of that name or pattern.
func (c *Config) serves(pattern string) bool {
	// A rule stays valid when its server is switched off.
	return slices.ContainsFunc(c.off, func(name string) bool { return glob.Match(pattern, name) }) ||
		slices.ContainsFunc(c.Servers, func(s Server) bool { return glob.Match(pattern, s.Name) })
}

// SeesAll reports whether the principal may see the state of all servers: it is an operator, or
// may use all of them.
func (c *Config) SeesAll(principal string) bool {
	for _, a := range c.Access {
		if a.Name == principal {
			return a.Operator || len(a.Servers) == 0
		}
	}
	return false
}

// Grants returns the grants of all principals by the names of their rules; nil without access
// rules.
func (c *Config) Grants() map[string]filter.Grant {
	if len(c.Access) == 0 {
		return nil
	}
	all := map[string]filter.Grant{}
	for _, a := range c.Access {
		g := filter.Grant{
			Servers: a.Servers,
			Allow:   a.Tools.Allow,
			Deny:    a.Tools.Deny,
		}
		all[a.Name] = g
		if a.users() {
			all[a.Name+"/"] = g // the prefix of the principals of its users
		}
	}
	return all
}

// checkIncomplete adds faults for sections that set nothing, and warnings for settings about
// callers where access does not distinguish them.
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
