package openapi

import (
	"slices"
	"strings"
)

// render writes the schemas of one side of one tool as JSON Schema 2020-12.
// What documents have that no validator or no provider of models accepts is
// put right on the way; see keywords.go.
type render struct {
	l       *loader
	output  bool // for what comes back, not for what is sent
	relaxed bool // an output that forgives: see Options.StrictOutput

	b         []byte
	limit     int  // of bytes
	greedy    bool // beyond limit, leave out what fits no more; otherwise stop
	over      bool // stopped
	trying    bool // a definition that is taken back if it does not fit
	longer    int  // longest description
	cut       int  // depth from which inline objects are left out
	stubs     bool // something was left out
	note      string
	resources bool // files may be resources

	depth    int   // of inline schemas, now
	rootless bool  // the type stands there already
	opt      int   // optional properties on the way here
	files    part  // what binary strings are here
	current  *node // the definition that is being written, when this is about its own value
	mixed    bool  // what stands here is one part of several of the same value
	viaAll   bool  // there was an allOf on the way here from current

	defs    map[defKey]*def
	order   []*def
	names   map[string]bool
	buckets [][]*def
	open    int // bytes that the definitions to come take at least

	keys renames
}

// part says where a schema stands in a form: files are objects there.
type part uint8

const (
	noPart part = iota
	form        // its properties are the parts
	inPart      // it is one of the parts
)

type defKey struct {
	n     *node
	files part
}

type def struct {
	defKey
	name string
	opt  int
	done bool
}

const maxInline = 60 // depth of inline schemas

// key begins a member of the object that is open.
func (w *render) key(name string) {
	if last := w.b[len(w.b)-1]; last != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(appendString(w.b, name), ':')
}

func (w *render) raw(name, value string) {
	w.key(name)
	w.b = append(w.b, value...)
}

func (w *render) str(name, value string) {
	w.key(name)
	w.b = appendString(w.b, value)
}

// value writes a value of the document unless it is longer than limit.
func (w *render) value(name string, n *node, limit int) {
	mark := len(w.b)
	w.key(name)
	b, ok := appendValue(w.b, n, len(w.b)+limit, 0)
	if w.b = b; !ok {
		w.b = w.b[:mark]
	}
}

// stop reports whether there is no use in going on.
func (w *render) stop() bool {
	if len(w.b) > w.limit && !w.greedy || len(w.b) > fullLimit {
		w.over = true
	}
	return w.over || w.trying && w.full()
}

// full reports whether what is written, with the least that is still to come, is
// more than the limit. Going on only makes it more.
func (w *render) full() bool { return len(w.b)+w.open > w.limit }

// schema writes a schema that describes a value below the one around it.
func (w *render) schema(n *node, name, desc string) {
	current, via, mixed := w.current, w.viaAll, w.mixed
	w.current, w.viaAll, w.mixed = nil, false, false // references here lead to another value: no loop
	w.inner(n, name, desc)
	w.current, w.viaAll, w.mixed = current, via, mixed
}

// inner writes a schema that describes the same value as the one around it.
func (w *render) inner(n *node, name, desc string) {
	w.b = append(w.b, '{')
	w.depth++
	switch {
	case n == nil || w.stop() || w.depth > maxInline:
	case n.kind == boolean:
		if n.text == "false" && !w.relaxed {
			w.raw("not", "{}")
		}
	case n.kind != object:
		w.l.warn(n, "%s where a schema must be: taken as one that allows all", n.kind)
	case n.get("$ref").is(text):
		w.ref(n, name, desc)
	case w.files == inPart && isBinary(n):
		w.file(first(desc, n.scalar("description")))
	default:
		w.members(n, name, desc)
	}
	w.depth--
	w.b = append(w.b, '}')
}

// ref writes what a reference stands for, with what stands beside it.
func (w *render) ref(n *node, name, desc string) {
	desc = first(desc, n.scalar("description"))
	t := w.l.deref(n)
	if t == nil {
		w.describe(desc, "")
		return
	}
	if t.kind != object {
		if t.kind == boolean && t.text == "false" && !w.relaxed {
			w.raw("not", "{}")
		}
		return
	}
	types, _ := typesOf(t)
	nullable := (n.flag("nullable") || n.flag("x-nullable")) && len(types) > 0
	_, itself := typesOf(t)
	if nullable && !itself && !w.relaxed {
		w.describe(desc, "")
		w.key("anyOf")
		w.b = append(w.b, '[', '{')
		w.target(t, n, name, "")
		w.b = append(w.b, `},{"type":"null"}]`...)
		return
	}
	w.target(t, n, name, desc)
}

