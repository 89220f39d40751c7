package tools

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

// dropUnserved drops operations whose own servers have no address.
func (m *Made) dropUnserved() {
	if m.Reach == nil {
		return
	}
	m.tools = slices.DeleteFunc(m.tools, func(t *toolset.Tool) bool {
		op := t.Operation
		err := m.Reach.Unserved(op)
		if err != nil {
			m.Lost = append(m.Lost, op)
			m.Warnings = append(m.Warnings, openapi.Warning{
				File: op.File,
				Line: op.Line,
				Text: fmt.Sprintf("%s is left out: %v", op.Key(), err),
			})
		}
		return err != nil
	})
}

// warn warns of credentials and variables that are missing or have no effect.
func (s *Settings) warn(m *Made) {
	if text := s.wanted(m); text != "" {
		m.warn(s.file(), text)
	}
	s.warnIdle(m)
}

// wanted returns a warning that operations need credentials, if nothing in the configuration could be
// a credential.
func (s *Settings) wanted(m *Made) string {
	if m.Reach == nil || m.Document == nil || s.API.Default != nil || len(s.API.Credentials)+len(s.API.Headers)+len(s.API.Forward) > 0 || s.API.HTTP.CertFile != "" {
		return ""
	}
	way, n := "", 0
	for _, t := range m.all {
		if one := m.Reach.Wanted(t.Operation); one != "" {
			way = cmp.Or(way, one)
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d operations need credentials, and none are set: add %s", n, len(m.all), way)
}

// warnIdle warns of configured credentials that no operation gets. Without a document, every tool
// gets one: see Made.secure.
func (s *Settings) warnIdle(m *Made) {
	if m.Reach == nil || m.Document == nil || len(m.all) == 0 {
		return
	}
	var ops []*openapi.Operation
	for _, t := range m.all {
		ops = append(ops, t.Operation)
	}
	for _, name := range m.Reach.Idle(ops) {
		text := "auth: no operation gets the credential: none needs one"
		if name != "" {
			text = fmt.Sprintf("auth: %s: no operation gets the credential: none needs that scheme, or each gets another one first", name)
		}
		m.warn(s.file(), text)
	}
	s.warnVariables(m, ops)
}

// warnVariables warns of configured variables that are in no address of the API.
func (s *Settings) warnVariables(m *Made, ops []*openapi.Operation) {
	var used strings.Builder // the addresses; their variables need not be declared
	note := func(servers []openapi.Server) {
		for _, s := range servers[:min(1, len(servers))] { // only the first server gets calls
			used.WriteString(s.URL)
		}
	}
	note(m.Document.Servers)
	for _, op := range ops {
		if op != nil {
			note(op.Servers)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.API.Variables)) {
		text := "variables: " + name + ": the addresses of the document have no such variable"
		switch {
		case s.API.BaseURL != "":
			text = "variables: " + name + " has no effect: base_url says where the API is"
		case strings.Contains(used.String(), "{"+name+"}"):
			continue
		}
		m.warn(s.file(), text)
	}
}
