package openapi

import (
	"slices"
	"strings"
)

// body reads a requestBody.
func (r *reader) body(at *node) *Body {
	n := r.soft(at)
	if n == nil || n.kind != object {
		r.warn(at, "the body cannot be read: left out")
		return nil
	}
	b := &Body{Description: n.scalar("description"), Required: n.flag("required"), Content: r.content(n.get("content"))}
	if d := at.scalar("description"); d != "" {
		b.Description = d
	}
	if len(b.Content) == 0 {
		return nil
	}
	return b
}

// content reads a map of media types.
func (r *reader) content(at *node) []*MediaType {
	n := r.soft(at)
	var out []*MediaType
	for i := range n.members() {
		m := &n.kids.list[i]
		if strings.HasPrefix(m.name, "x-") || m.name == "$ref" || !r.spend(1) {
			continue
		}
		entry := r.soft(&m.node)
		mt := &MediaType{Type: m.name, schema: entry.get("schema")}
		if mt.schema == nil && entry.get("itemSchema") != nil {
			mt.schema, mt.items = entry.get("itemSchema"), true
		}
		r.shape(mt, entry.get("encoding"), nil)
		out = append(out, mt)
	}
	return out
}

// media gives one schema the types of Swagger 2.0's consumes or produces.
func (r *reader) media(types []string, schema *node) []*MediaType {
	if len(types) == 0 {
		types = []string{"application/json"}
	}
	var out []*MediaType
	for _, t := range types {
		if !r.spend(1) {
			break
		}
		mt := &MediaType{Type: t, schema: schema}
		r.shape(mt, nil, nil)
		out = append(out, mt)
	}
	return out
}

// swaggerBody makes a body of Swagger 2.0's body and formData parameters.
func (r *reader) swaggerBody(op *node, o *Operation, body *node, form []*node) *Body {
	types := or(op.strings("consumes"), r.consumes)
	if body != nil {
		if len(form) > 0 {
			r.warn(form[0], "%s: formData beside a body is left out", o.Key())
		}
		schema := body.get("schema")
		if schema == nil {
			schema = inlineSchema(body)
		}
		return &Body{Description: body.scalar("description"), Required: body.flag("required"), Content: r.media(types, schema)}
	}
	if len(form) == 0 {
		return nil
	}
	b := &Body{}
	var props, required []member
	formats := map[string]string{}
	files := false
	for _, f := range form {
		name := f.scalar("name")
		if name == "" {
			r.warn(f, "%s: a parameter without a name is left out", o.Key())
			continue
		}
		s := inlineSchema(f)
		if d := f.get("description"); d != nil {
			s = made(f, append(slices.Clone(s.members()), member{"description", *d}))
		}
		props = append(props, member{name, *s})
		if f.flag("required") {
			b.Required = true
			required = append(required, member{node: node{kind: text, text: name, line: f.line, file: f.file}})
		}
		formats[name] = collectionFormat(f)
		files = files || f.str("type") == "file"
	}
	at := form[0]
	list := []member{
		{"type", node{kind: text, text: "object", line: at.line, file: at.file}},
		{"properties", *made(at, props)},
	}
	if len(required) > 0 {
		list = append(list, member{"required", node{kind: array, kids: &kids{list: required}, line: at.line, file: at.file}})
	}
	schema := made(at, list)
	types = slices.DeleteFunc(slices.Clone(types), func(t string) bool { return !isForm(t) || files && !isMultipart(t) })
	switch {
	case len(types) > 0:
	case files:
		types = []string{"multipart/form-data"}
	default:
		types = []string{"application/x-www-form-urlencoded"}
	}
	for _, t := range types {
		mt := &MediaType{Type: t, schema: schema}
		r.shape(mt, nil, formats)
		b.Content = append(b.Content, mt)
	}
	return b
}

// base returns a media type in small letters without its parameters.
func base(t string) string {
	t, _, _ = strings.Cut(t, ";")
	return strings.ToLower(strings.TrimSpace(t))
}

func isMultipart(t string) bool { return strings.HasPrefix(base(t), "multipart/") }

func isForm(t string) bool { return isMultipart(t) || base(t) == "application/x-www-form-urlencoded" }

func isJSON(t string) bool {
	b := base(t)
	return b == "application/json" || strings.HasSuffix(b, "+json") || b == "text/json"
}

// isAny is a type that leaves the choice: JSON, when the schema has a shape.
func isAny(t string) bool { b := base(t); return b == "*/*" || b == "application/*" }

// isText is a type whose body is written by hand, XML and YAML among them.
func isText(t string) bool {
	b := base(t)
	return strings.HasPrefix(b, "text/") || strings.HasSuffix(b, "xml") || strings.HasSuffix(b, "yaml") ||
		strings.HasSuffix(b, "x-ndjson") || strings.HasSuffix(b, "jsonl") || strings.HasSuffix(b, "json-seq")
}

