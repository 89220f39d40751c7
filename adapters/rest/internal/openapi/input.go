package openapi

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// input sets the input schema, in at most budget bytes if possible, and the arguments. It first tries
// all parts, then short descriptions, and then omits deep and optional parts.
func (t *Tool) input(budget int) {
	budget = max(budget, 512)
	params := t.params()
	t.Body, t.Plain = nil, nil
	if b := t.Operation.Body; b != nil {
		if chosen := b.choose(); b.Required || !t.doc.load.empty(t.Operation, chosen) {
			t.Body, t.Plain = chosen, t.doc.load.plain(b, chosen)
		}
	}
	r := t.fit(budget, func(r *render) { t.root(r, params) })
	t.InputSchema = r.b
	t.Stubbed = r.stubs
	t.Keys = nil
	if len(r.keys.toOwn) > 0 {
		t.Keys = r.keys.toOwn
	}
}

// empty reports whether a body can only be an object without members.
func (l *loader) empty(op *Operation, m *MediaType) bool {
	n := l.derefOptional(m.schema)
	more := n.Get("additionalProperties")
	for _, name := range []string{"allOf", "anyOf", "oneOf", "patternProperties", "$dynamicRef"} {
		if n.Get(name) != nil {
			return false
		}
	}
	closed := more.Is(tree.Boolean) && !n.Flag("additionalProperties") || more == nil && (isForm(m.Type) || op.Method == "GET")
	return closed && n.Get("properties").Is(tree.Object) && len(n.Get("properties").Members()) == 0
}

// attempts are the ways to write a schema, the longest first. The fields are those of render.
var attempts = []struct {
	longer int
	greedy bool
	cut    int
}{
	{longDescription, false, maxInline},
	{shortDescription, false, maxInline},
	{shortDescription, true, maxInline},
	{shortDescription, true, 5},
	{shortDescription, true, 3},
	{80, true, 2},
	{0, true, 1},
	{0, true, 0},
}

// fit writes a schema in the first of attempts that fits the budget, or else in the last.
func (t *Tool) fit(budget int, write func(*render)) *render {
	l := t.doc.load
	var keys renames
	if l.renames {
		keys = keys.next()
	}
	for i := 0; ; {
		a := attempts[i]
		clear(keys.plain) // names of the attempt before do not count
		r := &render{
			l:         l,
			limit:     budget,
			longer:    a.longer,
			greedy:    a.greedy,
			cut:       a.cut,
			resources: t.opts.Resources,
			keys:      keys,
		}
		clear(l.defs)
		clear(l.names)
		r.b, r.defs, r.names = l.buf[:0], l.defs, l.names
		write(r)
		l.buf = r.b
		switch {
		case r.keys.mustRewrite() && !r.over:
			l.renames = true
			keys = r.keys.next()
		case i == len(attempts)-1 || !r.over && len(r.b) <= budget:
			r.b = bytes.Clone(r.b)
			return r
		default:
			i++
		}
	}
}

// params returns the parameters that clients set: those that are neither withheld nor credentials
// that the operation uses.
func (t *Tool) params() []*Parameter {
	return slices.DeleteFunc(slices.Clone(t.Operation.Parameters), func(p *Parameter) bool {
		if p.In == InHeader && slices.ContainsFunc(t.opts.Withheld, func(name string) bool { return SameHeader(name, p.Name) }) {
			return true
		}
		return slices.ContainsFunc(t.doc.Schemes, func(s *SecurityScheme) bool {
			return s.Type == "apiKey" && s.In == p.In && (s.Param == p.Name || p.In == InHeader && SameHeader(s.Param, p.Name)) && t.Operation.uses(s)
		})
	})
}

// uses reports whether a scheme is part of an alternative of the operation's security.
func (o *Operation) uses(s *SecurityScheme) bool {
	return slices.ContainsFunc(o.Security, func(r Requirement) bool {
		return slices.ContainsFunc(r, func(u SchemeUse) bool { return u.Name == s.Name })
	})
}

// root writes the schema of the object with all arguments, and sets Arguments.
func (t *Tool) root(r *render, params []*Parameter) {
	t.Arguments = make([]Argument, 0, len(params)+1)
	flat := t.flat(r, params)
	names := nameArguments(params)
	if flat != nil {
		names = nameArguments(params, flat.shown...)
	}
	var required []string
	r.b = append(r.b, `{"type":"object","properties":{`...)
	for i, p := range params {
		t.Arguments = append(t.Arguments, Argument{
			Name:      names[i],
			Place:     p.In,
			Required:  p.Required,
			Parameter: p,
		})
		if p.Required {
			required = append(required, names[i])
		}
		desc := p.Description
		if names[i] != p.Name && p.Name != "" {
			desc = renamed(desc, p.Name)
		}
		r.argument(names[i], p.schema, desc, p.Required, p.Deprecated, noPart)
	}
	switch b := t.Operation.Body; {
	case flat != nil:
		required = t.spread(r, flat, required)
	case t.Body != nil:
		t.Arguments = append(t.Arguments, Argument{
			Name:     "body",
			Place:    InBody,
			Required: b.Required,
		})
		if b.Required {
			required = append(required, "body")
		}
		t.bodySchema(r, b)
	}
	r.b = append(r.b, '}')
	r.required(required)
	r.b = append(r.b, `,"additionalProperties":false`...)
	r.definitions()
	r.b = append(r.b, '}')
}

