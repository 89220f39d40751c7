package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/setting"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// Config holds the settings of a configuration file, with defaults for what the file does not set.
type Config struct {
	// Listen is the address to serve on, HOST:PORT. Port 0 picks a free port. Without HOST the address is on every
	// network of the machine; a port alone is on 127.0.0.1: see Address. Default 127.0.0.1:8808. If the address is not
	// on loopback and there is no Access, every machine that reaches it can use every server.
	Listen string `yaml:"listen" effect:"restart" default:"127.0.0.1:8808" text:"listen"`
	// BasePath is the path prefix under which a reverse proxy publishes the bridge, such as
	// /tools, without a trailing slash. Default: none.
	BasePath string `yaml:"base_path" effect:"restart" text:"base_path"`
	// AllowedOrigins are the origins of web pages that may call the bridge, such as https://app.example.com, in lower
	// case and without a default port. Nil allows the bridge's own origin and, without Access, origins on this machine.
	// An empty list allows no web page.
	AllowedOrigins []string `yaml:"allowed_origins" effect:"live" text:"origin"`
	// AllowedHosts are the values of the header Host that the bridge accepts besides loopback names, in lower case. A
	// value without a port allows any port.
	AllowedHosts []string `yaml:"allowed_hosts" effect:"live" text:"host"`
	// TrustedProxies are the peers whose X-Forwarded-* headers the bridge trusts. Default: none.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies" effect:"live"`
	// MaxMessage bounds one message in bytes: a request body, line, event or answer. Default 16MiB; Fit may lower it.
	MaxMessage Size `yaml:"max_message" effect:"restart" default:"16MiB"`
	// MaxInFlight bounds all messages in flight together, in bytes. Default 512MiB; Fit may lower it.
	MaxInFlight Size `yaml:"max_bytes_in_flight" effect:"restart" default:"512MiB"`
	// MaxConnections bounds the open connections of clients. An address that is neither loopback nor a trusted proxy
	// gets at most a quarter of them. Default 20000, and never more than half of the files that the process may open.
	MaxConnections int `yaml:"max_connections" effect:"restart" default:"20000"`
	// MaxSessions bounds the open sessions. Default 10000.
	MaxSessions int `yaml:"max_sessions" effect:"restart" default:"10000"`
	// MaxChildren bounds the connections to all servers, which for stdio are
	// child processes. Default 1024.
	MaxChildren int `yaml:"max_children" effect:"restart" default:"1024"`
	gateway.Common
	// Heartbeat is the interval of the comments that keep an idle stream open. Default 20s.
	Heartbeat time.Duration `yaml:"heartbeat" effect:"restart" default:"20s"`
	// Drain is how long calls in flight may continue at shutdown before the bridge cancels them. 0 cancels them at
	// once. Default 10s.
	Drain time.Duration `yaml:"drain" effect:"live" default:"10s" min:"0s"`
	// TLS holds the certificate for HTTPS. Default: none, and the bridge serves HTTP.
	TLS TLS `yaml:"tls" effect:"live"`
	// PublicURL is the origin at which clients reach the bridge, without BasePath. Tokens name it as their audience.
	// Default: with OAuth on loopback, the Host of the request.
	PublicURL string `yaml:"public_url" effect:"restart" text:"public_url"`
	// OAuth lists the issuers whose tokens the bridge accepts. Default: none, and only keys give access.
	OAuth []OAuth `yaml:"oauth,some" effect:"restart"`
	// Access lists the callers and what each may use. Default: every caller may use everything.
	Access []Access `yaml:"access,some" effect:"live"`
	// PublicStatus also shows /metrics and the details of /readyz to callers without a key. Without Access it has no
	// effect. Default false.
	PublicStatus bool `yaml:"public_status" effect:"live"`
	// Ready decides when /readyz answers 200: ReadyAny (the default) or ReadyAll.
	Ready string `yaml:"ready" effect:"live" default:"any" one_of:"any all"`
	// Reload decides when the bridge reads the file again: ReloadOn (the default), after a change and on request, or
	// ReloadOff, only on request.
	Reload string `yaml:"reload" effect:"live" default:"on" one_of:"on off"`
	// Admin lists the names in Access that are operators over HTTP: they may reload the file, and end sessions and
	// calls of others. Default: none. Without Access, everybody on this machine is an operator.
	Admin []string `yaml:"admin" effect:"live"`
	// LogLevel is the lowest level that the command serve logs: LogDebug, LogInfo, LogWarn or LogError. The flag
	// --log-level overrides it. Default: LogInfo.
	LogLevel string `yaml:"log_level" effect:"live" default:"info" one_of:"debug info warn error"`
	// Viewers lists the names in Access that see sessions and calls of others in the console, as those in Admin do.
	// Default: none.
	Viewers []string `yaml:"viewers" effect:"live"`
	// Console switches the page for operators below /ui: ConsoleOn, ConsolePayloads or ConsoleOff. Default: on if
	// ConsoleListen is set, or if Access is empty and only this machine reaches the bridge; otherwise off.
	Console string `yaml:"console" effect:"live" one_of:"on payloads off"`
	// ConsoleListen is an address for operators, in the form of Listen. It serves all that Listen serves, and also the
	// page and the API for operators, which Listen then does not serve. Default: none, and Listen serves them.
	ConsoleListen string `yaml:"console_listen" effect:"restart" text:"listen"`
	// ConsoleStreams bounds the open event streams of operators' pages and scripts. One caller gets at most a quarter
	// of them. Default 16.
	ConsoleStreams int `yaml:"console_streams" effect:"live" default:"16"`
	// AccessLog writes a line for each call. Default: none.
	AccessLog AccessLog `yaml:"access_log" effect:"live"`
	// Cluster lets several instances serve the same clients. Default: a single instance.
	Cluster Cluster `yaml:"cluster,set" effect:"restart"`
	// Offer decides which revisions clients can use, at the aggregate and at servers without an Offer of their own:
	// OfferAll (the default) or OfferLegacy.
	Offer gateway.Offer `yaml:"offer" effect:"restart" default:"all" one_of:"all legacy"`
	// Separator is between the name of a server and the names of its tools and prompts in the aggregate: 1 to 8 of the
	// characters that Prefix may have. Default "__".
	Separator string `yaml:"separator" effect:"live" default:"__" text:"separator"`
	// Groups offer some of the servers as one, by the names of the groups. Default: none.
	Groups map[string]Group `yaml:"groups" effect:"live"`
	// Servers are the servers to publish, in file order; at least one.
	Servers []Server `yaml:"servers" effect:"live"`

	// Traces receives the spans of calls. Only a program can set it. The commands set it if the environment variables
	// of OpenTelemetry request traces. Default: none.
	Traces trace.TracerProvider `yaml:"-"`
	// Meters receives the durations of calls, under the names of OpenTelemetry's conventions for MCP. Only a program
	// can set it. The commands set it if the environment variables of OpenTelemetry request metrics. Default: none.
	Meters metric.MeterProvider `yaml:"-"`
	// Warnings are remarks about a valid file, each as "file:line: text", in the order of lines.
	Warnings []string `yaml:"-"`

	// Flags holds the flags of the command line that replaced values of the file, by the keys of the values. Only a
	// program can set it. Default: none.
	Flags map[string]string `yaml:"-"`
	// Scripts is the program that runs scripts of models, for ToolsCode: see package bridge/script. Only a program can
	// set it. Default: none, and ToolsCode is ToolsSearch.
	Scripts string `yaml:"-"`
	// NoAhead makes the bridge start a child process only for a connection, not when it begins to serve. Only a program
	// can set it. Default false.
	NoAhead bool `yaml:"-"`

	name    string                       `yaml:"-"` // name of the file, as the caller gave it
	off     []string                     `yaml:"-"` // names of servers with enabled: false
	secrets map[string]string            `yaml:"-"` // references to show in place of values, by the values from the environment
	origins map[string]map[string]Origin `yaml:"-"` // lines of keys, by server and key; the file's own keys are under the empty name
	files   map[string]string            `yaml:"-"` // digests of files that settings of servers name, by path
}

