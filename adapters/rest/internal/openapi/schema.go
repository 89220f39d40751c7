package openapi

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// render writes the schemas of one side of one tool as JSON Schema 2020-12. On the way it repairs
// what validators or model providers refuse; see keywords.go.
type render struct {
	l       *loader
	output  bool // for answers instead of arguments
	relaxed bool // a tolerant output: see Options.StrictOutput

	b         []byte
	limit     int  // in bytes
	greedy    bool // beyond limit, omit parts; otherwise stop
	over      bool // stopped
	trying    bool // the definition is removed if it does not fit
	longer    int  // longest description, in bytes
	cut       int  // depth from which inline objects are omitted
	stubs     bool // parts were omitted
	note      string
	resources bool // files may be resources

	depth    int        // of inline schemas, at this point
	rootless bool       // the type is already written
	opt      int        // optional properties on the way to this point
	files    part       // the meaning of binary strings at this point
	current  *tree.Node // the definition in progress, while its own value is described
	mixed    bool       // this schema is one of several for the same value
	viaAll   bool       // an allOf lies between current and this point

	defs    map[defKey]*def
	order   []*def
	names   map[string]bool
	buckets [][]*def
	open    int // minimal size of the pending definitions, in bytes

	keys renames
}

// part says where a schema is in a form: files are objects there.
type part uint8

const (
	noPart part = iota
	form        // its properties are the parts
	inPart      // it is one of the parts
)

type defKey struct {
	n     *tree.Node
	files part
}

type def struct {
	defKey
	name string
	opt  int
	done bool
}

const maxInline = 60 // depth of inline schemas

// key begins a member of the open object.
func (w *render) key(name string) {
	if last := w.b[len(w.b)-1]; last != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(rawjson.AppendString(w.b, name), ':')
}

func (w *render) raw(name, value string) {
	w.key(name)
	w.b = append(w.b, value...)
}

func (w *render) str(name, value string) {
	w.key(name)
	w.b = rawjson.AppendString(w.b, value)
}

// texts writes a list of texts.
func (w *render) texts(name string, texts []string) {
	w.key(name)
	w.b = append(w.b, '[')
	for i, one := range texts {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = rawjson.AppendString(w.b, one)
	}
	w.b = append(w.b, ']')
}

// value writes a value of the document, unless it is longer than limit.
func (w *render) value(name string, n *tree.Node, limit int) {
	mark := len(w.b)
	w.key(name)
	b, ok := n.AppendJSON(w.b, len(w.b)+limit)
	if w.b = b; !ok {
		w.b = w.b[:mark]
	}
}

// stop reports whether writing more is useless.
func (w *render) stop() bool {
	if len(w.b) > w.limit && !w.greedy || len(w.b) > fullLimit {
		w.over = true
	}
	return w.over || w.trying && w.full()
}

// full reports whether the text, with the pending minimum, exceeds the limit. More writing cannot
// change that.
func (w *render) full() bool { return len(w.b)+w.open > w.limit }

// schema writes a schema that describes a value below the current one.
func (w *render) schema(n *tree.Node, name, desc string) {
	current, via, mixed := w.current, w.viaAll, w.mixed
	w.current, w.viaAll, w.mixed = nil, false, false // references here lead to another value: no cycle
	w.inner(n, name, desc)
	w.current, w.viaAll, w.mixed = current, via, mixed
}

// inner writes a schema that describes the same value as the current one.
func (w *render) inner(n *tree.Node, name, desc string) {
	w.b = append(w.b, '{')
	w.depth++
	switch {
	case n == nil || w.stop() || w.depth > maxInline:
	case n.Kind == tree.Boolean:
		if n.Text == "false" && !w.relaxed {
			w.raw("not", "{}")
		}
	case n.Kind != tree.Object:
		w.l.warn(n, "%s in place of a schema: every value is allowed", n.Kind)
	case n.Get("$ref").Is(tree.Text):
		w.ref(n, name, desc)
	case w.files == inPart && isBinary(n):
		w.file(cmp.Or(desc, n.Scalar("description")))
	default:
		w.members(n, name, desc)
	}
	w.depth--
	w.b = append(w.b, '}')
}