// argument writes the schema of an argument. It writes the target of a reference inline instead of as
// a definition, since models need arguments most.
func (r *render) argument(name string, n *tree.Node, desc string, must, deprecated bool, files part) {
	opt := r.opt
	if !must {
		r.opt++
	}
	r.files = files
	r.key(name)
	r.direct(n, name, desc)
	if deprecated && !strings.Contains(string(r.b[len(r.b)-min(len(r.b), 20):]), `"deprecated":true`) {
		r.b = r.b[:len(r.b)-1]
		r.raw("deprecated", "true")
		r.b = append(r.b, '}')
	}
	r.opt, r.files = opt, noPart
}

// direct writes a schema, or the target of its reference, inline.
func (r *render) direct(n *tree.Node, name, desc string) {
	t := r.l.derefOptional(n)
	if n != nil && t != n && t.Is(tree.Object) && !n.Flag("nullable") && !n.Flag("x-nullable") {
		r.current, r.viaAll = t, false
		r.inner(t, name, cmp.Or(desc, n.Scalar("description")))
		r.current = nil
		return
	}
	r.current, r.viaAll = n, false
	r.inner(n, name, desc)
	r.current = nil
}

// bodySchema writes the argument that is the body.
func (t *Tool) bodySchema(r *render, b *Body) {
	m := t.Body
	desc := b.Description
	if desc == "" {
		desc = r.l.derefOptional(m.schema).Scalar("description")
	}
	switch n := m.schema; {
	case m.File:
		r.key("body")
		r.b = append(r.b, '{')
		r.file(desc)
		r.b = append(r.b, '}')
	case isForm(m.Type):
		if n == nil {
			n = &tree.Node{Kind: tree.Object}
		}
		r.argument("body", n, desc, b.Required, false, form)
	case isText(m.Type) && !(m.items && httpio.IsLines(m.Type)):
		// The model writes content other than JSON as text, whatever its schema is.
		r.key("body")
		r.b = append(r.b, '{')
		r.str("type", "string")
		if !strings.HasPrefix(base(m.Type), "text/plain") {
			desc = strings.TrimSpace(desc + " (" + base(m.Type) + r.l.outline(m) + ")")
		}
		r.describe(desc, "")
		r.b = append(r.b, '}')
	default:
		r.argument("body", n, desc, b.Required, false, noPart)
	}
}

// outlined bounds the members of a body that a description lists.
const outlined = 20

// outline describes the members of a body that models write as text: the elements of XML, or else the
// members of an object. It returns "" if the schema has none.
func (l *loader) outline(m *MediaType) string {
	var all []string
	n := l.derefOptional(m.schema)
	l.eachProperty(m.schema, 0, map[*tree.Node]bool{}, func(name string, n *tree.Node) {
		n = l.derefOptional(n)
		if l.marked(n, "readOnly") || len(all) >= outlined {
			return
		}
		xml := n.Get("xml")
		if own := xml.Str("name"); own != "" && strings.HasSuffix(base(m.Type), "xml") {
			name = own
		}
		if kind := l.typeOf(n); kind != "" {
			name += " " + kind
		}
		if xml.Flag("attribute") && strings.HasSuffix(base(m.Type), "xml") {
			name += " as attribute"
		}
		all = append(all, name)
	})
	if len(all) == 0 {
		return ""
	}
	of := ""
	if own := cmp.Or(n.Get("xml").Str("name"), label(m.schema.Str("$ref"))); strings.HasSuffix(base(m.Type), "xml") && own != "Schema" {
		of = " <" + own + ">"
	}
	return ":" + of + " with " + strings.Join(all, ", ")
}

// flatBody is a body whose properties can be separate arguments.
type flatBody struct {
	schema *tree.Node
	own    []string // names of the properties
	shown  []string // names of the arguments, in the same order
}

// flat returns how to make the body's properties arguments. It returns nil if FlattenBody is off, if
// the body has no plain list of properties, or if names collide.
func (t *Tool) flat(r *render, params []*Parameter) *flatBody {
	if !t.opts.FlattenBody || t.Body == nil || t.Body.File || isText(t.Body.Type) {
		return nil
	}
	n := r.l.derefOptional(t.Body.schema)
	props := r.l.derefOptional(n.Get("properties"))
	if len(props.Members()) == 0 || len(props.Members()) > maxParameters || n.Get("allOf") != nil || n.Get("anyOf") != nil || n.Get("oneOf") != nil ||
		n.Get("additionalProperties").Is(tree.Object) || n.Flag("additionalProperties") {
		return nil
	}
	f := &flatBody{schema: n}
	for i := range props.Members() {
		m := &props.Members()[i]
		if r.l.marked(&m.Node, "readOnly") {
			continue
		}
		shown := argumentName(m.Name)
		if shown == "" || shown == "body" || slices.Contains(f.shown, shown) {
			return nil
		}
		f.own, f.shown = append(f.own, m.Name), append(f.shown, shown)
	}
	for _, p := range params {
		if slices.Contains(f.shown, argumentName(p.Name)) {
			return nil
		}
	}
	return f
}

