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

// Handler returns the HTTP surface, for a listener or a router of one's own. Its
// paths are those below the configuration's base_path. It works behind
// http.StripPrefix too: clients of HTTP+SSE are told the path under which they came.
func (s *Server) Handler() http.Handler { return s.HandlerAt(s.c().BasePath) }

// HandlerAt is Handler with its paths below another one than base_path, such as
// /tools: no slash at its end, and no * in it. The empty path is the root. The log names
// what Listen would refuse because of a document: such a server does not work, and the
// others do.
func (s *Server) HandlerAt(base string) http.Handler { return s.toldAt(base) }

// Mount adds the HTTP surface to a gin engine, or below the path of a group of one, beside
// its other routes: those are not guarded by the bridge's checks of Origin, Host and
// keys. The group's path has no parameters. It panics, as gin does, where a route has a path
// of the bridge: /health and /ready among them. An engine with HandleMethodNotAllowed panics
// in gin v1.12.0 for methods without routes: leave it off. The configuration's base_path is
// not used. The log names what Listen would refuse, as for HandlerAt.
func (s *Server) Mount(on gin.IRouter) {
	at := on.Group("")
	t := s.toldAt(strings.TrimSuffix(at.BasePath(), "/"))
	serve, added := gin.WrapH(t), map[string]bool{}
	for i := range t.routes {
		// One by one: a wildcard for all would leave the group no route of its own.
		if path, ok := strings.CutPrefix(t.routes[i].whole(), at.BasePath()); ok && !added[path] {
			added[path] = true
			at.Any(path, serve)
		}
	}
}

// toldAt is treeAt for a program around us, whose log is told what is wrong.
func (s *Server) toldAt(base string) *tree {
	if faults, ok := errors.AsType[config.Faults](s.fault); ok {
		for _, f := range faults {
			s.log.Error("fault of the configuration", "err", f.String())
		}
	}
	return s.treeAt(base)
}

// tree is the HTTP surface below a path: its routes, and what stands before them.
type tree struct {
	s      *Server
	base   string
	engine *gin.Engine
	routes []route
	parts  [][]string // of the paths of the routes
	other  route      // what no route is for
}

// route is how requests for a path are served.
type route struct {
	group   *gin.RouterGroup // through what they pass
	methods string           // as Allow has them, or anyMethod
	path    string           // below that of the group
	serve   gin.HandlerFunc
}

// What paths take.
const (
	anyMethod = "any"       // serve knows which
	looking   = "GET, HEAD" // of those who only look
	posting   = "POST"
)

// treeAt makes the HTTP surface below a path.
func (s *Server) treeAt(base string) *tree {
	t := &tree{s: s, base: base}
	quietly(t.build)
	return t
}

// build says what is served, and what stands before it: nothing else does. Each order is
// relied on, and TestRoutes says why.
func (t *tree) build() {
	s, base, e := t.s, t.base, newEngine()
	t.engine = e

	e.Use(t.recovered) // a panic of any other ends one request
	e.Use(t.hurried)   // before anybody waits for a body
	e.Use(t.stripped)  // before anybody reads what only other instances may say
	e.Use(t.leaving)   // with each answer, whatever it is
	e.Use(t.named)     // what is for everybody is served under the bridge's own names, too

	below := strings.ReplaceAll(base, ":", `\:`) // by itself it would begin a parameter
	documents := e.Group("")
	metadata := documents.Group("", t.readable)
	public := e.Group(below, t.ownPages)
	status := public.Group("", t.operator)
	callers := public.Group("", t.caller)
	senders := public.Group("", t.sender)
	clients := public.Group("", t.known, t.works, t.client, t.identified, t.followed, t.granted, t.scoped)
	api := public.Group("", t.forOperators)
	console := api.Group("", t.hasConsole)
	page := console.Group("", t.known, t.page, t.identified, t.followed, t.granted, t.scoped)

	t.routes = []route{
		{clients, anyMethod, "/mcp", t.mcp},
		{clients, anyMethod, "/sse", t.sse},
		{clients, "POST, OPTIONS", "/messages", t.messages},
		{clients, anyMethod, "/:server/mcp", t.mcp},
		{clients, anyMethod, "/:server/sse", t.sse},
		{clients, "POST, OPTIONS", "/:server/messages", t.messages},
		{callers, looking, "/whoami", t.plain(s.access.Whoami)},
		{senders, posting, "/hooks/:server", t.hook},

		{public, looking, "/healthz", t.healthz},
		{public, looking, "/health", t.healthz}, // what many charts probe, and so below
		{public, looking, "/readyz", t.based(s.ready)},
		{public, looking, "/ready", t.based(s.ready)},
		{status, looking, "/metrics", t.plain(s.serveMetrics)},

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
	if s.access.Door().Tokens() {
		// Below the base, which may be all that a proxy hands on, and where the standard
		// looks: between the host and the path of the resource (I-003, I-004).
		for _, path := range slices.Compact([]string{below + access.WellKnown, access.WellKnown + below}) {
			t.routes = append(t.routes, route{metadata, looking, path, t.describe}, route{metadata, looking, path + "/*endpoint", t.describe})
		}
	}
	if base == s.c().BasePath {
		for _, path := range s.access.Front().Paths() {
			t.routes = append(t.routes, route{documents, anyMethod, strings.ReplaceAll(path, ":", `\:`), t.plain(s.access.Front().ServeHTTP)})
		}
	}
	for _, r := range t.routes {
		if r.methods == anyMethod {
			r.group.Any(r.path, r.serve)
		} else {
			methods := strings.TrimSuffix(r.methods, ", OPTIONS") // which is for preflights: see ownPages
			r.group.Match(strings.Split(methods, ", "), r.path, r.serve)
		}
		t.parts = append(t.parts, strings.Split(r.whole(), "/"))
	}
	t.other = route{public, anyMethod, "", t.nowhere}
	e.NoRoute(t.otherMethod)
}

// whole returns the path of a route, as gin writes it.
func (r *route) whole() string { return strings.TrimSuffix(r.group.BasePath(), "/") + r.path }

// matches reports whether a path is of those parts, and which server it names.
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

// printing is held while gin's mode is not the program's.
var printing sync.Mutex

// quietly builds a tree. In gin's mode debug, which is that of programs that choose none, gin
// prints each route on stdout, where clients on stdio expect messages. The whole program has
// one mode: whoever embeds the bridge has it back, and reads of its own routes.
func quietly(build func()) {
	printing.Lock()
	defer printing.Unlock()
	if gin.IsDebugging() {
		gin.SetMode(gin.ReleaseMode)
		defer gin.SetMode(gin.DebugMode)
	}
	build()
}

// newEngine makes an engine that answers nothing by itself.
func newEngine() *gin.Engine {
	e := gin.New()
	// A path has one way to be written, but for a slash at its end: see unslashed. A path
	// with % is refused before anything else looks at it (named), so that gin may go by what
	// it stands for.
	e.RedirectTrailingSlash, e.RedirectFixedPath, e.RemoveExtraSlash = false, false, false
	e.UseRawPath, e.UseEscapedPath = false, false
	// gin v1.12.0 panics when it looks which other methods a path takes among as many routes as
	// these, and knows only methods that have some: otherMethod does it.
	e.HandleMethodNotAllowed = false
	e.ForwardedByClientIP = false // who may say where a request comes from, the guard knows
	_ = e.SetTrustedProxies(nil)  // nothing can be wrong with none
	return e
}

// ServeHTTP implements http.Handler.
func (t *tree) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.engine.ServeHTTP(mute{w}, unslashed(r))
}

