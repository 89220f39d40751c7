// Package config reads the bridge's configuration file: what to listen on, the
// limits, and the servers to publish. The file is YAML or JSON, or the
// mcpServers file of a desktop client as it is; docs/configuration.md is its
// reference.
//
// Reading is strict, and every fault of a file is reported in one go, each with
// its line: an unknown key, a duplicate, a wrong type, a missing variable. A
// value may take text from the environment (${NAME}, ${NAME:-default}). That
// happens after parsing, so that a value cannot add structure, and messages
// show the text of the file, never the value, which may be a secret.
//
// Nothing here connects to a server or starts one.
package config

import (
	"net/netip"
	"time"

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
	// Listen is the address to serve on, HOST:PORT; port 0 picks a free one, and
	// without HOST it is every network of the machine, and a port alone is one of
	// 127.0.0.1: see Address. Default 127.0.0.1:8808. Beyond loopback and without
	// Access, whoever reaches it can use every server.
	Listen string `yaml:"listen" effect:"restart"`
	// BasePath is the path prefix under which a reverse proxy publishes us, such
	// as /tools: no slash at its end. Default: none.
	BasePath string `yaml:"base_path" effect:"restart"`
	// AllowedOrigins are browser origins that may call, beside the listener's own
	// and, without Access, those of this machine: lower case, no default port, such as https://app.example.com. Nil stands
	// for those only, and a list without an item for no page at all.
	AllowedOrigins []string `yaml:"allowed_origins" effect:"live"`
	// AllowedHosts are Host values accepted beside loopback names, in lower
	// case. One without a port is meant for any port.
	AllowedHosts []string `yaml:"allowed_hosts" effect:"live"`
	// TrustedProxies are the peers whose X-Forwarded-* headers count. Default:
	// nobody's.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies" effect:"live"`
	// MaxMessage bounds one message in bytes: request body, line, event, answer.
	// Default 16MiB.
	MaxMessage Size `yaml:"max_message" effect:"restart"`
	// MaxInFlight bounds all messages in flight together, in bytes. Default 512MiB.
	MaxInFlight Size `yaml:"max_bytes_in_flight" effect:"restart"`
	// MaxConnections bounds the connections of clients that are open at once. One
	// address that is neither loopback nor a trusted proxy has at most a quarter of
	// them. Default 20000, but never more than half of the files that the process may
	// open.
	MaxConnections int `yaml:"max_connections" effect:"restart"`
	// MaxSessions bounds the sessions that are open at once. Default 10000.
	MaxSessions int `yaml:"max_sessions" effect:"restart"`
	// MaxChildren bounds the connections to all servers, which for stdio are
	// child processes. Default 1024.
	MaxChildren int `yaml:"max_children" effect:"restart"`
	// SessionIdle ends a session that nobody used for so long. Default 30m.
	SessionIdle time.Duration `yaml:"session_idle" effect:"live"`
	// SessionLeft ends a session that has a child process to itself and whose client has
	// probably gone: it has closed its event stream, and sent nothing for so long. Default 5m.
	SessionLeft time.Duration `yaml:"session_left" effect:"live"`
	// Heartbeat is the pause between comments that keep a quiet stream open. Default 20s.
	Heartbeat time.Duration `yaml:"heartbeat" effect:"restart"`
	// Drain is how long running calls may go on at shutdown before they are
	// cancelled; 0 cancels at once. Default 10s.
	Drain time.Duration `yaml:"drain" effect:"live"`
	// TLS serves HTTPS. Default: HTTP.
	TLS TLS `yaml:"tls" effect:"live"`
	// PublicURL is how clients reach the bridge, without BasePath: the origin that
	// tokens are for. Default: with OAuth on loopback, the Host of the request.
	PublicURL string `yaml:"public_url" effect:"restart"`
	// OAuth lists the issuers whose tokens count. Default: only keys do.
	OAuth []OAuth `yaml:"oauth,some" effect:"restart"`
	// Access lists who may call, and what. Default: everybody may use everything.
	Access []Access `yaml:"access,some" effect:"live"`
	// PerPrincipal bounds what each of those may have.
	PerPrincipal limits.PerPrincipal `yaml:"per_principal" effect:"live"`
	// PublicStatus shows /metrics and the details of /readyz to those too who have
	// no key, where there are access rules. Default false.
	PublicStatus bool `yaml:"public_status" effect:"live"`
	// Ready says when /readyz answers 200: ReadyAny (the default), as long as one
	// server works, or ReadyAll.
	Ready string `yaml:"ready" effect:"live"`
	// Reload says when the file is read again: ReloadOn (the default), also when it has
	// changed, or ReloadOff, only when somebody asks for it.
	Reload string `yaml:"reload" effect:"live"`
	// Admin lists the names under Access that may act as operators over HTTP: have the
	// file read again, and end what is of others. Default: nobody. Without access rules,
	// it is whoever is on this machine.
	Admin []string `yaml:"admin" effect:"live"`
	// LogLevel is the least that serve logs: LogDebug, LogInfo, LogWarn or LogError. The
	// flag --log-level wins. Default: LogInfo.
	LogLevel string `yaml:"log_level" effect:"live"`
	// Viewers lists the names under Access that see in the console what is of others:
	// their sessions and calls. Those in Admin do too. Default: nobody.
	Viewers []string `yaml:"viewers" effect:"live"`
	// Console says whether there is a page for operators below /ui: ConsoleOn,
	// ConsolePayloads or ConsoleOff. Default: on where it has an address of its own, or
	// everybody who reaches the bridge is on this machine, and there are no access rules;
	// off otherwise.
	Console string `yaml:"console" effect:"live"`
	// ConsoleListen is an address for operators, of the form of Listen: the page and the
	// API for operators are there, beside all that is at Listen, and not at Listen. Default:
	// none, they are at Listen.
	ConsoleListen string `yaml:"console_listen" effect:"restart"`
	// ConsoleStreams bounds the event streams of operators' pages and scripts that are open
	// at once. One caller has at most a quarter of them. Default 16.
	ConsoleStreams int `yaml:"console_streams" effect:"live"`
	// AccessLog writes a line for each call. Default: none.
	AccessLog AccessLog `yaml:"access_log" effect:"live"`
	// Cluster lets several instances serve the same clients. Default: this is the only
	// one.
	Cluster Cluster `yaml:"cluster" effect:"restart"`
	// Offer is what clients can use where several servers are offered as one, and
	// at the addresses of servers that say nothing else: OfferAll (the default) or
	// OfferLegacy.
	Offer string `yaml:"offer" effect:"restart"`
	// Separator stands between a server's name and the names of its tools and
	// prompts where several servers are offered as one: 1 to 8 of the characters
	// that Prefix may have. Default "__".
	Separator string `yaml:"separator" effect:"next"`
	// Servers are the servers to publish, in file order; at least one.
	Servers []Server `yaml:"servers" effect:"live"`

	// Traces gets the spans of calls. Only a program can set it: the commands do so
	// when the environment variables of OpenTelemetry ask for it. Default: none.
	Traces trace.TracerProvider `yaml:"-"`
	// Warnings are remarks that keep nothing from working, as "file:line: text",
	// sorted by line.
	Warnings []string `yaml:"-"`

	// Flags are those of the command line that have set something in the place of the file,
	// by the keys. Only a program can set it. Default: none.
	Flags map[string]string `yaml:"-"`

	name    string                       `yaml:"-"` // of the file, as it was named
	off     []string                     `yaml:"-"` // servers that the file has switched off
	secrets map[string]string            `yaml:"-"` // values from the environment, with the references to show instead
	origins map[string]map[string]Origin `yaml:"-"` // where keys of servers are, by their names, and of the file under none
	files   map[string]string            `yaml:"-"` // what is in the files that servers' settings are made of, by path; see Digest
}

