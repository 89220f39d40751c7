package era

import (
	"bytes"
	"errors"
	"slices"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
)

// annotationName is the keyword by which a tool's inputSchema asks for an
// argument to be repeated in a header (2026-07-28, Streamable HTTP).
const annotationName = "x-mcp-header"

// mayAnnotate reports whether the keyword can stand in the schema at all: few
// schemas have it, and the others need no closer look. A name may be written
// with escapes.
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

// annotation is one x-mcp-header that was found.
type annotation struct {
	path  []string // of the property that it belongs to
	value []byte   // raw
	types [][]byte // what the property's type says, raw; more than one when it stands twice
	plain bool     // path leads there from the root through properties only
}

// schemaWalk goes over a schema once. What is not the value of one of the
// keywords that hold data is taken for schemas: what a $ref leads to may stand
// under any keyword.
type schemaWalk struct {
	b     []byte
	depth int // of nested schemas, at most
	nodes int // schemas, at most
	path  []string
	found func(a annotation)
	cut   *cuts // if not nil, annotations are cut out
	err   error
}

var (
	errDeep  = errors.New("it is nested too deep to look for " + annotationName)
	errLarge = errors.New("it has too many parts to look for " + annotationName)
	errJSON  = errors.New("it is not JSON")
)

// value goes over a schema, or the schemas of an array, that begins at i. It
// returns the index behind it, or -1.
func (w *schemaWalk) value(i, depth int, plain bool) int {
	switch {
	case i < len(w.b) && w.b[i] == '{':
		return w.schema(i, depth, plain)
	case i < len(w.b) && w.b[i] == '[':
		if depth >= w.depth {
			return w.stop(errDeep)
		}
		return each(w.b, i, func(_ []byte, _, from int) int { return w.value(from, depth+1, false) })
	}
	return rawjson.End(w.b, i)
}

func (w *schemaWalk) stop(err error) int {
	if w.err == nil {
		w.err = err
	}
	return -1
}

func (w *schemaWalk) schema(i, depth int, plain bool) int {
	if depth >= w.depth {
		return w.stop(errDeep)
	}
	if w.nodes--; w.nodes < 0 {
		return w.stop(errLarge)
	}
	var here []annotation
	var types [][]byte
	var p pruner
	end := each(w.b, i, func(name []byte, at, from int) int {
		var end int
		switch string(name) {
		case annotationName:
			if end = rawjson.End(w.b, from); end <= from {
				return -1
			}
			here = append(here, annotation{value: w.b[from:end]})
			p.drop(w.cut, at, end)
			return end
		case "default", "const", "enum", "examples", "example":
			end = rawjson.End(w.b, from)
		case "type":
			if end = rawjson.End(w.b, from); end > from {
				types = append(types, w.b[from:end])
			}
		case "properties":
			end = w.named(from, depth, plain)
		case "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions":
			end = w.named(from, depth, false)
		default:
			end = w.value(from, depth+1, false)
		}
		if end > from {
			p.keep(w.cut, at, end)
		}
		return end
	})
	if end < 0 {
		return -1
	}
	p.done(w.cut)
	for _, a := range here {
		a.path, a.types, a.plain = slices.Clone(w.path), types, plain && len(w.path) > 0
		w.found(a)
	}
	return end
}

// named goes over an object whose members are schemas by names of their own.
func (w *schemaWalk) named(i, depth int, plain bool) int {
	if i >= len(w.b) || w.b[i] != '{' {
		return w.value(i, depth, false)
	}
	return each(w.b, i, func(name []byte, _, from int) int {
		w.path = append(w.path, string(name))
		end := w.value(from, depth+1, plain)
		w.path = w.path[:len(w.path)-1]
		return end
	})
}

// each calls f for each member of the object, or element of the array, that
// begins at i: with its decoded name if it has one, where it begins and where
// its value does. Unlike with walk it is f that finds the end of the value and
// returns it, so that nested values are passed once, however deep they are. It
// returns the index behind the whole, or -1 when that is broken or f says so.
func each(b []byte, i int, f func(name []byte, at, from int) int) int {
	closing := b[i] + 2 // } and ] stand two behind { and [
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

// cuts are pieces to leave out of a text.
type cuts [][2]int

func (c *cuts) add(from, to int) {
	if c != nil {
		*c = append(*c, [2]int{from, to})
	}
}

// apply returns b without them, and b itself when there are none.
func (c cuts) apply(b []byte) []byte {
	if len(c) == 0 {
		return b
	}
	slices.SortFunc(c, func(x, y [2]int) int { return x[0] - y[0] })
	out, done := make([]byte, 0, len(b)), 0
	for _, x := range c {
		out = append(out, b[done:x[0]]...)
		done = x[1]
	}
	return append(out, b[done:]...)
}

// pruner cuts members out of one object so that one comma each joins those
// left. It is told all members in their order. (None begins or ends at 0: a
// brace comes first.)
type pruner struct {
	lead int // begin of the dropped members that no kept one stands before
	last int // end of the latest member
	kept bool
}

func (p *pruner) keep(c *cuts, at, end int) {
	if p.lead > 0 {
		c.add(p.lead, at)
	}
	p.lead, p.last, p.kept = 0, end, true
}

func (p *pruner) drop(c *cuts, at, end int) {
	switch {
	case p.kept:
		c.add(p.last, end)
	case p.lead == 0:
		p.lead = at
	}
	p.last = end
}

func (p *pruner) done(c *cuts) {
	if p.lead > 0 {
		c.add(p.lead, p.last)
	}
}

// StripMirror returns a tool's inputSchema without the annotations x-mcp-header
// wherever they stand as a keyword of a schema: those of a server that cannot
// have meant them (R-101 is about the others). All other bytes are what they
// were, and the schema itself is returned if there is none.
func StripMirror(inputSchema []byte) []byte {
	if !mayAnnotate(inputSchema) {
		return inputSchema
	}
	var c cuts
	w := schemaWalk{b: inputSchema, depth: 1000, nodes: len(inputSchema), found: func(annotation) {}, cut: &c}
	if w.value(rawjson.Space(inputSchema, 0), 0, true) < 0 {
		return inputSchema
	}
	return c.apply(inputSchema)
}
