package wire

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/cut"
)

// name returns the encoded Options.Name for addresses of files.
func (s *Source) name() string { return param.Escape(s.o.Name, param.Unreserved) }

// shapes reports whether the result is a part of the answer, which Result or Pick selects.
func (c *Call) shapes() bool { return c.Result != "" || c.Pick != "" }

const (
	// maxPick bounds the length of a path from a model or a catalogue, in bytes.
	maxPick = 1 << 10
	// maxShaped bounds what such a path selects, in bytes.
	maxShaped = 64 << 20
)

// jsonResult returns the result of an answer that should be JSON. Other content becomes text.
func (s *Source) jsonResult(c *Call, body []byte, a *answer) []byte {
	var notes []string
	body = s.mask(body)
	if note := a.note(); note != "" {
		notes = append(notes, note)
		if !usable(body, a) {
			return s.textResult(c, a)
		}
		body = cut.Salvage(body)
	}
	doc, ok := jsonrpc.Read(body, maxDepth)
	if !ok || !utf8.Valid(body) {
		return s.textResult(c, a)
	}
	if c.Result != "" {
		if v, ok := c.Settings.applyPath(body, c.Result); ok {
			body = v
		} else {
			s.once(c.Tool.Name, "nothing in the answer of a tool matches its result: it is given whole", nil)
		}
	}
	if c.Pick != "" {
		v, note := pick(body, c.Pick)
		if note != "" {
			notes = append(notes, note)
		} else {
			body = v
		}
	}
	if c.shapes() {
		doc, _ = jsonrpc.Read(body, maxDepth) // succeeds, since applyPath returns valid JSON
	}
	value, most := doc.Text, s.maxAnswer(c)
	if len(body) > most {
		body = value
	}
	if len(body) > most {
		var left []string
		value, left = cut.JSON(doc, most)
		body = value
		notes = append(append(notes, left...), advice(c))
	}
	room := quotedSize(body)
	if c.Tool.OutputSchema != nil || len(value) > 0 && value[0] == '{' { // there is structured content
		room += len(value)
	}
	out := appendText(beginResult(room), body)
	if len(notes) > 0 {
		out = appendText(append(out, ','), []byte(strings.Join(notes, "\n")))
	}
	out = s.appendHeaders(out, c, a)
	return append(s.appendStructured(append(out, ']'), c, value), '}')
}

// appendStructured appends structured content: an object as it is, another value as {"result": …}.
// A value that does not fit the output schema is omitted. Since clients refuse a result without
// structured content, it appends an empty object instead, if the schema allows one. value has no
// white space between its tokens.
func (s *Source) appendStructured(dst []byte, c *Call, value []byte) []byte {
	const key = `,"structuredContent":`
	isObject := len(value) > 0 && value[0] == '{'
	schema := c.Tool.OutputSchema
	if schema == nil {
		if !isObject {
			return dst
		}
		return append(append(dst, key...), value...)
	}
	begin := len(dst)
	// The value may be large: it is checked in dst, without a further copy.
	fits := func(before string, value []byte, after string) bool {
		dst = append(append(append(append(dst[:begin], key...), before...), value...), after...)
		ok, err := s.schemas.Fits(schema, dst[begin+len(key):])
		if err != nil {
			s.once(c.Tool.Name, "the answers of a tool are not checked", err)
		}
		return ok || err != nil
	}
	if isObject && !c.Tool.Wrapped && fits("", value, "") || fits(`{"result":`, value, "}") {
		return dst
	}
	s.once(c.Tool.Name, "the answer of a tool is not as the document says: it is given as text only", nil)
	if fits("", []byte("{}"), "") {
		return dst
	}
	return dst[:begin]
}

// applyPath returns the part of JSON that a gjson path selects. It reports false if there is none.
func applyPath(body []byte, path string) (v []byte, ok bool) {
	defer func() {
		if r := recover(); r != nil { // gjson may panic on odd paths
			v, ok = nil, false
		}
	}()
	r := gjson.GetBytes(body, path)
	if v = []byte(r.Raw); !r.Exists() || !jsonrpc.Valid(v, maxDepth) {
		return nil, false
	}
	return v, true
}

