package find

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// Tool holds the parts of a tool's definition that an Index uses.
type Tool struct {
	name, title, about, args, server string

	method string   // HTTP method of a tool of a REST API; empty for other tools
	path   []string // the parts of the request's path that are not arguments
	one    bool     // the request's path ends with an argument
	reads  bool     // the definition says that the tool only reads
}

// requestKey is the path in a definition to the HTTP request of a tool of a REST API, such as "GET /pets/{id}".
const requestKey = `_meta.mcp-bridge/request`

// Read reads a definition from tools/list. server is the name of the tool's server.
func Read(definition []byte, server string) Tool {
	d := gjson.ParseBytes(definition)
	t := Tool{
		name:   d.Get("name").String(),
		title:  d.Get("title").String(),
		about:  strings.TrimSpace(d.Get("description").String()),
		args:   argumentsOf(d.Get("inputSchema")),
		server: server,
		reads:  d.Get("annotations.readOnlyHint").Type == gjson.True,
	}
	if t.title == "" {
		t.title = d.Get("annotations.title").String()
	}
	var path string
	t.method, path, _ = strings.Cut(d.Get(requestKey).String(), " ")
	path, _, _ = strings.Cut(path, "?")
	for part := range strings.SplitSeq(path, "/") {
		if part == "" {
			continue
		}
		if t.one = strings.Contains(part, "{"); !t.one {
			t.path = append(t.path, strings.TrimSuffix(part, ".json"))
		}
	}
	return t
}

// keywords returns the words of each of the tool's fields.
func (t *Tool) keywords() (out [kinds][]string) {
	first := Sentence(t.about)
	rest := strings.ToValidUTF8(t.about[len(first):min(len(t.about), max(described, len(first)))], "")
	out[ofTitle], out[ofServer], out[ofFirst], out[ofText], out[ofArgs] =
		keywords(t.title), keywords(t.server), keywords(first), keywords(rest), keywords(t.args)
	// At an address with several servers, the name of a tool begins with the name of its server.
	out[ofName] = slices.DeleteFunc(keywords(t.name), func(w string) bool { return slices.Contains(out[ofServer], w) })
	if last := len(t.path) - 1; last >= 0 {
		out[ofResource], out[ofPath] = keywords(t.path[last]), keywords(strings.Join(t.path[:last], " "))
	}
	return out
}

// maxSentence bounds the first sentence of a description in bytes.
const maxSentence = 200

// Sentence returns the first sentence of a text, or the first line if it is shorter.
func Sentence(text string) string {
	for i, r := range text {
		_, n := utf8.DecodeRuneInString(text[i:])
		next, _ := utf8.DecodeRuneInString(text[i+n:])
		switch {
		case r == '\n', i >= maxSentence:
			return text[:i]
		case strings.ContainsRune(".!?", r) && (next == utf8.RuneError || unicode.IsSpace(next)):
			return text[:i+1]
		}
	}
	return text
}

// argumentsOf returns the names of the arguments in a schema and of the members of an argument body, with their enum
// values.
func argumentsOf(schema gjson.Result) string {
	var b strings.Builder
	add := func(schema gjson.Result) {
		schema.Get("properties").ForEach(func(name, one gjson.Result) bool {
			b.WriteString(name.Str + " ")
			for _, word := range one.Get("enum").Array() {
				b.WriteString(word.String() + " ")
			}
			return b.Len() < argued
		})
	}
	add(schema)
	add(schema.Get("properties.body"))
	return b.String()
}
