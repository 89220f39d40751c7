package era

import (
	"bytes"
	"errors"
	"slices"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// annotationName is the keyword in a tool's inputSchema that asks a client to repeat an argument in a header
// (2026-07-28, Streamable HTTP).
const annotationName = "x-mcp-header"

// mayAnnotate reports whether the schema may have the keyword, in which letters may be escaped. Few schemas have it,
// and the others need no walk.
func mayAnnotate(schema []byte) bool {
	if bytes.Contains(schema, []byte(annotationName)) {
		return true
	}
	for _, e := range []string{`\u002`, `\u006`, `\u007`} { // the hyphen; x, m, c, p, h, e, a, d, r
		if bytes.Contains(schema, []byte(e)) {
			return true
		}
	}
	return false
}

// annotation is one x-mcp-header.
type annotation struct {
	path  []string // names of the properties from the root to the one with the annotation
	value []byte   // raw JSON
	types [][]byte // raw values of the property's type; several if it is duplicated
	plain bool     // path leads only through properties
	place jsonrpc.Span
}

// schemaWalk visits each schema in a schema once. Values of unknown keywords count as schemas, because a $ref may point
// to them. Values of keywords for data do not count.
type schemaWalk struct {
	b     []byte
	depth int // limit on the nesting of schemas
	nodes int // how many schemas may still follow
	path  []string
	found func(a annotation)
	err   error
}

var (
	errDeep  = errors.New("it is nested too deep to look for " + annotationName)
	errLarge = errors.New("it has too many parts to look for " + annotationName)
	errJSON  = errors.New("it is not JSON")
)

// value visits the schema, or the array of schemas, at i. It returns the index behind it, or -1 after an error.
func (s *schemaWalk) value(i, depth int, plain bool) int {
	switch {
	case i < len(s.b) && s.b[i] == '{':
		return s.schema(i, depth, plain)
	case i < len(s.b) && s.b[i] == '[':
		if depth >= s.depth {
			return s.stop(errDeep)
		}
		return each(s.b, i, func(_ []byte, _, from int) int { return s.value(from, depth+1, false) })
	}
	return rawjson.End(s.b, i)
}

func (s *schemaWalk) stop(err error) int {
	if s.err == nil {
		s.err = err
	}
	return -1
}

func (s *schemaWalk) schema(i, depth int, plain bool) int {
	if depth >= s.depth {
		return s.stop(errDeep)
	}
	if s.nodes--; s.nodes < 0 {
		return s.stop(errLarge)
	}
	var here []annotation
	var types [][]byte
	end := each(s.b, i, func(name []byte, at, from int) int {
		var end int
		switch string(name) {
		case annotationName:
			if end = rawjson.End(s.b, from); end <= from {
				return -1
			}
			here = append(here, annotation{value: s.b[from:end], place: jsonrpc.Span{
				Key:   at,
				Value: from,
				End:   end,
			}})
		case "default", "const", "enum", "examples", "example":
			end = rawjson.End(s.b, from)
		case "type":
			if end = rawjson.End(s.b, from); end > from {
				types = append(types, s.b[from:end])
			}
		case "properties":
			end = s.named(from, depth, plain)
		case "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions":
			end = s.named(from, depth, false)
		default:
			end = s.value(from, depth+1, false)
		}
		return end
	})
	if end < 0 {
		return -1
	}
	for _, a := range here {
		a.path, a.types, a.plain = slices.Clone(s.path), types, plain && len(s.path) > 0
		s.found(a)
	}
	return end
}

// named visits an object whose members are schemas with names.
func (s *schemaWalk) named(i, depth int, plain bool) int {
	if i >= len(s.b) || s.b[i] != '{' {
		return s.value(i, depth, false)
	}
	return each(s.b, i, func(name []byte, _, from int) int {
		s.path = append(s.path, string(name))
		end := s.value(from, depth+1, plain)
		s.path = s.path[:len(s.path)-1]
		return end
	})
}

// each calls f for each member of the object, or each element of the array, at i. f gets the decoded name of the member
// (nil in an array), the start of the member and the start of its value. Unlike in rawjson.Walk, f finds the end of the
// value and returns it, so that nested values are scanned only once. each returns the index behind the object or array,
// or -1 if it is malformed or f returns -1.
func each(b []byte, i int, f func(name []byte, at, from int) int) int {
	closing := b[i] + 2 // in ASCII, } is { + 2, and ] is [ + 2
	named := closing == '}'
	if i = rawjson.Space(b, i+1); i < len(b) && b[i] == closing {
		return i + 1
	}
	for i < len(b) {
		at, name := i, []byte(nil)
		if named {
			if b[i] != '"' {
				return -1
			}
			end := rawjson.StringEnd(b, i)
			name = rawjson.Unquote(b[i:end])
			if i = rawjson.Space(b, end); i >= len(b) || b[i] != ':' {
				return -1
			}
			i = rawjson.Space(b, i+1)
		}
		end := f(name, at, i)
		if end <= i {
			return -1
		}
		if i = rawjson.Space(b, end); i >= len(b) {
			return -1
		}
		if b[i] == closing {
			return i + 1
		}
		if b[i] != ',' {
			return -1
		}
		i = rawjson.Space(b, i+1)
	}
	return -1
}

// StripMirror returns a tool's inputSchema without x-mcp-header annotations. It is for servers over a transport without
// headers, where an invalid annotation does not matter. If there are no annotations, StripMirror returns the
// schema itself.
func StripMirror(inputSchema []byte) []byte {
	if !mayAnnotate(inputSchema) {
		return inputSchema
	}
	var all []jsonrpc.Span
	s := schemaWalk{
		b:     inputSchema,
		depth: 1000,
		nodes: len(inputSchema),
		found: func(a annotation) { all = append(all, a.place) },
	}
	if s.value(rawjson.Space(inputSchema, 0), 0, true) < 0 || len(all) == 0 {
		return inputSchema
	}
	out, done := make([]byte, 0, len(inputSchema)), 0
	for _, e := range Cut(nil, inputSchema, all) {
		out = append(out, inputSchema[done:e.From]...)
		done = e.To
	}
	return append(out, inputSchema[done:]...)
}

// Cut appends the edits that remove members of objects in text. Each edit includes the comma behind its members, or, if
// none follows, the comma before them.
func Cut(edits []jsonrpc.Edit, text []byte, members []jsonrpc.Span) []jsonrpc.Edit {
	slices.SortFunc(members, func(s, b jsonrpc.Span) int { return s.Key - b.Key })
	for i := 0; i < len(members); {
		from, to := members[i].Key, members[i].End
		next := memberAfter(text, to)
		for i++; i < len(members) && members[i].Key == next; i++ {
			to = members[i].End
			next = memberAfter(text, to)
		}
		if next > to {
			to = next
		} else if before := bytes.TrimRight(text[:from], " \t\r\n"); before[len(before)-1] == ',' {
			from = len(before) - 1
		}
		edits = append(edits, jsonrpc.Edit{From: from, To: to})
	}
	return edits
}

// memberAfter returns the start of the member behind the one that ends at end. If there is none, it returns end.
func memberAfter(text []byte, end int) int {
	rest := bytes.TrimLeft(text[end:], " \t\r\n")
	if rest[0] != ',' {
		return end
	}
	return len(text) - len(bytes.TrimLeft(rest[1:], " \t\r\n"))
}
