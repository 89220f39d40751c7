package openapi

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// render writes the input schema or the output schema of one tool as JSON Schema 2020-12. It repairs
// the parts that validators or model providers would refuse; see keywords.go.
type render struct {
	l       *loader
	output  bool // the schema is for answers
	relaxed bool // the schema is tolerant: see Options.StrictOutput

	b         []byte
	limit     int  // of b, in bytes
	greedy    bool // beyond limit, parts are omitted; otherwise writing stops
	over      bool // writing has stopped
	trying    bool // the definition is removed if it does not fit
	longer    int  // bounds descriptions, in bytes
	cut       int  // depth beyond which inline objects are stubs
	stubs     bool // parts were omitted
	resources bool // files may be resources

	depth    int        // of inline schemas, at this point
	rootless bool       // the type is already written
	opt      int        // optional properties on the way to this point
	files    part       // the meaning of binary strings at this point
	current  *tree.Node // the definition in progress; nil below its own value
	mixed    bool       // this schema is one of several for the same value
	viaAll   bool       // an allOf is between current and this point

	defs    map[defKey]*def
	order   []*def          // the definitions, in the order of the first references
	names   map[string]bool // of definitions
	buckets [][]*def        // the definitions to write, by opt
	open    int             // minimal size of the pending definitions, in bytes

	keys renames
}

// part says whether a schema belongs to a form, in which a binary string is a file.
type part uint8

