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
	// Stdio has the settings to start and stop a child process: Server.Stdio.
	Stdio = stdio.Config
	// Remote has the settings to reach a server over HTTP: Server.HTTP and Server.SSE.
	Remote = remote.Config
	// RemoteOAuth has the settings to get tokens for the server. The next types are its parts.
	RemoteOAuth      = oauth.Settings
	RemoteClient     = oauth.Client
	RemoteAuthorizer = remote.Authorizer
	// Rules filter and change lists for clients: Server.Tools, Prompts and Resources.
	Rules = filter.Rules
	// Override changes the description of one tool, prompt or resource.
	Override = filter.Override
	// Cache has the lifetimes of cached lists.
	Cache = cache.Options
	// Breaker sets when a failing server gets no calls.
	Breaker = breaker.Options
	// Limits bound the calls to one server.
	Limits = limits.Options
	// Rate is a number of events per time.
	Rate = limits.Rate
	// PerPrincipal bounds the use of the whole bridge by one principal.
	PerPrincipal = limits.PerPrincipal
	// Retry sets which calls without an answer are made again.
	Retry = retry.Options

	// Front makes the bridge the authorization server for clients: OAuth.Front.
	Front = front.Settings
	// Introspection has the settings to ask an issuer about tokens: OAuth.Introspection.
	Introspection = token.Introspection
	// OAuthClient holds the credentials of the bridge at an issuer.
	OAuthClient = token.Client

	// Rest turns an HTTP API into a server: Server.Rest. The next types are its parts.
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
