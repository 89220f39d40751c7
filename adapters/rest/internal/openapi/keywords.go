package openapi

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// wholeWords are keywords whose value is a count.
var wholeWords = []string{"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}

// formats are the formats of JSON Schema 2020-12.
var formats = []string{"date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6",
	"uri", "uri-reference", "iri", "iri-reference", "uuid", "uri-template", "json-pointer", "relative-json-pointer", "regex"}

var limitMarks = tree.Marks(append([]string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf", "uniqueItems"}, wholeWords...)...)

// members writes the keywords of a schema that is no reference into the open object. name is the
// property's, and desc replaces the schema's description, unless empty.
func (r *render) members(n *tree.Node, name, desc string) {
	if r.depth > r.cut && !isLeaf(n) {
		r.stub(n, desc)
		return
	}
	if only := r.wrapped(n); only != nil {
		via := r.viaAll
		r.viaAll = true
		r.ref(only, name, cmp.Or(desc, n.Scalar("description")))
		r.viaAll = via
		if d := n.Get("default"); d != nil && !r.output {
			r.value("default", d, 200)
		}
		return
	}
	types, nullable := typesOf(n)
	if nullable && !r.relaxed && len(n.Get("allOf").Members()) > 0 {
		r.orNull(n, name, desc)
		return
	}
	if types = r.impliedType(n, types); len(types) == 0 && onlyNull(n) {
		r.str("type", "null")
	} else {
		r.types(types, nullable)
	}
	note := ""
	if p := n.Get("pattern"); p.Is(tree.Text) && !r.relaxed {
		if r.l.compiles(p.Text) {
			r.str("pattern", p.Text)
		} else {
			note = "pattern: " + tree.Short(p.Text)
		}
	}
	r.describe(r.text(n, name, desc), note)
	r.enum(n, types, nullable)
	if !r.relaxed {
		r.limits(n)
	}
	// In an output schema, some clients log every unknown format each time they list tools, and refuse
	// answers that do not have a known format. In an input schema, formats inform models.
	if f := n.Get("format"); f.Is(tree.Text) && f.Text != "" && len(f.Text) < 40 && f.Text != "binary" && !r.relaxed && (!r.output || slices.Contains(formats, f.Text)) {
		r.str("format", f.Text)
	}
	if !r.output {
		if d := asType(n.Get("default"), types); d != nil && d.Kind != tree.Null {
			r.value("default", d, 200)
		}
		if n.Flag("deprecated") {
			r.raw("deprecated", "true")
		}
		r.examples(n)
	}
	if n.Get("properties") != nil || n.Get("required").Is(tree.Array) {
		r.properties(n)
	}
	r.additional(n)
	r.items(n, types)
	r.composed(n, nullable)
	if !r.relaxed {
		r.rareKeywords(n)
	}
}

// annotations are the keywords beside an allOf with one reference that leave its meaning unchanged.
var annotations = []string{"allOf", "description", "default", "nullable", "x-nullable", "readOnly", "writeOnly", "example",
	"examples", "title", "deprecated", "xml", "externalDocs", "type"}

// wrapped returns the only reference in the allOf of a schema with annotations, or nil. In OpenAPI
// 3.0, a reference can have a description only in this form.
func (r *render) wrapped(n *tree.Node) *tree.Node {
	all := n.Get("allOf").Members()
	if len(all) != 1 || !all[0].Node.Get("$ref").Is(tree.Text) || len(all[0].Node.Members()) > 1 || n.Flag("nullable") {
		return nil
	}
	for _, m := range n.Members() {
		if !slices.Contains(annotations, m.Name) && !strings.HasPrefix(m.Name, "x-") {
			return nil
		}
	}
	return &all[0].Node
}

// impliedType returns types, or if there are none, the type that properties or items imply.
func (r *render) impliedType(n *tree.Node, types []string) []string {
	if len(types) > 0 || isComposed(n) {
		return types
	}
	switch {
	case n.Get("properties").Is(tree.Object):
		return []string{"object"}
	case n.Get("items") != nil:
		return []string{"array"}
	}
	return types
}

// text returns the description, or else a title that says more than the name.
func (r *render) text(n *tree.Node, name, desc string) string {
	if desc = cmp.Or(desc, n.Scalar("description")); desc != "" {
		return desc
	}
	title := n.Scalar("title")
	plain := func(s string) string {
		return strings.Map(func(char rune) rune {
			if char == ' ' || char == '_' || char == '-' {
				return -1
			}
			return char
		}, strings.ToLower(s))
	}
	if name == "" || plain(title) == plain(name) {
		return ""
	}
	return title
}

// enum writes enum and const, each value once.
func (r *render) enum(n *tree.Node, types []string, nullable bool) {
	if c := n.Get("const"); c != nil && !r.relaxed {
		r.value("const", cmp.Or(asType(c, types), c), 4000)
	}
	list := n.Get("enum")
	if !list.Is(tree.Array) || len(list.Members()) == 0 {
		return
	}
	mark := len(r.b)
	// If space is short, the schema shows the beginning of a long list as examples.
	hint := r.relaxed || r.longer < shortDescription && len(list.Members()) > 50
	if r.stubs = r.stubs || hint && !r.relaxed; hint {
		r.key("examples")
	} else {
		r.key("enum")
	}
	r.b = append(r.b, '[')
	seen := map[string]bool{}
	hasNull := false
	for i := range list.Members() {
		n := &list.Members()[i].Node
		if hint && len(seen) == 10 {
			break
		}
		from := len(r.b)
		if len(seen) > 0 {
			r.b = append(r.b, ',')
		}
		if f := asType(n, types); f != nil {
			n = f
		}
		start, ok := len(r.b), false
		r.b, ok = n.AppendJSON(r.b, start+2000)
		if !ok || seen[string(r.b[start:])] {
			r.b = r.b[:from]
			continue
		}
		seen[string(r.b[start:])] = true
		hasNull = hasNull || n.Kind == tree.Null
	}
	if nullable && !hasNull && len(seen) > 0 && !hint {
		r.b = append(r.b, `,null`...)
	}
	if r.b = append(r.b, ']'); len(seen) == 0 {
		r.b = r.b[:mark]
	}
}

// limits writes the keywords that bound a value, such as maximum and maxLength.
func (r *render) limits(n *tree.Node) {
	if !n.HasAny(limitMarks) {
		return
	}
	for _, word := range wholeWords {
		if s := whole(n.Get(word)); s != "" {
			r.raw(word, s)
		}
	}
	for _, side := range [][2]string{{"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}} {
		bound, exclusive := numeric(n.Get(side[0])), n.Get(side[1])
		switch {
		case n.Flag(side[1]) && bound != "": // the boolean form of JSON Schema draft 4
			r.raw(side[1], bound)
			continue
		case numeric(exclusive) != "":
			r.raw(side[1], numeric(exclusive))
		}
		if bound != "" {
			r.raw(side[0], bound)
		}
	}
	if s := numeric(n.Get("multipleOf")); positive(s) {
		r.raw("multipleOf", s)
	}
	if n.Flag("uniqueItems") {
		r.raw("uniqueItems", "true")
	}
}

// examples writes one short example.
func (r *render) examples(n *tree.Node) {
	if r.longer < longDescription || n.Get("enum") != nil || n.Get("const") != nil {
		return
	}
	e := n.Get("example")
	if list := n.Get("examples"); e == nil && list.Is(tree.Array) && len(list.Members()) > 0 {
		e = &list.Members()[0].Node
	}
	if e == nil || e.Kind == tree.Null || e.Kind == tree.Array || e.Kind == tree.Object {
		return
	}
	if v, ok := e.AppendJSON(nil, 60); ok {
		r.raw("examples", "["+string(v)+"]")
	}
}

// items writes the schema of an array's items, even an empty one, since model providers require it.
func (r *render) items(n *tree.Node, types []string) {
	items := n.Get("items")
	files := r.files
	if files == form { // parts without names
		r.files = inPart
	}
	prefix := n.Get("prefixItems")
	if items.Is(tree.Array) { // the tuple form of older versions of JSON Schema
		prefix, items = items, n.Get("additionalItems")
	}
	if prefix.Is(tree.Array) && len(prefix.Members()) > 0 && !r.relaxed {
		r.list("prefixItems", prefix)
	}
	if items != nil || slices.Contains(types, "array") {
		r.key("items")
		if items != nil && items.Kind == tree.Boolean {
			r.b = append(r.b, items.Text...)
		} else {
			r.schema(items, "", "")
		}
	}
	r.files = files
}

// list writes a list of schemas for values below the current one.
func (r *render) list(word string, n *tree.Node) {
	r.key(word)
	r.b = append(r.b, '[')
	for i := range n.Members() {
		if i > 0 {
			r.b = append(r.b, ',')
		}
		r.schema(&n.Members()[i].Node, "", "")
	}
	r.b = append(r.b, ']')
}

// compiles reports whether a validator can use a pattern. It reports false for a pattern of more than
// 1,000 bytes, and for every new pattern after 10,000 patterns.
func (l *loader) compiles(pattern string) bool {
	if ok, known := l.patterns[pattern]; known {
		return ok
	}
	if len(pattern) > 1000 || len(l.patterns) > 10000 {
		return false
	}
	_, err := regexp.Compile(pattern)
	l.patterns[pattern] = err == nil
	return err == nil
}
