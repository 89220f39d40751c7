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
func (r *render) properties(n *tree.Node) {
	props := r.l.derefOptional(n.Get("properties"))
	if props != nil && props.Kind != tree.Object {
		r.l.warn(props, "properties is %s, not an object", props.Kind)
		props = nil
	}
	var names []string
	if n.Get("required").Is(tree.Array) {
		names = n.Strings("required")
	}
	wanted := newSet(names)
	hidden := "readOnly"
	if r.output {
		hidden = "writeOnly"
	}
	var required []string
	if props != nil && len(props.Members())+len(names) > 0 {
		r.key("properties")
		r.b = append(r.b, '{')
	}
	for i := range props.Members() {
		m := &props.Members()[i]
		must := wanted.take(m.Name) || m.Node.Get("required").Is(tree.Boolean) && m.Node.Flag("required")
		if r.l.marked(&m.Node, hidden) || r.stop() {
			continue
		}
		name := m.Name
		desc := ""
		if !r.output {
			if name = r.keys.shown(m.Name); name != m.Name {
				desc = renamed(m.Node.Scalar("description"), m.Name)
			}
		}
		if must {
			required = append(required, name)
		}
		r.property(name, &m.Node, desc, must)
	}
	// A required member without a schema may have any value.
	for _, name := range names {
		if !wanted.take(name) {
			continue
		}
		shown := name
		if !r.output {
			shown = r.keys.shown(name)
		}
		required = append(required, shown)
		if props != nil {
			r.raw(shown, "{}")
		}
	}
	if props != nil && len(props.Members())+len(names) > 0 {
		r.b = append(r.b, '}')
	}
	r.required(required)
}

// set is a set of names.
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

func (r *render) required(names []string) {
	if len(names) == 0 || r.relaxed {
		return
	}
	r.texts("required", names)
}

// property writes one property. If a schema is too long, optional properties are omitted first.
func (r *render) property(name string, n *tree.Node, desc string, must bool) {
	opt, files := r.opt, r.files
	if !must {
		r.opt++
	}
	if r.files = noPart; files == form {
		r.files = inPart
	}
	r.key(name)
	r.schema(n, name, desc)
	r.opt, r.files = opt, files
}

// renamed adds the name in the request to a description.
func renamed(desc, name string) string {
	if desc = strings.TrimSpace(desc); desc != "" {
		desc += " "
	}
	return desc + "(sent as " + tree.Short(name) + ")"
}

// additional writes additionalProperties.
func (r *render) additional(n *tree.Node) {
	a := n.Get("additionalProperties")
	files := r.files
	if r.files = noPart; files == form {
		r.files = inPart
	}
	switch {
	case closed(n):
		// If each schema in an allOf refused the properties of the others, they would refuse every
		// value.
		if !r.relaxed && !r.mixed && !isComposed(n) {
			r.raw("additionalProperties", "false")
		}
	case a.Is(tree.Object) && len(a.Members()) > 0:
		r.keys.open = true
		opt := r.opt
		r.opt++
		r.key("additionalProperties")
		r.schema(a, "", "")
		r.opt = opt
	case a != nil:
		r.keys.open = true
		if n.Get("properties") == nil {
			r.raw("additionalProperties", "true")
		}
	case n.Get("properties") == nil:
		types, _ := typesOf(n)
		r.keys.open = r.keys.open || slices.Contains(types, "object")
	}
	r.files = files
}

// composed writes allOf, anyOf and oneOf. It writes oneOf as anyOf if the schema has no anyOf: more
// model providers support anyOf, and alternatives in real documents are seldom exclusive.
func (r *render) composed(n *tree.Node, nullable bool) {
	if all := n.Get("allOf"); all.Is(tree.Array) && len(all.Members()) > 0 {
		via, mixed := r.viaAll, r.mixed
		r.viaAll, r.mixed = true, true
		r.alternatives("allOf", all, nil, false)
		r.viaAll, r.mixed = via, mixed
	}
	one, other := n.Get("oneOf"), n.Get("anyOf")
	if other.Is(tree.Array) && len(other.Members()) > 0 {
		r.alternatives("anyOf", other, n.Get("discriminator"), nullable)
		if one.Is(tree.Array) && len(one.Members()) > 0 && !r.relaxed {
			r.alternatives("oneOf", one, nil, nullable)
		}
	} else if one.Is(tree.Array) && len(one.Members()) > 0 {
		r.alternatives("anyOf", one, n.Get("discriminator"), nullable)
	}
}

