package openapi

import (
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// body reads a requestBody. Without one, b is nil and ok is true. ok is false for a body that cannot
// be read.
func (r *reader) body(at *tree.Node) (b *Body, ok bool) {
	n := r.derefOptional(at)
	if at == nil || n.Is(tree.Null) {
		return nil, true
	}
	content := r.derefOptional(n.Get("content"))
	if !n.Is(tree.Object) || n.Get("content") != nil && content == nil {
		return nil, false
	}
	b = &Body{
		Description: n.Scalar("description"),
		Required:    n.Flag("required"),
		Content:     r.content(content),
	}
	if d := at.Scalar("description"); d != "" {
		b.Description = d
	}
	if len(b.Content) == 0 {
		return nil, !slices.ContainsFunc(content.Members(), isMediaType)
	}
	return b, true
}

func isMediaType(m tree.Member) bool { return !strings.HasPrefix(m.Name, "x-") && m.Name != "$ref" }

// content reads a map of media types. It leaves out an entry whose reference leads to nothing.
func (r *reader) content(at *tree.Node) []*MediaType {
	n := r.derefOptional(at)
	var out []*MediaType
	for i := range n.Members() {
		m := &n.Members()[i]
		if !isMediaType(*m) || !r.spend(1) {
			continue
		}
		entry := r.derefOptional(&m.Node)
		if entry == nil {
			continue // deref reports it
		}
		mt := &MediaType{Type: m.Name, schema: entry.Get("schema")}
		if item := entry.Get("itemSchema"); mt.schema == nil && item != nil {
			mt.schema, mt.items = item, true
			if httpio.IsLines(mt.Type) || isMultipart(mt.Type) { // the argument is the array of all items
				mt.schema = entry.Object([]tree.Member{{Name: "type", Node: tree.Node{
					Kind: tree.Text,
					Text: "array",
					Line: item.Line,
					File: item.File,
				}}, {Name: "items", Node: *item}})
			}
		}
		r.shape(mt, entry.Get("encoding"), nil)
		if isMultipart(mt.Type) && r.typeOf(mt.schema) == "array" {
			r.positions(mt, entry)
		}
		out = append(out, mt)
	}
	return out
}

// media returns a media type with the schema for each type in consumes or produces of Swagger 2.0.
func (r *reader) media(types []string, schema *tree.Node) []*MediaType {
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

// swaggerBody returns the body that Swagger 2.0's body and formData parameters describe.
func (r *reader) swaggerBody(op *tree.Node, o *Operation, body *tree.Node, form []*tree.Node) *Body {
	types := firstNonEmpty(op.Strings("consumes"), r.consumes)
	if body != nil {
		if len(form) > 0 {
			r.warn(form[0], "%s: formData beside a body is left out", o.Key())
		}
		schema := body.Get("schema")
		if schema == nil {
			schema = inlineSchema(body)
		}
		return &Body{
			Description: body.Scalar("description"),
			Required:    body.Flag("required"),
			Content:     r.media(types, schema),
		}
	}
	if len(form) == 0 {
		return nil
	}
	b := &Body{}
	var props, required []tree.Member
	formats := map[string]string{}
	files := false
	for _, n := range form {
		name := n.Scalar("name")
		if name == "" {
			r.warn(n, "%s: a parameter without a name is left out", o.Key())
			continue
		}
		s := inlineSchema(n)
		if d := n.Get("description"); d != nil {
			s = n.Object(append(slices.Clone(s.Members()), tree.Member{Name: "description", Node: *d}))
		}
		props = append(props, tree.Member{Name: name, Node: *s})
		if n.Flag("required") {
			b.Required = true
			required = append(required, tree.Member{Node: tree.Node{
				Kind: tree.Text,
				Text: name,
				Line: n.Line,
				File: n.File,
			}})
		}
		formats[name] = collectionFormat(n)
		files = files || n.Str("type") == "file"
	}
	at := form[0]
	list := []tree.Member{
		{Name: "type", Node: tree.Node{
			Kind: tree.Text,
			Text: "object",
			Line: at.Line,
			File: at.File,
		}},
		{Name: "properties", Node: *at.Object(props)},
	}
	if len(required) > 0 {
		list = append(list, tree.Member{Name: "required", Node: *at.Array(required)})
	}
	schema := at.Object(list)
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

// base returns a media type in lower case without its parameters.
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

// isAny reports whether a media type is a wildcard that allows JSON.
func isAny(t string) bool { b := base(t); return b == "*/*" || b == "application/*" }

// isText reports whether a model writes a body of that type, such as XML or YAML, as text.
func isText(t string) bool {
	b := base(t)
	return strings.HasPrefix(b, "text/") || strings.HasSuffix(b, "xml") || strings.HasSuffix(b, "yaml") ||
		strings.HasSuffix(b, "x-ndjson") || strings.HasSuffix(b, "jsonl") || strings.HasSuffix(b, "json-seq")
}

// shape sets File, or the Fields of a form.
func (r *reader) shape(mt *MediaType, encoding *tree.Node, formats map[string]string) {
	if !isForm(mt.Type) {
		mt.File = r.wholeFile(mt)
		return
	}
	mt.Fields = []*Field{}
	encoding = r.derefOptional(encoding)
	seen := map[string]bool{}
	r.eachProperty(mt.schema, 0, map[*tree.Node]bool{}, func(name string, n *tree.Node) {
		if seen[name] || r.marked(n, "readOnly") || !r.spend(1) {
			return
		}
		seen[name] = true
		f := &Field{
			Name:             name,
			Type:             r.typeOf(n),
			CollectionFormat: formats[name],
		}
		f.File, f.Array = r.fileField(n, 0)
		f.File = f.File && isMultipart(mt.Type)
		r.encode(f, r.derefOptional(encoding.Get(name)))
		mt.Fields = append(mt.Fields, f)
	})
}

// positions sets the Items of a multipart body whose parts have no names (OpenAPI 3.2).
func (r *reader) positions(mt *MediaType, entry *tree.Node) {
	schema := r.derefOptional(mt.schema)
	first, encoded := schema.Get("prefixItems").Members(), r.derefOptional(entry.Get("prefixEncoding")).Members()
	add := func(n, encoding *tree.Node) {
		f := &Field{Type: r.typeOf(n)}
		f.File, _ = r.fileField(n, 0)
		r.encode(f, r.derefOptional(encoding))
		mt.Items = append(mt.Items, f)
	}
	for i := 0; i < max(len(first), len(encoded)) && r.spend(1); i++ {
		n, encoding := schema.Get("items"), (*tree.Node)(nil)
		if i < len(first) {
			n = &first[i].Node
		}
		if i < len(encoded) {
			encoding = &encoded[i].Node
		}
		add(n, encoding)
	}
	add(schema.Get("items"), entry.Get("itemEncoding"))
}

func (r *reader) encode(f *Field, n *tree.Node) {
	if n == nil {
		return
	}
	f.ContentType = n.Str("contentType")
	f.Styled = n.Get("style") != nil || n.Get("explode") != nil || n.Get("allowReserved") != nil
	f.Style = "form"
	if s := n.Str("style"); slices.Contains(stylesOf(InQuery), s) {
		f.Style = s
	}
	f.Explode = f.Style == "form" || f.Style == "deepObject"
	if x := n.Get("explode"); x.Is(tree.Boolean) && f.Style != "deepObject" {
		f.Explode = x.Text == "true"
	}
	f.AllowReserved = n.Flag("allowReserved")
	headers := r.derefOptional(n.Get("headers"))
	for i := range headers.Members() {
		m := &headers.Members()[i]
		n := r.derefOptional(&m.Node)
		if n == nil || strings.EqualFold(m.Name, "Content-Type") || !httpguts.ValidHeaderFieldName(m.Name) {
			continue
		}
		s := n.Get("schema")
		if r.valueOf(s) == "" && n.Flag("required") {
			r.warn(&m.Node, "header %s of a part has no value in its schema, and no argument: it is not sent", tree.Short(m.Name))
		}
		f.Headers = append(f.Headers, &Parameter{
			Name:        m.Name,
			In:          InHeader,
			Description: n.Scalar("description"),
			Required:    n.Flag("required"),
			Style:       "simple",
			Explode:     n.Flag("explode"),
			Type:        r.typeOf(s),
			Value:       r.valueOf(s),
			schema:      s,
		})
	}
}

// wholeFile reports whether a body of this media type is one file.
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
	n := r.derefOptional(mt.schema)
	switch r.typeOf(n) {
	case "object", "array":
		return !isAny(mt.Type) && strings.HasPrefix(base(mt.Type), "image/")
	case "string":
		return !isAny(mt.Type)
	}
	return !isAny(mt.Type)
}

// eachProperty calls f with the properties of a schema, and of the schemas that it combines.
func (l *loader) eachProperty(n *tree.Node, depth int, seen map[*tree.Node]bool, f func(name string, n *tree.Node)) {
	if n = l.derefOptional(n); n == nil || depth > 20 || seen[n] {
		return
	}
	seen[n] = true
	props := l.derefOptional(n.Get("properties"))
	for i := range props.Members() {
		m := &props.Members()[i]
		f(m.Name, &m.Node)
	}
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		parts := n.Get(word)
		for i := range parts.Members() {
			l.eachProperty(&parts.Members()[i].Node, depth+1, seen, f)
		}
	}
}

// fileField reports whether a schema describes a file, and whether it describes a list of files.
func (l *loader) fileField(n *tree.Node, depth int) (file, list bool) {
	if n = l.derefOptional(n); n == nil || n.Kind != tree.Object || depth > 3 {
		return false, false
	}
	if isBinary(n) {
		return true, false
	}
	if items := n.Get("items"); items != nil {
		file, _ = l.fileField(items, depth+1)
		return file, file
	}
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		parts := n.Get(word)
		for i := range min(len(parts.Members()), 8) {
			f, ok := l.fileField(&parts.Members()[i].Node, depth+1)
			file, list = file || f, list || ok
		}
	}
	return file, list
}

// isBinary reports whether a schema describes raw bytes.
func isBinary(n *tree.Node) bool {
	if f := n.Str("format"); f == "binary" || f == "file" {
		types, _ := typesOf(n)
		return len(types) == 0 || slices.Contains(types, "string")
	}
	if n.Str("type") == "file" || n.Str("contentEncoding") == "binary" {
		return true
	}
	return n.Str("contentMediaType") != "" && n.Get("contentEncoding") == nil && !isText(n.Str("contentMediaType")) && !isJSON(n.Str("contentMediaType"))
}

// marked reports whether a schema, or the target of its reference, has a flag.
func (l *loader) marked(n *tree.Node, flag string) bool {
	if n.Flag(flag) {
		return true
	}
	return n.Get("$ref") != nil && l.derefOptional(n).Flag(flag)
}
