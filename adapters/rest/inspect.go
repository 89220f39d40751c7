package rest

import (
	"cmp"
	"context"
	"log/slog"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/document"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/internal/address"
)

// Report describes an API before it is used.
type Report struct {
	// Tools is the number of tools, and Size the bytes of a list of all tools.
	Tools, Size int
	// Names are the names among which Options.Shows chooses. They are nil if not all are known.
	Names          []string
	Resources      int    // operations that are resources instead of tools
	OutputsOmitted int    // bytes of output schemas omitted to shorten the list
	Mode           string // ModeTools or ModeSearch
	// Lost are exposed operations that cannot be tools, as METHOD path, or as a path whose operations
	// are unknown. Warnings say why.
	Lost     []string
	Empty    bool // the document has no operations
	Warnings []openapi.Warning
	Unread   bool // the document is at a URL, and was not read
	// Advice, for an Unread document, says which settings it may need; it may be empty.
	Advice string
	// CatalogUnread says that the catalogue was not read: it is at a URL, its file does not exist
	// yet, or a webhook sends it.
	CatalogUnread bool

	settings *tools.Settings
	made     *tools.Made
}

// Inspect reports the tools of a document that is a file. It makes no connection, and so does not
// read a URL. If entries of the configuration have faults, the error is of type Faults.
func (c *Config) Inspect(ctx context.Context, name string, o Options) (*Report, error) {
	if address.IsHTTP(c.OpenAPI) {
		_, err := document.ReadOverlays(c.Overlays)
		report := &Report{Unread: true}
		if c.BaseURL == "" && len(c.origins()) == 0 {
			report.Advice = "; if it is on the internet, servers that it names in a private network or on this machine need base_url or trusted"
		}
		return report, err
	}
	elsewhere := c.Catalog.exists() && (c.Catalog.File == "" || c.Catalog.missing())
	waited := ""
	if elsewhere {
		waited = c.Catalog.File
		known := *c
		known.Catalog = Catalog{}
		c = &known
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s, err := c.settings(name, &o)
	if err != nil {
		return nil, err
	}
	one, err := document.Offline(c.documents(o.Log)).Read(ctx, true)
	if err != nil {
		return nil, err
	}
	m, err := s.Make(one.Document, one.Catalog)
	if err != nil {
		return nil, err
	}
	if len(m.Faults) > 0 {
		return nil, m.Faults
	}
	if m.Nowhere != nil {
		return nil, m.Nowhere
	}
	source, err := s.Source(m, nil, nil)
	if err != nil {
		return nil, err
	}
	source.Close()
	if waited != "" {
		m.Warnings = append(m.Warnings, openapi.Warning{File: tools.PublishedFile, Text: "mcp-bridge waits for " + waited + ", which does not exist yet"})
	}
	report := &Report{
		Tools:          len(m.Tools),
		Size:           m.Size,
		OutputsOmitted: m.OutputsOmitted,
		Mode:           m.Mode,
		Warnings:       m.Warnings,
		CatalogUnread:  elsewhere,
		Resources:      len(m.Resources),
		Lost:           lostKeys(m.Lost),
		Empty:          one.Empty(),
		settings:       s,
		made:           m,
	}
	if !elsewhere {
		report.Names = m.Names
	}
	return report, nil
}

// Explain says where each part of the selected tools comes from. match selects tools by the names
// that clients see, by keys of the configuration, or by operation IDs. file is the path of the
// configuration, and redact masks secrets in values. If the document was not read, there are no
// tools.
func (r *Report) Explain(file string, match func(name string) bool, redact func(string) string) []Explained {
	if r.Unread {
		return nil
	}
	return r.settings.Explain(r.made, file, match, redact)
}

// DetectURL returns the kind of the URL in c.OpenAPI. It reads the URL only if the path looks like
// that of a document, since an MCP server would take the request for that of a client.
func (c *Config) DetectURL(ctx context.Context) (Kind, error) {
	return document.DetectURL(ctx, c.documents(slog.New(slog.DiscardHandler)))
}

// lostKeys returns the keys of lost operations.
func lostKeys(lost []*openapi.Operation) []string {
	var all []string
	for _, op := range lost {
		all = append(all, strings.TrimSpace(op.Key()))
	}
	return all
}
