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

	"github.com/mcp-bridge/bridge/adapters/rest/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/wire"
	"github.com/mcp-bridge/bridge/bridge/validate"
)

// catalog is what there is to call, and what of it is listed. It does not
// change.
type catalog struct {
	tools  []*tool
	byName map[string]*tool
	mode   string
	size   int    // of the list if all tools were in it
	items  []item // of tools/list
	finder *finder
	about  string // instructions
	info   []byte // serverInfo

	resources        []*resource // those to be looked at first come first
	plain, templates []byte      // results of resources/list and resources/templates/list
}

// item is one of the tools that are listed. It is written when it is asked for:
// thousands of them would take as much memory again as their schemas.
type item struct {
	name string
	t    *tool
	raw  []byte // in the place of t
	size int
	sum  uint64 // tells it from others
}

// itemSeed is of all sums.
var itemSeed = maphash.MakeSeed()

// itemOf returns the item of a tool that is written as raw.
func itemOf(t *tool, raw []byte) item {
	return item{name: t.Name, t: t, size: len(raw), sum: maphash.Bytes(itemSeed, raw)}
}

// append appends the item as it stands in a list.
func (it *item) append(dst []byte) []byte {
	if it.t == nil {
		return append(dst, it.raw...)
	}
	return it.t.appendEntry(dst)
}

// keyRequest is where in _meta of a tool its request stands.
const keyRequest = "mcp-bridge/request"

// newCatalog lists tools as mode says.
func newCatalog(tools []*tool, mode string) *catalog {
	c := &catalog{tools: tools, byName: map[string]*tool{}, mode: mode}
	var all []item
	var scratch []byte
	for _, t := range tools {
		if t.call != t.Tool {
			call := *t.call
			call.InputSchema = t.InputSchema
			t.call = &call
		}
		scratch = t.appendEntry(scratch[:0])
		c.size += len(scratch) + 1
		c.byName[t.Name] = t
		if mode == ModeTools || mode != ModeSearch && c.size <= autoLimit {
			all = append(all, itemOf(t, scratch))
		}
	}
	if c.mode == "" || c.mode == ModeAuto {
		c.mode = ModeTools
		if c.size > autoLimit {
			c.mode = ModeSearch
		}
	}
	if c.mode == ModeTools {
		c.items = all
		return c
	}
	c.finder = newFinder(tools)
	c.items = searchItems(len(tools))
	for _, t := range tools {
		if t.said != nil && !isSearch(t.Name) {
			scratch = t.appendEntry(scratch[:0])
			c.items = append(c.items, itemOf(t, scratch))
		}
	}
	return c
}

// appendEntry appends the tool as it stands in a list.
func (t *tool) appendEntry(dst []byte) []byte {
	begin := len(dst)
	out := gjson.AppendJSONString(append(dst, `{"name":`...), t.Name)
	if t.Title != "" {
		out = gjson.AppendJSONString(append(out, `,"title":`...), t.Title)
	}
	out = gjson.AppendJSONString(append(out, `,"description":`...), t.Description)
	out = append(append(out, `,"inputSchema":`...), t.InputSchema...)
	if t.OutputSchema != nil {
		out = append(append(out, `,"outputSchema":`...), t.OutputSchema...)
	}
	a := t.Annotations
	out = fmt.Appendf(out, `,"annotations":{"readOnlyHint":%t,"destructiveHint":%t,"idempotentHint":%t,"openWorldHint":%t}`, a.ReadOnly, a.Destructive, a.Idempotent, a.OpenWorld)
	out = gjson.AppendJSONString(append(out, `,"_meta":{"`+keyRequest+`":`...), t.request())
	out = append(out, "}}"...)
	oneLine(out[begin:])
	return out
}

// oneLine takes line breaks, which stand only between tokens, out of JSON.
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

// pageSize is how many bytes of tools a page has, at least one tool.
const pageSize = 512 << 10

// page returns the result of tools/list. The cursor is the name of the last
// tool that was listed, so that it holds when the list changes. It reports
// false when there is no such tool.
func (c *catalog) page(cursor string) ([]byte, bool) {
	from := 0
	if cursor != "" {
		name, err := base64.RawURLEncoding.DecodeString(cursor)
		i := slices.IndexFunc(c.items, func(it item) bool { return it.name == string(name) })
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
				next := base64.RawURLEncoding.EncodeToString([]byte(c.items[from+i-1].name))
				return append(out, `],"nextCursor":"`+next+`"}`...), true
			}
			out = append(out, ',')
		}
		out = it.append(out)
	}
	return append(out, `]}`...), true
}

