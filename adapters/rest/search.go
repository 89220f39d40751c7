package rest

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"unicode"

	"github.com/tidwall/gjson"
)

// The tools of ModeSearch.
const (
	searchTool   = "search_operations"
	describeTool = "describe_operations"
	callTool     = "call_operation"
)

func isSearch(name string) bool {
	return name == searchTool || name == describeTool || name == callTool
}

// The input schemas of these tools.
const (
	searchSchema = `{"type":"object","properties":{` +
		`"query":{"type":"string","description":"Words to look for in names, paths, summaries and descriptions; leave it out to see everything"},` +
		`"tag":{"type":"string","description":"Only operations with this tag"},` +
		`"method":{"type":"string","enum":["GET","HEAD","OPTIONS","POST","PUT","PATCH","DELETE"],"description":"Only operations of this HTTP method"},` +
		`"offset":{"type":"integer","minimum":0,"description":"How many results to skip"}}}`
	describeSchema = `{"type":"object","properties":{` +
		`"ids":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":10,"description":"Operations that ` + searchTool + ` has found"}},"required":["ids"]}`
	callSchema = `{"type":"object","properties":{` +
		`"id":{"type":"string","description":"The operation, as ` + searchTool + ` calls it"},` +
		`"arguments":{"type":"object","description":"Its arguments, as ` + describeTool + ` says"}},"required":["id"]}`
)

// searchItems returns these tools as they are listed.
func searchItems(n int) []item {
	const reads = `"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`
	one := func(name, title, about, schema, annotations string) item {
		raw := gjson.AppendJSONString([]byte(`{"name":"`+name+`","title":"`+title+`","description":`), about)
		raw = append(raw, `,"inputSchema":`+schema+`,`+annotations+`}`...)
		return item{name: name, raw: raw, size: len(raw), sum: maphash.Bytes(itemSeed, raw)}
	}
	return []item{
		one(searchTool, "Find operations", fmt.Sprintf("Finds among the %d operations of this API those that fit. Begin here; then use %s and %s.", n, describeTool, callTool), searchSchema, reads),
		one(describeTool, "Describe operations", "Tells all about operations: what they do, and the JSON Schema of their arguments.", describeSchema, reads),
		one(callTool, "Call an operation", "Calls an operation of the API.", callSchema,
			`"annotations":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}`),
	}
}

// finder finds tools by words.
type finder struct{ docs []doc }

// doc is what is looked at of a tool.
type doc struct {
	t      *tool
	fields [4][]string // words: of the name; of the title and the tags; of the path; of the description
}

// granted returns what is found of the catalogue by somebody who may use only
// some of the tools.
func (c *catalog) granted(may func(name string) bool) *catalog {
	if may == nil {
		return c
	}
	own := *c
	own.finder, own.byName = &finder{}, map[string]*tool{}
	for _, d := range c.finder.docs {
		if may(d.t.Name) {
			own.finder.docs = append(own.finder.docs, d)
			own.byName[d.t.Name] = d.t
		}
	}
	return &own
}

// weights are those of doc.fields.
var weights = [4]int{6, 5, 4, 1}

func newFinder(tools []*tool) *finder {
	f := &finder{}
	for _, t := range tools {
		op := t.Operation
		f.docs = append(f.docs, doc{t, [4][]string{words(t.Name), words(t.Title + " " + strings.Join(op.Tags, " ")), words(pathOf(op)), words(t.Description)}})
	}
	return f
}

// words splits a text at whatever is no letter or digit, and at humps.
func words(s string) []string {
	var all []string
	begin, last := -1, ' '
	for i, r := range s {
		letter := unicode.IsLetter(r) || unicode.IsDigit(r)
		if begin >= 0 && (!letter || unicode.IsUpper(r) && unicode.IsLower(last)) {
			all = append(all, strings.ToLower(s[begin:i]))
			begin = -1
		}
		if letter && begin < 0 {
			begin = i
		}
		last = r
	}
	if begin >= 0 {
		all = append(all, strings.ToLower(s[begin:]))
	}
	return all
}

