// Package config reads the bridge's configuration file: addresses to listen on, limits, and
// the servers to publish. The file is YAML or JSON, or the mcpServers file of a desktop client.
// docs/configuration.md and the folder beside it are its reference.
//
// Reading is strict: one run reports all faults of a file with their lines, such as unknown
// keys, duplicates, wrong types and missing variables. A value may contain variables of the
// environment (${NAME}, ${NAME:-default}). They are replaced after parsing, so a value cannot
// add structure. Messages show the text of the file, never the value, which may be a secret.
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
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

// Config is a configuration file with its defaults filled in.
type Config struct {
	// Listen is the address to serve on, HOST:PORT. Port 0 picks a free port. Without HOST
	// it is every network of the machine, and a port alone is on 127.0.0.1: see Address.
	// Default 127.0.0.1:8808. Beyond loopback and without Access, whoever reaches it can
	// use every server.
	Listen string `yaml:"listen" effect:"restart"`
	// BasePath is the path prefix under which a reverse proxy publishes the bridge, such as
	// /tools, without a trailing slash. Default: none.
	BasePath string `yaml:"base_path" effect:"restart"`
	// AllowedOrigins are further browser origins that may call, such as
	// https://app.example.com, in lower case and without a default port. Nil allows the
	// listener's own origin and, without Access, those of this machine. An empty list allows
	// no page at all.
	AllowedOrigins []string `yaml:"allowed_origins" effect:"live"`
	// AllowedHosts are the Host values to accept beside loopback names, in lower case. A value
	// without a port is for any port.
	AllowedHosts []string `yaml:"allowed_hosts" effect:"live"`
	// TrustedProxies are the peers whose X-Forwarded-* headers count. Default: none.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies" effect:"live"`
	// MaxMessage bounds one message in bytes: request body, line, event, answer.
	// Default 16MiB; see Fit.
	MaxMessage Size `yaml:"max_message" effect:"restart"`
	// MaxInFlight bounds all messages in flight together, in bytes. Default 512MiB; see Fit.
	MaxInFlight Size `yaml:"max_bytes_in_flight" effect:"restart"`
	// MaxConnections bounds the open connections of clients. One address that is neither
	// loopback nor a trusted proxy has at most a quarter of them. Default 20000, but never
	// more than half of the files that the process may open.
	MaxConnections int `yaml:"max_connections" effect:"restart"`
	// MaxSessions bounds the open sessions. Default 10000.
	MaxSessions int `yaml:"max_sessions" effect:"restart"`
	// MaxChildren bounds the connections to all servers, which for stdio are
	// child processes. Default 1024.
	MaxChildren int `yaml:"max_children" effect:"restart"`
	// SessionIdle is the idle time after which a session ends. Default 30m.
	SessionIdle time.Duration `yaml:"session_idle" effect:"live"`
	// SessionLeft is the idle time after which a session ends whose client has probably left.
	// It applies to a session with its own child process whose client closed its event
	// stream. Default 5m.
	SessionLeft time.Duration `yaml:"session_left" effect:"live"`
	// Heartbeat is the interval between comments that keep an idle stream open. Default 20s.
	Heartbeat time.Duration `yaml:"heartbeat" effect:"restart"`
	// Drain is the time for calls in flight at shutdown before they are cancelled; 0 cancels
	// at once. Default 10s.
	Drain time.Duration `yaml:"drain" effect:"live"`
	// TLS serves HTTPS. Default: HTTP.
	TLS TLS `yaml:"tls" effect:"live"`
	// PublicURL is the origin at which clients reach the bridge, without BasePath. Tokens are
	// issued for it. Default: with OAuth on loopback, the Host of the request.
	PublicURL string `yaml:"public_url" effect:"restart"`
	// OAuth lists the issuers whose tokens are accepted. Default: only keys are.
	OAuth []OAuth `yaml:"oauth,some" effect:"restart"`
	// Access lists the callers and what they may use. Default: everybody may use everything.
	Access []Access `yaml:"access,some" effect:"live"`
	// PerPrincipal bounds the use by one principal.
	PerPrincipal limits.PerPrincipal `yaml:"per_principal" effect:"live"`
	// PublicStatus shows /metrics and the details of /readyz also to callers without a key,
	// where there are access rules. Default false.
	PublicStatus bool `yaml:"public_status" effect:"live"`
	// Ready is the condition for /readyz to answer 200: ReadyAny (the default) or ReadyAll.
	Ready string `yaml:"ready" effect:"live"`
	// Reload is the condition to read the file again: ReloadOn (the default), also after a
	// change, or ReloadOff, only on request.
	Reload string `yaml:"reload" effect:"live"`
	// Admin lists the names under Access that may act as operators over HTTP: they may reload
	// the file, and end sessions and calls of others. Default: nobody. Without access rules,
	// everybody on this machine may.
	Admin []string `yaml:"admin" effect:"live"`
	// LogLevel is the lowest level that serve logs: LogDebug, LogInfo, LogWarn or LogError.
	// The flag --log-level wins. Default: LogInfo.
	LogLevel string `yaml:"log_level" effect:"live"`
	// Viewers lists the names under Access that see sessions and calls of others in the
	// console. Those in Admin do too. Default: nobody.
	Viewers []string `yaml:"viewers" effect:"live"`
	// Console switches the page for operators below /ui: ConsoleOn, ConsolePayloads or
	// ConsoleOff. Default: on if it has its own address, or if there are no access rules and
	// only this machine reaches the bridge; off otherwise.
	Console string `yaml:"console" effect:"live"`
	// ConsoleListen is the address for operators, of the form of Listen. It serves all that
	// Listen serves, and the page and the API for operators, which Listen does not serve
	// then. Default: none; Listen serves them.
	ConsoleListen string `yaml:"console_listen" effect:"restart"`
	// ConsoleStreams bounds the open event streams of operators' pages and scripts. One caller
	// has at most a quarter of them. Default 16.
	ConsoleStreams int `yaml:"console_streams" effect:"live"`
	// AccessLog writes a line for each call. Default: none.
	AccessLog AccessLog `yaml:"access_log" effect:"live"`
	// Cluster lets several instances serve the same clients. Default: there is only one.
	Cluster Cluster `yaml:"cluster" effect:"restart"`
	// Offer sets the revisions for clients, at the aggregate and at servers without an Offer
	// of their own: OfferAll (the default) or OfferLegacy.
	Offer string `yaml:"offer" effect:"restart"`
	// Separator stands between a server's name and the names of its tools and prompts in the
	// aggregate: 1 to 8 of the characters that Prefix may have. Default "__".
	Separator string `yaml:"separator" effect:"live"`
	// ToolsMode sets how the aggregate offers tools: ToolsAll, or ToolsSearch, with which its list has only tools that
	// find and call the others. A client chooses for itself with tools=all or tools=search in its URL. Default: the tools
	// of servers whose own mode is ToolsSearch are found, and those of the others listed.
	ToolsMode string `yaml:"tools_mode" effect:"live"`
	// Always are patterns of tools that the aggregate lists with ToolsSearch too, by the names that clients see there.
	// Default: none.
	Always []string `yaml:"always" effect:"live"`
	// Servers are the servers to publish, in file order; at least one.
	Servers []Server `yaml:"servers" effect:"live"`

	// Traces gets the spans of calls. Only a program can set it: the commands do so if the
	// environment variables of OpenTelemetry request it. Default: none.
	Traces trace.TracerProvider `yaml:"-"`
	// Meters gets the durations of calls, under the names of OpenTelemetry's conventions for MCP.
	// Only a program can set it: the commands do so if the environment variables of OpenTelemetry
	// request it. Default: none.
	Meters metric.MeterProvider `yaml:"-"`
	// Warnings are remarks about a valid file, as "file:line: text", sorted by line.
	Warnings []string `yaml:"-"`

	// Flags holds the flags of the command line that replace values of the file, by key. Only
	// a program can set it. Default: none.
	Flags map[string]string `yaml:"-"`

	name    string                       `yaml:"-"` // of the file, as the caller gave it
	off     []string                     `yaml:"-"` // servers with enabled: false
	secrets map[string]string            `yaml:"-"` // references to show, by values from the environment
	origins map[string]map[string]Origin `yaml:"-"` // lines of keys by server; the file's own keys have the empty name
	files   map[string]string            `yaml:"-"` // digests of the files that settings of servers name, by path
}

