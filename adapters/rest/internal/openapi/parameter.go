package openapi

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// maxParameters bounds the parameters of an operation. Real operations have less than a tenth of
// this.
const maxParameters = 1000

var (
	template = regexp.MustCompile(`\{([^{}]*)\}`)
	// slashed matches names in templates whose values may have slashes: {+path}, {path+}, {path*},
	// {path...}, {name=projects/*}, {name=**}, {path:path} and {path:.*}.
	slashed = regexp.MustCompile(`^[+*]|^[^:=]*([+*]|\.\.\.)$|=.*(/|\*\*)|:(path|\.[*+])$`)
)

// parameters reads an operation's parameters and, in Swagger 2.0, its body. The list is nil if the
// operation is unusable.
func (r *reader) parameters(common *pathItem, n *tree.Node, op *Operation) ([]*Parameter, *Body) {
	list := []*Parameter{}
	var form []*tree.Node
	var body *tree.Node
	dead := false
	for _, written := range []*tree.Node{common.params, n.Get("parameters")} {
		from := r.derefOptional(written)
		if written != nil && from == nil {
			r.warn(written, "%s is left out: its parameters cannot be read", op.Key())
			return nil, nil
		}
		if from != nil && from.Kind != tree.Array {
			r.warn(from, "%s: parameters is %s, not a list", op.Key(), from.Kind)
			continue
		}
		own := len(list)
		if len(from.Members()) > maxParameters {
			r.warn(from, "%s is left out: it has too many parameters (%d)", op.Key(), len(from.Members()))
			return nil, nil
		}
		for i := range from.Members() {
			if !r.spend(1) {
				break // the operation is left out
			}
			at := &from.Members()[i].Node
			n := r.derefOptional(at)
			if n == nil {
				r.warn(at, "%s is left out: a parameter of it cannot be read", op.Key())
				dead = true
				continue
			}
			switch in := n.Str("in"); {
			case r.swagger && in == "body":
				body = n
				continue
			case r.swagger && in == "formData":
				form = slices.DeleteFunc(form, func(f *tree.Node) bool { return f.Scalar("name") == n.Scalar("name") })
				form = append(form, n)
				continue
			}
			param := r.parameter(at, n, op)
			if param == nil {
				if n.Flag("required") && n.Str("in") != "header" {
					r.warn(at, "%s is left out: it needs this parameter", op.Key())
					return nil, nil
				}
				continue
			}
			same := slices.IndexFunc(list, func(p *Parameter) bool { return p.Name == param.Name && p.In == param.In })
			switch {
			case same < 0:
				list = append(list, param)
			default:
				if same >= own {
					r.warn(at, "%s: parameter %q in %s is given twice: the last one counts", op.Key(), tree.Short(param.Name), param.In)
				}
				list[same] = param
			}
		}
	}
	if dead {
		return nil, nil
	}
	if strings.Count(op.Path, "{")+strings.Count(op.Path, ",") > maxParameters {
		r.warn(n, "%s is left out: its path is too long", tree.Short(op.Key()))
		return nil, nil
	}
	list = r.matchPath(r.matchQuery(list, op, n), op, n)
	if r.swagger {
		return list, r.swaggerBody(n, op, body, form)
	}
	return list, nil
}

var queryTemplate = regexp.MustCompile(`\{[?&]([^{}]*)\}`)

// matchQuery adds parameters for {?a,b} in a path, and for ?a and ?a={a} in the path's own query. A
// name with a fixed value in the query is no parameter.
func (r *reader) matchQuery(list []*Parameter, op *Operation, n *tree.Node) []*Parameter {
	index := func(name string) int {
		return slices.IndexFunc(list, func(p *Parameter) bool { return p.In == InQuery && p.Name == name })
	}
	for _, m := range queryTemplate.FindAllStringSubmatch(op.Path, -1) {
		op.Path = strings.Replace(op.Path, m[0], "", 1)
		for name := range strings.SplitSeq(m[1], ",") {
			name, exploded := strings.CutSuffix(strings.TrimSpace(name), "*")
			if name, _, _ = strings.Cut(name, ":"); name == "" || index(name) >= 0 {
				continue
			}
			r.warn(n, "%s: {?%s} is not declared as a parameter: taken as a string", op.Key(), tree.Short(name))
			list = append(list, &Parameter{
				Name:    name,
				In:      InQuery,
				Style:   "form",
				Explode: exploded,
				Type:    "string",
			})
		}
	}
	path, query, has := strings.Cut(op.Path, "?")
	if !has {
		return list
	}
	var fixed []string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		switch at := index(name); {
		case at >= 0 && (value == "" || template.FindString(value) == value): // the parameter sends it
		case value != "" && template.FindString(value) == value:
			list = r.queryValue(list, op, n, name, strings.Trim(value, "{}"))
		case at < 0:
			fixed = append(fixed, pair)
		default:
			r.warn(n, "%s: the path sets %s: the parameter is left out", op.Key(), tree.Short(name))
			list = slices.Delete(list, at, at+1)
			fixed = append(fixed, pair)
		}
	}
	if op.Path = path; len(fixed) > 0 {
		op.Path += "?" + strings.Join(fixed, "&")
	}
	return list
}

