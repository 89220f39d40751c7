package openapi

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// document reads the tree of a whole document into doc.
func (l *loader) document(doc *Document, root *node) error {
	if !root.is(object) {
		return fmt.Errorf("is %s and no OpenAPI document", root.kind)
	}
	swagger := false
	switch {
	case root.get("openapi") != nil:
		doc.Format = root.scalar("openapi")
		if !strings.HasPrefix(doc.Format, "3.") {
			l.warn(root.get("openapi"), "openapi is %q: read as 3.1", short(doc.Format))
		}
	case root.get("swagger") != nil:
		doc.Format, swagger = root.scalar("swagger"), true
		if !strings.HasPrefix(doc.Format, "2") {
			l.warn(root.get("swagger"), "swagger is %q: read as 2.0", short(doc.Format))
		}
	case root.get("paths").is(object):
		swagger = root.get("definitions") != nil || root.get("host") != nil || root.get("basePath") != nil
		l.warn(root, "it does not say which version of OpenAPI it is")
	default:
		return errors.New("is no OpenAPI document: neither openapi, swagger nor paths is there")
	}
	l.siblings = !swagger && !strings.HasPrefix(doc.Format, "3.0")
	info := l.soft(root.get("info"))
	doc.Title, doc.Version, doc.Description = info.scalar("title"), info.scalar("version"), info.scalar("description")
	if self := root.str("$self"); isURL(self) && doc.Location == "" {
		doc.Location, l.files[0].location = self, self
	}
	r := &reader{loader: l, swagger: swagger, seen: map[string]bool{}, left: maxParts}
	r.schemes(doc, root)
	if swagger {
		doc.Servers = r.hosts(root)
		r.consumes, r.produces = root.strings("consumes"), root.strings("produces")
	} else {
		doc.Servers = r.servers(root.get("servers"))
	}
	r.mcp = root.get("x-mcp")
	r.security = r.requirements(root.get("security"))
	paths := l.soft(root.get("paths"))
	if paths == nil && root.get("paths") != nil || paths != nil && paths.kind != object {
		l.warn(root.get("paths"), "paths cannot be read")
	}
	for i := range paths.members() {
		m := &paths.kids.list[i]
		if !strings.HasPrefix(m.name, "x-") {
			r.path(doc, m.name, &m.node)
		}
	}
	return nil
}

// soft is deref for what may be missing.
func (l *loader) soft(n *node) *node {
	if n == nil {
		return nil
	}
	return l.deref(n)
}

// remote reports whether a node stands in a text that was read from a URL.
func (l *loader) remote(n *node) bool {
	return n != nil && isURL(l.files[n.file].location) && (n.file > 0 || l.src.Data == nil)
}

// reader turns the parts of a document into the model.
type reader struct {
	*loader
	swagger            bool
	consumes, produces []string // of the document, Swagger 2.0
	security           []Requirement
	mcp                *node           // x-mcp of the document
	seen               map[string]bool // methods with their paths
	left               int             // parts that operations may still have
}

// maxParts is how many parts all operations may have together: parameters,
// responses, media types, fields of forms, and a few for the operation itself.
// References and aliases make many of few. A document of 13 MB with 2,900
// operations has a seventh of that.
const maxParts = 1 << 19

// spend takes n parts of those that are left, and reports whether that many
// were.
func (r *reader) spend(n int) bool {
	r.left = max(r.left-n, -1)
	return r.left >= 0
}

func (r *reader) servers(n *node) []Server {
	n = r.soft(n)
	if n == nil {
		return nil
	}
	if n.kind != array {
		r.warn(n, "servers is %s and not a list", n.kind)
		return nil
	}
	var out []Server
	for i := range n.members() {
		s := r.soft(&n.kids.list[i].node)
		if s == nil || !s.get("url").is(text) {
			r.warn(&n.kids.list[i].node, "a server without a url")
			continue
		}
		server := Server{URL: s.str("url"), Description: s.scalar("description"), Far: r.remote(s)}
		vars := r.soft(s.get("variables"))
		for j := range vars.members() {
			m := &vars.kids.list[j]
			v := r.soft(&m.node)
			server.Far = server.Far || r.remote(&m.node) || r.remote(v)
			server.Variables = append(server.Variables, Variable{Name: m.name, Default: v.scalar("default"),
				Enum: v.strings("enum"), Description: v.scalar("description")})
		}
		out = append(out, server)
	}
	return out
}

