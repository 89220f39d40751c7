package openapi

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// wholeWords are keywords that take a number that counts something.
var wholeWords = []string{"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}

// formats are those of JSON Schema 2020-12.
var formats = []string{"date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6",
	"uri", "uri-reference", "iri", "iri-reference", "uuid", "uri-template", "json-pointer", "relative-json-pointer", "regex"}

var limitMarks = marksOf(append([]string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf", "uniqueItems"}, wholeWords...)...)

// members writes the keywords of a schema that is no reference into the object
// that is open.
func (w *render) members(n *node, name, desc string) {
	if w.depth > w.cut && !isLeaf(n) {
		w.stub(n, desc)
		return
	}
	if only := w.wrapped(n); only != nil {
		via := w.viaAll
		w.viaAll = true
		w.ref(only, name, first(desc, n.scalar("description")))
		w.viaAll = via
		if d := n.get("default"); d != nil && !w.output {
			w.value("default", d, 200)
		}
		return
	}
	types, nullable := typesOf(n)
	if nullable && !w.relaxed && len(n.get("allOf").members()) > 0 {
		w.orNull(n, name, desc)
		return
	}
	if types = w.impliedType(n, types); len(types) == 0 && onlyNull(n) {
		w.str("type", "null")
	} else {
		w.types(types, nullable)
	}
	note := ""
	if p := n.get("pattern"); p.is(text) && !w.relaxed {
		if w.l.compiles(p.text) {
			w.str("pattern", p.text)
		} else {
			note = "pattern: " + short(p.text)
		}
	}
	w.describe(w.text(n, name, desc), note)
	w.enum(n, types, nullable)
	if !w.relaxed {
		w.limits(n)
	}
	// Some clients complain of every format in an output schema that they do not
	// know, each time they list tools. In an input schema it tells models something.
	if f := n.get("format"); f.is(text) && f.text != "" && len(f.text) < 40 && f.text != "binary" && (!w.output || slices.Contains(formats, f.text)) {
		w.str("format", f.text)
	}
	if !w.output {
		if d := fit(n.get("default"), types); d != nil && d.kind != null {
			w.value("default", d, 200)
		}
		if n.flag("deprecated") {
			w.raw("deprecated", "true")
		}
		w.examples(n)
	}
	if n.get("properties") != nil || n.get("required").is(array) {
		w.properties(n)
	}
	w.additional(n)
	w.items(n, types)
	w.composed(n, nullable)
	if !w.relaxed {
		w.rest(n)
	}
}

// annotations are keywords beside an allOf of one reference that do not make
// it more than that reference.
var annotations = []string{"allOf", "description", "default", "nullable", "x-nullable", "readOnly", "writeOnly", "example",
	"examples", "title", "deprecated", "xml", "externalDocs", "type"}

// wrapped returns the reference when a schema is nothing but an allOf around
// it: what OpenAPI 3.0 needs to describe a reference.
func (w *render) wrapped(n *node) *node {
	all := n.get("allOf").members()
	if len(all) != 1 || !all[0].node.get("$ref").is(text) || len(all[0].node.members()) > 1 || n.flag("nullable") {
		return nil
	}
	for _, m := range n.members() {
		if !slices.Contains(annotations, m.name) && !strings.HasPrefix(m.name, "x-") {
			return nil
		}
	}
	return &all[0].node
}

// impliedType says what a schema means that forgot its type.
func (w *render) impliedType(n *node, types []string) []string {
	if len(types) > 0 || isComposed(n) {
		return types
	}
	switch {
	case n.get("properties").is(object):
		return []string{"object"}
	case n.get("items") != nil:
		return []string{"array"}
	}
	return types
}

// text is the description, or a title that says more than the name.
func (w *render) text(n *node, name, desc string) string {
	if desc = first(desc, n.scalar("description")); desc != "" {
		return desc
	}
	title := n.scalar("title")
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
func (w *render) enum(n *node, types []string, nullable bool) {
	if c := n.get("const"); c != nil && !w.relaxed {
		w.value("const", c, 4000)
	}
	list := n.get("enum")
	if !list.is(array) || len(list.members()) == 0 {
		return
	}
	mark := len(w.b)
	// When space is short, a long list is only hinted at.
	hint := w.relaxed || w.longer < shortDescription && len(list.members()) > 50
	if w.stubs = w.stubs || hint && !w.relaxed; hint {
		w.key("examples")
	} else {
		w.key("enum")
	}
	w.b = append(w.b, '[')
	var seen spans
	hasNull := false
	for i := range list.members() {
		v := &list.kids.list[i].node
		if hint && len(seen.at) == 10 {
			break
		}
		from := len(w.b)
		if len(seen.at) > 0 {
			w.b = append(w.b, ',')
		}
		if f := fit(v, types); f != nil {
			v = f
		}
		start, ok := len(w.b), false
		w.b, ok = appendValue(w.b, v, start+2000, 0)
		if !ok || !seen.add(w.b, start) {
			w.b = w.b[:from]
			continue
		}
		hasNull = hasNull || v.kind == null
	}
	if nullable && !hasNull && len(seen.at) > 0 && !hint {
		w.b = append(w.b, `,null`...)
	}
	if w.b = append(w.b, ']'); len(seen.at) == 0 {
		w.b = w.b[:mark]
	}
}

// spans are the values of a list that was written, to tell which are new.
type spans struct {
	at   [][2]int
	many map[string]bool
}

// add notes what b has from start on; false when it was there before.
func (s *spans) add(b []byte, start int) bool {
	if s.many != nil {
		if s.many[string(b[start:])] {
			return false
		}
		s.many[string(b[start:])] = true
	} else {
		for _, o := range s.at {
			if bytes.Equal(b[o[0]:o[1]], b[start:]) {
				return false
			}
		}
	}
	s.at = append(s.at, [2]int{start, len(b)})
	if len(s.at) == 32 {
		s.many = map[string]bool{}
		for _, o := range s.at {
			s.many[string(b[o[0]:o[1]])] = true
		}
	}
	return true
}

// limits writes what bounds a value.
func (w *render) limits(n *node) {
	if !n.hasAny(limitMarks) {
		return
	}
	for _, word := range wholeWords {
		if s := whole(n.get(word)); s != "" {
			w.raw(word, s)
		}
	}
	for _, side := range [][2]string{{"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}} {
		bound, exclusive := numeric(n.get(side[0])), n.get(side[1])
		switch {
		case n.flag(side[1]) && bound != "": // as until JSON Schema draft 4
			w.raw(side[1], bound)
			continue
		case numeric(exclusive) != "":
			w.raw(side[1], numeric(exclusive))
		}
		if bound != "" {
			w.raw(side[0], bound)
		}
	}
	if s := numeric(n.get("multipleOf")); positive(s) {
		w.raw("multipleOf", s)
	}
	if n.flag("uniqueItems") {
		w.raw("uniqueItems", "true")
	}
}

// examples writes one short example.
func (w *render) examples(n *node) {
	if w.longer < longDescription || n.get("enum") != nil || n.get("const") != nil {
		return
	}
	e := n.get("example")
	if list := n.get("examples"); e == nil && list.is(array) && len(list.members()) > 0 {
		e = &list.members()[0].node
	}
	if e == nil || e.kind == null || e.kind == array || e.kind == object {
		return
	}
	if v, ok := appendValue(nil, e, 60, 0); ok {
		w.raw("examples", "["+string(v)+"]")
	}
}

// items writes what arrays hold. They always say something, since providers of
// models demand it.
func (w *render) items(n *node, types []string) {
	items := n.get("items")
	files := w.files
	if files == form {
		w.files = noPart
	}
	prefix := n.get("prefixItems")
	if items.is(array) { // a tuple, as before JSON Schema 2020-12
		prefix, items = items, n.get("additionalItems")
	}
	if prefix.is(array) && len(prefix.members()) > 0 && !w.relaxed {
		w.list("prefixItems", prefix)
	}
	if items != nil || slices.Contains(types, "array") {
		w.key("items")
		if items != nil && items.kind == boolean {
			w.b = append(w.b, items.text...)
		} else {
			w.schema(items, "", "")
		}
	}
	w.files = files
}

// list writes schemas of values below this one.
func (w *render) list(word string, n *node) {
	w.key(word)
	w.b = append(w.b, '[')
	for i := range n.members() {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.schema(&n.kids.list[i].node, "", "")
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
