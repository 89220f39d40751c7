package tools

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// combine applies the configuration to the tools imported from the document, and adds the
// configuration's own tools. A fault in an entry affects only that entry.
func (s *Settings) combine(m *Made, imported []*openapi.Tool) {
	var faults toolset.Faults
	entries := map[*openapi.Operation]*toolset.Entry{}
	var added []*toolset.Tool
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.Request != "" {
			t, wrong := e.Build()
			if faults = append(faults, wrong...); t != nil {
				m.secure(t.Operation)
				added = append(added, t)
			}
			continue
		}
		op, why := operationOf(m.Document, e.Key)
		switch {
		case op == nil:
			faults = append(faults, e.Fault("%s", why))
		case entries[op] != nil:
			faults = append(faults, e.Fault("is the same operation as %s, on line %d", entries[op].Key, entries[op].Line))
		default:
			entries[op] = e
		}
	}
	var tools []*toolset.Tool
	common, rules := toolset.NewCommon(s.Args), toolset.NewRuleset(s.Rules)
	for _, t := range imported {
		e := entries[t.Operation]
		delete(entries, t.Operation)
		shared := common.Of(t, m.Reach)
		e = rules.Apply(t, e, &shared)
		if e == nil && shared.Empty() {
			tools = append(tools, &toolset.Tool{Tool: t, Call: t})
			continue
		}
		said := e
		if e == nil {
			e = &toolset.Entry{}
		}
		if e.Off {
			continue
		}
		one, wrong := e.Override(t, shared)
		faults = append(faults, common.Unreported(wrong)...)
		if len(wrong) > 0 && (e.Confines() || shared.Confines()) {
			continue // without its entry, the tool could do what the entry forbids
		}
		one.Entry = said
		tools = append(tools, one)
	}
	faults = append(faults, common.Unused()...)
	faults = append(faults, rules.Unused(m.Document)...)
	left := slices.Collect(maps.Values(entries))
	slices.SortFunc(left, func(e, b *toolset.Entry) int { return cmp.Compare(e.Line, b.Line) })
	for _, e := range left {
		if !e.Off {
			faults = append(faults, e.Fault("has no effect: expose or the document hides the operation"))
		}
	}
	tools = append(tools, added...)
	names := map[string]*toolset.Tool{}
	m.tools = slices.DeleteFunc(tools, func(t *toolset.Tool) bool {
		if other := names[t.Name]; other != nil {
			faults = append(faults, s.sameName(t, other))
			return true
		}
		names[t.Name] = t
		return false
	})
	m.Faults = faults
}

// sameName returns the fault that t has the same name as another tool, in the entry of t if the
// configuration has one.
func (s *Settings) sameName(t, other *toolset.Tool) toolset.Fault {
	for i := range s.Entries {
		if e := &s.Entries[i]; e.Shown() == t.Name {
			return e.Fault("%[2]s %[3]s also has the name %[1]s: choose another one", t.Name, other.Operation.Method, other.Operation.Path)
		}
	}
	return toolset.Fault{Key: t.Name + ": ", Text: "two tools have this name"}
}

// operationOf returns the operation of the document that a key of Settings.Entries names, or why there is none.
// doc may be nil.
func operationOf(doc *openapi.Document, key string) (op *openapi.Operation, why string) {
	if doc == nil {
		return nil, "has no request, and the server has no document: set request, or openapi for the server"
	}
	var known []string
	for _, op := range doc.Operations {
		if op.ID == key || op.Key() == key {
			return op, ""
		}
		if strings.Contains(key, " ") {
			known = append(known, op.Key())
		} else if op.ID != "" {
			known = append(known, op.ID)
		}
	}
	why = "the document has no such operation, and a tool of your own needs a request"
	if near := validate.Nearest(key, known); near != "" {
		why += ": did you mean " + strconv.Quote(near) + "?"
	}
	return nil, why
}