// shape finds out whether a media type is a file, and what its parts are.
func (r *reader) shape(mt *MediaType, encoding *node, formats map[string]string) {
	if !isForm(mt.Type) {
		mt.File = r.wholeFile(mt)
		return
	}
	mt.Fields = []*Field{}
	encoding = r.soft(encoding)
	seen := map[string]bool{}
	r.eachProperty(mt.schema, 0, map[*node]bool{}, func(name string, s *node) {
		if seen[name] || r.marked(s, "readOnly") || !r.spend(1) {
			return
		}
		seen[name] = true
		f := &Field{Name: name, Type: r.typeOf(s), CollectionFormat: formats[name]}
		f.File, f.Array = r.fileField(s, 0)
		f.File = f.File && isMultipart(mt.Type)
		r.encode(f, r.soft(encoding.get(name)))
		mt.Fields = append(mt.Fields, f)
	})
}

func (r *reader) encode(f *Field, e *node) {
	if e == nil {
		return
	}
	f.ContentType = e.str("contentType")
	f.Styled = e.get("style") != nil || e.get("explode") != nil || e.get("allowReserved") != nil
	f.Style = "form"
	if s := e.str("style"); slices.Contains(stylesOf(InQuery), s) {
		f.Style = s
	}
	f.Explode = f.Style == "form" || f.Style == "deepObject"
	if x := e.get("explode"); x.is(boolean) && f.Style != "deepObject" {
		f.Explode = x.text == "true"
	}
	f.AllowReserved = e.flag("allowReserved")
	headers := r.soft(e.get("headers"))
	for i := range headers.members() {
		m := &headers.kids.list[i]
		h := r.soft(&m.node)
		if h == nil || strings.EqualFold(m.name, "Content-Type") || !isToken(m.name) {
			continue
		}
		s := h.get("schema")
		f.Headers = append(f.Headers, &Parameter{Name: m.name, In: InHeader, Description: h.scalar("description"),
			Required: h.flag("required"), Style: "simple", Explode: h.flag("explode"), Type: r.typeOf(s), Value: r.valueOf(s), schema: s})
	}
}

// wholeFile reports whether a body of this type is bytes as they are.
func (r *reader) wholeFile(mt *MediaType) bool {
	if isJSON(mt.Type) {
		return false
	}
	if file, list := r.fileField(mt.schema, 0); file && !list {
		return true
	}
	if isText(mt.Type) {
		return false
	}
	s := r.soft(mt.schema)
	switch r.typeOf(s) {
	case "object", "array":
		return !isAny(mt.Type) && strings.HasPrefix(base(mt.Type), "image/")
	case "string":
		return !isAny(mt.Type)
	}
	return !isAny(mt.Type)
}

// eachProperty calls f with the properties of a schema and of those it is
// made of.
func (r *loader) eachProperty(n *node, depth int, seen map[*node]bool, f func(name string, s *node)) {
	if n = r.soft(n); n == nil || depth > 20 || seen[n] {
		return
	}
	seen[n] = true
	props := r.soft(n.get("properties"))
	for i := range props.members() {
		m := &props.kids.list[i]
		f(m.name, &m.node)
	}
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		parts := n.get(word)
		for i := range parts.members() {
			r.eachProperty(&parts.kids.list[i].node, depth+1, seen, f)
		}
	}
}

// fileField reports whether a schema is that of a file, or of several.
func (r *loader) fileField(n *node, depth int) (file, list bool) {
	if n = r.soft(n); n == nil || n.kind != object || depth > 3 {
		return false, false
	}
	if isBinary(n) {
		return true, false
	}
	if items := n.get("items"); items != nil {
		file, _ = r.fileField(items, depth+1)
		return file, file
	}
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		parts := n.get(word)
		for i := range min(len(parts.members()), 8) {
			f, l := r.fileField(&parts.kids.list[i].node, depth+1)
			file, list = file || f, list || l
		}
	}
	return file, list
}

// isBinary reports whether a schema stands for bytes as they are.
func isBinary(n *node) bool {
	if f := n.str("format"); f == "binary" || f == "file" {
		types, _ := typesOf(n)
		return len(types) == 0 || slices.Contains(types, "string")
	}
	if n.str("type") == "file" || n.str("contentEncoding") == "binary" {
		return true
	}
	return n.str("contentMediaType") != "" && n.get("contentEncoding") == nil && !isText(n.str("contentMediaType")) && !isJSON(n.str("contentMediaType"))
}

// marked reports whether a schema has a flag, itself or behind its reference.
func (r *loader) marked(n *node, flag string) bool {
	if n.flag(flag) {
		return true
	}
	return n.get("$ref") != nil && r.soft(n).flag(flag)
}
