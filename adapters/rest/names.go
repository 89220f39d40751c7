package rest

import (
	"encoding/json"

	publication "github.com/mcp-bridge/bridge/adapters/rest/internal/catalog"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/sign"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// The types of parts of Config, for programs that make one in code.
type (
	// Credential is what a request shows for a security scheme: Auth.Schemes.
	Credential = wire.Credential
	// Client is how the bridge gets tokens by OAuth 2.0: Credential.OAuth2.
	Client = wire.Client
	// AWS signs requests as AWS asks for it: Credential.AWS.
	AWS = sign.AWS
	// Hook is a program that makes headers: Credential.Hook.
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
	// Bytes is how much of a body is read: ToolLimits.
	Bytes = toolset.Bytes
	// Fault is one of Faults.
	Fault = toolset.Fault
	// Warning is something odd in a document, which is passed over.
	Warning = openapi.Warning
	// Faults are the faults of Rules and Tools, each with its line.
	Faults = toolset.Faults
)

// AsResource is Tool.As of a GET that is a resource.
const AsResource = toolset.AsResource

// MaxCatalog bounds a catalogue, in bytes.
const MaxCatalog = publication.MaxBytes

// RuleFaults returns the faults of rules that show without a document.
func RuleFaults(rules []Rule) Faults { return toolset.RuleFaults(rules) }

// ParseArg parses the short form of an argument's schema: a type, [type] for a list, or
// words with | between them; "= VALUE" behind it is the default.
func ParseArg(text string) (schema, def json.RawMessage, err error) { return toolset.ParseArg(text) }