const (
	noPart part = iota
	form        // the properties of the schema are the parts
	inPart      // the schema is one of the parts
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

const maxInline = 60 // bounds the depth of inline schemas

// key begins a member of the open object.
func (r *render) key(name string) {
	if last := r.b[len(r.b)-1]; last != '{' {
		r.b = append(r.b, ',')
	}
	r.b = append(rawjson.AppendString(r.b, name), ':')
}

func (r *render) raw(name, value string) {
	r.key(name)
	r.b = append(r.b, value...)
}

func (r *render) str(name, value string) {
	r.key(name)
	r.b = rawjson.AppendString(r.b, value)
}

// texts writes a list of texts.
func (r *render) texts(name string, texts []string) {
	r.key(name)
	r.b = append(r.b, '[')
	for i, one := range texts {
		if i > 0 {
			r.b = append(r.b, ',')
		}
		r.b = rawjson.AppendString(r.b, one)
	}
	r.b = append(r.b, ']')
}

// value writes a value of the document, unless it is longer than limit.
func (r *render) value(name string, n *tree.Node, limit int) {
	mark := len(r.b)
	r.key(name)
	b, ok := n.AppendJSON(r.b, len(r.b)+limit)
	if r.b = b; !ok {
		r.b = r.b[:mark]
	}
}

// stop reports whether to write no more, since the schema is too long already.
func (r *render) stop() bool {
	if len(r.b) > r.limit && !r.greedy || len(r.b) > fullLimit {
		r.over = true
	}
	return r.over || r.trying && r.full()
}

// full reports whether the text, with the pending definitions at their minimal size, exceeds the
// limit.
func (r *render) full() bool { return len(r.b)+r.open > r.limit }

// schema writes a schema that describes a value below the current one.
func (r *render) schema(n *tree.Node, name, desc string) {
	current, via, mixed := r.current, r.viaAll, r.mixed
	r.current, r.viaAll, r.mixed = nil, false, false // a reference to current from another value is no cycle
	r.inner(n, name, desc)
	r.current, r.viaAll, r.mixed = current, via, mixed
}

// inner writes a schema that describes the same value as the current one.
func (r *render) inner(n *tree.Node, name, desc string) {
	r.b = append(r.b, '{')
	r.depth++
	switch {
	case n == nil || r.stop() || r.depth > maxInline:
	case n.Kind == tree.Boolean:
		if n.Text == "false" && !r.relaxed {
			r.raw("not", "{}")
		}
	case n.Kind != tree.Object:
		r.l.warn(n, "%s in place of a schema: every value is allowed", n.Kind)
	case r.l.refOf(n) != nil:
		r.ref(n, name, desc)
	case r.files == inPart && isBinary(n):
		r.file(cmp.Or(desc, n.Scalar("description")))
	default:
		r.members(n, name, desc)
	}
	r.depth--
	r.b = append(r.b, '}')
}

// ref writes the target of the reference n, with the members beside the reference.
func (r *render) ref(n *tree.Node, name, desc string) {
	desc = cmp.Or(desc, n.Scalar("description"))
	t := r.l.deref(n)
	if t == nil {
		r.describe(desc, "")
		return
	}
	if t.Kind != tree.Object {
		if t.Kind == tree.Boolean && t.Text == "false" && !r.relaxed {
			r.raw("not", "{}")
		}
		return
	}
	types, _ := typesOf(t)
	nullable := (n.Flag("nullable") || n.Flag("x-nullable")) && len(types) > 0
	_, itself := typesOf(t)
	if nullable && !itself && !r.relaxed {
		r.describe(desc, "")
		r.key("anyOf")
		r.b = append(r.b, '[', '{')
		r.target(t, n, name, "")
		r.b = append(r.b, `},{"type":"null"}]`...)
		return
	}
	r.target(t, n, name, desc)
}

func (r *render) target(t, n *tree.Node, name, desc string) {
	switch {
	case r.current != nil && (r.l.ways(t, 0) > maxWays || r.l.reaches(t, r.current, r.viaAll)):
		// A validator would check the value with the same schema again, endlessly: Cat is a Pet, and a
		// Pet is a Cat or a Dog. Schemas that multiply at every step are nearly as bad.
		r.plain(t, name, desc)
	case r.mixed && closed(t) && !isComposed(t):
		r.members(t, name, desc) // inline, so that additionalProperties can be left out
	case isLeaf(t) || r.files == inPart && isBinary(t):
		if r.files == inPart && isBinary(t) {
			r.file(cmp.Or(desc, t.Scalar("description")))
			return
		}
		r.members(t, name, desc)
	default:
		r.str("$ref", "#/$defs/"+r.def(t))
		r.describe(desc, "")
		if r.l.siblings {
			r.siblingProperties(n)
		}
	}
}

// siblingProperties writes the default and the properties beside a reference, which versions before
// OpenAPI 3.1 ignore.
func (r *render) siblingProperties(n *tree.Node) {
	if n.Get("default") != nil && !r.output {
		r.value("default", n.Get("default"), 200)
	}
	if n.Get("properties") != nil {
		r.properties(n)
	}
}

// plain writes a schema without the keywords inPlace.
func (r *render) plain(n *tree.Node, name, desc string) {
	var list []tree.Member
	for _, m := range n.Members() {
		if !slices.Contains(inPlace, m.Name) && m.Name != "discriminator" && m.Name != "$ref" {
			list = append(list, m)
		}
	}
	r.members(n.Object(list), name, desc)
}

// closed reports whether a schema allows only its own properties.
func closed(n *tree.Node) bool {
	a := n.Get("additionalProperties")
	return a.Is(tree.Boolean) && a.Text == "false"
}

// isComposed reports whether a schema has allOf, anyOf or oneOf.
func isComposed(n *tree.Node) bool {
	return len(n.Get("allOf").Members())+len(n.Get("anyOf").Members())+len(n.Get("oneOf").Members()) > 0
}

// isLeaf reports whether a schema contains no other schema, so that it is better written inline.
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
func (r *render) file(desc string) {
	r.str("$ref", "#/$defs/"+r.def(nil))
	r.describe(desc, "")
}

// fileSchema is the definition of a file.
const fileSchema = `{"description":"A file: give its bytes as base64 in data, or its text in text.",` +
	`"anyOf":[{"type":"object","properties":{"data":{"type":"string","description":"base64"},"text":{"type":"string"},` +
	`"filename":{"type":"string"},"type":{"type":"string","description":"media type"}},"additionalProperties":false},` +
	`{"type":"string","description":"a data: URI"}]}`

// resourceFile is fileSchema where files may be resources.
var resourceFile = strings.Replace(fileSchema, "a data: URI", "a data: URI, or the rest:// address of a resource of this server", 1)

// fileSchema returns the definition of a file.
func (r *render) fileSchema() string {
	if r.resources {
		return resourceFile
	}
	return fileSchema
}

// stub writes a schema that has only the type and a short description of a value.
func (r *render) stub(n *tree.Node, desc string) {
	r.stubs = true
	switch t := r.l.typeOf(n); t {
	case "":
	case "array":
		r.types([]string{t}, false)
		r.raw("items", "{}")
	default:
		r.types([]string{t}, false)
	}
	r.describe(cut(cmp.Or(desc, n.Scalar("description")), 100), "")
}

// types writes the keyword type, unless the root object already has it.
func (r *render) types(types []string, nullable bool) {
	nullable = nullable || r.relaxed
	switch {
	case r.rootless:
		r.rootless = false
		return
	case len(types) == 0:
		return
	case len(types) == 1 && !nullable:
		r.str("type", types[0])
		return
	}
	r.texts("type", types)
	if nullable {
		r.b = append(r.b[:len(r.b)-1], `,"null"]`...)
	}
}

func (r *render) describe(desc, note string) {
	// Descriptions are very frequent, so this code allocates nothing.
	desc, mark := tree.Cut(strings.TrimSpace(desc), r.longer)
	if desc == "" && mark == "" && note == "" {
		return
	}
	r.key("description")
	r.b = rawjson.AppendString(r.b, desc)
	r.b = append(r.b[:len(r.b)-1], mark...)
	if note != "" {
		between, end := " (", ")"
		if desc == "" && mark == "" {
			between, end = "", ""
		}
		r.b = append(r.b, between...)
		quote := len(r.b)
		r.b = rawjson.AppendString(r.b, note)
		r.b = append(append(r.b[:quote], r.b[quote+1:len(r.b)-1]...), end...)
	}
	r.b = append(r.b, '"')
}

// cut shortens a text to at most n bytes, with … at its end if it was longer.
func cut(s string, n int) string {
	begin, mark := tree.Cut(s, n)
	return begin + mark
}