// sameResources reports whether clients see the same resources in both.
func (c *catalog) sameResources(other *catalog) bool {
	return bytes.Equal(c.plain, other.plain) && bytes.Equal(c.templates, other.templates)
}

// same reports whether clients see the same tools in both.
func (c *catalog) same(other *catalog) bool {
	return slices.EqualFunc(c.items, other.items, func(a, b item) bool { return a.size == b.size && a.sum == b.sum })
}

// combine lays the configuration over the tools of a document, of which there
// may be none. What is wrong with the configuration costs the entry that it is
// in.
func (c *Config) combine(doc *openapi.Document, imported []*openapi.Tool, reach *wire.Reach) ([]*tool, Faults) {
	var faults Faults
	entries := map[*openapi.Operation]*Tool{}
	var added []*tool
	auth, err := c.Auth.of(doc)
	if err != nil {
		auth = c.Auth // told when the way is made
	}
	for i := range c.Tools {
		e := &c.Tools[i]
		if e.Request != "" {
			t, wrong := e.build()
			if faults = append(faults, wrong...); t != nil {
				auth.secure(t.Operation)
				added = append(added, t)
			}
			continue
		}
		op, why := find(doc, e.Key)
		switch {
		case op == nil:
			faults = append(faults, e.fault("%s", why))
		case entries[op] != nil:
			faults = append(faults, e.fault("is the same operation as %s, on line %d", entries[op].Key, entries[op].Line))
		default:
			entries[op] = e
		}
	}
	var tools []*tool
	common := c.commonArgs()
	for _, t := range imported {
		e := entries[t.Operation]
		delete(entries, t.Operation)
		shared := common.of(t, reach)
		if e == nil && shared.empty() {
			tools = append(tools, &tool{Tool: t, call: t})
			continue
		}
		said := e
		if e == nil {
			e = &Tool{}
		}
		if e.Off {
			continue
		}
		one, wrong := e.override(t, shared)
		faults = append(faults, common.news(wrong)...)
		if len(wrong) > 0 && (e.confines() || shared.confines()) {
			continue // without the entry clients could do what it keeps from them
		}
		one.said = said
		tools = append(tools, one)
	}
	faults = append(faults, common.unused()...)
	left := slices.Collect(maps.Values(entries))
	slices.SortFunc(left, func(a, b *Tool) int { return cmp.Compare(a.Line, b.Line) })
	for _, e := range left {
		if !e.Off {
			faults = append(faults, e.fault("has no effect: expose or the document hides the operation"))
		}
	}
	tools = append(tools, added...)
	names := map[string]*tool{}
	return slices.DeleteFunc(tools, func(t *tool) bool {
		if other := names[t.Name]; other != nil {
			faults = append(faults, c.sameName(t, other))
			return true
		}
		names[t.Name] = t
		return false
	}), faults
}

// confines reports whether an entry sets or hides something that clients could
// choose without it.
func (e *Tool) confines() bool {
	return len(e.Headers) > 0 || len(e.Query) > 0 || len(e.Body) > 0 || slices.ContainsFunc(e.Args, confines)
}

// sameName says that two tools are called the same.
func (c *Config) sameName(t, other *tool) Fault {
	for i := range c.Tools {
		if e := &c.Tools[i]; e.shown() == t.Name {
			return e.fault("the name %s is that of %s %s too: choose another one", t.Name, other.Operation.Method, other.Operation.Path)
		}
	}
	return Fault{Key: t.Name + ": ", Text: "two tools have this name"}
}

// find returns the operation that a key of the configuration means, or says
// why there is none.
func find(doc *openapi.Document, key string) (op *openapi.Operation, why string) {
	if doc == nil {
		return nil, "has no request, and there is no document that it could change"
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

// secure has an operation of the configuration's own sent with credentials: of
// several the first by name.
func (a Auth) secure(op *openapi.Operation) {
	for _, name := range sortedKeys(a.Schemes) {
		op.Security = append(op.Security, openapi.Requirement{{Name: name}})
	}
	// The default is for whoever needs something that is not there.
	op.Security = append(op.Security, openapi.Requirement{{Name: ""}})
}