func (w *render) target(t, n *node, name, desc string) {
	switch {
	case w.current != nil && (w.l.ways(t, 0) > maxWays || w.l.reaches(t, w.current, w.viaAll)):
		// The value would have to be checked against this very schema again,
		// without end: Cat is a Pet, and a Pet is one of Cat and Dog. Or nearly
		// so, when schemas multiply at every step.
		w.plain(t, name, desc)
	case w.mixed && closed(t) && !isComposed(t):
		w.members(t, name, desc) // without what closes it
	case isLeaf(t) || w.files == inPart && isBinary(t):
		if w.files == inPart && isBinary(t) {
			w.file(first(desc, t.scalar("description")))
			return
		}
		w.members(t, name, desc)
	default:
		w.str("$ref", "#/$defs/"+w.def(t))
		w.describe(desc, "")
		if w.l.siblings {
			w.beside(n)
		}
	}
}

// beside writes the properties that stand beside a reference (OpenAPI 3.1 and
// later; before, they meant nothing).
func (w *render) beside(n *node) {
	if n.get("default") != nil && !w.output {
		w.value("default", n.get("default"), 200)
	}
	if n.get("properties") != nil {
		w.properties(n)
	}
}

// plain writes a schema without what it is made of.
func (w *render) plain(t *node, name, desc string) {
	var list []member
	for _, m := range t.members() {
		if !slices.Contains(inPlace, m.name) && m.name != "discriminator" && m.name != "$ref" {
			list = append(list, m)
		}
	}
	w.members(made(t, list), name, desc)
}

// closed reports whether a schema allows no properties but its own.
func closed(n *node) bool {
	a := n.get("additionalProperties")
	return a.is(boolean) && a.text == "false"
}

// isComposed reports whether a schema is made of others.
func isComposed(n *node) bool {
	return len(n.get("allOf").members())+len(n.get("anyOf").members())+len(n.get("oneOf").members()) > 0
}

// isLeaf reports whether a schema is better written where it is used: nothing
// is below it.
func isLeaf(n *node) bool {
	for _, m := range n.members() {
		if m.node.kind == object && m.name != "xml" && m.name != "example" && m.name != "default" && m.name != "externalDocs" && !strings.HasPrefix(m.name, "x-") {
			return false
		}
		switch m.name {
		case "allOf", "anyOf", "oneOf", "prefixItems", "$ref":
			return false
		case "enum":
			if len(m.node.members()) > 40 {
				return false
			}
		}
	}
	return true
}

// file writes the schema of a file that is an argument.
func (w *render) file(desc string) {
	w.str("$ref", "#/$defs/"+w.def(nil))
	w.describe(desc, "")
}

// fileSchema is what the definition of a file says.
const fileSchema = `{"description":"A file: give its bytes as base64 in data, or its text in text.",` +
	`"anyOf":[{"type":"object","properties":{"data":{"type":"string","description":"base64"},"text":{"type":"string"},` +
	`"filename":{"type":"string"},"type":{"type":"string","description":"media type"}},"additionalProperties":false},` +
	`{"type":"string","description":"a data: URI"}]}`

// resourceFile is the same where files may be resources.
var resourceFile = strings.Replace(fileSchema, "a data: URI", "a data: URI, or the rest:// address of a resource of this server", 1)

// fileSchema returns what the definition of a file says.
func (w *render) fileSchema() string {
	if w.resources {
		return resourceFile
	}
	return fileSchema
}

// stub writes a schema that only says what kind of value it is.
func (w *render) stub(n *node, desc string) {
	w.stubs = true
	note := ""
	switch t := w.l.typeOf(n); t {
	case "":
	case "array":
		w.types([]string{t}, false)
		w.raw("items", "{}")
	default:
		w.types([]string{t}, false)
		if t == "object" {
			note = w.note
		}
	}
	w.describe(cut(first(desc, n.scalar("description")), 100), note)
}

// types writes the type.
func (w *render) types(types []string, nullable bool) {
	nullable = nullable || w.relaxed
	switch {
	case w.rootless:
		w.rootless = false
		return
	case len(types) == 0:
		return
	case len(types) == 1 && !nullable:
		w.str("type", types[0])
		return
	}
	w.key("type")
	w.b = append(w.b, '[')
	for i, t := range types {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = appendString(w.b, t)
	}
	if nullable {
		w.b = append(w.b, `,"null"`...)
	}
	w.b = append(w.b, ']')
}

func (w *render) describe(desc, note string) {
	// There are very many of them: nothing is put together before it is written.
	desc, mark := beginning(strings.TrimSpace(desc), w.longer)
	if desc == "" && mark == "" && note == "" {
		return
	}
	w.key("description")
	w.b = appendString(w.b, desc)
	w.b = append(w.b[:len(w.b)-1], mark...)
	if note != "" {
		between, end := " (", ")"
		if desc == "" && mark == "" {
			between, end = "", ""
		}
		w.b = append(w.b, between...)
		quote := len(w.b)
		w.b = appendString(w.b, note)
		w.b = append(append(w.b[:quote], w.b[quote+1:len(w.b)-1]...), end...)
	}
	w.b = append(w.b, '"')
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
