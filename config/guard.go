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

// TLS says with what the bridge shows who it is. The files are read again when
// they change.
type TLS struct {
	// CertFile has the certificate, and after it those that it was signed with.
	CertFile string `yaml:"cert_file"`
	// KeyFile has the key of the certificate. Both are PEM files, and set, or neither is.
	KeyFile string `yaml:"key_file"`
}

// Access is one who may call.
type Access struct {
	// Name is the principal: what it has is its own, and shared with nobody. It is
	// shown in logs.
	Name string `yaml:"name"`
	// Token is the secret that it shows, as Authorization: Bearer TOKEN or
	// X-API-Key: TOKEN.
	Token string `yaml:"token"`
	// TokenFile has the secret in place of Token. It is read again when it changes.
	TokenFile string `yaml:"token_file"`
	// Issuer, Claims, Scopes and Users, in the place of a key, say which users the rule
	// is for, of those who show a token of an issuer (Config.OAuth): all that is set has
	// to fit. Each user is a caller of its own.
	//
	// Issuer is one of OAuth's. Default: all of them.
	Issuer string `yaml:"issuer"`
	// Claims are patterns of what the token says, by the names of the claims: one of
	// each has to fit.
	Claims map[string]Words `yaml:"claims"`
	// Scopes are those that the token must have.
	Scopes []string `yaml:"scopes"`
	// Users are patterns of its subject; AnyUser fits all.
	Users Words `yaml:"users"`
	// Servers are patterns of the servers that it may use. Default: all.
	Servers []string `yaml:"servers,some"`
	// Tools chooses among their tools. Default: all.
	Tools Choice `yaml:"tools"`
	// Operator shows the state of all servers and of the bridge as a whole, in /readyz and
	// /metrics, also where Servers leaves some out. Default false.
	Operator bool `yaml:"operator"`
}

// Choice chooses tools by the names that clients see. Patterns are as in Rules:
// * stands for any text, and \* for a star.
type Choice struct {
	// Allow lists what may be used. Default: everything.
	Allow []string `yaml:"allow,some"`
	// Deny lists what may not be used. It wins over Allow. Default: nothing.
	Deny []string `yaml:"deny"`
}

// AccessLog says where a line for each call goes.
type AccessLog struct {
	// To is "stdout", "stderr" or a file, to which it is appended. Empty means
	// nowhere.
	To string `yaml:"to"`
	// Payloads writes what was asked and answered too, without what looks like a
	// secret: for debugging only.
	Payloads bool `yaml:"payloads"`
}

// Values of Config.Ready.
const (
	ReadyAny = "any" // one server that works is enough
	ReadyAll = "all" // all have to work
)

// Values of Config.Reload.
const (
	ReloadOn  = "on"  // also when the file has changed
	ReloadOff = "off" // only by a signal, or over HTTP
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
	ConsolePayloads = "payloads" // on, and operators see what messages carry
	ConsoleOff      = "off"
)

// checkAccess adds the rules for who may call.
func (c *Config) checkAccess(all *breaches) {
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		all.add("tls", "needs both cert_file and key_file")
	}
	if c.AccessLog.Payloads && c.AccessLog.To == "" {
		all.add("access_log", "has payloads but no place: add to: stderr, or a file")
	}
	for _, may := range []struct {
		key, alone string
		names      []string
	}{{"admin", "may have the file read again", c.Admin}, {"viewers", "sees all", c.Viewers}} {
		for _, name := range may.names {
			if len(c.Access) == 0 {
				all.add(may.key, "needs access: without it, whoever is on this machine %s, and nobody else", may.alone)
				return
			} else if !slices.ContainsFunc(c.Access, func(a Access) bool { return a.Name == name }) {
				all.add(may.key, "has %q, which is the name of nobody under access", strict.Clip(name))
			}
		}
	}
	const everybody = "which other machines can reach, and without access everybody there could stop servers and see what others do"
	switch at := c.OperatorsListen(); {
	case c.ConsoleListen != "" && address.Overlap(at, c.Listen):
		all.with("console_listen", "listen", "is where clients are served too: choose another port, or leave it out")
	case c.ConsoleListen != "" && address.Overlap(at, c.Cluster.Listen):
		all.with("console_listen", "cluster", "is where other instances are served too (cluster: listen): choose another port")
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
			all.add(item, "has no name: it is the principal that logs and limits go by")
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
			all.with(item, item+": token", "needs either token or token_file, or says by claims, scopes or users who it is for")
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
				all.add(item+": servers", "has %q, which is the name of no server", strict.Clip(pattern))
			}
		}
	}
}

// serves reports whether there is a server of that name or pattern.
func (c *Config) serves(pattern string) bool {
	// Nobody should have to change a rule to switch a server off.
	return slices.ContainsFunc(c.off, func(name string) bool { return glob.Match(pattern, name) }) ||
		slices.ContainsFunc(c.Servers, func(s Server) bool { return glob.Match(pattern, s.Name) })
}

// SeesAll reports whether that principal may see the state of all servers: it is an
// operator, or may use all of them.
func (c *Config) SeesAll(principal string) bool {
	for _, a := range c.Access {
		if a.Name == principal {
			return a.Operator || len(a.Servers) == 0
		}
	}
	return false
}

// Grants returns what each principal may use, by the name of its rule; nil when there
// are no access rules.
func (c *Config) Grants() map[string]filter.Grant {
	if len(c.Access) == 0 {
		return nil
	}
	all := map[string]filter.Grant{}
	for _, a := range c.Access {
		g := filter.Grant{Servers: a.Servers, Allow: a.Tools.Allow, Deny: a.Tools.Deny}
		all[a.Name] = g
		if a.users() {
			all[a.Name+"/"] = g // its users begin so: where callers are counted, they are several
		}
	}
	return all
}

// checkIncomplete notes what is there in the file and says nothing, or is about callers
// where they cannot be told apart.
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
	if _, set := top.Marks["access"]; set {
		return
	}
	const alone = "needs access: without it everybody is one caller"
	if m, set := top.Marks["per_principal"]; set && !m.Bad {
		d.Warn(m.Line, "per_principal %s", alone)
	}
	for i, s := range c.Servers {
		if m, _ := d.sections[i].At("limits: per_principal"); s.Limits.PerPrincipal > 0 {
			d.Warn(m.Line, "%slimits: per_principal %s", d.sections[i].Where, alone)
		}
	}
}
