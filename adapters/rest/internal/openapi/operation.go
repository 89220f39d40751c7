package openapi

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// methods are the members of a path item that are operations.
var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace", "query"}

// path reads one path item. A fault in an operation costs only that operation.
func (r *reader) path(doc *Document, path string, n *tree.Node) {
	item := r.derefOptional(n)
	if item == nil {
		if n.Get("$ref") != nil { // deref reports it
			doc.Lost = append(doc.Lost, &Operation{Path: path, written: path})
		}
		return
	}
	if item.Kind != tree.Object {
		if item.Kind != tree.Null {
			doc.Lost = append(doc.Lost, &Operation{Path: path, written: path})
		}
		r.warn(n, "path %s is %s, not an object: left out", tree.Short(path), item.Kind)
		return
	}
	items := []*tree.Node{item}
	if item != n { // members beside a reference win over those of its target
		items = []*tree.Node{n, item}
	}
	common := &pathItem{path: path}
	common.mcp = r.mcp
	for _, it := range items {
		if n := it.Get("x-mcp"); n != nil {
			common.mcp = n
		}
		if common.params == nil {
			common.params = it.Get("parameters")
		}
		if common.servers == nil {
			common.servers = r.servers(it.Get("servers"))
		}
		common.summary = cmp.Or(common.summary, it.Scalar("summary"))
		common.description = cmp.Or(common.description, it.Scalar("description"))
	}
	for _, it := range items {
		for i := range it.Members() {
			m := &it.Members()[i]
			switch name := strings.ToLower(m.Name); {
			case slices.Contains(methods, name):
				r.operation(doc, common, strings.ToUpper(m.Name), &m.Node)
			case m.Name == "additionalOperations" && m.Node.Kind == tree.Object:
				for j := range m.Node.Members() {
					extra := &m.Node.Members()[j]
					r.operation(doc, common, extra.Name, &extra.Node)
				}
			}
		}
	}
}

// pathItem has what the operations of a path share.
type pathItem struct {
	path, summary, description string
	params, mcp                *tree.Node
	servers                    []Server
}

func (r *reader) operation(doc *Document, common *pathItem, method string, at *tree.Node) {
	key := method + " " + common.path
	op := &Operation{
		Method:  method,
		Path:    common.path,
		written: common.path,
	}
	kept := false
	defer func() {
		if !kept {
			doc.Lost = append(doc.Lost, op)
		}
	}()
	if !httpguts.ValidHeaderFieldName(method) {
		r.warn(at, "%s is not an HTTP method: left out", tree.Short(key))
		return
	}
	if r.seen[key] {
		kept = true
		return // the operation of the reference's target: the path's own came first
	}
	if r.left < 0 {
		return // the first operation beyond maxParts has reported that
	}
	r.seen[key] = true
	n := r.derefOptional(at)
	if n == nil || n.Kind != tree.Object {
		r.warn(at, "%s is not an operation: left out", tree.Short(key))
		return
	}
	path, _, _ := strings.Cut(common.path, "#")
	if !strings.HasPrefix(path, "/") {
		r.warn(at, "path %q does not begin with a slash", tree.Short(path))
		path = "/" + path
	}
	*op = Operation{
		ID:          n.Scalar("operationId"),
		Method:      method,
		Path:        path,
		written:     common.path,
		Summary:     cmp.Or(n.Scalar("summary"), common.summary),
		Description: cmp.Or(n.Scalar("description"), common.description),
		Deprecated:  n.Flag("deprecated"),
		Tags:        n.Strings("tags"),
		File:        r.name(r.files[at.File].location),
		Line:        int(at.Line),
	}
	op.Servers = common.servers
	if s := n.Get("servers"); s != nil {
		op.Servers = r.servers(s)
	}
	op.Security = r.security
	if s := n.Get("security"); s != nil {
		if own := r.requirements(s); own != nil {
			op.Security = own
		}
	}
	op.MCP = r.extension(n.Get("x-mcp"))
	if n.Get("x-mcp") == nil && common.mcp != nil { // only Off applies from the x-mcp of a path
		op.MCP.Off = r.extension(common.mcp).Off
	}
	var body *Body
	if op.Parameters, body = r.parameters(common, n, op); op.Parameters == nil {
		return
	}
	if b := n.Get("requestBody"); !r.swagger {
		var ok bool
		if body, ok = r.body(b); !ok {
			r.warn(b, "%s is left out: its body cannot be read", op.Key())
			return
		}
	}
	op.Body = body
	op.Responses = r.responses(n)
	if !r.spend(operationParts) {
		r.warn(at, "%s and what follows is left out: the operations have more than %d parts together", tree.Short(op.Key()), maxParts)
		return
	}
	doc.Operations, kept = append(doc.Operations, op), true
}

// operationParts is what an operation without any parts counts towards maxParts.
const operationParts = 10

func (r *reader) extension(n *tree.Node) Extension {
	var x Extension
	switch {
	case n == nil:
	case n.Kind == tree.Boolean:
		x.Off = n.Text == "false"
	case n.Kind == tree.Object:
		if e := n.Get("enabled"); e.Is(tree.Boolean) && e.Text == "false" {
			x.Off = true
		}
		x.Name, x.Title, x.Description = n.Scalar("name"), n.Scalar("title"), n.Scalar("description")
		hints := cmp.Or(n.Get("annotations"), n)
		for _, h := range []struct {
			name string
			to   **bool
		}{{"readOnlyHint", &x.ReadOnly}, {"destructiveHint", &x.Destructive}, {"idempotentHint", &x.Idempotent}, {"openWorldHint", &x.OpenWorld}} {
			if n := hints.Get(h.name); n.Is(tree.Boolean) {
				is := n.Text == "true"
				*h.to = &is
			}
		}
	default:
		r.warn(n, "x-mcp is %s: it must be false or an object", n.Kind)
	}
	return x
}

func (r *reader) responses(n *tree.Node) []Response {
	list := r.derefOptional(n.Get("responses"))
	var out []Response
	for i := range list.Members() {
		m := &list.Members()[i]
		if strings.HasPrefix(m.Name, "x-") || !r.spend(1) {
			continue
		}
		a := r.derefOptional(&m.Node)
		if a == nil || a.Kind != tree.Object {
			r.warn(&m.Node, "response %s cannot be read", tree.Short(m.Name))
			continue
		}
		resp := Response{Status: m.Name, Description: a.Scalar("description")}
		if !r.swagger {
			resp.Content = r.content(a.Get("content"))
		} else if s := a.Get("schema"); s != nil {
			resp.Content = r.media(firstNonEmpty(n.Strings("produces"), r.produces), s)
		}
		for _, m := range r.derefOptional(a.Get("headers")).Members() {
			if len(resp.Headers) < maxHeaders && httpguts.ValidHeaderFieldName(m.Name) {
				resp.Headers = append(resp.Headers, http.CanonicalHeaderKey(m.Name))
			}
		}
		out = append(out, resp)
	}
	return out
}

// maxHeaders bounds Response.Headers.
const maxHeaders = 20

// firstNonEmpty returns own, or common if own is empty.
func firstNonEmpty(own, common []string) []string {
	if len(own) > 0 {
		return own
	}
	return common
}
