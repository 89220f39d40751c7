// Package config reads the bridge's configuration file: addresses to listen on, limits, and the servers to publish. The
// file is YAML or JSON, or the mcpServers file of a desktop client. docs/configuration.md and the folder beside it are
// its reference.
//
// Reading is strict: one run reports all faults of a file with their lines, such as unknown keys, duplicates, wrong
// types and missing variables. A value may contain variables of the environment (${NAME}, ${NAME:-default}). The
// package replaces them after parsing, so a value cannot add structure. Messages show the text of the file, never the
// value, which may be a secret.
//
// The package neither connects to a server nor starts one.
package config

import (
	"net/netip"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

// Config holds the settings of a configuration file, with defaults for what the file does not set.
type Config struct {
	// Listen is the address to serve on, HOST:PORT. Port 0 picks a free port. Without HOST the address is on every
	// network of the machine; a port alone is on 127.0.0.1: see Address. Default 127.0.0.1:8808. If the address is not
	// on loopback and there is no Access, every machine that reaches it can use every server.
	Listen string `yaml:"listen" effect:"restart"`
	// BasePath is the path prefix under which a reverse proxy publishes the bridge, such as
	// /tools, without a trailing slash. Default: none.
	BasePath string `yaml:"base_path" effect:"restart"`
	// AllowedOrigins are the origins of web pages that may call the bridge, such as https://app.example.com, in lower
	// case and without a default port. Nil allows the bridge's own origin and, without Access, origins on this machine.
	// An empty list allows no web page.
	AllowedOrigins []string `yaml:"allowed_origins" effect:"live"`
	// AllowedHosts are the values of the header Host that the bridge accepts besides loopback names, in lower case. A
	// value without a port allows any port.
	AllowedHosts []string `yaml:"allowed_hosts" effect:"live"`
	// TrustedProxies are the peers whose X-Forwarded-* headers the bridge trusts. Default: none.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies" effect:"live"`
	// MaxMessage bounds one message in bytes: a request body, line, event or answer. Default 16MiB; Fit may lower it.
	MaxMessage Size `yaml:"max_message" effect:"restart"`
	// MaxInFlight bounds all messages in flight together, in bytes. Default 512MiB; Fit may lower it.
	MaxInFlight Size `yaml:"max_bytes_in_flight" effect:"restart"`
	// MaxConnections bounds the open connections of clients. An address that is neither loopback nor a trusted proxy
	// gets at most a quarter of them. Default 20000, and never more than half of the files that the process may open.
	MaxConnections int `yaml:"max_connections" effect:"restart"`
	// MaxSessions bounds the open sessions. Default 10000.
	MaxSessions int `yaml:"max_sessions" effect:"restart"`
	// MaxChildren bounds the connections to all servers, which for stdio are
	// child processes. Default 1024.
	MaxChildren int `yaml:"max_children" effect:"restart"`
	gateway.Common
	// Heartbeat is the interval of the comments that keep an idle stream open. Default 20s.
	Heartbeat time.Duration `yaml:"heartbeat" effect:"restart"`
	// Drain is how long calls in flight may continue at shutdown before the bridge cancels them. 0 cancels them at
	// once. Default 10s.
	Drain time.Duration `yaml:"drain" effect:"live"`
	// TLS holds the certificate for HTTPS. Default: none, and the bridge serves HTTP.
	TLS TLS `yaml:"tls" effect:"live"`
	// PublicURL is the origin at which clients reach the bridge, without BasePath. Tokens name it as their audience.
	// Default: with OAuth on loopback, the Host of the request.
	PublicURL string `yaml:"public_url" effect:"restart"`
	// OAuth lists the issuers whose tokens the bridge accepts. Default: none, and only keys give access.
	OAuth []OAuth `yaml:"oauth,some" effect:"restart"`
	// Access lists the callers and what each may use. Default: every caller may use everything.
	Access []Access `yaml:"access,some" effect:"live"`
	// PublicStatus also shows /metrics and the details of /readyz to callers without a key. Without Access it has no
	// effect. Default false.
	PublicStatus bool `yaml:"public_status" effect:"live"`
	// Ready decides when /readyz answers 200: ReadyAny (the default) or ReadyAll.
	Ready string `yaml:"ready" effect:"live"`
	// Reload decides when the bridge reads the file again: ReloadOn (the default), after a change and on request, or
	// ReloadOff, only on request.
	Reload string `yaml:"reload" effect:"live"`
	// Admin lists the names in Access that are operators over HTTP: they may reload the file, and end sessions and
	// calls of others. Default: none. Without Access, everybody on this machine is an operator.
	Admin []string `yaml:"admin" effect:"live"`
	// LogLevel is the lowest level that the command serve logs: LogDebug, LogInfo, LogWarn or LogError. The flag
	// --log-level overrides it. Default: LogInfo.
	LogLevel string `yaml:"log_level" effect:"live"`
	// Viewers lists the names in Access that see sessions and calls of others in the console, as those in Admin do.
	// Default: none.
	Viewers []string `yaml:"viewers" effect:"live"`
	// Console switches the page for operators below /ui: ConsoleOn, ConsolePayloads or ConsoleOff. Default: on if
	// ConsoleListen is set, or if Access is empty and only this machine reaches the bridge; otherwise off.
	Console string `yaml:"console" effect:"live"`
	// ConsoleListen is an address for operators, in the form of Listen. It serves all that Listen serves, and also the
	// page and the API for operators, which Listen then does not serve. Default: none, and Listen serves them.
	ConsoleListen string `yaml:"console_listen" effect:"restart"`
	// ConsoleStreams bounds the open event streams of operators' pages and scripts. One caller gets at most a quarter
	// of them. Default 16.
	ConsoleStreams int `yaml:"console_streams" effect:"live"`
	// AccessLog writes a line for each call. Default: none.
	AccessLog AccessLog `yaml:"access_log" effect:"live"`
	// Cluster lets several instances serve the same clients. Default: a single instance.
	Cluster Cluster `yaml:"cluster" effect:"restart"`
	// Offer decides which revisions clients can use, at the aggregate and at servers without an Offer of their own:
	// OfferAll (the default) or OfferLegacy.
	Offer gateway.Offer `yaml:"offer" effect:"restart"`
	// Separator is between the name of a server and the names of its tools and prompts in the aggregate: 1 to 8 of the
	// characters that Prefix may have. Default "__".
	Separator string `yaml:"separator" effect:"live"`
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
	// NoAhead makes the bridge start a child process only for a connection, not when it begins to serve. Only a program
	// can set it. Default false.
	NoAhead bool `yaml:"-"`

	name    string                       `yaml:"-"` // name of the file, as the caller gave it
	off     []string                     `yaml:"-"` // names of servers with enabled: false
	secrets map[string]string            `yaml:"-"` // references to show in place of values, by the values from the environment
	origins map[string]map[string]Origin `yaml:"-"` // lines of keys, by server and key; the file's own keys are under the empty name
	files   map[string]string            `yaml:"-"` // digests of files that settings of servers name, by path
}

// Server is one server of the file. Exactly one of its pointer fields, or Adapter, is set: the kind of the server,
// which says how the bridge reaches the server.
type Server struct {
	// Name is the server's part of the URL: lower-case letters, digits and '-'.
	Name string `yaml:"-"`
	// Adapter is a kind of server that only a program can set. Package inprocess makes an Adapter from a server of the
	// official SDK.
	Adapter bridge.Adapter `yaml:"-"`
	// Unusable is the reason that the server is out of service: a variable that its settings need is not set, or a file
	// that they name cannot be used. Then the other settings are incomplete. Empty means that the settings can be used.
	Unusable string `yaml:"-"`
	// Stdio runs the server as a child process.
	Stdio *stdio.Config `yaml:"stdio" effect:"renew"`
	// HTTP reaches a remote server over Streamable HTTP, or over HTTP+SSE if the server supports no other transport.
	HTTP *remote.Config `yaml:"http" effect:"renew"`
	// SSE reaches a remote server over HTTP+SSE.
	SSE *remote.Config `yaml:"sse" effect:"renew"`
	// Rest turns an HTTP API into a server.
	Rest *rest.Config `yaml:"rest" effect:"renew"`
	// Era is the era of the protocol between bridge and server: EraAuto (the default), EraLegacy or EraModern. HTTP+SSE
	// is always legacy.
	Era string `yaml:"era" effect:"next"`
	// Revision is the newest revision that the bridge offers to the server. A modern revision excludes legacy ones.
	// Default: the newest that both sides know.
	Revision string `yaml:"revision" effect:"next"`
	gateway.ServerSettings
	// Place decides which of several instances runs the server's child processes: PlaceHere (the default) or
	// PlaceWorkers.
	Place string `yaml:"place" effect:"next"`
	// Forward lists the client headers that the bridge forwards to the server: as headers, or as environment variables
	// of a child process. Default: none.
	Forward []bridge.Forward `yaml:"forward" effect:"next"`
	// Scopes are the scopes that a token needs for calls of the server. Default: none.
	Scopes Scopes `yaml:"scopes" effect:"live"`
	// Identity maps names to claims of the caller's token. The server gets each claim under its name: in a header, or
	// for a child process in an environment variable. Default: none.
	Identity map[string]string `yaml:"identity" effect:"renew"`
	// Restart makes the bridge start a failed server again at its next use. Default true.
	Restart bool `yaml:"restart" effect:"live"`
	// Timeout is the time limit of a call without progress; progress resets it. Default 300s.
	Timeout time.Duration `yaml:"timeout" effect:"live"`
	// MaxTimeout is the time limit of a call, with or without progress. Default 1h.
	MaxTimeout time.Duration `yaml:"max_timeout" effect:"live"`
	// IdleStop is the idle time after which the bridge closes a connection. 0 means never, as does "off" in a file.
	// Default: never with ShareSession, since the server may hold state of the client; otherwise 10m.
	IdleStop time.Duration `yaml:"idle_stop,off" effect:"next"`
}

// EraAuto, EraLegacy and EraModern are the values of Server.Era.
const (
	EraAuto   = string(conn.EraAuto)   // the bridge detects the era
	EraLegacy = string(conn.EraLegacy) // revisions with a handshake and sessions, up to 2025-11-25
	EraModern = string(conn.EraModern) // revisions without handshake and sessions, from 2026-07-28
)

// OfferAll and OfferLegacy are the values of Config.Offer and Server.Offer. Like the next ones, they have no type, so
// that they are also values of flags.
const (
	OfferAll    = "all"    // all revisions
	OfferLegacy = "legacy" // revisions with a handshake and sessions, up to 2025-11-25
)

// ToolsAll and ToolsSearch are the values of Config.ToolsMode and Server.ToolsMode.
const (
	ToolsAll    = "all"    // the list has all tools
	ToolsSearch = "search" // the list has search_tools, read_tool and call_tool
)

// ShareSession, SharePrincipal, ShareCall and ShareAll are the values of Server.Share.
const (
	ShareSession   = "session"   // one connection for each session
	SharePrincipal = "principal" // one connection for each principal
	ShareCall      = "call"      // one connection for each call, closed afterwards
	ShareAll       = "all"       // one connection for all callers
)

// Default returns the settings of a file that sets nothing. It has no servers, although a file needs at least one.
func Default() Config {
	return Config{
		Listen:         "127.0.0.1:8808",
		MaxMessage:     16 << 20,
		MaxInFlight:    512 << 20,
		MaxConnections: 20000,
		MaxSessions:    10000,
		MaxChildren:    1024,
		Common: gateway.Common{
			SessionIdle:   30 * time.Minute,
			SessionLeft:   5 * time.Minute,
			ListWait:      20 * time.Second,
			ResultsMemory: 256 << 20,
		},
		Heartbeat:      20 * time.Second,
		Drain:          10 * time.Second,
		Ready:          ReadyAny,
		Reload:         ReloadOn,
		LogLevel:       LogInfo,
		ConsoleStreams: 16,
		Offer:          OfferAll,
		Separator:      "__",
		Cluster: Cluster{
			Role:      cluster.RoleAll,
			KeyPrefix: "bridge",
			Lease:     6 * time.Second,
			StoreLost: StoreLostServe,
			Replay:    ReplayOn,
		},
	}
}

// DefaultServer returns the settings of a server that sets only share, on which the default of IdleStop depends. An
// empty share means ShareSession. The result has no kind.
func DefaultServer(name string, share gateway.Share) Server {
	s := Server{
		Name:       name,
		Era:        EraAuto,
		Place:      PlaceHere,
		Restart:    true,
		Timeout:    300 * time.Second,
		MaxTimeout: time.Hour,
		ServerSettings: gateway.ServerSettings{
			Share:            ShareSession,
			Prefix:           name + Default().Separator,
			HandshakeTimeout: 60 * time.Second,
			MaxChildren:      256,
			StartsPerMinute:  30,
			RestartMaxPause:  time.Minute,
		},
	}
	if share != "" && share != ShareSession {
		s.Share, s.IdleStop = share, 10*time.Minute
	}
	return s
}
