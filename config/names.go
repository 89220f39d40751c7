package config

import (
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/front"
)

// The types of settings, for programs that make a configuration in code.
type (
	// Stdio is how a child process is started, and stopped: Server.Stdio.
	Stdio = stdio.Config
	// Remote is how a server is reached over HTTP: Server.HTTP and Server.SSE.
	Remote = remote.Config
	// RemoteOAuth is how the bridge gets tokens for it. The next ones are its parts.
	RemoteOAuth      = oauth.Settings
	RemoteClient     = oauth.Client
	RemoteAuthorizer = remote.Authorizer
	// Rules choose and change what clients see: Server.Tools, Prompts and Resources.
	Rules = filter.Rules
	// Override changes how one tool, prompt or resource is described.
	Override = filter.Override
	// Cache says how long lists are kept.
	Cache = cache.Options
	// Breaker says when a server that fails gets no calls for a while.
	Breaker = breaker.Options
	// Limits bound the calls to one server.
	Limits = limits.Options
	// Rate is how often something may be done.
	Rate = limits.Rate
	// PerPrincipal bounds what one caller may have in the whole bridge.
	PerPrincipal = limits.PerPrincipal
	// Retry says which calls are made again when they had no answer.
	Retry = retry.Options

	// Front says how the bridge stands in for an identity provider: OAuth.Front.
	Front = front.Settings
	// Introspection says how to ask an issuer about tokens: OAuth.Introspection.
	Introspection = token.Introspection
	// OAuthClient is what the bridge is known by at an issuer.
	OAuthClient = token.Client

	// Rest makes a server of an HTTP API: Server.Rest. The next ones are its parts.
	Rest           = rest.Config
	RestAuth       = rest.Auth
	RestCredential = rest.Credential
	RestClient     = rest.Client // of OAuth 2.0
	RestAWS        = rest.AWS
	RestHook       = rest.Hook
	RestCatalog    = rest.Catalog
	RestRule       = rest.Rule
	RestMatch      = rest.Match
	RestTool       = rest.Tool
	RestArg        = rest.Arg
	RestLimits     = rest.Limits
	RestToolLimits = rest.ToolLimits
	RestBytes      = rest.Bytes
)
