package server

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/bridge/server/internal/answer"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth"
)

func (s *server) Handler() http.Handler { return s.HandlerAt(s.Config().BasePath) }

func (s *server) HandlerAt(base string) http.Handler { return s.loggedTreeAt(base) }

func (s *server) Mount(on gin.IRouter) {
	at := on.Group("")
	t := s.loggedTreeAt(strings.TrimSuffix(at.BasePath(), "/"))
	serve, added := gin.WrapH(t), map[string]bool{}
	for i := range t.routes {
		// Each path gets its own route: with a wildcard, the program could add no route of its own to the
		// group.
		if path, ok := strings.CutPrefix(t.routes[i].whole(), at.BasePath()); ok && !added[path] {
			added[path] = true
			at.Any(path, serve)
		}
	}
}

// loggedTreeAt is treeAt for an embedding program. loggedTreeAt logs the faults of the configuration.
func (s *server) loggedTreeAt(base string) *tree {
	if faults, ok := errors.AsType[config.Faults](s.fault); ok {
		for _, f := range faults {
			s.log.Error("fault of the configuration", "err", f.String())
		}
	}
	s.follow()
	return s.treeAt(base)
}

// tree is the HTTP surface below a path: its routes and middleware.
type tree struct {
	s      *server
	base   string
	engine *gin.Engine
	routes []route
	parts  [][]string // of the paths of the routes
	other  route      // for requests without a route
}

// route describes the handling of requests for a path.
type route struct {
	group   *gin.RouterGroup // the middleware that the requests pass
	methods string           // in the form of Allow, or anyMethod
	path    string           // below the path of the group
	serve   gin.HandlerFunc
}

// These are the methods of routes.
const (
	anyMethod = "any" // serve checks the method
	reading   = "GET, HEAD"
	posting   = "POST"
)

func (s *server) treeAt(base string) *tree {
	t := &tree{s: s, base: base}
	quietly(t.build)
	return t
}

// build defines all routes and their middleware. The orders matter; TestRoutes has the reasons.
func (t *tree) build() {
	s, base, e := t.s, t.base, newEngine()
	t.engine = e

	e.Use(t.recovered)           // a panic ends one request only
	e.Use(t.limitBody)           // before anything waits for a body
	e.Use(t.stripClusterHeaders) // before anything reads headers that only other instances may send
	e.Use(t.closeWhileDraining)  // for every answer
	e.Use(t.checkHost)           // public paths too are served under the bridge's own names only

	below := strings.ReplaceAll(base, ":", `\:`) // an unescaped colon begins a parameter
	documents := e.Group("")
	metadata := documents.Group("", t.allowAllOrigins)
	public := e.Group(below, t.checkOrigin)
	status := public.Group("", t.checkOperator)
	callers := public.Group("", t.checkCaller)
	senders := public.Group("", t.checkSender)
	clients := public.Group("", t.serverExists, t.servesClients, t.checkTools, t.checkClient, t.identify, t.endWithToken, t.checkGrant, t.checkScopes)
	api := public.Group("", t.forOperators)
	console := api.Group("", t.hasConsole)
	page := console.Group("", t.serverExists, t.checkTools, t.checkPage, t.identify, t.endWithToken, t.checkGrant, t.checkScopes)

	t.routes = []route{
		{clients, anyMethod, "/mcp", t.mcp},
		{clients, anyMethod, "/sse", t.sse},
		{clients, "POST, OPTIONS", "/messages", t.messages},
		{clients, anyMethod, "/:server/mcp", t.mcp},
		{clients, anyMethod, "/:server/sse", t.sse},
		{clients, "POST, OPTIONS", "/:server/messages", t.messages},
		{callers, reading, "/whoami", t.plain(s.access.Whoami)},
		{senders, posting, "/hooks/:server", t.hook},

		{public, reading, "/healthz", t.healthz},
		{public, reading, "/health", t.healthz}, // many charts probe these two names
		{public, reading, "/readyz", t.based(s.ready)},
		{public, reading, "/ready", t.based(s.ready)},
		{status, reading, "/metrics", t.plain(s.serveMetrics)},

		{public, anyMethod, "/", t.root},
		{console, anyMethod, "/ui", t.toConsole},
		{console, anyMethod, "/ui/", t.file},
		{console, anyMethod, "/ui/:file", t.file},
		{console, anyMethod, "/ui/:file/*rest", t.file},
		{console, posting, "/ui/login", t.based(s.signIn)},
		{console, posting, "/ui/logout", t.based(s.signOut)},
		{page, anyMethod, "/ui/mcp", t.mcp},
		{page, anyMethod, "/ui/mcp/:server", t.mcp},
		{console, anyMethod, "/ui/mcp/:server/*rest", t.nowhere},
		{api, anyMethod, "/" + admin.Base + "*path", t.action},
	}
	if base != "" {
		t.routes = append(t.routes, route{public, anyMethod, "", t.root})
	}
	if s.access.Door().Tokens() {
		// The metadata is below the base path, because a proxy may forward nothing else, and also in the standard's
		// place: between the host and the path of the resource (I-003, I-004).
		for _, path := range slices.Compact([]string{below + access.WellKnown, access.WellKnown + below}) {
			t.routes = append(t.routes, route{metadata, reading, path, t.describe}, route{metadata, reading, path + "/*endpoint", t.describe})
		}
	}
	if base == s.Config().BasePath {
		for _, path := range s.access.Front().Paths() {
			t.routes = append(t.routes, route{documents, anyMethod, strings.ReplaceAll(path, ":", `\:`), t.plain(s.access.Front().ServeHTTP)})
		}
	}
	for _, r := range t.routes {
		if r.methods == anyMethod {
			r.group.Any(r.path, r.serve)
		} else {
			methods := strings.TrimSuffix(r.methods, ", OPTIONS") // OPTIONS is for preflights, which checkOrigin answers
			r.group.Match(strings.Split(methods, ", "), r.path, r.serve)
		}
		t.parts = append(t.parts, strings.Split(r.whole(), "/"))
	}
	t.other = route{public, anyMethod, "", t.nowhere}
	e.NoRoute(t.otherMethod)
}