func (r *render) alternatives(word string, list, discriminator *tree.Node, nullable bool) {
	r.key(word)
	r.b = append(r.b, '[')
	for i := range list.Members() {
		n := &list.Members()[i].Node
		if i > 0 {
			r.b = append(r.b, ',')
		}
		start := len(r.b)
		r.inner(n, "", "")
		if discriminator.Is(tree.Object) && !r.relaxed && bytes.HasPrefix(r.b[start:], []byte(`{"$ref"`)) &&
			!bytes.Contains(r.b[start:], []byte(`"properties"`)) {
			r.hint(n, discriminator)
		}
		if types, null := typesOf(n); null && len(types) == 0 {
			nullable = false
		}
	}
	if nullable && !r.relaxed {
		r.b = append(r.b, `,{"type":"null"}`...)
	}
	r.b = append(r.b, ']')
}

// hint adds the discriminator's value to the schema that was written last, that of the alternative n.
func (r *render) hint(n, discriminator *tree.Node) {
	prop, ref := discriminator.Str("propertyName"), n.Str("$ref")
	t := r.l.deref(n)
	own := r.l.derefOptional(t.Get("properties").Get(prop))
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
	if !r.output {
		shown = r.keys.shown(prop)
	}
	r.b = r.b[:len(r.b)-1]
	r.key("properties")
	r.b = append(r.b, '{')
	r.key(shown)
	r.b = append(r.b, '{')
	r.texts("enum", values)
	r.b = append(r.b, "}}"...)
	r.required([]string{shown})
	r.b = append(r.b, '}')
}

// orNull writes a schema with allOf so that it also allows null.
func (r *render) orNull(n *tree.Node, name, desc string) {
	r.describe(r.text(n, name, desc), "")
	var list []tree.Member
	for _, m := range n.Members() {
		switch m.Name {
		case "nullable", "x-nullable", "description", "title", "default":
		case "type":
			if types, _ := typesOf(n); len(types) == 1 {
				list = append(list, tree.Member{Name: "type", Node: tree.Node{
					Kind: tree.Text,
					Text: types[0],
					Line: m.Node.Line,
					File: m.Node.File,
				}})
			}
		default:
			list = append(list, m)
		}
	}
	r.key("anyOf")
	r.b = append(r.b, '[')
	r.inner(n.Object(list), "", "")
	r.b = append(r.b, `,{"type":"null"}]`...)
}

var restMarks = tree.Marks("not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "patternProperties", "dependentSchemas", "dependentRequired")

// rareKeywords writes the keywords of restMarks.
func (r *render) rareKeywords(n *tree.Node) {
	if !n.HasAny(restMarks) {
		return
	}
	for _, word := range []string{"not", "if", "then", "else"} {
		if s := n.Get(word); s.Is(tree.Object) || s.Is(tree.Boolean) {
			r.key(word)
			r.inner(s, "", "")
		}
	}
	for _, word := range []string{"contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties"} {
		if s := n.Get(word); s.Is(tree.Object) || s.Is(tree.Boolean) {
			r.key(word)
			r.schema(s, "", "")
			for _, bound := range []string{"minContains", "maxContains"} {
				if word == "contains" && whole(n.Get(bound)) != "" {
					r.raw(bound, whole(n.Get(bound)))
				}
			}
		}
	}
	for _, word := range []string{"patternProperties", "dependentSchemas"} {
		s := n.Get(word)
		if !s.Is(tree.Object) {
			continue
		}
		r.keys.open = true
		r.key(word)
		r.b = append(r.b, '{')
		for i := range s.Members() {
			m := &s.Members()[i]
			switch {
			case word == "dependentSchemas":
				r.key(r.keys.shown(m.Name))
				r.inner(&m.Node, "", "")
			case r.l.compiles(m.Name):
				r.key(m.Name)
				r.schema(&m.Node, "", "")
			}
		}
		r.b = append(r.b, '}')
	}
	if s := n.Get("dependentRequired"); s.Is(tree.Object) {
		r.key("dependentRequired")
		r.b = append(r.b, '{')
		for i := range s.Members() {
			m := &s.Members()[i]
			var names []string
			for _, name := range s.Strings(m.Name) {
				if name = r.keys.shown(name); !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
			r.texts(r.keys.shown(m.Name), names)
		}
		r.b = append(r.b, '}')
	}
}