// find returns the tools that have one of the words, the best first, and all of
// them when there are no words.
func (f *finder) find(query, tag, method string) []*tool {
	type hit struct {
		t           *tool
		kinds, rank int
	}
	asked := words(query)
	asked = asked[:min(len(asked), 20)]
	var hits []hit
	for i := range f.docs {
		d := &f.docs[i]
		op := d.t.Operation
		if method != "" && op.Method != method || tag != "" && !slices.ContainsFunc(op.Tags, func(own string) bool { return strings.EqualFold(own, tag) }) {
			continue
		}
		h := hit{t: d.t}
		for _, w := range asked {
			if rank := d.rank(w); rank > 0 {
				h.kinds++
				h.rank += rank
			}
		}
		if h.kinds > 0 || len(asked) == 0 {
			hits = append(hits, h)
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int {
		return cmp.Or(b.kinds-a.kinds, b.rank-a.rank)
	})
	out := make([]*tool, len(hits))
	for i, h := range hits {
		out[i] = h.t
	}
	return out
}

// rank says how much a word is about the tool.
func (d *doc) rank(word string) int {
	most := 0
	for i, field := range d.fields {
		for _, own := range field {
			rank := 0
			switch {
			case own == word:
				rank = 4 * weights[i]
			case stem(own) == stem(word):
				rank = 3 * weights[i]
			case len(word) >= 3 && strings.HasPrefix(own, word):
				rank = 2 * weights[i]
			}
			most = max(most, rank)
		}
	}
	return most
}

// stem makes most plurals of English the same as their singular.
func stem(w string) string {
	switch {
	case len(w) > 4 && strings.HasSuffix(w, "ies"):
		return w[:len(w)-3] + "y"
	case len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss"):
		return w[:len(w)-1]
	}
	return w
}

// shownHits is how many results a search shows.
const shownHits = 20

// search answers a call of searchTool, of which the arguments have been checked.
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
		b.WriteString(t.Name + ": " + requestOf(t.Operation))
		if about := t.short(); about != "" {
			b.WriteString(" (" + about + ")")
		}
	}
	if n := len(rest) - shownHits; n > 0 {
		fmt.Fprintf(&b, "\n%d more: use offset %d, or more words.", n, from+shownHits)
	}
	return textResult(b.String(), false)
}

// short is a line about a tool.
func (t *tool) short() string {
	s := t.Title
	if s == "" {
		s, _, _ = strings.Cut(t.Description, "\n")
	}
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 120 {
		s = string(r[:119]) + "…"
	}
	return s
}

// tags returns the tags that there are, at most a hundred.
func (f *finder) tags() []string {
	var all []string
	seen := map[string]bool{}
	for _, d := range f.docs {
		for _, tag := range d.t.Operation.Tags {
			if !seen[tag] && len(all) < 100 {
				seen[tag] = true
				all = append(all, tag)
			}
		}
	}
	return all
}

// describe answers a call of describeTool. limit bounds the text.
func (c *catalog) describe(args []byte, limit int) []byte {
	var b strings.Builder
	unknown := 0
	ids := gjson.GetBytes(args, "ids").Array()
	for i, id := range ids {
		if i > 0 {
			b.WriteString("\n\n")
		}
		t := c.byName[id.String()]
		if t == nil {
			unknown++
			b.WriteString(c.unknown(id.String()))
			continue
		}
		schema := t.full()
		room := limit - b.Len() - len(t.Description)
		if len(schema) > room {
			schema = t.InputSchema
		}
		if len(schema) > room {
			b.WriteString(t.Name + " does not fit in here: describe it by itself.")
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n%s\nArguments: %s", t.Name, requestOf(t.Operation), t.Description, schema)
	}
	return textResult(b.String(), unknown == len(ids))
}

// unknown says that there is no operation of that name.
func (c *catalog) unknown(name string) string {
	text := fmt.Sprintf("There is no operation %.80q.", name)
	if near := c.finder.find(name, "", ""); len(near) > 0 {
		text += " There is " + near[0].Name + "."
	}
	return text
}

// textResult is a CallToolResult that is a text.
func textResult(text string, isError bool) []byte {
	out := gjson.AppendJSONString([]byte(`{"content":[{"type":"text","text":`), text)
	if isError {
		return append(out, `}],"isError":true}`...)
	}
	return append(out, `}]}`...)
}