// mute is what gin has for a writer. Handlers write to the one below it, as they got it: it
// says which errors a flush has had, closes connections after bodies that are too large, and
// gives the connection away. gin's own does not, and says 200 behind those who went past it.
type mute struct{ http.ResponseWriter }

func (mute) Header() http.Header         { return http.Header{} }
func (mute) WriteHeader(int)             {}
func (mute) Write(b []byte) (int, error) { return len(b), nil }

// of returns the request as it is by now, and where its answer goes.
func of(c *gin.Context) (http.ResponseWriter, *http.Request) {
	return c.Writer.(interface{ Unwrap() http.ResponseWriter }).Unwrap().(mute).ResponseWriter, c.Request
}

// unslashed returns a request for an endpoint without the slash at the end of its path:
// clients are configured with one, and many do not follow a redirect of a POST.
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

// plain serves by f.
func (t *tree) plain(f http.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) { f(of(c)) }
}

// based serves by f, which is told the path below which all is.
func (t *tree) based(f func(w http.ResponseWriter, r *http.Request, base string)) gin.HandlerFunc {
	return func(c *gin.Context) {
		w, r := of(c)
		f(w, r, t.base)
	}
}

// otherMethod serves a request that gin finds no route for: the path is not there, does not
// take the method, or takes any, also those that gin does not know. What the other methods
// pass through is for this one too: some of that is about who may know that the path is there.
//
// It is no chain of gin's: what a pass does behind c.Next comes before serve. That does no
// harm to what gets here, which answers at once and opens no stream.
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

// nowhere answers a request for a path that is not there. Which there are is for
// those with a key: to everybody else all are alike.
func (t *tree) nowhere(c *gin.Context) {
	w, r := of(c)
	switch path := r.URL.Path; {
	case strings.Contains(path, "/.well-known/"): // where clients look whether there is OAuth
	case t.s.access.Keyed() && r.Method == http.MethodPost && strings.HasPrefix(path, t.base+"/hooks/"):
		t.s.hook(w, r, "", t.s.anyHook)
		c.Abort()
		return
	case !t.admit(c, "", access.Place{Base: t.base}):
		return
	}
	t.unknown(c)
}

// unknown answers a request for what is not there. Somebody who is known is told what there
// is, as far as that is any of its business.
func (t *tree) unknown(c *gin.Context) {
	defer c.Abort()
	w, r := of(c)
	caller := auth.Principal(r.Context())
	if t.s.access.Keyed() && caller == "" {
		answer.Refuse(w, http.StatusNotFound, "nothing is served here")
		return
	}
	base := t.s.outside(r) + t.base
	all := []string{base + "/mcp"}
	for _, name := range t.s.b.Servers() {
		if t.s.b.Allowed(name, caller) == nil {
			all = append(all, base+"/"+name+"/mcp")
		}
	}
	answer.Refuse(w, http.StatusNotFound, "nothing is served here; MCP is at "+strings.Join(all, ", "))
}

// takes reports whether a path takes a method.
func takes(allowed, method string) bool {
	return slices.Contains(strings.Split(allowed, ", "), method)
}
