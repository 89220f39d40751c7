package gateway

import (
	"time"

	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/results"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// Share selects which sessions use one connection to a server.
type Share string

// The modes of sharing.
const (
	// ShareSession gives each session its own connection.
	ShareSession Share = "session"
	// SharePrincipal gives all sessions of a principal one connection, if their clients have the same revision and
	// capabilities.
	SharePrincipal Share = "principal"
	// ShareCall opens a connection for each request, and closes it after the answer.
	ShareCall Share = "call"
	// ShareAll gives all clients one connection. The bridge refuses the server's questions, since a question could
	// reach the wrong client.
	ShareAll Share = "all"
)

// Offer selects which revisions clients can use at an address of the bridge, whatever the server's revision is.
type Offer string

// The values of Offer.
const (
	OfferAll    Offer = "all"    // all that the bridge implements
	OfferLegacy Offer = "legacy" // revisions with a handshake and sessions, up to 2025-11-25
)

// ServerSettings are the settings of a server that an operator can write in a file. The tags hold their keys: see
// package config, which reads them.
type ServerSettings struct {
	// Share decides which callers share one connection to the server. Default: ShareSession.
	Share Share `yaml:"share" effect:"next"`
	// Offer decides which revisions clients can use at the server's own address. Default: the Offer for all servers.
	Offer Offer `yaml:"offer" effect:"next"`
	// Listing decides how the server's own address offers its tools. Without a mode, the adapter decides: see
	// bridge.OffersSearch.
	Listing
	// Prefix precedes the names of the server's tools and prompts in the aggregate: up to 40 letters, digits, '_', '.'
	// and '-'. Empty means none. A file has the default NAME and separator.
	Prefix string `yaml:"prefix" effect:"live"`
	// Lists hides and changes entries of the server's lists for clients. Default: clients see all entries, unchanged.
	filter.Lists
	// Validate makes the bridge check the arguments of tool calls against the tools' input schemas before the server
	// gets the calls. The adapter for HTTP APIs always checks them. Default false.
	Validate bool `yaml:"validate" effect:"live"`
	// Cache, Breaker, Limits and Retry protect the server from overload, and its callers from each other.
	Cache   cache.Options   `yaml:"cache" effect:"live"`
	Breaker breaker.Options `yaml:"breaker" effect:"live"`
	Limits  limits.Options  `yaml:"limits" effect:"live"`
	Retry   retry.Options   `yaml:"retry" effect:"live"`
	// Results bounds the results of the server's tools. Default: the bound for all servers.
	Results results.Options `yaml:"results" effect:"live"`
	// Ping is the time without a message from the server after which the bridge pings the server. Without an answer
	// within the same time, the connection counts as lost. 0 means never, as does "off" in a file. Default: never.
	Ping time.Duration `yaml:"ping,off" effect:"live"`
	// HandshakeTimeout bounds the time to open a connection to the server. Default 60s.
	HandshakeTimeout time.Duration `yaml:"handshake_timeout" effect:"next"`
	// MaxChildren bounds this server's connections, which for stdio are child processes. Default 256.
	MaxChildren int `yaml:"max_children" effect:"live"`
	// StartsPerMinute bounds how often within a minute the bridge opens lost connections again. After half of them, the
	// bridge spreads the rest evenly over the minute. Default 30.
	StartsPerMinute int `yaml:"starts_per_minute" effect:"live"`
	// RestartMaxPause bounds the growing pause before the bridge opens a connection again that failed to open, or was
	// lost before its first answer. The first pause is 1s, and each further pause is twice as long. At least 1s.
	// Default 1m.
	RestartMaxPause time.Duration `yaml:"restart_max_pause" effect:"live"`
}

// Common are the settings for all servers together that an operator can write in a file, and that Apply can change.
type Common struct {
	// SessionIdle is the time without a request, a call in flight and an open stream after which a session ends.
	// Default 30m.
	SessionIdle time.Duration `yaml:"session_idle" effect:"live"`
	// SessionLeft replaces SessionIdle for a session whose client has probably left: one with a child process of its
	// own whose client closed its event stream, and sent nothing since. Default 5m.
	SessionLeft time.Duration `yaml:"session_left" effect:"live"`
	// ListWait is how long a list of several servers waits for servers that are still starting. Many clients ask for the
	// list once, and give up after 30 s. Default 20s.
	ListWait time.Duration `yaml:"list_wait" effect:"live"`
	// PerPrincipal bounds what one principal uses of the bridge.
	PerPrincipal limits.PerPrincipal `yaml:"per_principal" effect:"live"`
	// Listing decides how the aggregate offers tools.
	Listing
	// Results bound the results of tools, for all servers without Results of their own. Default: no bound.
	Results results.Options `yaml:"results" effect:"live"`
	// ResultsMemory is the memory for whole results of which callers got a part. The bridge keeps them 30 minutes, and
	// drops the oldest first. One caller has at most a quarter. Default 256MiB.
	ResultsMemory setting.Size `yaml:"results_memory" effect:"live"`
}