// queryValue adds the parameter for ?name={value} in a path. If the operation declares a parameter
// called value, queryValue renames that parameter instead.
func (r *reader) queryValue(list []*Parameter, op *Operation, n *tree.Node, name, value string) []*Parameter {
	path, _, _ := strings.Cut(op.Path, "?")
	for _, p := range list {
		if p.Name == value && (p.In == InQuery || p.In == InPath && !strings.Contains(path, "{"+value+"}")) {
			p.Name, p.In, p.Style = name, InQuery, "form"
			return list
		}
	}
	r.warn(n, "%s: {%s} is not declared as a parameter: taken as a string", op.Key(), tree.Short(value))
	return append(list, &Parameter{
		Name:     name,
		In:       InQuery,
		Required: true,
		Style:    "form",
		Type:     "string",
	})
}

// matchPath adds a parameter for each name in the path that has none, and removes path parameters
// that the path does not name. It returns nil if the operation is unusable.
func (r *reader) matchPath(list []*Parameter, op *Operation, n *tree.Node) []*Parameter {
	in := map[string]bool{}
	has := func(name string) bool {
		return slices.ContainsFunc(list, func(p *Parameter) bool { return p.In == InPath && p.Name == name })
	}
	for _, m := range template.FindAllStringSubmatch(op.Path, -1) {
		name := m[1]
		if !has(name) {
			// {+path}, {path*}, {id:[0-9]+} and {name=projects/*} are from other template languages.
			plain, _, _ := strings.Cut(strings.Trim(name, "+*."), ":")
			plain, _, _ = strings.Cut(plain, "=")
			if plain = strings.TrimSpace(plain); plain == "" {
				r.warn(n, "%s is left out: a part of its path has no name", op.Key())
				return nil
			}
			op.Path = strings.ReplaceAll(op.Path, m[0], "{"+plain+"}")
			if !has(plain) {
				r.warn(n, "%s: {%s} is not declared as a parameter: taken as a string", op.Key(), tree.Short(plain))
				list = append(list, &Parameter{
					Name:     plain,
					In:       InPath,
					Required: true,
					Style:    "simple",
					Type:     "string",
				})
			}
			name = plain
		}
		in[name] = true
		if slashed.MatchString(m[1]) {
			for _, p := range list {
				p.AllowReserved = p.AllowReserved || p.In == InPath && p.Name == name
			}
		}
	}
	return slices.DeleteFunc(list, func(p *Parameter) bool {
		if p.In == InPath && !in[p.Name] {
			r.warn(n, "%s: the path has no {%s}: the parameter is left out", op.Key(), tree.Short(p.Name))
			return true
		}
		return false
	})
}

// parameter reads a parameter outside of a body. It returns nil for a parameter that cannot or must
// not be sent.
func (r *reader) parameter(at, n *tree.Node, op *Operation) *Parameter {
	p := &Parameter{
		Name:          n.Scalar("name"),
		In:            Place(n.Str("in")),
		Description:   n.Scalar("description"),
		Required:      n.Flag("required"),
		Deprecated:    n.Flag("deprecated"),
		AllowReserved: n.Flag("allowReserved"),
		at:            place{n.File, n.Line},
	}
	if d := at.Scalar("description"); d != "" {
		p.Description = d
	}
	if p.Name == "" && p.In != InQueryString {
		r.warn(at, "%s: a parameter without a name is left out", op.Key())
		return nil
	}
	styles := stylesOf(p.In)
	if styles == nil {
		r.warn(at, "%s: parameter %q is in %q, which is not a valid place: left out", op.Key(), tree.Short(p.Name), tree.Short(n.Str("in")))
		return nil
	}
	switch p.In {
	case InPath:
		p.Required = true
	case InHeader:
		switch dashed(strings.ToLower(p.Name)) {
		case "accept", "content-type", "authorization":
			return nil
		}
		if OfConnection(p.Name) { // only the connection sets it
			return nil
		}
		if !httpguts.ValidHeaderFieldName(p.Name) {
			r.warn(at, "%s: %q cannot be the name of a header: left out", op.Key(), tree.Short(p.Name))
			return nil
		}
	}
	if op.Redirects(p.In, p.Name) {
		r.warn(at, "%s: %s %s is left out: with it, many servers do something else than what the operation is", op.Key(), p.In, tree.Short(p.Name))
		return nil
	}
	p.Style = styles[0]
	if r.swagger {
		r.collection(p, n)
	} else if s := n.Str("style"); s != "" {
		if slices.Contains(styles, s) {
			p.Style = s
		} else {
			r.warn(at, "%s: parameter %q: style %q is not valid in %s: %s is used", op.Key(), tree.Short(p.Name), tree.Short(s), p.In, p.Style)
		}
	}
	if !r.swagger {
		p.Explode = p.Style == "form" || p.Style == "deepObject"
		if e := n.Get("explode"); e.Is(tree.Boolean) && p.Style != "deepObject" {
			p.Explode = e.Text == "true"
		}
	}
	p.schema = n.Get("schema")
	if content := r.derefOptional(n.Get("content")); content.Is(tree.Object) && len(content.Members()) > 0 {
		m := &content.Members()[0]
		p.ContentType, p.schema = m.Name, r.derefOptional(&m.Node).Get("schema")
	} else if p.schema == nil {
		p.schema = inlineSchema(n)
	}
	if p.In == InQueryString && p.ContentType == "" {
		p.ContentType = "application/x-www-form-urlencoded"
	}
	p.Type, p.Value = r.typeOf(p.schema), r.valueOf(p.schema)
	return p
}

