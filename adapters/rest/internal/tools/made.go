package tools

import (
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// Made is the result of one reading: a Set, and what is to be said about it.
type Made struct {
	*Set
	Document  *openapi.Document // nil without a document
	Reach     *wire.Reach       // nil if the settings are wrong
	Resources []*Resource
	Names     []string // of the tools among which Settings.Shows chooses
	Warnings  []openapi.Warning
	Lost      []*openapi.Operation // exposed but unusable operations
	Faults    toolset.Faults       // of the configuration
	Nowhere   error                // why no call can be made: the API has no server; nil otherwise

	api    wire.Options // for the document
	misuse error        // why the credentials do not fit the document, or nil
	tools  []*toolset.Tool
	all    []*toolset.Tool // including the tools that clients do not see
}

// warn adds a warning about a file.
func (m *Made) warn(file, text string) {
	m.Warnings = append(m.Warnings, openapi.Warning{File: file, Text: text})
}
