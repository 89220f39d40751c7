package openapi

import (
	"net/http"
	"slices"
	"strings"
)

// methods are the members of a path item that are operations, in the order in
// which the specification lists them; the document's order counts.
var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace", "query"}

// path reads one path item. What is wrong with one of its operations costs
// that operation.
func (r *reader) path(doc *Document, path string, n *node) {
	item := r.soft(n)
	if item == nil {
		if n.get("$ref") != nil { // told by deref
			doc.Lost = append(doc.Lost, &Operation{Path: path, written: path})
		}
		return
	}
	if item.kind != object {
		if item.kind != null {
			doc.Lost = append(doc.Lost, &Operation{Path: path, written: path})
		}
		r.warn(n, "path %s is %s: left out", short(path), item.kind)
		return
	}
	items := []*node{item}
	if item != n { // its own members go over those of the reference
		items = []*node{n, item}
	}
	common := &pathItem{path: path}
	common.mcp = r.mcp
	for _, it := range items {
		if x := it.get("x-mcp"); x != nil {
			common.mcp = x
		}
		if common.params == nil {
			common.params = it.get("parameters")
		}
		if common.servers == nil {
			common.servers = r.servers(it.get("servers"))
		}
		if common.summary == "" {
			common.summary = it.scalar("summary")
		}
		if common.description == "" {
			common.description = it.scalar("description")
		}
	}
	for _, it := range items {
		for i := range it.members() {
			m := &it.kids.list[i]
			switch name := strings.ToLower(m.name); {
			case slices.Contains(methods, name):
				r.operation(doc, common, strings.ToUpper(m.name), &m.node)
			case m.name == "additionalOperations" && m.node.kind == object:
				for j := range m.node.members() {
					extra := &m.node.kids.list[j]
					r.operation(doc, common, extra.name, &extra.node)
				}
			}
		}
	}
}

// pathItem is what the operations of a path share.
type pathItem struct {
	path, summary, description string
	params, mcp                *node
	servers                    []Server
}

func (r *reader) operation(doc *Document, common *pathItem, method string, at *node) {
	key := method + " " + common.path
	op := &Operation{Method: method, Path: common.path, written: common.path}
	kept := false
	defer func() {
		if !kept {
			doc.Lost = append(doc.Lost, op)
		}
	}()
	if !isToken(method) {
		r.warn(at, "%s: not a method of HTTP: left out", short(key))
		return
	}
	if r.seen[key] {
		kept = true
		return // that of a path item which a reference brought; the own one was first
	}
	if r.left < 0 {
		return // told by the first one
	}
	r.seen[key] = true
	n := r.soft(at)
	if n == nil || n.kind != object {
		r.warn(at, "%s is not an operation: left out", short(key))
		return
	}
	path, _, _ := strings.Cut(common.path, "#")
	if !strings.HasPrefix(path, "/") {
		r.warn(at, "path %q does not begin with a slash", short(path))
		path = "/" + path
	}
	*op = Operation{ID: n.scalar("operationId"), Method: method, Path: path, written: common.path,
		Summary: n.scalar("summary"), Description: n.scalar("description"),
		Deprecated: n.flag("deprecated"), Tags: n.strings("tags"),
		File: r.name(r.files[at.file].location), Line: int(at.line)}
	if op.Summary == "" {
		op.Summary = common.summary
	}
	if op.Description == "" {
		op.Description = common.description
	}
	op.Servers = common.servers
	if s := n.get("servers"); s != nil {
		op.Servers = r.servers(s)
	}
	op.Security = r.security
	if s := n.get("security"); s != nil {
		if own := r.requirements(s); own != nil {
			op.Security = own
		}
	}
	op.MCP = r.extension(n.get("x-mcp"))
	if n.get("x-mcp") == nil && common.mcp != nil { // what all of a path have can only be a switch
		op.MCP.Off = r.extension(common.mcp).Off
	}
	var body *Body
	if op.Parameters, body = r.parameters(common, n, op); op.Parameters == nil {
		return
	}
	if b := n.get("requestBody"); b != nil && !r.swagger {
		body = r.body(b)
	}
	op.Body = body
	op.Responses = r.responses(n)
	if !r.spend(operationParts) {
		r.warn(at, "%s and what follows is left out: the operations have more than %d parts together", short(op.Key()), maxParts)
		return
	}
	doc.Operations, kept = append(doc.Operations, op), true
}

// operationParts is how many parts an operation counts by itself.
const operationParts = 10

// isToken reports whether s can stand where HTTP has a method or the name of a
// header (RFC 9110, 5.6.2).
func isToken(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return true
}

func (r *reader) extension(n *node) Extension {
	var x Extension
	switch {
	case n == nil:
	case n.kind == boolean:
		x.Off = n.text == "false"
	case n.kind == object:
		if e := n.get("enabled"); e.is(boolean) && e.text == "false" {
			x.Off = true
		}
		x.Name, x.Title, x.Description = n.scalar("name"), n.scalar("title"), n.scalar("description")
		hints := n.get("annotations")
		if hints == nil {
			hints = n
		}
		for _, h := range []struct {
			name string
			to   **bool
		}{{"readOnlyHint", &x.ReadOnly}, {"destructiveHint", &x.Destructive}, {"idempotentHint", &x.Idempotent}, {"openWorldHint", &x.OpenWorld}} {
			if v := hints.get(h.name); v.is(boolean) {
				is := v.text == "true"
				*h.to = &is
			}
		}
	default:
		r.warn(n, "x-mcp is %s: it must be false or an object", n.kind)
	}
	return x
}

func (r *reader) responses(n *node) []Response {
	list := r.soft(n.get("responses"))
	var out []Response
	for i := range list.members() {
		m := &list.kids.list[i]
		if strings.HasPrefix(m.name, "x-") || !r.spend(1) {
			continue
		}
		a := r.soft(&m.node)
		if a == nil || a.kind != object {
			r.warn(&m.node, "response %s cannot be read", short(m.name))
			continue
		}
		resp := Response{Status: m.name, Description: a.scalar("description")}
		if !r.swagger {
			resp.Content = r.content(a.get("content"))
		} else if s := a.get("schema"); s != nil {
			resp.Content = r.media(or(n.strings("produces"), r.produces), s)
		}
		for _, h := range r.soft(a.get("headers")).members() {
			if len(resp.Headers) < maxHeaders && isToken(h.name) {
				resp.Headers = append(resp.Headers, http.CanonicalHeaderKey(h.name))
			}
		}
		out = append(out, resp)
	}
	return out
}

// maxHeaders is how many headers of a response are noted.
const maxHeaders = 20

// or returns the first list that has something.
func or(own, common []string) []string {
	if len(own) > 0 {
		return own
	}
	return common
}
