package config

import (
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/results"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/front"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// The types of settings, under short names for programs that make a configuration in code.
type (
	// ServerSettings are the settings of a server that are not about its kind. They are embedded in Server, and Common in
	// Config.
	ServerSettings = gateway.ServerSettings
	Common         = gateway.Common
	// Listing and Lists are embedded in ServerSettings, and Listing in Common.
	Listing = gateway.Listing
	Lists   = filter.Lists
	// Stdio holds the settings to start and stop a child process: Server.Stdio.
	Stdio = stdio.Config
	// Remote holds the settings to reach a server over HTTP: Server.HTTP and Server.SSE.
	Remote = remote.Config
	// RemoteOAuth holds the settings to get tokens for a remote server. The next two types are parts of it.
	RemoteOAuth      = oauth.Settings
	RemoteClient     = oauth.Client
	RemoteAuthorizer = remote.Authorizer
	// Rules hide and change entries of lists: Server.Tools, Prompts and Resources.
	Rules = filter.Rules
	// Override changes the description of one tool, prompt or resource.
	Override = filter.Override
	// Argument changes one argument of a tool: Override.Args.
	Argument = arguments.Change
	// Cache holds the settings of the cache for lists: Server.Cache.
	Cache = cache.Options
	// Breaker says when a failing server gets no calls: Server.Breaker.
	Breaker = breaker.Options
	// Limits bound the calls to one server: Server.Limits.
	Limits = limits.Options
	// Rate is a number of calls per time.
	Rate = limits.Rate
	// PerPrincipal bounds what one principal uses of the bridge: Config.PerPrincipal.
	PerPrincipal = limits.PerPrincipal
	// Retry says which calls without an answer the bridge makes again: Server.Retry.
	Retry = retry.Options

	// Front makes the bridge the authorization server for clients: OAuth.Front.
	Front = front.Settings
	// Introspection holds the settings to ask an issuer about opaque tokens: OAuth.Introspection.
	Introspection = token.Introspection
	// OAuthClient holds the credentials of the bridge at an issuer.
	OAuthClient = token.Client

	// Results bound the results of tools: Config.Results and Server.Results. Callers get the beginning of a longer
	// result, and read the rest from the bridge.
	Results = results.Options

	// Size is a number of bytes.
	Size = setting.Size

	// Rest turns an HTTP API into a server: Server.Rest. The next types are parts of it.
	Rest           = rest.Config
	RestAuth       = rest.Auth
	RestCredential = rest.Credential
	RestClient     = rest.Client // a client of OAuth 2.0
	RestAWS        = rest.AWS
	RestHook       = rest.Hook
	RestCatalog    = rest.Catalog
	RestRule       = rest.Rule
	RestMatch      = rest.Match
	RestTool       = rest.Tool
	RestArg        = rest.Arg
	RestLimits     = rest.Limits
	RestToolLimits = rest.ToolLimits
)

// ParseSize parses a whole number of bytes, with an optional unit in upper or lower case. The units are B, KB, MB, GB
// (powers of 1000) and KiB, MiB, GiB (powers of 1024). The error does not show the text.
func ParseSize(text string) (Size, error) { return setting.ParseSize(text) }
