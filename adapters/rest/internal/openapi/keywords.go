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

// formats are those of JSON Schema 2020-12.
var formats = []string{"date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6",
	"uri", "uri-reference", "iri", "iri-reference", "uuid", "uri-template", "json-pointer", "relative-json-pointer", "regex"}

var limitMarks = tree.Marks(append([]string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf", "uniqueItems"}, wholeWords...)...)

// members writes the keywords of a schema that is no reference into the open object.
func (w *render) members(n *tree.Node, name, desc string) {
	if w.depth > w.cut && !isLeaf(n) {
		w.stub(n, desc)
		return
	}
	if only := w.wrapped(n); only != nil {
		via := w.viaAll
		w.viaAll = true
		w.ref(only, name, cmp.Or(desc, n.Scalar("description")))
		w.viaAll = via
		if d := n.Get("default"); d != nil && !w.output {
			w.value("default", d, 200)
		}
		return
	}
	types, nullable := typesOf(n)
	if nullable && !w.relaxed && len(n.Get("allOf").Members()) > 0 {
		w.orNull(n, name, desc)
		return
	}
	if types = w.impliedType(n, types); len(types) == 0 && onlyNull(n) {
		w.str("type", "null")
	} else {
		w.types(types, nullable)
	}
	note := ""
	if p := n.Get("pattern"); p.Is(tree.Text) && !w.relaxed {
		if w.l.compiles(p.Text) {
			w.str("pattern", p.Text)
		} else {
			note = "pattern: " + tree.Short(p.Text)
		}
	}
	w.describe(w.text(n, name, desc), note)
	w.enum(n, types, nullable)
	if !w.relaxed {
		w.limits(n)
	}
	// Some clients log every unknown format in an output schema, each time they list tools. In an
	// input schema, formats inform models.
	if f := n.Get("format"); f.Is(tree.Text) && f.Text != "" && len(f.Text) < 40 && f.Text != "binary" && (!w.output || slices.Contains(formats, f.Text)) {
		w.str("format", f.Text)
	}
	if !w.output {
		if d := asType(n.Get("default"), types); d != nil && d.Kind != tree.Null {
			w.value("default", d, 200)
		}
		if n.Flag("deprecated") {
			w.raw("deprecated", "true")
		}
		w.examples(n)
	}
	if n.Get("properties") != nil || n.Get("required").Is(tree.Array) {
		w.properties(n)
	}
	w.additional(n)
	w.items(n, types)
	w.composed(n, nullable)
	if !w.relaxed {
		w.rareKeywords(n)
	}
}

// annotations are keywords that do not change the meaning of an allOf with one reference.
var annotations = []string{"allOf", "description", "default", "nullable", "x-nullable", "readOnly", "writeOnly", "example",
	"examples", "title", "deprecated", "xml", "externalDocs", "type"}

// wrapped returns the reference of a schema that is only an allOf around it: OpenAPI 3.0 needs this
// to describe a reference.
func (w *render) wrapped(n *tree.Node) *tree.Node {
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

// impliedType returns the type of a schema that has none.
func (w *render) impliedType(n *tree.Node, types []string) []string {
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

// text returns the description, or a title that says more than the name.
func (w *render) text(n *tree.Node, name, desc string) string {
	if desc = cmp.Or(desc, n.Scalar("description")); desc != "" {
		return desc
	}
	title := n.Scalar("title")
	plain := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r == ' ' || r == '_' || r == '-' {
				return -1
			}
			return r
		}, strings.ToLower(s))
	}
	if name == "" || plain(title) == plain(name) {
		return ""
	}
	return title
}

// enum writes enum and const, each value once.
func (w *render) enum(n *tree.Node, types []string, nullable bool) {
	if c := n.Get("const"); c != nil && !w.relaxed {
		w.value("const", c, 4000)
	}
	list := n.Get("enum")
	if !list.Is(tree.Array) || len(list.Members()) == 0 {
		return
	}
	mark := len(w.b)
	// If space is short, a long list is only outlined.
	hint := w.relaxed || w.longer < shortDescription && len(list.Members()) > 50
	if w.stubs = w.stubs || hint && !w.relaxed; hint {
		w.key("examples")
	} else {
		w.key("enum")
	}
	w.b = append(w.b, '[')
	seen := map[string]bool{}
	hasNull := false
	for i := range list.Members() {
		v := &list.Members()[i].Node
		if hint && len(seen) == 10 {
			break
		}
		from := len(w.b)
		if len(seen) > 0 {
			w.b = append(w.b, ',')
		}
		if f := asType(v, types); f != nil {
			v = f
		}
		start, ok := len(w.b), false
		w.b, ok = v.AppendJSON(w.b, start+2000)
		if !ok || seen[string(w.b[start:])] {
			w.b = w.b[:from]
			continue
		}
		seen[string(w.b[start:])] = true
		hasNull = hasNull || v.Kind == tree.Null
	}
	if nullable && !hasNull && len(seen) > 0 && !hint {
		w.b = append(w.b, `,null`...)
	}
	if w.b = append(w.b, ']'); len(seen) == 0 {
		w.b = w.b[:mark]
	}
}

// limits writes the bounds of a value.
func (w *render) limits(n *tree.Node) {
	if !n.HasAny(limitMarks) {
		return
	}
	for _, word := range wholeWords {
		if s := whole(n.Get(word)); s != "" {
			w.raw(word, s)
		}
	}
	for _, side := range [][2]string{{"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}} {
		bound, exclusive := numeric(n.Get(side[0])), n.Get(side[1])
		switch {
		case n.Flag(side[1]) && bound != "": // as until JSON Schema draft 4
			w.raw(side[1], bound)
			continue
		case numeric(exclusive) != "":
			w.raw(side[1], numeric(exclusive))
		}
		if bound != "" {
			w.raw(side[0], bound)
		}
	}
	if s := numeric(n.Get("multipleOf")); positive(s) {
		w.raw("multipleOf", s)
	}
	if n.Flag("uniqueItems") {
		w.raw("uniqueItems", "true")
	}
}

// examples writes one short example.
func (w *render) examples(n *tree.Node) {
	if w.longer < longDescription || n.Get("enum") != nil || n.Get("const") != nil {
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
		w.raw("examples", "["+string(v)+"]")
	}
}

// items writes the schema of an array's items, even an empty one, since model providers require it.
func (w *render) items(n *tree.Node, types []string) {
	items := n.Get("items")
	files := w.files
	if files == form {
		w.files = noPart
	}
	prefix := n.Get("prefixItems")
	if items.Is(tree.Array) { // a tuple, as before JSON Schema 2020-12
		prefix, items = items, n.Get("additionalItems")
	}
	if prefix.Is(tree.Array) && len(prefix.Members()) > 0 && !w.relaxed {
		w.list("prefixItems", prefix)
	}
	if items != nil || slices.Contains(types, "array") {
		w.key("items")
		if items != nil && items.Kind == tree.Boolean {
			w.b = append(w.b, items.Text...)
		} else {
			w.schema(items, "", "")
		}
	}
	w.files = files
}

// list writes schemas of values below this one.
func (w *render) list(word string, n *tree.Node) {
	w.key(word)
	w.b = append(w.b, '[')
	for i := range n.Members() {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.schema(&n.Members()[i].Node, "", "")
	}
	w.b = append(w.b, ']')
}

// compiles reports whether a validator can use a pattern.
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
