package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/glob"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// TLS names the files of the bridge's certificate. The bridge reads them again after a change.
type TLS struct {
	// CertFile is a PEM file with the certificate, followed by its intermediate certificates.
	CertFile string `yaml:"cert_file"`
	// KeyFile is a PEM file with the private key of the certificate. CertFile and KeyFile are both set, or both empty.
	KeyFile string `yaml:"key_file"`
}

// Access is a rule for one caller with a key, or for users with tokens.
type Access struct {
	// Name is the principal, as logs show it. Principals share no state.
	Name string `yaml:"name"`
	// Token is the caller's key, sent as Authorization: Bearer TOKEN or X-API-Key: TOKEN.
	Token string `yaml:"token"`
	// TokenFile is a file with the key, in place of Token. The bridge reads it again after a change.
	TokenFile string `yaml:"token_file"`
	// Issuer, Claims, Scopes and Users make this a rule for users, without a key. The rule matches a token that
	// satisfies all of these fields that are set. Each user is a principal of its own.
	//
	// Issuer is the issuer of the token, one of Config.OAuth. Default: any of them.
	Issuer string `yaml:"issuer"`
	// Claims holds patterns for the values of claims, by the names of the claims. Each claim has to match one of its
	// patterns.
	Claims map[string]Words `yaml:"claims"`
	// Scopes are the scopes that the token must have, all of them.
	Scopes []string `yaml:"scopes"`
	// Users are patterns for the subject of the token. AnyUser matches every subject.
	Users Words `yaml:"users"`
	// Servers are patterns for the names of the servers that the caller may use. Default: all servers.
	Servers []string `yaml:"servers,some"`
	// Tools selects the tools that the caller may use at these servers. Default: all tools.
	Tools Choice `yaml:"tools"`
	// Operator lets the caller see the state of the bridge and of all servers in /readyz and /metrics, even of servers
	// that Servers excludes. Default false.
	Operator bool `yaml:"operator"`
}

// Choice selects tools by the names that clients see. Patterns are as in Rules.
type Choice struct {
	// Allow lists the allowed tools. Default: all.
	Allow []string `yaml:"allow,some"`
	// Deny lists the hidden tools, even if Allow has them. Default: none.
	Deny []string `yaml:"deny"`
}

// AccessLog says where the bridge writes a line for each call.
type AccessLog struct {
	// To is "stdout", "stderr", or a file to which the bridge appends. Empty means no log.
	To string `yaml:"to"`
	// Payloads adds requests and answers to the log, without values that look like secrets. It is for debugging only.
	Payloads bool `yaml:"payloads"`
}

// ReadyAny and ReadyAll are the values of Config.Ready.
const (
	ReadyAny = "any" // one working server is enough
	ReadyAll = "all" // all servers have to work
)

// ReloadOn and ReloadOff are the values of Config.Reload.
const (
	ReloadOn  = "on"  // after a change of the file, and on request
	ReloadOff = "off" // only on request: by a signal or over HTTP
)

// LogDebug, LogInfo, LogWarn and LogError are the values of Config.LogLevel.
const (
	LogDebug = "debug"
	LogInfo  = "info"
	LogWarn  = "warn"
	LogError = "error"
)

// ConsoleOn, ConsolePayloads and ConsoleOff are the values of Config.Console.
const (
	ConsoleOn       = "on"
	ConsolePayloads = "payloads" // on, and it shows the contents of messages
	ConsoleOff      = "off"
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

// SeesAll reports whether the principal may see the state of all servers: it is an operator, or may use all servers.
func (c *Config) SeesAll(principal string) bool {
	for _, a := range c.Access {
		if a.Name == principal {
			return a.Operator || len(a.Servers) == 0
		}
	}
	return false
}

// Grants returns the grants by principal, or nil without access rules. A rule for users also has its grant under the
// prefix of the principals of its users.
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
			all[a.Name+"/"] = g
		}
	}
	return all
}

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