// OfferAll and OfferLegacy are the values of Config.Offer and Server.Offer. Like the next ones, they have no type, so
// that they are also values of flags.
const (
	OfferAll    = "all"    // all revisions
	OfferLegacy = "legacy" // revisions with a handshake and sessions, up to 2025-11-25
)

// ToolsAll, ToolsSearch and ToolsCode are the values of Config.ToolsMode and Server.ToolsMode.
const (
	ToolsAll    = "all"    // the list has all tools
	ToolsSearch = "search" // the list has search_tools, read_tool and call_tool
	ToolsCode   = "code"   // the list has search_tools and run_code
)

// Default returns the settings of a file that sets nothing. It has no servers, although a file needs at least one.
func Default() Config { return defaults() }

// defaults and serverDefaults hold the defaults of the tags, which a large file needs for each of its servers.
var (
	defaults = sync.OnceValue(func() (c Config) {
		setting.Fill(&c)
		setting.Fill(&c.Cluster)
		return c
	})
	serverDefaults = sync.OnceValue(func() (s Server) {
		setting.Fill(&s)
		return s
	})
)

// DefaultServer returns the settings of a server that sets only share, on which the default of IdleStop depends. An
// empty share means ShareSession. The result has no kind.
func DefaultServer(name string, share gateway.Share) Server {
	s := serverDefaults()
	s.Name, s.Prefix = name, name+defaults().Separator
	if share != "" && share != ShareSession {
		s.Share, s.IdleStop = share, 10*time.Minute
	}
	return s
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

// Open reports whether other machines can reach the bridge, and use everything without a key.
func (c *Config) Open() bool { return !Loopback(c.Listen) && len(c.Access) == 0 }

// OperatorsListen returns the address that serves the page and the API for operators.
func (c *Config) OperatorsListen() string { return cmp.Or(c.ConsoleListen, c.Listen) }

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

// GatewayGroups returns the groups as package gateway has them, sorted by name.
func (c *Config) GatewayGroups() (all []gateway.Group) {
	for _, name := range slices.Sorted(maps.Keys(c.Groups)) {
		g := c.Groups[name]
		all = append(all, gateway.Group{
			Name:    name,
			Servers: g.Servers,
			Allow:   g.Tools.Allow,
			Deny:    g.Tools.Deny,
			Listing: g.Listing,
		})
	}
	return all
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

// Redact returns text, with references such as ${NAME} in place of values from the environment.
func (c *Config) Redact(text string) string { return strict.Redact(text, c.secrets) }

// Origin is the place of a key in the file.
type Origin struct {
	// Line is the line of the key, from 1.
	Line int
	// Variables are the names of the environment variables in the text of the key's value.
	Variables []string
}

// Origin returns where the file has a key, such as limits.calls, of the server of that name. An empty name means the
// file's own keys. ok is false if the file does not have the key.
func (c *Config) Origin(server, key string) (at Origin, ok bool) {
	at, ok = c.origins[server][key]
	return at, ok
}

// FaultsOf turns an error of the adapter of an HTTP API into faults with lines of the file.
func (c *Config) FaultsOf(server string, err error) Faults {
	where := fmt.Sprintf("server %q: rest: ", server)
	if wrong, ok := errors.AsType[rest.Faults](err); ok {
		var all Faults
		for _, f := range wrong {
			line := f.Line
			if line == 0 {
				line = c.lineOf(server, f.String())
			}
			all = append(all, Fault{
				File:    c.name,
				Line:    line,
				Message: where + f.String(),
			})
		}
		return all
	}
	line := c.lineOf(server, err.Error())
	message := where + err.Error()
	if errors.Is(err, fs.ErrNotExist) { // the warning of Load shows the path as the file has it
		for _, w := range c.Warnings {
			text, found := strings.CutPrefix(w, fmt.Sprintf("%s:%d: ", c.name, line))
			if found && strings.HasPrefix(text, where+"openapi is ") {
				message = text
			}
		}
	}
	return Faults{{
		File:    c.name,
		Line:    line,
		Message: message,
	}}
}

// lineOf returns the line of the key under rest with which text, an error of the adapter, begins. If the file does not
// have that key, lineOf returns the line of openapi or of rest, or 0.
func (c *Config) lineOf(server, text string) int {
	key, _, _ := strings.Cut(text, ": ")
	for _, name := range []string{"rest." + key, "rest.openapi", "rest"} {
		if found, ok := c.Origin(server, name); ok {
			return found.Line
		}
	}
	return 0
}

// Group offers some of the servers as one, at an address of its own.
type Group struct {
	// Servers are the names of its servers; at least one.
	Servers []string `yaml:"servers"`
	// Tools choose among the tools of the servers, by the names that clients see at the aggregate. Default: all.
	Tools Choice `yaml:"tools"`
	// Listing decides how the group offers its tools, as in Config.
	gateway.Listing
}