// Server is one server of the file. Exactly one of its pointer fields is set: the kind of the
// server, which defines the way to reach it. A new kind is a new pointer field.
type Server struct {
	// Name is the server's part of the URL: lower-case letters, digits and '-'.
	Name string `yaml:"-"`
	// Adapter is a kind that only a program can set. Package inprocess makes one of a server
	// that is written with the official SDK.
	Adapter bridge.Adapter `yaml:"-"`
	// Stdio runs the server as a child process.
	Stdio *stdio.Config `yaml:"stdio" effect:"renew"`
	// HTTP reaches a remote server over Streamable HTTP, or over HTTP+SSE if the server
	// supports only that.
	HTTP *remote.Config `yaml:"http" effect:"renew"`
	// SSE reaches a remote server over HTTP+SSE.
	SSE *remote.Config `yaml:"sse" effect:"renew"`
	// Rest turns an HTTP API into a server.
	Rest *rest.Config `yaml:"rest" effect:"renew"`
	// Era is the era that the bridge speaks with the server: EraAuto (the default), EraLegacy
	// or EraModern. HTTP+SSE is always legacy.
	Era string `yaml:"era" effect:"next"`
	// Revision is the newest revision to offer to the server if it is a legacy one. A modern
	// one pins the modern era. Default: the newest that both sides know.
	Revision string `yaml:"revision" effect:"next"`
	// Offer sets the revisions for clients at the server's own address. Default: that of the
	// file.
	Offer string `yaml:"offer" effect:"next"`
	// ToolsMode sets how the server's own address offers tools: ToolsAll or ToolsSearch. Default: ToolsAll; for an HTTP
	// API its mode decides.
	ToolsMode string `yaml:"tools_mode" effect:"live"`
	// Always are patterns of tools that the server's own address lists with ToolsSearch too, by the names that clients see
	// there. Default: none.
	Always []string `yaml:"always" effect:"live"`
	// Share sets who shares one upstream connection: ShareSession (the default),
	// SharePrincipal, ShareCall or ShareAll.
	Share string `yaml:"share" effect:"next"`
	// Place sets which of several instances runs the server's child processes: PlaceHere
	// (the default) or PlaceWorkers.
	Place string `yaml:"place" effect:"next"`
	// Forward lists the client headers to forward to the server: as headers, or as environment
	// variables of a child process. Default: none.
	Forward []bridge.Forward `yaml:"forward" effect:"next"`
	// Scopes are the scopes that tokens need for calls of the server. Default: none.
	Scopes Scopes `yaml:"scopes" effect:"live"`
	// Identity holds the claims of the caller's token to send to the server, by the names of
	// headers, or of environment variables of a child process. Default: none.
	Identity map[string]string `yaml:"identity" effect:"renew"`
	// Prefix stands before the names of the server's tools and prompts in the aggregate: up to
	// 40 letters, digits, '_', '.' and '-'; empty means none. Default: the server's name and
	// the separator.
	Prefix string `yaml:"prefix" effect:"live"`
	// Tools, Prompts and Resources filter and change the server's lists for clients. Default:
	// all of them, unchanged.
	Tools     filter.Rules `yaml:"tools" effect:"live"`
	Prompts   filter.Rules `yaml:"prompts" effect:"live"`
	Resources filter.Rules `yaml:"resources" effect:"live"`
	// Validate checks the arguments of tool calls against the tools' input schemas before the
	// server gets them. Rest always does. Default false.
	Validate bool `yaml:"validate" effect:"live"`
	// Cache, Breaker, Limits and Retry protect the server, and other callers.
	Cache   cache.Options   `yaml:"cache" effect:"live"`
	Breaker breaker.Options `yaml:"breaker" effect:"live"`
	Limits  limits.Options  `yaml:"limits" effect:"live"`
	Retry   retry.Options   `yaml:"retry" effect:"live"`
	// Ping is the idle time of a connection after which the bridge pings the server; 0 means
	// never, as does "off" in a file. Default: never.
	Ping time.Duration `yaml:"ping,off" effect:"live"`
	// Restart starts a failed server again at its next use. Default true.
	Restart bool `yaml:"restart" effect:"live"`
	// Timeout is the time limit of a call without progress; progress resets it. Default 300s.
	Timeout time.Duration `yaml:"timeout" effect:"live"`
	// MaxTimeout is the time limit of a call, with or without progress. Default 1h.
	MaxTimeout time.Duration `yaml:"max_timeout" effect:"live"`
	// HandshakeTimeout bounds opening a connection to the server. Default 60s.
	HandshakeTimeout time.Duration `yaml:"handshake_timeout" effect:"next"`
	// IdleStop is the idle time after which a connection is closed; 0 means never, as does
	// "off" in a file. Default: never with ShareSession, since the server may hold state of
	// the client; 10m otherwise.
	IdleStop time.Duration `yaml:"idle_stop,off" effect:"next"`
	// MaxChildren bounds this server's connections, which for stdio are child
	// processes. Default 256.
	MaxChildren int `yaml:"max_children" effect:"live"`
	// StartsPerMinute bounds how often a lost connection is opened again within a minute.
	// Default 30.
	StartsPerMinute int `yaml:"starts_per_minute" effect:"live"`
	// RestartMaxPause bounds the backoff before the next attempt to open a connection, after
	// one that failed or was lost before its first answer. At least 1s. Default 1m.
	RestartMaxPause time.Duration `yaml:"restart_max_pause" effect:"live"`
}

