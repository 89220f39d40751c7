package rest

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// catalog holds the tools and resources of an edition, and their lists for clients. A finished
// catalog does not change.
type catalog struct {
	tools          []*toolset.Tool
	byName         map[string]*toolset.Tool
	mode           string
	size           int    // bytes of a list of all tools, without omitted output schemas
	outputsOmitted int    // bytes of output schemas omitted from the list
	items          []item // of tools/list
	about          string // the server's instructions
	info           []byte // the server's serverInfo, as JSON

	resources        []*resource // in the order in which resourceAt compares them with a URI
	plain, templates []byte      // results of resources/list and resources/templates/list
}

// item is a tool in tools/list, without its JSON: thousands of them would take as much memory again as their schemas.
type item struct {
	t    *toolset.Tool
	size int    // of the JSON, in bytes
	sum  uint64 // hash of the JSON
}

// itemSeed is the seed of all sums.
var itemSeed = maphash.MakeSeed()

// keyRequest is the key in a tool's _meta under which the tool's HTTP request is shown.
const keyRequest = "mcp-bridge/request"

// newCatalog returns the catalog of an API's tools. In ModeAuto, if only a list without output
// schemas fits within autoLimit, it omits these, which models do not read. If even that list is too
// long, the mode is ModeSearch.
func newCatalog(tools []*toolset.Tool, mode string) *catalog {
	c := &catalog{
		tools:  tools,
		byName: map[string]*toolset.Tool{},
		mode:   mode,
	}
	var scratch []byte
	outputs := 0
	for _, t := range tools {
		if t.Call != t.Tool {
			call := *t.Call
			call.InputSchema = t.InputSchema
			t.Call = &call
		}
		scratch = appendEntry(scratch[:0], t)
		c.size += len(scratch) + 1
		c.byName[t.Name] = t
		if t.OutputSchema != nil {
			outputs += len(keyOutput) + len(t.OutputSchema)
		}
	}
	if c.mode == "" || c.mode == ModeAuto {
		switch c.mode = ModeTools; {
		case c.size <= autoLimit:
		case c.size-outputs > autoLimit:
			c.mode = ModeSearch
		default:
			c.outputsOmitted, c.size = outputs, c.size-outputs
			for _, t := range tools {
				t.OutputOmitted = t.OutputSchema != nil
				t.LeaveOutput()
			}
		}
	}
	for _, t := range tools {
		scratch = appendEntry(scratch[:0], t)
		c.items = append(c.items, item{t, len(scratch), maphash.Bytes(itemSeed, scratch)})
	}
	return c
}

const keyOutput = `,"outputSchema":`

// appendEntry appends the JSON of a tool for tools/list, on one line.
func appendEntry(dst []byte, t *toolset.Tool) []byte {
	begin := len(dst)
	out := gjson.AppendJSONString(append(dst, `{"name":`...), t.Name)
	if t.Title != "" {
		out = gjson.AppendJSONString(append(out, `,"title":`...), t.Title)
	}
	out = gjson.AppendJSONString(append(out, `,"description":`...), t.Description)
	out = append(append(out, `,"inputSchema":`...), t.InputSchema...)
	if t.OutputSchema != nil {
		out = append(append(out, keyOutput...), t.OutputSchema...)
	}
	a := t.Annotations
	out = fmt.Appendf(out, `,"annotations":{"readOnlyHint":%t,"destructiveHint":%t,"idempotentHint":%t,"openWorldHint":%t}`, a.ReadOnly, a.Destructive, a.Idempotent, a.OpenWorld)
	out = gjson.AppendJSONString(append(out, `,"_meta":{"`+keyRequest+`":`...), t.Request())
	out = append(out, "}}"...)
	oneLine(out[begin:])
	return out
}

// oneLine replaces the line breaks of JSON by blanks, in place. Valid JSON has line breaks only
// between tokens.
func oneLine(b []byte) []byte {
	for _, c := range []byte("\n\r") {
		for at := b; ; {
			i := bytes.IndexByte(at, c)
			if i < 0 {
				break
			}
			at[i], at = ' ', at[i+1:]
		}
	}
	return b
}

// pageSize bounds a page of tools/list, in bytes. A page has at least one tool, even if that tool is
// larger.
const pageSize = 512 << 10