// ref writes the target of a reference, with the members beside it.
func (w *render) ref(n *tree.Node, name, desc string) {
	desc = cmp.Or(desc, n.Scalar("description"))
	t := w.l.deref(n)
	if t == nil {
		w.describe(desc, "")
		return
	}
	if t.Kind != tree.Object {
		if t.Kind == tree.Boolean && t.Text == "false" && !w.relaxed {
			w.raw("not", "{}")
		}
		return
	}
	types, _ := typesOf(t)
	nullable := (n.Flag("nullable") || n.Flag("x-nullable")) && len(types) > 0
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

func (w *render) target(t, n *tree.Node, name, desc string) {
	switch {
	case w.current != nil && (w.l.ways(t, 0) > maxWays || w.l.reaches(t, w.current, w.viaAll)):
		// The value would have to match this very schema again, endlessly: Cat is a Pet, and a Pet
		// is a Cat or a Dog. Schemas that multiply at every step are nearly as bad.
		w.plain(t, name, desc)
	case w.mixed && closed(t) && !isComposed(t):
		w.members(t, name, desc) // without the part that closes the cycle
	case isLeaf(t) || w.files == inPart && isBinary(t):
		if w.files == inPart && isBinary(t) {
			w.file(cmp.Or(desc, t.Scalar("description")))
			return
		}
		w.members(t, name, desc)
	default:
		w.str("$ref", "#/$defs/"+w.def(t))
		w.describe(desc, "")
		if w.l.siblings {
			w.siblingProperties(n)
		}
	}
}

// siblingProperties writes the properties beside a reference (OpenAPI 3.1 and later; earlier versions ignore
// them).
func (w *render) siblingProperties(n *tree.Node) {
	if n.Get("default") != nil && !w.output {
		w.value("default", n.Get("default"), 200)
	}
	if n.Get("properties") != nil {
		w.properties(n)
	}
}

// plain writes a schema without the schemas that it combines.
func (w *render) plain(t *tree.Node, name, desc string) {
	var list []tree.Member
	for _, m := range t.Members() {
		if !slices.Contains(inPlace, m.Name) && m.Name != "discriminator" && m.Name != "$ref" {
			list = append(list, m)
		}
	}
	w.members(t.Object(list), name, desc)
}

// closed reports whether a schema allows only its own properties.
func closed(n *tree.Node) bool {
	a := n.Get("additionalProperties")
	return a.Is(tree.Boolean) && a.Text == "false"
}

// isComposed reports whether a schema combines others.
func isComposed(n *tree.Node) bool {
	return len(n.Get("allOf").Members())+len(n.Get("anyOf").Members())+len(n.Get("oneOf").Members()) > 0
}

// isLeaf reports whether a schema has none below it, and so is better written inline.
func isLeaf(n *tree.Node) bool {
	for _, m := range n.Members() {
		if m.Node.Kind == tree.Object && m.Name != "xml" && m.Name != "example" && m.Name != "default" && m.Name != "externalDocs" && !strings.HasPrefix(m.Name, "x-") {
			return false
		}
		switch m.Name {
		case "allOf", "anyOf", "oneOf", "prefixItems", "$ref":
			return false
		case "enum":
			if len(m.Node.Members()) > 40 {
				return false
			}
		}
	}
	return true
}

// file writes the schema of an argument that is a file.
func (w *render) file(desc string) {
	w.str("$ref", "#/$defs/"+w.def(nil))
	w.describe(desc, "")
}

// fileSchema is the definition of a file.
const fileSchema = `{"description":"A file: give its bytes as base64 in data, or its text in text.",` +
	`"anyOf":[{"type":"object","properties":{"data":{"type":"string","description":"base64"},"text":{"type":"string"},` +
	`"filename":{"type":"string"},"type":{"type":"string","description":"media type"}},"additionalProperties":false},` +
	`{"type":"string","description":"a data: URI"}]}`

// resourceFile is fileSchema where files may be resources.
var resourceFile = strings.Replace(fileSchema, "a data: URI", "a data: URI, or the rest:// address of a resource of this server", 1)

// fileSchema returns the definition of a file.
func (w *render) fileSchema() string {
	if w.resources {
		return resourceFile
	}
	return fileSchema
}

// stub writes a schema that only states the kind of a value.
func (w *render) stub(n *tree.Node, desc string) {
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
	w.describe(cut(cmp.Or(desc, n.Scalar("description")), 100), note)
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
	w.texts("type", types)
	if nullable {
		w.b = append(w.b[:len(w.b)-1], `,"null"]`...)
	}
}

func (w *render) describe(desc, note string) {
	// Types are very frequent: nothing is allocated here.
	desc, mark := tree.Cut(strings.TrimSpace(desc), w.longer)
	if desc == "" && mark == "" && note == "" {
		return
	}
	w.key("description")
	w.b = rawjson.AppendString(w.b, desc)
	w.b = append(w.b[:len(w.b)-1], mark...)
	if note != "" {
		between, end := " (", ")"
		if desc == "" && mark == "" {
			between, end = "", ""
		}
		w.b = append(w.b, between...)
		quote := len(w.b)
		w.b = rawjson.AppendString(w.b, note)
		w.b = append(append(w.b[:quote], w.b[quote+1:len(w.b)-1]...), end...)
	}
	w.b = append(w.b, '"')
}

// cut shortens a text to at most n bytes, with a mark if it was longer.
func cut(s string, n int) string {
	begin, mark := tree.Cut(s, n)
	return begin + mark
}
