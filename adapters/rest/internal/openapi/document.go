package openapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
	"github.com/mcp-bridge/bridge/internal/address"
)

// document reads the tree of a whole document into doc.
func (l *loader) document(doc *Document, root *tree.Node) error {
	if !root.Is(tree.Object) {
		return fmt.Errorf("is %s, not an OpenAPI document", root.Kind)
	}
	swagger := false
	switch {
	case root.Get("openapi") != nil:
		doc.Format = root.Scalar("openapi")
		if !strings.HasPrefix(doc.Format, "3.") {
			l.warn(root.Get("openapi"), "openapi is %q: read as 3.1", tree.Short(doc.Format))
		}
	case root.Get("swagger") != nil:
		doc.Format, swagger = root.Scalar("swagger"), true
		if !strings.HasPrefix(doc.Format, "2") {
			l.warn(root.Get("swagger"), "swagger is %q: read as 2.0", tree.Short(doc.Format))
		}
	case root.Get("paths").Is(tree.Object):
		swagger = root.Get("definitions") != nil || root.Get("host") != nil || root.Get("basePath") != nil
		l.warn(root, "the version of OpenAPI is missing (openapi or swagger)")
	default:
		return errors.New("is not an OpenAPI document: openapi, swagger and paths are missing")
	}
	l.siblings = !swagger && !strings.HasPrefix(doc.Format, "3.0")
	info := l.derefOptional(root.Get("info"))
	doc.Title, doc.Version, doc.Description = info.Scalar("title"), info.Scalar("version"), info.Scalar("description")
	doc.Public = l.public(root)
	if self := root.Str("$self"); address.IsHTTP(self) && doc.Location == "" {
		doc.Location, l.files[0].location = self, self
	}
	r := &reader{
		loader:  l,
		swagger: swagger,
		seen:    map[string]bool{},
		left:    maxParts,
	}
	r.schemes(doc, root)
	r.declared = map[string]bool{}
	for _, s := range doc.Schemes {
		r.declared[s.Name] = true
	}
	if swagger {
		doc.Servers = r.hosts(root)
		r.consumes, r.produces = root.Strings("consumes"), root.Strings("produces")
	} else {
		doc.Servers = r.servers(root.Get("servers"))
	}
	r.mcp = root.Get("x-mcp")
	r.security = r.requirements(root.Get("security"))
	paths := l.derefOptional(root.Get("paths"))
	if paths == nil && root.Get("paths") != nil || paths != nil && paths.Kind != tree.Object {
		l.warn(root.Get("paths"), "paths cannot be read")
	}
	for i := range paths.Members() {
		m := &paths.Members()[i]
		if !strings.HasPrefix(m.Name, "x-") {
			r.path(doc, m.Name, &m.Node)
		}
	}
	if len(doc.Operations)+len(doc.Lost) == 0 {
		l.warn(cmp.Or(root.Get("paths"), root), "the document has no operations: nothing of it becomes a tool")
	}
	return nil
}

// derefOptional is deref for values that may be missing.
func (l *loader) derefOptional(n *tree.Node) *tree.Node {
	if n == nil {
		return nil
	}
	return l.deref(n)
}

// remote reports whether a node was read from a URL.
func (l *loader) remote(n *tree.Node) bool {
	return n != nil && address.IsHTTP(l.files[n.File].location) && (n.File > 0 || l.src.Data == nil)
}

// public reports whether a node was read from a URL at a public address.
func (l *loader) public(n *tree.Node) bool {
	return l.remote(n) && l.src.Fetcher.Public(l.files[n.File].location)
}

// reader reads the parts of a document into a Document.
type reader struct {
	*loader
	declared           map[string]bool // names of security schemes
	swagger            bool
	consumes, produces []string // of a Swagger 2.0 document
	security           []Requirement
	mcp                *tree.Node      // x-mcp of the document
	seen               map[string]bool // the methods with paths that were read
	left               int             // parts that operations may still have; negative if exceeded
}

// maxParts bounds the parts of all operations: parameters, responses, media types, fields of forms,
// and a few for each operation. References and aliases can multiply parts. A document of 13 MB with
// 2,900 operations has a seventh of this number.
const maxParts = 1 << 19

// spend takes n of the remaining parts, and reports whether there were enough.
func (r *reader) spend(n int) bool {
	r.left = max(r.left-n, -1)
	return r.left >= 0
}

func (r *reader) servers(n *tree.Node) []Server {
	n = r.derefOptional(n)
	if n == nil {
		return nil
	}
	if n.Kind != tree.Array {
		r.warn(n, "servers is %s and not a list", n.Kind)
		return nil
	}
	var out []Server
	for i := range n.Members() {
		s := r.derefOptional(&n.Members()[i].Node)
		if s == nil || !s.Get("url").Is(tree.Text) {
			r.warn(&n.Members()[i].Node, "a server has no url")
			continue
		}
		server := Server{
			URL:         s.Str("url"),
			Description: s.Scalar("description"),
			Remote:      r.remote(s),
			Public:      r.public(s),
		}
		vars := r.derefOptional(s.Get("variables"))
		for j := range vars.Members() {
			m := &vars.Members()[j]
			n := r.derefOptional(&m.Node)
			server.Remote = server.Remote || r.remote(&m.Node) || r.remote(n)
			server.Public = server.Public || r.public(&m.Node) || r.public(n)
			one := Variable{
				Name:        m.Name,
				Default:     n.Scalar("default"),
				Enum:        n.Strings("enum"),
				Description: n.Scalar("description"),
			}
			if n.Get("default") == nil {
				r.warn(&m.Node, "variable %q of a server has no default", tree.Short(m.Name))
				if len(one.Enum) == 0 {
					continue // without a value, the variable is as good as not declared
				}
				one.Default = one.Enum[0]
			}
			server.Variables = append(server.Variables, one)
		}
		out = append(out, server)
	}
	return out
}

