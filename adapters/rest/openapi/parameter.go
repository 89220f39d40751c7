package openapi

import (
	"regexp"
	"slices"
	"strings"
)

// maxParameters is how many parameters an operation may have. None has a tenth
// of that.
const maxParameters = 1000

var template = regexp.MustCompile(`\{([^{}]*)\}`)

// parameters reads what an operation takes outside of the body and, in Swagger
// 2.0, the body too. The list is nil when the operation cannot be used.
func (r *reader) parameters(common *pathItem, n *node, op *Operation) ([]*Parameter, *Body) {
	list := []*Parameter{}
	var form []*node
	var body *node
	for _, from := range []*node{r.soft(common.params), r.soft(n.get("parameters"))} {
		if from != nil && from.kind != array {
			r.warn(from, "%s: parameters is %s and not a list", op.Key(), from.kind)
			continue
		}
		own := len(list)
		if len(from.members()) > maxParameters {
			r.warn(from, "%s is left out: it has %d parameters", op.Key(), len(from.members()))
			return nil, nil
		}
		for i := range from.members() {
			if !r.spend(1) {
				break // which costs the operation
			}
			at := &from.kids.list[i].node
			p := r.soft(at)
			if p == nil {
				continue // told by deref
			}
			switch in := p.str("in"); {
			case r.swagger && in == "body":
				body = p
				continue
			case r.swagger && in == "formData":
				form = slices.DeleteFunc(form, func(f *node) bool { return f.scalar("name") == p.scalar("name") })
				form = append(form, p)
				continue
			}
			param := r.parameter(at, p, op)
			if param == nil {
				if p.flag("required") && p.str("in") != "header" {
					r.warn(at, "%s is left out: it needs this parameter", op.Key())
					return nil, nil
				}
				continue
			}
			same := slices.IndexFunc(list, func(q *Parameter) bool { return q.Name == param.Name && q.In == param.In })
			switch {
			case same < 0:
				list = append(list, param)
			default:
				if same >= own {
					r.warn(at, "%s: parameter %q in %s stands here again: the last one counts", op.Key(), short(param.Name), param.In)
				}
				list[same] = param
			}
		}
	}
	if strings.Count(op.Path, "{") > maxParameters {
		r.warn(n, "%s is left out: its path is too long", short(op.Key()))
		return nil, nil
	}
	list = r.matchPath(list, op, n)
	if r.swagger {
		return list, r.swaggerBody(n, op, body, form)
	}
	return list, nil
}

// matchPath sees to it that every name in the path has its parameter, and
// every path parameter its place.
func (r *reader) matchPath(list []*Parameter, op *Operation, n *node) []*Parameter {
	in := map[string]bool{}
	has := func(name string) bool {
		return slices.ContainsFunc(list, func(p *Parameter) bool { return p.In == InPath && p.Name == name })
	}
	for _, m := range template.FindAllStringSubmatch(op.Path, -1) {
		name := m[1]
		if !has(name) {
			// {+path}, {path*} and {id:[0-9]+} are other dialects of templates.
			plain, _, _ := strings.Cut(strings.Trim(name, "+*"), ":")
			if plain = strings.TrimSpace(plain); plain == "" {
				continue
			}
			op.Path = strings.ReplaceAll(op.Path, m[0], "{"+plain+"}")
			if !has(plain) {
				r.warn(n, "%s: nothing is said about {%s}: taken as a string", op.Key(), short(plain))
				list = append(list, &Parameter{Name: plain, In: InPath, Required: true, Style: "simple", Type: "string"})
			}
			name = plain
		}
		in[name] = true
	}
	return slices.DeleteFunc(list, func(p *Parameter) bool {
		if p.In == InPath && !in[p.Name] {
			r.warn(n, "%s: the path has no {%s}: the parameter is left out", op.Key(), short(p.Name))
			return true
		}
		return false
	})
}

