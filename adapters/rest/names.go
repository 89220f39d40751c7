package rest

import (
	"encoding/json"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/document"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/sign"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// These are the types of Config's fields, for programs that build one.
type (
	// Credential is the credential for a security scheme: Auth.Schemes.
	Credential = wire.Credential
	// Client gets tokens by OAuth 2.0: Credential.Client.
	Client = wire.Client
	// AWS signs requests for AWS: Credential.AWS.
	AWS = sign.AWS
	// Hook is a program or service that signs requests: Credential.Hook.
	Hook = sign.Hook
	// Rule changes the operations that it matches: Config.Rules.
	Rule = toolset.Rule
	// Match chooses operations: Rule.Match.
	Match = openapi.Match
	// Tool changes or adds one tool: Config.Tools.
	Tool = toolset.Entry
	// Arg is an argument of a tool: Tool.Args.
	Arg = toolset.Arg
	// ToolLimits bound the results of a tool: Tool.Limits.
	ToolLimits = toolset.ToolLimits
	// Limits bound the calls of an API: Config.Limits.
	Limits = wire.Limits
	// Bytes is a number of bytes: Limits and ToolLimits.
	Bytes = setting.Size
	// Fault is one fault in Rules or Tools: see Faults.
	Fault = toolset.Fault
	// Warning is a fault in a document that the bridge tolerates.
	Warning = openapi.Warning
	// Faults is an error with the faults of Rules and Tools.
	Faults = toolset.Faults
	// CatalogError is the error of an unusable catalogue from a webhook. The tools stay as they were.
	CatalogError = document.CatalogError
	// Explained says where each part of a tool comes from: Report.Explain.
	Explained = tools.Explained
	// Line is a part of a tool with its origin: Explained.Lines.
	Line = tools.Line
	// Kind is what a file or a URL contains.
	Kind = document.Kind
)

const (
	// OtherKind is none of the others.
	OtherKind = document.OtherKind
	// DocumentKind is an OpenAPI document.
	DocumentKind = document.DocumentKind
	// Configuration is a file of the bridge or of a desktop client.
	Configuration = document.Configuration
)

// Detect returns the kind of a file by its content. Missing files, programs and files that cannot be
// parsed are OtherKind. A file with a document's first key is DocumentKind even if it cannot be
// parsed.
func Detect(location string) (Kind, error) { return document.Detect(location) }

// AsResource is the Tool.As of a GET that is a resource.
const AsResource = toolset.AsResource

// MaxCatalog bounds a catalogue, in bytes.
const MaxCatalog = document.MaxCatalog

// RuleFaults returns the faults of rules that can be found without a document.
func RuleFaults(rules []Rule) Faults { return toolset.RuleFaults(rules) }

// ParseArg reads the short form of an argument's schema: a type, [type] for a list, or words
// separated by |. "= VALUE" at its end is the default.
func ParseArg(text string) (schema, def json.RawMessage, err error) { return toolset.ParseArg(text) }