// page returns the result of tools/list. An empty cursor means the first page. Any other cursor
// encodes the name of the last tool of the page before, and so stays valid when the list changes.
// page reports false if the list does not have that tool.
func (c *catalog) page(cursor string) ([]byte, bool) {
	from := 0
	if cursor != "" {
		name, err := base64.RawURLEncoding.DecodeString(cursor)
		i := slices.IndexFunc(c.items, func(it item) bool { return it.t.Name == string(name) })
		if err != nil || i < 0 {
			return nil, false
		}
		from = i + 1
	}
	out := []byte(`{"tools":[`)
	for i := range c.items[from:] {
		it := &c.items[from+i]
		if i > 0 {
			if len(out)+it.size > pageSize {
				next := base64.RawURLEncoding.EncodeToString([]byte(c.items[from+i-1].t.Name))
				return append(out, `],"nextCursor":"`+next+`"}`...), true
			}
			out = append(out, ',')
		}
		out = appendEntry(out, it.t)
	}
	return append(out, `]}`...), true
}

// sameResources reports whether clients see the same resources in both catalogs.
func (c *catalog) sameResources(other *catalog) bool {
	return bytes.Equal(c.plain, other.plain) && bytes.Equal(c.templates, other.templates)
}

// same reports whether clients see the same tools in both catalogs.
func (c *catalog) same(other *catalog) bool {
	return slices.EqualFunc(c.items, other.items, func(i, b item) bool { return i.size == b.size && i.sum == b.sum })
}

// combine applies the configuration to the tools imported from a document, and adds the
// configuration's own tools. doc may be nil. A fault in an entry affects only that entry.
func (c *Config) combine(doc *openapi.Document, imported []*openapi.Tool, reach *wire.Reach) ([]*toolset.Tool, toolset.Faults) {
	var faults toolset.Faults
	entries := map[*openapi.Operation]*toolset.Entry{}
	var added []*toolset.Tool
	auth, err := c.Auth.forDocument(doc)
	if err != nil {
		auth = c.Auth // newSource reports err
	}
	for i := range c.Tools {
		e := &c.Tools[i]
		if e.Request != "" {
			t, wrong := e.Build()
			if faults = append(faults, wrong...); t != nil {
				auth.secure(t.Operation)
				added = append(added, t)
			}
			continue
		}
		op, why := operationOf(doc, e.Key)
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
	common, rules := toolset.NewCommon(c.Args), toolset.NewRuleset(c.Rules)
	for _, t := range imported {
		e := entries[t.Operation]
		delete(entries, t.Operation)
		shared := common.Of(t, reach)
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
	faults = append(faults, rules.Unused(doc)...)
	left := slices.Collect(maps.Values(entries))
	slices.SortFunc(left, func(e, b *toolset.Entry) int { return cmp.Compare(e.Line, b.Line) })
	for _, e := range left {
		if !e.Off {
			faults = append(faults, e.Fault("has no effect: expose or the document hides the operation"))
		}
	}
	tools = append(tools, added...)
	names := map[string]*toolset.Tool{}
	return slices.DeleteFunc(tools, func(t *toolset.Tool) bool {
		if other := names[t.Name]; other != nil {
			faults = append(faults, c.sameName(t, other))
			return true
		}
		names[t.Name] = t
		return false
	}), faults
}

// sameName returns the fault that t has the same name as another tool, in the entry of t if the
// configuration has one.
func (c *Config) sameName(t, other *toolset.Tool) toolset.Fault {
	for i := range c.Tools {
		if e := &c.Tools[i]; e.Shown() == t.Name {
			return e.Fault("%[2]s %[3]s also has the name %[1]s: choose another one", t.Name, other.Operation.Method, other.Operation.Path)
		}
	}
	return toolset.Fault{Key: t.Name + ": ", Text: "two tools have this name"}
}

// operationOf returns the operation of the document that a key of Config.Tools names, or why there is none.
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

// secure lets an operation of the configuration use the credentials of the first scheme by name, or
// else the default.
func (a Auth) secure(op *openapi.Operation) {
	for _, name := range slices.Sorted(maps.Keys(a.Schemes)) {
		op.Security = append(op.Security, openapi.Requirement{{Name: name}})
	}
	// No scheme has an empty name, and an operation whose needs no scheme meets gets the default.
	op.Security = append(op.Security, openapi.Requirement{{Name: ""}})
}
