package openapi

import (
	"bytes"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// inPlace are the keywords whose schemas describe the same value.
var inPlace = []string{"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"}

// properties writes properties and required.
func (w *render) properties(n *tree.Node) {
	props := w.l.derefOptional(n.Get("properties"))
	if props != nil && props.Kind != tree.Object {
		w.l.warn(props, "properties is %s, not an object", props.Kind)
		props = nil
	}
	var names []string
	if n.Get("required").Is(tree.Array) {
		names = n.Strings("required")
	}
	wanted := newSet(names)
	hidden := "readOnly"
	if w.output {
		hidden = "writeOnly"
	}
	var required []string
	if props != nil && len(props.Members())+len(names) > 0 {
		w.key("properties")
		w.b = append(w.b, '{')
	}
	for i := range props.Members() {
		m := &props.Members()[i]
		must := wanted.take(m.Name) || m.Node.Get("required").Is(tree.Boolean) && m.Node.Flag("required")
		if w.l.marked(&m.Node, hidden) || w.stop() {
			continue
		}
		name := m.Name
		desc := ""
		if !w.output {
			if name = w.keys.shown(m.Name); name != m.Name {
				desc = renamed(m.Node.Scalar("description"), m.Name)
			}
		}
		if must {
			required = append(required, name)
		}
		w.property(name, &m.Node, desc, must)
	}
	// A required member without a schema may be anything.
	for _, name := range names {
		if !wanted.take(name) {
			continue
		}
		shown := name
		if !w.output {
			shown = w.keys.shown(name)
		}
		required = append(required, shown)
		if props != nil {
			w.raw(shown, "{}")
		}
	}
	if props != nil && len(props.Members())+len(names) > 0 {
		w.b = append(w.b, '}')
	}
	w.required(required)
}

// set is the set of names still to be found.
type set map[string]bool

func newSet(names []string) set {
	s := make(set, len(names))
	for _, n := range names {
		s[n] = true
	}
	return s
}

// take reports whether a name is in the set, and removes it.
func (s set) take(name string) bool {
	is := s[name]
	delete(s, name)
	return is
}

func (w *render) required(names []string) {
	if len(names) == 0 || w.relaxed {
		return
	}
	w.texts("required", names)
}

// property writes one property. Optional ones are the first to be omitted if a schema is too long.
func (w *render) property(name string, n *tree.Node, desc string, must bool) {
	opt, files := w.opt, w.files
	if !must {
		w.opt++
	}
	if w.files = noPart; files == form {
		w.files = inPart
	}
	w.key(name)
	w.schema(n, name, desc)
	w.opt, w.files = opt, files
}

// renamed adds the real name to a description.
func renamed(desc, name string) string {
	if desc = strings.TrimSpace(desc); desc != "" {
		desc += " "
	}
	return desc + "(sent as " + tree.Short(name) + ")"
}

// additional writes additionalProperties.
func (w *render) additional(n *tree.Node) {
	a := n.Get("additionalProperties")
	files := w.files
	if w.files = noPart; files == form {
		w.files = inPart
	}
	switch {
	case closed(n):
		// If the parts of a value each refused the other parts' properties, they would refuse every
		// value.
		if !w.relaxed && !w.mixed && !isComposed(n) {
			w.raw("additionalProperties", "false")
		}
	case a.Is(tree.Object) && len(a.Members()) > 0:
		w.keys.open = true
		opt := w.opt
		w.opt++
		w.key("additionalProperties")
		w.schema(a, "", "")
		w.opt = opt
	case a != nil:
		w.keys.open = true
		if n.Get("properties") == nil {
			w.raw("additionalProperties", "true")
		}
	case n.Get("properties") == nil:
		types, _ := typesOf(n)
		w.keys.open = w.keys.open || slices.Contains(types, "object")
	}
	w.files = files
}

// composed writes allOf, anyOf and oneOf. It writes oneOf as anyOf: more model providers support
// that, and alternatives in real documents are seldom exclusive.
func (w *render) composed(n *tree.Node, nullable bool) {
	if all := n.Get("allOf"); all.Is(tree.Array) && len(all.Members()) > 0 {
		via, mixed := w.viaAll, w.mixed
		w.viaAll, w.mixed = true, true
		w.alternatives("allOf", all, nil, false)
		w.viaAll, w.mixed = via, mixed
	}
	one, other := n.Get("oneOf"), n.Get("anyOf")
	if other.Is(tree.Array) && len(other.Members()) > 0 {
		w.alternatives("anyOf", other, n.Get("discriminator"), nullable)
		if one.Is(tree.Array) && len(one.Members()) > 0 && !w.relaxed {
			w.alternatives("oneOf", one, nil, nullable)
		}
	} else if one.Is(tree.Array) && len(one.Members()) > 0 {
		w.alternatives("anyOf", one, n.Get("discriminator"), nullable)
	}
}

func (w *render) alternatives(word string, list, discriminator *tree.Node, nullable bool) {
	w.key(word)
	w.b = append(w.b, '[')
	for i := range list.Members() {
		n := &list.Members()[i].Node
		if i > 0 {
			w.b = append(w.b, ',')
		}
		start := len(w.b)
		w.inner(n, "", "")
		if discriminator.Is(tree.Object) && !w.relaxed && bytes.HasPrefix(w.b[start:], []byte(`{"$ref"`)) &&
			!bytes.Contains(w.b[start:], []byte(`"properties"`)) {
			w.hint(n, discriminator)
		}
		if types, null := typesOf(n); null && len(types) == 0 {
			nullable = false
		}
	}
	if nullable && !w.relaxed {
		w.b = append(w.b, `,{"type":"null"}`...)
	}
	w.b = append(w.b, ']')
}

// hint adds the discriminator's value to an alternative. It reopens the schema that was just
// written.
func (w *render) hint(n, discriminator *tree.Node) {
	prop, ref := discriminator.Str("propertyName"), n.Str("$ref")
	t := w.l.deref(n)
	own := w.l.derefOptional(t.Get("properties").Get(prop))
	if prop == "" || t == nil || own.Get("enum") != nil || own.Get("const") != nil {
		return
	}
	var values []string
	mapping := discriminator.Get("mapping")
	for i := range mapping.Members() {
		m := &mapping.Members()[i]
		if m.Node.Is(tree.Text) && (m.Node.Text == ref || label(m.Node.Text) == label(ref)) && !slices.Contains(values, m.Name) {
			values = append(values, m.Name)
		}
	}
	if mapping == nil {
		values = []string{ref[strings.LastIndexByte(ref, '/')+1:]}
	}
	if len(values) == 0 {
		return
	}
	shown := prop
	if !w.output {
		shown = w.keys.shown(prop)
	}
	w.b = w.b[:len(w.b)-1]
	w.key("properties")
	w.b = append(w.b, '{')
	w.key(shown)
	w.b = append(w.b, '{')
	w.texts("enum", values)
	w.b = append(w.b, "}}"...)
	w.required([]string{shown})
	w.b = append(w.b, '}')
}

// orNull writes a combined schema that may also be null.
func (w *render) orNull(n *tree.Node, name, desc string) {
	w.describe(w.text(n, name, desc), "")
	var list []tree.Member
	for _, m := range n.Members() {
		switch m.Name {
		case "nullable", "x-nullable", "description", "title", "default":
		case "type":
			if types, _ := typesOf(n); len(types) == 1 {
				list = append(list, tree.Member{Name: "type", Node: tree.Node{Kind: tree.Text, Text: types[0], Line: m.Node.Line, File: m.Node.File}})
			}
		default:
			list = append(list, m)
		}
	}
	w.key("anyOf")
	w.b = append(w.b, '[')
	w.inner(n.Object(list), "", "")
	w.b = append(w.b, `,{"type":"null"}]`...)
}

var restMarks = tree.Marks("not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "patternProperties", "dependentSchemas", "dependentRequired")

// rareKeywords writes the rare keywords.
func (w *render) rareKeywords(n *tree.Node) {
	if !n.HasAny(restMarks) {
		return
	}
	for _, word := range []string{"not", "if", "then", "else"} {
		if s := n.Get(word); s.Is(tree.Object) || s.Is(tree.Boolean) {
			w.key(word)
			w.inner(s, "", "")
		}
	}
	for _, word := range []string{"contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties"} {
		if s := n.Get(word); s.Is(tree.Object) || s.Is(tree.Boolean) {
			w.key(word)
			w.schema(s, "", "")
			for _, bound := range []string{"minContains", "maxContains"} {
				if word == "contains" && whole(n.Get(bound)) != "" {
					w.raw(bound, whole(n.Get(bound)))
				}
			}
		}
	}
	for _, word := range []string{"patternProperties", "dependentSchemas"} {
		s := n.Get(word)
		if !s.Is(tree.Object) {
			continue
		}
		w.keys.open = true
		w.key(word)
		w.b = append(w.b, '{')
		for i := range s.Members() {
			m := &s.Members()[i]
			switch {
			case word == "dependentSchemas":
				w.key(w.keys.shown(m.Name))
				w.inner(&m.Node, "", "")
			case w.l.compiles(m.Name):
				w.key(m.Name)
				w.schema(&m.Node, "", "")
			}
		}
		w.b = append(w.b, '}')
	}
	if s := n.Get("dependentRequired"); s.Is(tree.Object) {
		w.key("dependentRequired")
		w.b = append(w.b, '{')
		for i := range s.Members() {
			m := &s.Members()[i]
			var names []string
			for _, name := range s.Strings(m.Name) {
				if name = w.keys.shown(name); !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
			w.texts(w.keys.shown(m.Name), names)
		}
		w.b = append(w.b, '}')
	}
}