// Values of Server.Era.
const (
	EraAuto   = string(conn.EraAuto)   // the bridge detects the era
	EraLegacy = string(conn.EraLegacy) // revisions with a handshake and sessions, to 2025-11-25
	EraModern = string(conn.EraModern) // revisions without, from 2026-07-28
)

// Values of Config.Offer and Server.Offer.
const (
	OfferAll    = string(gateway.OfferAll)    // all revisions
	OfferLegacy = string(gateway.OfferLegacy) // revisions with a handshake and sessions, to 2025-11-25
)

// Values of Config.ToolsMode and Server.ToolsMode.
const (
	ToolsAll    = string(gateway.ToolsAll)    // the list has all tools
	ToolsSearch = string(gateway.ToolsSearch) // the list has search_tools, read_tool and call_tool
)

// Values of Server.Share.
const (
	ShareSession   = "session"   // one connection per session
	SharePrincipal = "principal" // one per principal
	ShareCall      = "call"      // one per call, closed after it
	ShareAll       = "all"       // one for all callers
)

// Default returns the settings of a file that sets nothing. It has no servers, but a file needs
// at least one.
func Default() Config {
	return Config{
		Listen:         "127.0.0.1:8808",
		MaxMessage:     16 << 20,
		MaxInFlight:    512 << 20,
		MaxConnections: 20000,
		MaxSessions:    10000,
		MaxChildren:    1024,
		SessionIdle:    30 * time.Minute,
		SessionLeft:    5 * time.Minute,
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

// DefaultServer returns the settings of a server that sets only share, which decides the default
// of IdleStop. An empty share means ShareSession. The result has no kind yet.
func DefaultServer(name, share string) Server {
	s := Server{
		Name:             name,
		Era:              EraAuto,
		Share:            ShareSession,
		Place:            PlaceHere,
		Prefix:           name + Default().Separator,
		Restart:          true,
		Timeout:          300 * time.Second,
		MaxTimeout:       time.Hour,
		HandshakeTimeout: 60 * time.Second,
		MaxChildren:      256,
		StartsPerMinute:  30,
		RestartMaxPause:  time.Minute,
	}
	if share != "" && share != ShareSession {
		s.Share, s.IdleStop = share, 10*time.Minute
	}
	return s
}
