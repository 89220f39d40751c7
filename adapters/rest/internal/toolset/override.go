package toolset

import (
	"cmp"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Override returns a tool of the document with the entry and the settings for parameters of all
// operations applied. For one argument, the entry replaces the settings in common.
func (e *Entry) Override(t *openapi.Tool, common Shared) (*Tool, Faults) {
	c := newChanges(t, e, common)
	out := e.described(t)
	var wrong Faults
	out.Settings, wrong = e.settings(t.Operation)
	faults := append(c.faults, wrong...)
	out.Args, out.Filled = append(c.shared, e.Args...), common.Filled
	out.Settings.Sets = out.Settings.Sets || slices.ContainsFunc(out.Args, func(a Arg) bool { return a.Value != nil })
	over, wrong := e.additions(c)
	if faults = append(faults, wrong...); len(c.all) == 0 && over == nil {
		return out, faults
	}
	if over != nil {
		out.Hidden = over.hidden
	}
	seen := out.Tool
	seen.InputSchema = withAdded(c.edits.Edit(over.without(t.InputSchema)), c.added())
	seen.Arguments = slices.DeleteFunc(slices.Clone(t.Arguments), func(one openapi.Argument) bool {
		return !c.shows(one.Name) || over.sets(one.Name)
	})
	call := *seen
	call.Arguments = t.Arguments
	over.equip(&call)
	out.Call = &call
	out.Prepare = func(given []byte) ([]byte, error) {
		edits, why := c.edits.Fill(given, nil)
		if why != "" {
			return nil, param.Refusal(why)
		}
		return over.fill(jsonrpc.Apply(given, edits))
	}
	return out, faults
}

// described returns a tool of the document with the entry's texts and hints, and without the output schema
// if that no longer describes the result.
func (e *Entry) described(t *openapi.Tool) *Tool {
	seen := *t
	seen.Name, seen.Title, seen.Description = cmp.Or(e.Name, t.Name), cmp.Or(e.Title, t.Title), cmp.Or(e.About, t.Description)
	seen.Annotations = annotations(t.Annotations, e.Writes)
	if e.Result != "" || e.Output != nil && !*e.Output {
		seen.OutputSchema, seen.Wrapped = nil, false
	}
	return &Tool{
		Tool:   &seen,
		Call:   &seen,
		Result: e.Result,
		Entry:  e,
	}
}

// withAdded returns the input schema with the added arguments.
func withAdded(schema []byte, added []*Arg) []byte {
	if len(added) == 0 {
		return schema
	}
	properties := []byte(gjson.GetBytes(schema, "properties").Raw)
	if len(properties) == 0 {
		properties = []byte("{}")
	}
	var required []string
	for _, one := range gjson.GetBytes(schema, "required").Array() {
		required = append(required, one.String())
	}
	for _, a := range added {
		properties = rawjson.Set(properties, a.Name, a.change().Described(a.Schema))
		if !a.Optional {
			required = append(required, a.Name)
		}
	}
	if schema = rawjson.Set(schema, "properties", properties); len(required) > 0 {
		schema = rawjson.Set(schema, "required", rawjson.List(required))
	}
	return schema
}