// Server is one server of the file. Exactly one of its pointer fields is set:
// the kind, which says how to reach it. A new kind is a new pointer field.
type Server struct {
	// Name is the server's part of the URL: lower-case letters, digits and '-'.
	Name string `yaml:"-"`
	// Adapter is a kind that only a program can set: a server of its own, such
	// as inprocess makes of one written with the official SDK.
	Adapter bridge.Adapter `yaml:"-"`
	// Stdio runs the server as a child process.
	Stdio *stdio.Config `yaml:"stdio" effect:"renew"`
	// HTTP reaches a remote server over Streamable HTTP, or HTTP+SSE if it speaks
	// only that.
	HTTP *remote.Config `yaml:"http" effect:"renew"`
	// SSE reaches a remote server over HTTP+SSE.
	SSE *remote.Config `yaml:"sse" effect:"renew"`
	// Rest makes a server of an HTTP API.
	Rest *rest.Config `yaml:"rest" effect:"renew"`
	// Era says in which era of the protocol the server is spoken to: EraAuto (the
	// default), EraLegacy or EraModern. HTTP+SSE is always legacy.
	Era string `yaml:"era" effect:"next"`
	// Revision is the newest revision that the server is offered, if it is a
	// legacy one; a modern one pins the modern era. Default: none, the newest that
	// both sides know.
	Revision string `yaml:"revision" effect:"next"`
	// Offer is what clients can use at the server's own address. Default: that of
	// the file.
	Offer string `yaml:"offer" effect:"next"`
	// Share says who uses one upstream connection together: ShareSession (the
	// default), SharePrincipal, ShareCall or ShareAll.
	Share string `yaml:"share" effect:"next"`
	// Place says which of several instances runs the server's child processes: PlaceHere
	// (the default), or PlaceWorkers.
	Place string `yaml:"place" effect:"next"`
	// Forward lists the headers of clients that reach the server: as headers, or
	// as environment variables of a child process. Default: none.
	Forward []bridge.Forward `yaml:"forward" effect:"next"`
	// Scopes are what tokens must have for calls of the server. Default: nothing.
	Scopes Scopes `yaml:"scopes" effect:"live"`
	// Identity has claims of the caller's token that the server is told, by the names of
	// headers, or of environment variables of a child process. Default: nothing.
	Identity map[string]string `yaml:"identity" effect:"renew"`
	// Prefix stands before the names of the server's tools and prompts where
	// several servers are offered as one: up to 40 letters, digits, '_', '.' and
	// '-'; empty means none. Default: the server's name and the separator.
	Prefix string `yaml:"prefix" effect:"next"`
	// Tools, Prompts and Resources choose and change what clients see of the
	// server. Default: everything, as it is.
	Tools     filter.Rules `yaml:"tools" effect:"live"`
	Prompts   filter.Rules `yaml:"prompts" effect:"live"`
	Resources filter.Rules `yaml:"resources" effect:"live"`
	// Validate checks the arguments of tool calls against the tools' input
	// schemas before the server gets them. Rest does so anyway. Default false.
	Validate bool `yaml:"validate" effect:"live"`
	// Cache, Breaker, Limits and Retry guard the server, and the others from it.
	Cache   cache.Options   `yaml:"cache" effect:"live"`
	Breaker breaker.Options `yaml:"breaker" effect:"live"`
	Limits  limits.Options  `yaml:"limits" effect:"live"`
	Retry   retry.Options   `yaml:"retry" effect:"live"`
	// Ping is how long a connection may be silent before the server is pinged; 0
	// means never, as does "off" in a file. Default: never.
	Ping time.Duration `yaml:"ping,off" effect:"live"`
	// Restart starts a failed server again at its next use. Default true.
	Restart bool `yaml:"restart" effect:"live"`
	// Timeout is how long a call may stay silent; progress resets it. Default 300s.
	Timeout time.Duration `yaml:"timeout" effect:"live"`
	// MaxTimeout is how long a call may take, progress or not. Default 1h.
	MaxTimeout time.Duration `yaml:"max_timeout" effect:"live"`
	// HandshakeTimeout bounds opening a connection to the server. Default 60s.
	HandshakeTimeout time.Duration `yaml:"handshake_timeout" effect:"next"`
	// IdleStop closes a connection that was unused for so long; 0 means never,
	// as does "off" in a file. Default: never with ShareSession, since the state
	// behind the connection is the client's; 10m otherwise.
	IdleStop time.Duration `yaml:"idle_stop,off" effect:"next"`
	// MaxChildren bounds this server's connections, which for stdio are child
	// processes. Default 256.
	MaxChildren int `yaml:"max_children" effect:"live"`
	// StartsPerMinute bounds the restarts of a lost connection within a minute.
	// Default 30.
	StartsPerMinute int `yaml:"starts_per_minute" effect:"live"`
	// RestartMaxPause bounds the pause before another try to open a connection
	// that could not be opened, or was lost before it had answered anything. At
	// least 1s. Default 1m.
	RestartMaxPause time.Duration `yaml:"restart_max_pause" effect:"live"`
}

// Values of Server.Era.
const (
	EraAuto   = string(conn.EraAuto)   // the era of the server is detected
	EraLegacy = string(conn.EraLegacy) // revisions with a handshake and sessions, to 2025-11-25
	EraModern = string(conn.EraModern) // revisions without, from 2026-07-28
)

// Values of Config.Offer and Server.Offer.
const (
	OfferAll    = string(gateway.OfferAll)    // all revisions
	OfferLegacy = string(gateway.OfferLegacy) // those with a handshake and sessions, to 2025-11-25
)

// Values of Server.Share.
const (
	ShareSession   = "session"   // one connection per session
	SharePrincipal = "principal" // one per principal
	ShareCall      = "call"      // one per call, closed after it
	ShareAll       = "all"       // one for everybody
)

// Default returns the settings of a file that sets nothing. It has no servers,
// which a file must have.
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
		Cluster:        Cluster{Role: cluster.RoleAll, KeyPrefix: "bridge", Lease: 6 * time.Second, StoreLost: StoreLostServe, Replay: ReplayOn},
	}
}

// DefaultServer returns the settings of a server that sets nothing but share,
// on which the default of IdleStop depends; an empty share means ShareSession.
// It has no kind yet.
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