// hosts returns the servers that host, basePath and schemes of Swagger 2.0 describe.
func (r *reader) hosts(root *tree.Node) []Server {
	host, base := root.Scalar("host"), root.Scalar("basePath")
	if base != "" && !strings.HasPrefix(base, "/") {
		base = "/" + base
	}
	if host == "" {
		if base == "" {
			return nil
		}
		return []Server{{
			URL:    base,
			Remote: r.remote(root),
			Public: r.public(root),
		}}
	}
	schemes := root.Strings("schemes")
	if len(schemes) == 0 {
		schemes = []string{"https"}
		if u, err := url.Parse(r.src.Location); err == nil && u.Scheme == "http" {
			schemes[0] = "http"
		}
	}
	// https comes first, since requests with credentials go to the first server.
	schemes = slices.Clone(schemes)
	slices.SortStableFunc(schemes, func(a, b string) int { return strings.Compare(b, a) })
	var out []Server
	for _, s := range schemes {
		if s == "http" || s == "https" {
			out = append(out, Server{
				URL:    s + "://" + host + base,
				Remote: r.remote(root),
				Public: r.public(root),
			})
		}
	}
	return out
}

func (r *reader) schemes(doc *Document, root *tree.Node) {
	n := root.Get("components").Get("securitySchemes")
	if r.swagger {
		n = root.Get("securityDefinitions")
	}
	n = r.derefOptional(n)
	for i := range n.Members() {
		m := &n.Members()[i]
		if strings.HasPrefix(m.Name, "x-") {
			continue
		}
		if s := r.scheme(m.Name, &m.Node); s != nil {
			doc.Schemes = append(doc.Schemes, s)
		}
	}
}

func (r *reader) scheme(name string, n *tree.Node) *SecurityScheme {
	at := n
	if n = r.derefOptional(n); n == nil {
		return nil
	}
	s := &SecurityScheme{
		Name:        name,
		Type:        n.Str("type"),
		Description: n.Scalar("description"),
		In:          Place(n.Str("in")),
		Param:       n.Scalar("name"),
		Scheme:      strings.ToLower(n.Str("scheme")),
		OpenIDURL:   n.Str("openIdConnectUrl"),
	}
	switch s.Type {
	case "apiKey":
		if s.Param == "" || s.In != InHeader && s.In != InQuery && s.In != InCookie {
			r.warn(at, "security scheme %q: an apiKey needs a name, and in must be header, query or cookie", tree.Short(name))
			return nil
		}
	case "basic": // Swagger 2.0
		s.Type, s.Scheme = "http", "basic"
	case "http":
		if s.Scheme == "" {
			r.warn(at, "security scheme %q: scheme is missing", tree.Short(name))
			return nil
		}
	case "oauth2":
		s.Flows = r.flows(n)
	case "openIdConnect", "mutualTLS":
	default:
		r.warn(at, "security scheme %q: type %q is unknown", tree.Short(name), tree.Short(s.Type))
		return nil
	}
	return s
}

func (r *reader) flows(n *tree.Node) []Flow {
	one := func(kind string, n *tree.Node) Flow {
		f := Flow{
			Kind:     kind,
			TokenURL: n.Str("tokenUrl"),
			Remote:   r.remote(n),
			Public:   r.public(n),
		}
		scopes := n.Get("scopes")
		for i := range scopes.Members() {
			f.Scopes = append(f.Scopes, scopes.Members()[i].Name)
		}
		return f
	}
	if flow := n.Str("flow"); flow != "" { // Swagger 2.0
		kind := map[string]string{"application": "clientCredentials", "accessCode": "authorizationCode"}[flow]
		return []Flow{one(cmp.Or(kind, flow), n)}
	}
	var out []Flow
	flows := r.derefOptional(n.Get("flows"))
	for i := range flows.Members() {
		m := &flows.Members()[i]
		if m.Node.Kind == tree.Object && !strings.HasPrefix(m.Name, "x-") {
			out = append(out, one(m.Name, &m.Node))
		}
	}
	return out
}

// requirements reads security. It returns nil if n is nil, and an empty list if the document says
// that no credentials are needed.
func (r *reader) requirements(n *tree.Node) []Requirement {
	if n == nil {
		return nil
	}
	if n.Kind != tree.Array {
		r.warn(n, "security is %s and not a list", n.Kind)
		return nil
	}
	out := []Requirement{}
	for i := range n.Members() {
		item := &n.Members()[i].Node
		if item.Kind != tree.Object {
			r.warn(item, "an entry of security is %s", item.Kind)
			continue
		}
		req := Requirement{}
		for j := range item.Members() {
			m := &item.Members()[j]
			if !r.declared[m.Name] {
				r.warn(&m.Node, "security needs the scheme %q, which the document does not declare", tree.Short(m.Name))
			}
			req = append(req, SchemeUse{Name: m.Name, Scopes: item.Strings(m.Name)})
		}
		out = append(out, req)
	}
	return out
}