// whole returns the path of a route in gin's form.
func (r *route) whole() string { return strings.TrimSuffix(r.group.BasePath(), "/") + r.path }

// matches reports whether a path has those parts. params holds the server that the path names.
func matches(path string, parts []string) (params gin.Params, ok bool) {
	for i, part := range parts {
		if strings.HasPrefix(part, "*") {
			return params, true
		}
		is, rest, more := strings.Cut(path, "/")
		switch path = rest; {
		case more != (i+1 < len(parts)):
			return nil, false
		case part == ":server":
			params = gin.Params{{Key: "server", Value: is}}
		case !strings.HasPrefix(part, ":") && strings.ReplaceAll(part, `\:`, ":") != is:
			return nil, false
		}
	}
	return params, true
}

// printing guards gin's global mode.
var printing sync.Mutex

// quietly builds a tree. In its default mode, debug, gin prints each route on stdout, where clients on
// stdio expect messages. The mode is global, so quietly restores it for the embedding program.
func quietly(build func()) {
	printing.Lock()
	defer printing.Unlock()
	if gin.IsDebugging() {
		gin.SetMode(gin.ReleaseMode)
		defer gin.SetMode(gin.DebugMode)
	}
	build()
}

// newEngine makes an engine that answers no request by itself.
func newEngine() *gin.Engine {
	e := gin.New()
	// A path has one spelling, except for a slash at its end: see unslashed. checkHost refuses a path with % before a
	// route reads the path, so gin may use the decoded path.
	e.RedirectTrailingSlash, e.RedirectFixedPath, e.RemoveExtraSlash = false, false, false
	e.UseRawPath, e.UseEscapedPath = false, false
	// gin v1.12.0 panics when it searches the other methods of a path among so many routes. It also
	// considers only methods that have routes. otherMethod answers instead.
	e.HandleMethodNotAllowed = false
	e.ForwardedByClientIP = false // access decides which proxies are trusted
	_ = e.SetTrustedProxies(nil)  // an empty list is always valid
	return e
}

// ServeHTTP implements http.Handler.
func (t *tree) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.engine.ServeHTTP(noWriter{&noted{ResponseWriter: w}}, unslashed(r))
}

// noWriter is the writer that gin gets. Handlers use the writer below it. That writer returns the errors of
// a flush, closes connections after bodies that are too large, and can hand over the connection. gin's own
// writer does not, and writes 200 after handlers that bypass it.
type noWriter struct{ http.ResponseWriter }

func (noWriter) Header() http.Header         { return http.Header{} }
func (noWriter) WriteHeader(int)             {}
func (noWriter) Write(b []byte) (int, error) { return len(b), nil }

// noted is a writer that notes whether an answer has begun. noted passes on everything else to the writer below.
type noted struct {
	http.ResponseWriter
	begun bool
}