// parameter reads one that is not part of a body. Nil means that it cannot or
// must not be sent.
func (r *reader) parameter(at, n *node, op *Operation) *Parameter {
	p := &Parameter{Name: n.scalar("name"), In: Place(n.str("in")), Description: n.scalar("description"),
		Required: n.flag("required"), Deprecated: n.flag("deprecated"), AllowReserved: n.flag("allowReserved"),
		AllowEmpty: n.flag("allowEmptyValue"), at: place{n.file, n.line}}
	if d := at.scalar("description"); d != "" {
		p.Description = d
	}
	if p.Name == "" && p.In != InQueryString {
		r.warn(at, "%s: a parameter without a name is left out", op.Key())
		return nil
	}
	styles := stylesOf(p.In)
	if styles == nil {
		r.warn(at, "%s: parameter %q is in %q, which is no place: left out", op.Key(), short(p.Name), short(n.str("in")))
		return nil
	}
	switch p.In {
	case InPath:
		p.Required = true
	case InHeader:
		switch strings.ToLower(p.Name) {
		case "accept", "content-type", "authorization":
			return nil
		}
		if OfConnection(p.Name) { // nobody but the connection can know it
			return nil
		}
		if !isToken(p.Name) {
			r.warn(at, "%s: %q cannot be the name of a header: left out", op.Key(), short(p.Name))
			return nil
		}
	}
	p.Style = styles[0]
	if r.swagger {
		r.collection(p, n)
	} else if s := n.str("style"); s != "" {
		if slices.Contains(styles, s) {
			p.Style = s
		} else {
			r.warn(at, "%s: parameter %q: style %q does not go with %s: %s is used", op.Key(), short(p.Name), short(s), p.In, p.Style)
		}
	}
	if !r.swagger {
		p.Explode = p.Style == "form" || p.Style == "deepObject"
		if e := n.get("explode"); e.is(boolean) && p.Style != "deepObject" {
			p.Explode = e.text == "true"
		}
	}
	p.schema = n.get("schema")
	if content := r.soft(n.get("content")); content.is(object) && len(content.members()) > 0 {
		m := &content.members()[0]
		p.ContentType, p.schema = m.name, r.soft(&m.node).get("schema")
	} else if p.schema == nil {
		p.schema = inlineSchema(n)
	}
	if p.In == InQueryString && p.ContentType == "" {
		p.ContentType = "application/x-www-form-urlencoded"
	}
	p.Type, p.Value = r.typeOf(p.schema), r.valueOf(p.schema)
	return p
}

// OfConnection reports whether a header is the connection's or the body's own:
// no argument and no configuration can set it.
func OfConnection(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "proxy-") || slices.Contains([]string{
		"accept-encoding", "connection", "content-encoding", "content-length", "cookie", "expect", "host", "keep-alive",
		"te", "trailer", "transfer-encoding", "upgrade",
	}, name)
}

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

// collection reads how Swagger 2.0 writes arrays.
func (r *reader) collection(p *Parameter, n *node) {
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

func collectionFormat(n *node) string {
	if n.str("type") != "array" {
		return ""
	}
	switch f := n.str("collectionFormat"); f {
	case "ssv", "tsv", "pipes", "multi":
		return f
	}
	return "csv"
}

// notSchema are the members of a Swagger 2.0 parameter that say nothing about
// its value.
var notSchema = []string{"name", "in", "required", "description", "collectionFormat", "allowEmptyValue",
	"deprecated", "schema", "style", "explode", "content", "$ref", "allowReserved", "example", "examples"}

// inlineSchema makes a schema of a parameter that is one itself.
func inlineSchema(n *node) *node {
	var list []member
	for _, m := range n.members() {
		if !slices.Contains(notSchema, m.name) {
			list = append(list, m)
		}
	}
	return made(n, list)
}

// made returns an object that the document does not have.
func made(at *node, list []member) *node {
	n := &node{line: at.line, file: at.file, kind: object}
	if len(list) > 0 {
		n.kids = newKids(list, func(*member) {})
	}
	return n
}

// valueOf returns the value that a schema gives, as text, or "".
func (r *loader) valueOf(n *node) string {
	n = r.soft(n)
	if c := n.scalar("const"); c != "" {
		return c
	}
	if e := n.get("enum"); len(e.members()) == 1 && e.members()[0].node.kind != object {
		return e.members()[0].node.text
	}
	return n.scalar("default")
}

// typeOf returns the one type that a schema says, or "".
func (r *loader) typeOf(n *node) string {
	for range maxChain {
		if n = r.soft(n); n == nil || n.kind != object {
			return ""
		}
		types, _ := typesOf(n)
		switch {
		case len(types) == 1:
			return types[0]
		case len(types) > 1:
			return ""
		case n.get("properties") != nil:
			return "object"
		case n.get("items") != nil:
			return "array"
		}
		all := n.get("allOf").members()
		if len(all) == 0 {
			return ""
		}
		n = &all[0].node
	}
	return ""
}
