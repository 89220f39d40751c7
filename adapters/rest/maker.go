package rest

import (
	"log/slog"
	"slices"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/calls"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/document"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
)

// maker makes editions of readings.
type maker struct {
	texts    *document.Reader
	settings *tools.Settings
	api      *calls.API
	log      *slog.Logger
	remarks  bool     // logs every fault of the document as a warning
	said     []string // warnings about the last catalogue; only Make uses them, and never twice at a time
}

var _ document.Maker = (*maker)(nil)

// Usable implements document.Maker.
func (m *maker) Usable() bool { return m.api.Ready() && m.api.Nowhere() == nil }

// Make implements document.Maker.
func (m *maker) Make(one *document.Reading, first bool, pushed []byte) (int, error) {
	text := one.Catalog
	if pushed != nil {
		text = pushed
	}
	made, err := m.settings.Make(one.Document, text)
	if err != nil && pushed != nil { // Renew returns this to the sender of the catalogue
		return 0, &CatalogError{Err: err}
	} else if err != nil {
		return 0, err
	}
	if first && len(made.Faults) > 0 && one.Whole() { // a text that was not read may have the operations that the settings name
		return 0, made.Faults
	}
	for _, f := range made.Faults {
		m.log.Warn("the configuration no longer fits the document", "what", f.String())
	}
	e, err := m.api.Edition(m.settings, made, first)
	if err != nil {
		return 0, err
	}
	m.texts.Accept(one)
	if made.Nowhere == nil { // Begin returns it as its error
		m.report(made)
	}
	if !m.api.Use(e) {
		return 0, document.ErrStopped
	}
	return len(made.Tools), nil
}

// report logs what was made.
func (m *maker) report(made *tools.Made) {
	var said []string
	for _, w := range made.Warnings {
		where, loud := "in the document", m.remarks
		if w.File == tools.PublishedFile {
			said = append(said, w.Text)
			where, loud = "in the catalogue", loud || !slices.Contains(m.said, w.Text)
		}
		if loud {
			m.log.Warn(where, "warning", w.String())
		} else {
			m.log.Debug(where, "warning", w.String())
		}
	}
	m.said = said
	m.log.Info("tools made", "tools", len(made.Tools), "bytes", made.Size, "mode", made.Mode, "output_schemas_left_out", made.OutputsOmitted, "lost", len(made.Lost), "warnings", len(made.Warnings))
	if len(made.Lost) > 0 {
		m.log.Warn("operations of the document cannot be tools: mcp-bridge check says why; mend the document, or leave them out by expose", "operations", lostKeys(made.Lost))
	}
	if made.Mode == ModeTools && made.Size > tools.AutoLimit {
		m.log.Warn("the list of tools is long: models read all of it at each turn; see mode and expose", "bytes", made.Size)
	}
}
