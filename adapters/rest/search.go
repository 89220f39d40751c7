package rest

import (
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

// These are the tools of ModeSearch.
const (
	searchTool   = "search_operations"
	describeTool = "describe_operations"
	readTool     = "read_operation"
	callTool     = "call_operation"
)

// IsCall reports whether name is a tool of ModeSearch that calls the tool named by its argument id.
func IsCall(name string) bool { return name == readTool || name == callTool }

func isSearch(name string) bool { return name == searchTool || name == describeTool || IsCall(name) }

// These are the input schemas of the tools of ModeSearch.
const (
	searchSchema = `{"type":"object","properties":{` +
		`"query":{"type":"string","description":"Words to look for in names, paths, summaries, descriptions and arguments; leave it out to see everything"},` +
		`"tag":{"type":"string","description":"Only operations with this tag"},` +
		`"method":{"type":"string","enum":["GET","HEAD","OPTIONS","POST","PUT","PATCH","DELETE"],"description":"Only operations of this HTTP method"},` +
		`"offset":{"type":"integer","minimum":0,"description":"How many results to skip"}}}`
	describeSchema = `{"type":"object","properties":{` +
		`"ids":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":10,"description":"Operations that ` + searchTool + ` has found"}},"required":["ids"]}`
	callSchema = `{"type":"object","properties":{` +
		`"id":{"type":"string","description":"The operation, as ` + searchTool + ` calls it"},` +
		`"arguments":{"type":"object","description":"Its arguments, as ` + searchTool + ` or ` + describeTool + ` says"}},"required":["id"]}`
)

// searchItems returns the tools of ModeSearch for an API with n operations. With reading, no
// operation changes anything, and callTool is left out.
func searchItems(api string, n int, reading bool) []item {
	const reads = `"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":%t}`
	one := func(name, title, about, schema, annotations string) item {
		raw := gjson.AppendJSONString([]byte(`{"name":"`+name+`","title":"`+title+`","description":`), about)
		raw = append(raw, `,"inputSchema":`+schema+`,`+annotations+`}`...)
		return item{
			name: name,
			raw:  raw,
			size: len(raw),
			sum:  maphash.Bytes(itemSeed, raw),
		}
	}
	all := []item{
		one(searchTool, "Find operations", fmt.Sprintf("Finds among the %d operations of %s those that fit, and tells the arguments of the first ones. Begin here; then use %s.", n, api, usage(reading)), searchSchema, fmt.Sprintf(reads, false)),
		one(describeTool, "Describe operations", "Tells all about operations of "+api+": what they do, and the JSON Schema of their arguments.", describeSchema, fmt.Sprintf(reads, false)),
		one(readTool, "Read", "Calls an operation of "+api+" that only reads, such as a GET.", callSchema, fmt.Sprintf(reads, true)),
	}
	if reading {
		return all
	}
	return append(all, one(callTool, "Call an operation", "Calls an operation of "+api+". Use "+readTool+" for those that only read.", callSchema,
		`"annotations":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}`))
}

// usage names the tools that call operations, as part of searchTool's description.
func usage(reading bool) string {
	if reading {
		return readTool
	}
	return readTool + " for what only reads, and " + callTool + " for everything else"
}

// finderFor returns the catalog with a finder that finds only the tools for which may returns true.
// A nil may selects all.
func (c *catalog) finderFor(may func(name string) bool) *catalog {
	own, finder := *c, *c.finder
	finder.visible = may
	own.finder = &finder
	return &own
}

// shownHits bounds the tools that one search lists.
const shownHits = 20

// These bound the input schemas that a search shows: their number, and their bytes in total.
const (
	shownSchemas    = 3
	shownSchemaSize = 6 << 10
)

// search returns the result of a call of searchTool. args fit searchSchema.
func (c *catalog) search(args []byte) []byte {
	a := gjson.ParseBytes(args)
	tag := a.Get("tag").String()
	found := c.finder.find(a.Get("query").String(), tag, a.Get("method").String())
	from := int(min(max(a.Get("offset").Int(), 0), int64(len(found))))
	var b strings.Builder
	if len(found) == 0 {
		b.WriteString("Nothing fits. Try other words, or fewer.")
		if tags := c.finder.tags(); len(tags) > 0 {
			b.WriteString(" There are the tags " + strings.Join(tags, ", ") + ".")
		}
	}
	rest := found[from:]
	for i, t := range rest[:min(len(rest), shownHits)] {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(t.Name + ": " + t.Request())
		if about := short(t); about != "" {
			b.WriteString(" (" + about + ")")
		}
	}
	if n := len(rest) - shownHits; n > 0 {
		fmt.Fprintf(&b, "\n%d more: use offset %d, or more words.", n, from+shownHits)
	}
	if a.Get("query").String() != "" {
		writeSchemas(&b, rest)
	}
	return textResult(b.String(), false)
}

// writeSchemas writes the input schemas of the first tools found, within the bounds of shownSchemas
// and shownSchemaSize. If schemas are left out, the text says where to get them.
func writeSchemas(b *strings.Builder, found []*toolset.Tool) {
	room, left := shownSchemaSize, len(found) > shownSchemas
	for _, t := range found[:min(len(found), shownSchemas)] {
		if len(t.InputSchema) > room {
			left = true
			continue
		}
		room -= len(t.InputSchema)
		fmt.Fprintf(b, "\n\nArguments of %s: %s", t.Name, t.InputSchema)
	}
	if left {
		b.WriteString("\n\n" + describeTool + " tells those of the others.")
	}
}

// short returns the tool's title or the first line of its description, in up to 120 characters.
func short(t *toolset.Tool) string {
	s := t.Title
	if s == "" {
		s, _, _ = strings.Cut(openapi.PlainText(t.Description), "\n")
	}
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 120 {
		s = string(r[:119]) + "…"
	}
	return s
}

// tags returns the first hundred tags of the visible tools.
func (f *finder) tags() []string {
	var all []string
	seen := map[string]bool{}
	for _, t := range f.tools {
		if !f.isVisible(t) {
			continue
		}
		for _, tag := range t.Operation.Tags {
			if !seen[tag] && len(all) < 100 {
				seen[tag] = true
				all = append(all, tag)
			}
		}
	}
	return all
}

// describe returns the result of a call of describeTool. If an operation does not fit within limit,
// in bytes, the text says so instead of describing it.
func (c *catalog) describe(args []byte, limit int) []byte {
	var b strings.Builder
	unknown := 0
	ids := gjson.GetBytes(args, "ids").Array()
	for i, id := range ids {
		if i > 0 {
			b.WriteString("\n\n")
		}
		t := c.byName[id.String()]
		if t == nil || !c.finder.isVisible(t) {
			unknown++
			b.WriteString(c.unknown(id.String()))
			continue
		}
		schema := t.Full()
		room := limit - b.Len() - len(t.Description)
		if len(schema) > room {
			schema = t.InputSchema
		}
		if len(schema) > room {
			b.WriteString(t.Name + " does not fit in here: describe it by itself.")
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n%s\nArguments: %s", t.Name, t.Request(), t.Description, schema)
	}
	return textResult(b.String(), unknown == len(ids))
}

// unknown returns the message that no operation has that name, and the nearest name.
func (c *catalog) unknown(name string) string {
	text := fmt.Sprintf("There is no operation %.80q.", name)
	if near := c.finder.find(name, "", ""); len(near) > 0 {
		text += " There is " + near[0].Name + "."
	}
	return text
}

// textResult returns a CallToolResult with one text.
func textResult(text string, isError bool) []byte {
	out := gjson.AppendJSONString([]byte(`{"content":[{"type":"text","text":`), text)
	if isError {
		return append(out, `}],"isError":true}`...)
	}
	return append(out, `}]}`...)
}