// Redirects reports whether a parameter can turn an operation that only reads into another operation,
// since servers take the method or the path from the parameter.
func (o *Operation) Redirects(in Place, name string) bool {
	if !AnnotationsOf(o.Method).ReadOnly {
		return false
	}
	switch in {
	case InHeader:
		return slices.ContainsFunc([]string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-URL", "X-Rewrite-URL"},
			func(other string) bool { return SameHeader(other, name) })
	case InQuery:
		return name == "_method"
	}
	return false
}

// OfConnection reports whether a header belongs to the connection or the body, so that arguments
// cannot set the header.
func OfConnection(name string) bool {
	name = dashed(strings.ToLower(name))
	return strings.HasPrefix(name, "proxy-") || slices.Contains([]string{
		"accept-encoding", "connection", "content-encoding", "content-length", "cookie", "expect", "host", "keep-alive",
		"te", "trailer", "transfer-encoding", "upgrade",
	}, name)
}

// SameHeader reports whether servers may take two names for one header. Some servers treat '_' as
// '-'.
func SameHeader(a, b string) bool { return strings.EqualFold(dashed(a), dashed(b)) }

func dashed(name string) string { return strings.ReplaceAll(name, "_", "-") }

// stylesOf returns the styles of a place, the default first.
func stylesOf(in Place) []string {
	switch in {
	case InPath:
		return []string{"simple", "label", "matrix"}
	case InQuery:
		return []string{"form", "spaceDelimited", "pipeDelimited", "deepObject"}
	case InHeader:
		return []string{"simple"}
	case InCookie:
		return []string{"form", "cookie"}
	case InQueryString:
		return []string{"form"}
	}
	return nil
}

// collection sets how Swagger 2.0 writes an array.
func (r *reader) collection(p *Parameter, n *tree.Node) {
	p.CollectionFormat = collectionFormat(n)
	p.Explode = p.CollectionFormat == "multi"
	switch {
	case p.In != InQuery:
	case p.CollectionFormat == "ssv":
		p.Style = "spaceDelimited"
	case p.CollectionFormat == "pipes":
		p.Style = "pipeDelimited"
	}
}

func collectionFormat(n *tree.Node) string {
	if n.Str("type") != "array" {
		return ""
	}
	switch f := n.Str("collectionFormat"); f {
	case "ssv", "tsv", "pipes", "multi":
		return f
	}
	return "csv"
}

// notSchema are the members of a Swagger 2.0 parameter that are no keywords of its schema.
var notSchema = []string{"name", "in", "required", "description", "collectionFormat", "allowEmptyValue",
	"deprecated", "schema", "style", "explode", "content", "$ref", "allowReserved", "example", "examples"}

// inlineSchema returns the schema of a parameter that has the keywords itself, as in Swagger 2.0.
func inlineSchema(n *tree.Node) *tree.Node {
	var list []tree.Member
	for _, m := range n.Members() {
		if !slices.Contains(notSchema, m.Name) {
			list = append(list, m)
		}
	}
	return n.Object(list)
}

// valueOf returns the const, the only enum item or the default of a schema as text, or "".
func (l *loader) valueOf(n *tree.Node) string {
	n = l.derefOptional(n)
	types, _ := typesOf(n)
	as := func(n *tree.Node) string {
		if n = asType(n, types); n == nil {
			return ""
		}
		return n.Text
	}
	only := ""
	if e := n.Get("enum").Members(); len(e) == 1 {
		only = as(&e[0].Node)
	}
	return cmp.Or(as(n.Get("const")), only, as(n.Get("default")))
}

// typeOf returns the only type that a schema allows, or "".
func (l *loader) typeOf(n *tree.Node) string {
	for range maxChain {
		if n = l.derefOptional(n); n == nil || n.Kind != tree.Object {
			return ""
		}
		types, _ := typesOf(n)
		switch {
		case len(types) == 1:
			return types[0]
		case len(types) > 1:
			return ""
		case n.Get("properties") != nil:
			return "object"
		case n.Get("items") != nil:
			return "array"
		}
		all := n.Get("allOf").Members()
		if len(all) == 0 {
			return ""
		}
		n = &all[0].Node
	}
	return ""
}