// hosts makes servers of Swagger 2.0's host, basePath and schemes.
func (r *reader) hosts(root *node) []Server {
	host, base := root.scalar("host"), root.scalar("basePath")
	if base != "" && !strings.HasPrefix(base, "/") {
		base = "/" + base
	}
	if host == "" {
		if base == "" {
			return nil
		}
		return []Server{{URL: base, Far: r.remote(root)}}
	}
	schemes := root.strings("schemes")
	if len(schemes) == 0 {
		schemes = []string{"https"}
		if u, err := url.Parse(r.src.Location); err == nil && u.Scheme == "http" {
			schemes[0] = "http"
		}
	}
	// The encrypted one first: one is taken, and credentials go there.
	schemes = slices.Clone(schemes)
	slices.SortStableFunc(schemes, func(a, b string) int { return strings.Compare(b, a) })
	var out []Server
	for _, s := range schemes {
		if s == "http" || s == "https" {
			out = append(out, Server{URL: s + "://" + host + base, Far: r.remote(root)})
		}
	}
	return out
}

func (r *reader) schemes(doc *Document, root *node) {
	n := root.get("components").get("securitySchemes")
	if r.swagger {
		n = root.get("securityDefinitions")
	}
	n = r.soft(n)
	for i := range n.members() {
		m := &n.kids.list[i]
		if strings.HasPrefix(m.name, "x-") {
			continue
		}
		if s := r.scheme(m.name, &m.node); s != nil {
			doc.Schemes = append(doc.Schemes, s)
		}
	}
}

func (r *reader) scheme(name string, n *node) *SecurityScheme {
	at := n
	if n = r.soft(n); n == nil {
		return nil
	}
	s := &SecurityScheme{Name: name, Type: n.str("type"), Description: n.scalar("description"),
		In: Place(n.str("in")), Param: n.scalar("name"), Scheme: strings.ToLower(n.str("scheme")),
		OpenIDURL: n.str("openIdConnectUrl"), Line: int(at.line)}
	switch s.Type {
	case "apiKey":
		if s.Param == "" || s.In != InHeader && s.In != InQuery && s.In != InCookie {
			r.warn(at, "security scheme %q: an apiKey needs a name, and in must be header, query or cookie", short(name))
			return nil
		}
	case "basic": // Swagger 2.0
		s.Type, s.Scheme = "http", "basic"
	case "http":
		if s.Scheme == "" {
			r.warn(at, "security scheme %q: scheme is missing", short(name))
			return nil
		}
	case "oauth2":
		s.Flows = r.flows(n)
	case "openIdConnect", "mutualTLS":
	default:
		r.warn(at, "security scheme %q: type %q is unknown", short(name), short(s.Type))
		return nil
	}
	return s
}

func (r *reader) flows(n *node) []Flow {
	one := func(kind string, n *node) Flow {
		f := Flow{Kind: kind, TokenURL: n.str("tokenUrl"), AuthorizationURL: n.str("authorizationUrl"), RefreshURL: n.str("refreshUrl"), Far: r.remote(n)}
		scopes := n.get("scopes")
		for i := range scopes.members() {
			f.Scopes = append(f.Scopes, scopes.kids.list[i].name)
		}
		return f
	}
	if flow := n.str("flow"); flow != "" { // Swagger 2.0
		kind := map[string]string{"application": "clientCredentials", "accessCode": "authorizationCode"}[flow]
		if kind == "" {
			kind = flow
		}
		return []Flow{one(kind, n)}
	}
	var out []Flow
	flows := r.soft(n.get("flows"))
	for i := range flows.members() {
		m := &flows.kids.list[i]
		if m.node.kind == object && !strings.HasPrefix(m.name, "x-") {
			out = append(out, one(m.name, &m.node))
		}
	}
	return out
}

// requirements reads security. It returns nil when there is none, and not nil
// when it says that nothing is needed.
func (r *reader) requirements(n *node) []Requirement {
	if n == nil {
		return nil
	}
	if n.kind != array {
		r.warn(n, "security is %s and not a list", n.kind)
		return nil
	}
	out := []Requirement{}
	for i := range n.members() {
		item := &n.kids.list[i].node
		if item.kind != object {
			r.warn(item, "an entry of security is %s", item.kind)
			continue
		}
		req := Requirement{}
		for j := range item.members() {
			m := &item.kids.list[j]
			req = append(req, SchemeUse{Name: m.name, Scopes: item.strings(m.name)})
		}
		out = append(out, req)
	}
	return out
}
