package tools

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// Settings say which tools an API has.
type Settings struct {
	// API says how the API is reached, with defaults in place of zero values and without what depends on its
	// document: Document, Schemas and Secrets are not set. Its Withheld are the headers that identify the caller.
	API      wire.Options
	Location string // path or URL of the document, for messages
	// Args change the parameters with their names in all operations of the document. Rules and Entries
	// win over Args, and Entries over Rules.
	Args     []toolset.Arg
	Rules    []toolset.Rule
	Entries  []toolset.Entry
	Expose   []string // see openapi.ParseRules; empty means all operations
	ReadOnly bool     // leaves out operations that may change something
	Mode     string   // ModeAuto, ModeTools or ModeSearch; empty means ModeAuto
	// FlattenBody makes members of bodies arguments of their own. StrictOutput keeps output schemas as the
	// document has them. Pick gives tools an argument with which models choose parts of answers.
	FlattenBody, StrictOutput, Pick bool

	Cache int // bytes of the cache for answers to GET; if it is 0, only answers of tools with a cache setting are cached
	// RetryPublished allows the bridge to repeat requests of tools that a catalogue declares harmless, even
	// with methods such as POST.
	RetryPublished bool
	Secrets        []string // further values to mask in everything that clients see

	// Prefix is the length of the prefix that tool names will get, in bytes. Names are cut so that both
	// together have at most 64 bytes.
	Prefix int
	// Shows reports whether clients may see the tool of that name. If it is nil, they may see all. Hidden
	// tools take no memory, and do not count for ModeAuto.
	Shows      func(name string) bool
	MaxMessage int // bounds a result, in bytes

	rules openapi.Rules // Expose
}

// These are the values of Settings.Mode.
const (
	ModeAuto   = "auto"   // ModeTools, unless the list is longer than AutoLimit without output schemas
	ModeTools  = "tools"  // all tools are listed
	ModeSearch = "search" // tools are found and not listed
)

// AutoLimit bounds the list of all tools that ModeAuto offers, in bytes. Models read the whole list at each
// turn.
const AutoLimit = 64 << 10

// eachEntry returns all entries and rules for tools.
func (s *Settings) eachEntry() []*toolset.Entry {
	var all []*toolset.Entry
	for i := range s.Entries {
		all = append(all, &s.Entries[i])
	}
	for i := range s.Rules {
		all = append(all, &s.Rules[i].Entry)
	}
	return all
}

// HasResources reports whether the configuration may make operations resources.
func (s *Settings) HasResources() bool {
	return slices.ContainsFunc(s.eachEntry(), func(e *toolset.Entry) bool { return e.As == toolset.AsResource })
}

// New returns settings that are ready for use. The error is a fault in s.Expose.
func New(s Settings) (*Settings, error) {
	var err error
	if s.rules, err = openapi.ParseRules(s.Expose); err != nil {
		return nil, fmt.Errorf("expose: %w", err)
	}
	return &s, nil
}

// file returns the name of the document in warnings.
func (s *Settings) file() string { return filepath.Base(s.Location) }