// Unwrap is for http.ResponseController.
func (n *noted) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (n *noted) WriteHeader(status int) {
	n.begun = n.begun || status >= 200
	n.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (n *noted) Write(b []byte) (int, error) {
	n.begun = true
	return n.ResponseWriter.Write(b)
}

// Flush implements http.Flusher, for writers of programs around the bridge.
func (n *noted) Flush() {
	n.begun = true
	if f, ok := n.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// FlushError is for http.ResponseController.
func (n *noted) FlushError() error {
	n.begun = true
	return http.NewResponseController(n.ResponseWriter).Flush()
}

// of returns the current request, and the writer of its answer.
func of(c *gin.Context) (http.ResponseWriter, *http.Request) {
	return c.Writer.(interface{ Unwrap() http.ResponseWriter }).Unwrap().(noWriter).ResponseWriter, c.Request
}

// unslashed returns a request for an endpoint without the slash at the end of its path. Some clients are configured
// with a slash, and many do not follow a redirect of a POST.
func unslashed(r *http.Request) *http.Request {
	path, slash := strings.CutSuffix(r.URL.Path, "/")
	if !slash || r.URL.RawPath != "" || !isEndpoint(path[strings.LastIndexByte(path, '/')+1:]) {
		return r
	}
	u := *r.URL
	u.Path = path
	r = r.WithContext(r.Context())
	r.URL = &u
	return r
}

// isEndpoint reports whether a path with that last element may be an endpoint.
func isEndpoint(last string) bool { return last == "mcp" || last == "sse" || last == "messages" }

func (t *tree) plain(f http.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) { f(of(c)) }
}

// based makes a handler from f, which gets the base path.
func (t *tree) based(f func(w http.ResponseWriter, r *http.Request, base string)) gin.HandlerFunc {
	return func(c *gin.Context) {
		w, r := of(c)
		f(w, r, t.base)
	}
}

// otherMethod serves a request for which gin has no route. The path does not exist, does not allow the
// method, or allows any method, also methods unknown to gin. The request passes the middleware of the
// path too: some of it hides the path from callers without a right to it.
//
// otherMethod is not a chain of gin: code of middleware after c.Next runs before serve. That does not matter for
// these requests, which are answered at once and open no stream.
func (t *tree) otherMethod(c *gin.Context) {
	at := &t.other
	for i := range t.routes {
		r := &t.routes[i]
		if params, ok := matches(c.Request.URL.Path, t.parts[i]); ok && (at == &t.other || r.methods == anyMethod) {
			at, c.Params = r, params
		}
	}
	for _, pass := range at.group.Handlers[len(t.engine.Handlers):] {
		if pass(c); c.IsAborted() {
			return
		}
	}
	if at.methods == anyMethod {
		at.serve(c)
		return
	}
	w, _ := of(c)
	answer.WrongMethod(w, at.methods)
}

// nowhere answers a request for a path that does not exist. Without a key, all answers look alike: clients
// without a key must not find out which paths exist.
func (t *tree) nowhere(c *gin.Context) {
	w, r := of(c)
	switch path := r.URL.Path; {
	case strings.Contains(path, "/.well-known/"): // clients search OAuth metadata there
	case t.s.access.Keyed() && r.Method == http.MethodPost && strings.HasPrefix(path, t.base+"/hooks/"):
		t.s.hook(w, r, "", t.s.noHook)
		c.Abort()
		return
	case !t.admit(c, "", access.Target{Base: t.base}):
		return
	}
	t.unknown(c)
}

// unknown answers a request for a path that does not exist. A known caller gets the addresses that it may
// use.
func (t *tree) unknown(c *gin.Context) {
	defer c.Abort()
	w, r := of(c)
	caller := auth.Principal(r.Context())
	if t.s.access.Keyed() && caller == "" {
		answer.Refuse(w, http.StatusNotFound, "not found")
		return
	}
	base := t.s.outside(r) + t.base
	all := []string{base + "/mcp"}
	for _, name := range t.s.g.Servers() {
		if t.s.g.Allowed(name, caller) == nil {
			all = append(all, base+"/"+name+"/mcp")
		}
	}
	answer.Refuse(w, http.StatusNotFound, "not found; MCP endpoints: "+strings.Join(all, ", "))
}

// takes reports whether a method is among those allowed.
func takes(allowed, method string) bool {
	return slices.Contains(strings.Split(allowed, ", "), method)
}