// harmless are the modifiers of gjson that models and catalogues may use, since they do not enlarge
// an answer.
var harmless = []string{"this", "reverse", "flatten", "keys", "values", "ugly", "valid", "fromstr"}

var modifier = regexp.MustCompile(`(?:^|[^\\])@([A-Za-z0-9_]*)`)

// Growing returns a modifier in a path that may enlarge an answer; empty if there is none. Models
// and catalogues may not use it.
func Growing(path string) string {
	for _, m := range modifier.FindAllStringSubmatch(path, -1) {
		if gjson.ModifierExists(m[1], nil) && !slices.Contains(harmless, m[1]) {
			return m[1]
		}
	}
	return ""
}

// pathTooLarge reports whether a path is longer than maxPick, or may select more than maxShaped of a
// body with that many bytes.
func pathTooLarge(path string, of int) bool {
	return len(path) > maxPick || growth(path) > maxShaped/max(of, 1)
}

// applyPath applies a path as the function applyPath does. If the settings are Bounded, it refuses paths
// that models may not use.
func (s *Settings) applyPath(body []byte, path string) (v []byte, ok bool) {
	if s.Bounded && (pathTooLarge(path, len(body)) || Growing(path) != "") {
		return nil, false
	}
	return applyPath(body, path)
}

// pick returns the part of body that a model's path selects. If the path selects nothing or is not
// allowed, v is nil and note gives the model the reason.
func pick(body []byte, path string) (v []byte, note string) {
	if pathTooLarge(path, len(body)) {
		return nil, "The path to pick is too long or asks for too much: the answer is given whole."
	}
	if what := Growing(path); what != "" {
		return nil, "The path to pick has the modifier @" + what + ", which cannot be used: the answer is given whole."
	}
	if v, ok := applyPath(body, path); ok {
		return v, ""
	}
	note = fmt.Sprintf("Nothing in the answer matches %.200q: it is given whole.", path)
	r := gjson.ParseBytes(body)
	if r.IsArray() {
		note += fmt.Sprintf(" It is an array of %d items; # stands for each.", r.Get("#").Int())
		r = r.Get("0")
	}
	var names []string
	r.ForEach(func(k, _ gjson.Result) bool {
		names = append(names, k.String())
		return len(names) < 30
	})
	if r.IsObject() {
		note += " There are " + strings.Join(names, ", ") + "."
	}
	return nil, note
}

// growth returns an upper bound for how often a path's result repeats the input.
func growth(path string) int {
	n := 1
	var open []int
	for _, c := range path {
		switch c {
		case '{', '[':
			open = append(open, 1)
		case ',':
			if len(open) > 0 {
				open[len(open)-1]++
			}
		case '}', ']':
			if len(open) > 0 {
				n *= open[len(open)-1]
				open = open[:len(open)-1]
			}
		}
		if n > maxShaped {
			return n
		}
	}
	for _, o := range open {
		if n *= o; n > maxShaped {
			return n
		}
	}
	return n
}

// paging are common names of arguments that select a part of the results.
var paging = []string{"limit", "offset", "page", "per_page", "perpage", "page_size", "pagesize", "cursor", "after", "before", "size", "count", "top", "skip",
	"first", "last", "max_results", "maxresults", "page_token", "pagetoken", "starting_after", "fields", "filter", "query", "q"}

// advice says how to get the rest of a cut answer.
func advice(c *Call) string {
	var names []string
	for _, arg := range c.Tool.Arguments {
		if arg.Place == openapi.InQuery && slices.Contains(paging, strings.ToLower(arg.Name)) {
			names = append(names, arg.Name)
		}
	}
	if c.PickName != "" {
		names = append(names, c.PickName)
	}
	if len(names) == 0 {
		return "The answer is cut to fit."
	}
	return "The answer is cut to fit: use " + strings.Join(names, ", ") + " to see the rest."
}