// spread writes the properties of the body as arguments. It returns required with the names of the
// required properties added.
func (t *Tool) spread(r *render, f *flatBody, required []string) []string {
	props := r.l.derefOptional(f.schema.Get("properties"))
	wanted := f.schema.Strings("required")
	files := noPart
	if isForm(t.Body.Type) {
		files = inPart
	}
	for i, own := range f.own {
		n := props.Get(own)
		must := t.Operation.Body.Required && (slices.Contains(wanted, own) || n.Get("required").Is(tree.Boolean) && n.Flag("required"))
		if must {
			required = append(required, f.shown[i])
		}
		t.Arguments = append(t.Arguments, Argument{
			Name:     f.shown[i],
			Place:    InBody,
			Required: must,
			Field:    own,
		})
		desc := n.Scalar("description")
		if own != f.shown[i] {
			desc = renamed(desc, own)
		}
		r.argument(f.shown[i], n, desc, must, false, files)
	}
	return required
}

// output sets the output schema, if the operation has a JSON answer and the budget is at least 64
// bytes.
func (t *Tool) output(budget int) {
	n := t.answer()
	if n == nil || budget < 64 {
		return
	}
	l := t.doc.load
	t.Wrapped = !l.isObject(n, 0)
	// Many operations have the same answer, and the schema depends only on that.
	key := outputKey{n, t.Wrapped, budget}
	if own := n.Members(); !t.Wrapped || len(own) == 1 && own[0].Name == "$ref" {
		key.n = l.derefOptional(n)
	}
	known, ok := l.answers[key]
	if !ok {
		known = t.writeOutput(n, budget)
		l.answers[key] = known
	}
	t.OutputSchema = known
}

// outputKey identifies an output schema.
type outputKey struct {
	n       *tree.Node
	wrapped bool
	budget  int
}

// writeOutput returns the schema of an answer in at most budget bytes. If it does not fit, any answer
// is allowed.
func (t *Tool) writeOutput(n *tree.Node, budget int) []byte {
	r := t.fit(budget, func(r *render) {
		r.output, r.relaxed = true, !t.opts.StrictOutput
		r.longer = min(r.longer, 200)
		r.b = append(r.b, `{"type":"object"`...)
		if t.Wrapped {
			r.b = append(r.b, `,"properties":{`...)
			r.key("result")
			r.direct(n, "", "")
			r.b = append(r.b, '}')
			if !r.relaxed {
				r.required([]string{"result"})
			}
		} else {
			r.object(r.l.derefOptional(n))
		}
		r.definitions()
		r.b = append(r.b, '}')
	})
	switch {
	case len(r.b) <= budget:
		return r.b
	case t.Wrapped:
		return []byte(`{"type":"object","properties":{"result":{}}}`)
	}
	return []byte(`{"type":"object"}`)
}

// object writes the members of a schema into the root object, which already has its type.
func (r *render) object(n *tree.Node) {
	var list []tree.Member
	for _, m := range n.Members() {
		if m.Name != "type" && m.Name != "nullable" && m.Name != "x-nullable" && m.Name != "enum" {
			list = append(list, m)
		}
	}
	s := n.Object(list)
	r.current, r.viaAll = n, false
	if r.wrapped(s) != nil {
		r.composed(s, false)
	} else {
		r.rootless = true
		r.members(s, "", "")
		r.rootless = false
	}
	r.current = nil
}

// answer returns the schema of the JSON answer with the lowest success status, or nil. A stream has no
// schema, since its parts are joined.
func (t *Tool) answer() *tree.Node {
	var best *Response
	var schema *tree.Node
	for i := range t.Operation.Responses {
		r := &t.Operation.Responses[i]
		status := strings.ToUpper(r.Status)
		if len(status) != 3 || status[0] != '2' || best != nil && status >= strings.ToUpper(best.Status) {
			continue
		}
		for _, m := range r.Content {
			if (isJSON(m.Type) || isAny(m.Type)) && m.schema != nil && !m.items {
				best, schema = r, m.schema
				break
			}
		}
	}
	if n := t.doc.load.derefOptional(schema); n.Is(tree.Object) && !isBinary(n) {
		return schema
	}
	return nil
}

// isObject reports whether a schema certainly describes an object.
func (l *loader) isObject(n *tree.Node, depth int) bool {
	if n = l.derefOptional(n); !n.Is(tree.Object) || depth > 10 {
		return false
	}
	types, null := typesOf(n)
	switch {
	case len(types) > 0:
		return len(types) == 1 && types[0] == "object" && !null
	case n.Get("properties").Is(tree.Object):
		return true
	}
	return slices.ContainsFunc(n.Get("allOf").Members(), func(m tree.Member) bool { return l.isObject(&m.Node, depth+1) })
}
