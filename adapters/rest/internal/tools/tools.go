// Package tools makes the tools of an API: of the operations of its document, of the configuration, and
// of a catalogue.
//
// In go the document and the text of the catalogue; out come, as [Made], the tools and the resources with
// their lists for clients, the faults of the configuration, and the warnings. The package does no I/O, and
// makes no calls: a [Set] belongs to package calls. Package toolset, below, makes one tool of one operation
// and the entries about it; this package decides which entries meet which operations.
//
// The package is read in this order: settings and made (what goes in and comes out), masking, credentials,
// combine (what the configuration changes and adds), bound and published (what a catalogue adds), resource,
// list, warnings, tools (all of it in turn), explain (where each part of a tool comes from).
package tools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/sanitize"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Make makes the tools of a document, which may be nil, and of the text of a catalogue, which may be nil.
// An error is one of the catalogue.
func (s *Settings) Make(doc *openapi.Document, catalogue []byte) (*Made, error) {
	m := &Made{Document: doc}
	var imported []*openapi.Tool
	if doc != nil {
		m.Lost = doc.LostOf(s.rules)
		imported, m.Warnings = openapi.Tools(doc, openapi.Options{
			Rename:       func(op *openapi.Operation, name string) string { return toolset.Rename(s.Rules, op, name) },
			NameLimit:    64 - s.Prefix,
			Expose:       s.rules,
			FlattenBody:  s.FlattenBody,
			StrictOutput: s.StrictOutput,
			Resources:    s.HasResources(),
			Withheld:     s.API.Withheld,
		})
		m.Warnings = append(slices.Clone(doc.Warnings), m.Warnings...)
	}
	s.place(m)
	s.combine(m, imported)
	m.dropUnserved()
	if doc != nil {
		s.checkExposed(m)
	}
	if err := s.publish(m, catalogue); err != nil {
		return nil, err
	}
	m.all = slices.Clone(m.tools)
	s.warn(m)
	s.setMaskingAndCache(m.all)
	s.takeResources(m)
	s.choose(m)
	m.Nowhere = s.nowhere(m)
	m.Set = s.set(m)
	return m, nil
}

// CheckCatalog returns the fault in the text of a catalogue, as far as it is known without a document.
func (s *Settings) CheckCatalog(text []byte) error {
	m := &Made{}
	s.place(m)
	return s.publish(m, text)
}

// checkExposed reports rules of Settings.Expose that exclude nothing.
func (s *Settings) checkExposed(m *Made) {
	for _, f := range toolset.ExposeFaults(m.Document, s.rules) {
		if address.IsHTTP(s.Location) { // the owner of the document may remove operations at any time
			m.warn(s.file(), f.String())
		} else {
			m.Faults = append(m.Faults, f)
		}
	}
}

// choose leaves the tools that clients may see.
func (s *Settings) choose(m *Made) {
	if s.ReadOnly {
		m.tools = slices.DeleteFunc(m.tools, func(t *toolset.Tool) bool { return !t.Reads() })
	}
	for _, t := range m.tools {
		m.Names = append(m.Names, t.Name)
	}
	if s.Shows != nil {
		m.tools = slices.DeleteFunc(m.tools, func(t *toolset.Tool) bool { return !s.Shows(t.Name) })
	}
}

// nowhere returns the reason why no tool can be called, if neither the document nor BaseURL names a
// server, and otherwise nil.
func (s *Settings) nowhere(m *Made) error {
	if m.Reach == nil || len(m.all) == 0 {
		return nil
	}
	if why := m.Reach.Nowhere(); why != nil {
		return fmt.Errorf("openapi is %q, which %w: add base_url: URL", s.Location, why)
	}
	return nil
}

// maxAbout bounds the part of a document's description that becomes instructions, in characters.
const maxAbout = 2000

// set returns the tools and resources that clients see, with the server's info and instructions.
func (s *Settings) set(m *Made) *Set {
	if s.Pick {
		for _, t := range m.tools {
			t.OfferPick()
		}
	}
	name := s.API.Name
	title, version := name, "1"
	out := newSet(m.tools, s.Mode)
	if m.Document != nil {
		version = cmp.Or(m.Document.Version, version)
		title = cmp.Or(m.Document.Title, title)
		if text := strings.TrimSpace(m.Document.Description); text != "" {
			out.About = sanitize.Short(text, maxAbout)
		}
	}
	out.listResources(m.Resources, name)
	out.Info = gjson.AppendJSONString([]byte(`{"name":`), name)
	if title != name {
		out.Info = gjson.AppendJSONString(append(out.Info, `,"title":`...), title)
	}
	out.Info = append(gjson.AppendJSONString(append(out.Info, `,"version":`...), version), '}')
	return out
}

// Budget returns the budget for the sources of the API.
func (s *Settings) Budget() *wire.Budget {
	o := s.API
	o.CacheBytes = s.cacheBytes()
	return wire.NewBudget(&o)
}

// Source returns the source that calls the API. schemas and budget may be nil.
func (s *Settings) Source(m *Made, schemas *validate.Cache, budget *wire.Budget) (*wire.Source, error) {
	if m.misuse != nil {
		return nil, m.misuse
	}
	o := m.api
	o.Budget, o.Schemas, o.Secrets = budget, schemas, append(s.secrets(m.all), s.Secrets...)
	return wire.New(o)
}
