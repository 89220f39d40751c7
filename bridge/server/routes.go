package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	wire "github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// Handler returns the HTTP surface, for a listener or a router of one's own. Its
// paths are those below the configuration's base_path. It works behind
// http.StripPrefix too: clients of HTTP+SSE are told the path under which they came.
func (s *Server) Handler() http.Handler { return s.HandlerAt(s.c().BasePath) }

// HandlerAt is Handler with its paths below another one than base_path, such as
// /tools: no slash at its end. The empty path is the root. The log names what Listen
// would refuse because of a document: such a server does not work, and the others do.
func (s *Server) HandlerAt(base string) http.Handler {
	if faults, ok := errors.AsType[config.Faults](s.fault); ok {
		for _, f := range faults {
			s.log.Error("fault of the configuration", "err", f.String())
		}
	}
	return s.handlerAt(base)
}

func (s *Server) handlerAt(base string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.recovered(w, r)
		r, ok := httpio.Hurry(w, r)
		if !ok {
			refuse(w, http.StatusBadRequest, "the body of this GET did not come, or is too large: leave it out")
			return
		}
		r = unslashed(r)
		if s.instance != nil {
			wire.Strip(r.Header)
			if s.instance.node.Draining() {
				w.Header().Set("Connection", "close") // the next request goes to another instance, rather than be lost with this one
			}
		}
		if s.keys.Tokens() {
			if to, ok := described(r.URL.Path, base); ok {
				if s.guard.Load().named(w, r) {
					s.describe(w, r, to)
				}
				return
			}
		}
		if base == s.c().BasePath && s.front.Takes(r.URL.Path) {
			if s.guard.Load().named(w, r) {
				s.front.ServeHTTP(w, r)
			}
			return
		}
		if s.guard.Load().check(w, r) {
			s.route(w, r, base)
		}
	})
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

// The methods that paths take, as Allow has them.
const (
	looking = "GET, HEAD" // of those who only look
	posting = "POST"
)

// route serves a request by its path. It is no http.ServeMux: that redirects paths
// that are not clean, while here each has one way to be written, but for a slash at its end.
func (s *Server) route(w http.ResponseWriter, r *http.Request, base string) {
	path, below := strings.CutPrefix(r.URL.Path, base+"/")
	if !below {
		s.noRoute(w, r, base)
		return
	}
	name, last, of := strings.Cut(path, "/")
	if name == "ui" && !s.forOperators(r) {
		s.noRoute(w, r, base)
		return
	}
	hooked := s.hooked(last) // once: it may be removed meanwhile
	switch {
	case path == "healthz" || path == "readyz", path == "health" || path == "ready": // the latter are what many charts probe
		switch {
		case !takes(looking, r.Method):
			wrongMethod(w, looking)
		case strings.HasPrefix(path, "ready"):
			s.ready(w, r, base)
		default:
			text(w, http.StatusOK, "ok\n")
		}
	case path == "whoami":
		s.whoami(w, r, base)
	case path == "metrics":
		if r, ok := s.operator(w, r, base); ok {
			s.serveMetrics(w, r)
		}
	case path == "ui" && admin.HasConsole(s.c()) && takes(looking, r.Method):
		w.Header().Set("Location", "ui/") // below whatever a proxy has put before it
		w.WriteHeader(http.StatusPermanentRedirect)
	case !of:
		s.endpoint(w, r, base, "", path)
	case name == "ui":
		s.ui(w, r, base, last)
	case name == "hooks" && hooked != nil:
		if r.Method == http.MethodPost {
			s.hook(w, r, last, hooked)
		} else if r, ok := s.admit(w, r, r.URL.Path, place{base, ""}); ok && s.granted(w, r, base, last) {
			wrongMethod(w, posting)
		}
	case s.now.Load().reached[name] != nil:
		s.endpoint(w, r, base, name, last)
	default:
		s.noRoute(w, r, base)
	}
}

// endpoint serves one of the endpoints of a server; without a name, of all servers
// as one.
func (s *Server) endpoint(w http.ResponseWriter, r *http.Request, base, name, which string) {
	if !isEndpoint(which) {
		s.noRoute(w, r, base)
		return
	}
	if s.instance != nil && s.instance.c.Role == cluster.RoleWorker {
		w.Header().Set("Retry-After", "2")
		refuse(w, http.StatusServiceUnavailable, "this instance is a worker and serves no clients: send them to the others")
		return
	}
	to := placeOf(base, strings.TrimPrefix(r.URL.Path, base))
	if r, ok := s.admit(w, r, r.URL.Path, to); ok {
		s.admitted(w, r, base, name, which, to)
	}
}

// admitted is endpoint for a caller that is let in.
func (s *Server) admitted(w http.ResponseWriter, r *http.Request, base, name, which string, to place) {
	r = s.identify(r, to)
	r, done := s.lives.follow(r, name, which)
	defer done()
	switch {
	case name != "" && !s.granted(w, r, base, name):
	case r.Method == http.MethodGet && s.screen(w, r, name, nil): // of a POST, what it says has to be known
	case which == "messages" && r.Method == http.MethodPost:
		s.sse.Message(name, w, r)
	case which == "messages":
		wrongMethod(w, "POST, OPTIONS")
	case which == "sse" && r.Method == http.MethodGet && !streamable.HasSession(r):
		s.sse.Stream(name, s.outside(r)+strings.TrimSuffix(r.URL.Path, which)+"messages", w, r)
	default:
		// Clients that try the newer transport first, on whatever URL they were
		// given, find it at /sse too; a session tells the two kinds of GET apart.
		s.streamable.Serve(name, w, r)
	}
}

// hooked returns the webhook of the server of that name; nil when it has none.
func (s *Server) hooked(name string) *hook {
	if r := s.now.Load().reached[name]; r != nil {
		return r.hook
	}
	return nil
}

// hooks returns the webhooks of all servers that have one.
func (s *Server) hooks() map[string]*hook {
	all := map[string]*hook{}
	for name, r := range s.now.Load().reached {
		if r.hook != nil {
			all[name] = r.hook
		}
	}
	return all
}

// takes reports whether a path takes a method.
func takes(allowed, method string) bool {
	return slices.Contains(strings.Split(allowed, ", "), method)
}

// serveMetrics serves the metrics that the caller may see.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if !takes(looking, r.Method) {
		wrongMethod(w, looking)
		return
	}
	sees := s.sight(auth.Principal(r.Context()))
	if sees.all {
		sees.of = nil
	}
	s.metrics.Serve(w, r, sees.of)
}

// outside returns what stands before the request's path where the client sees it:
// what trusted proxies have taken off, and what http.StripPrefix has.
func (s *Server) outside(r *http.Request) string {
	prefix := strings.TrimRight(r.Header.Get("X-Forwarded-Prefix"), "/")
	if !s.guard.Load().trusts(r.RemoteAddr) || !cleanPrefix(prefix) {
		prefix = ""
	}
	if sent, err := url.ParseRequestURI(r.RequestURI); err == nil {
		path := strings.TrimSuffix(sent.EscapedPath(), "/") // see unslashed
		if stripped, ok := strings.CutSuffix(path, strings.TrimSuffix(r.URL.EscapedPath(), "/")); ok && cleanPrefix(stripped) {
			prefix += stripped
		}
	}
	return prefix
}

// cleanPrefix reports whether a prefix is nothing but a path.
func cleanPrefix(p string) bool {
	if !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") {
		return false
	}
	for _, c := range []byte(p) {
		if c <= ' ' || c >= 0x7f || c == '?' || c == '#' || c == '\\' || c == '"' {
			return false
		}
	}
	return true
}

// unknown answers a request for a path that is not there. Somebody who is known is
// told what there is, as far as that is any of its business.
func (s *Server) unknown(w http.ResponseWriter, r *http.Request, base string) {
	caller := auth.Principal(r.Context())
	if s.keys != nil && caller == "" {
		refuse(w, http.StatusNotFound, "nothing is served here")
		return
	}
	base = s.outside(r) + base
	all := []string{base + "/mcp"}
	for _, name := range s.b.Servers() {
		if s.b.Allowed(name, caller) == nil {
			all = append(all, base+"/"+name+"/mcp")
		}
	}
	refuse(w, http.StatusNotFound, "nothing is served here; MCP is at "+strings.Join(all, ", "))
}

// noRoute answers requests for paths that are not there. Which there are is for
// those with a key: to everybody else all are alike.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request, base string) {
	switch path := r.URL.Path; {
	case strings.Contains(path, "/.well-known/"): // where clients look whether there is OAuth
	case s.keys != nil && r.Method == http.MethodPost && strings.HasPrefix(path, base+"/hooks/"):
		s.hook(w, r, "", s.anyHook)
		return
	default:
		var ok bool
		if r, ok = s.admit(w, r, "", place{base, ""}); !ok {
			return
		}
	}
	s.unknown(w, r, base)
}

// wrongMethod answers a request whose method the path does not take.
func wrongMethod(w http.ResponseWriter, allowed string) {
	w.Header().Set("Allow", allowed)
	refuse(w, http.StatusMethodNotAllowed, "this method is not served here")
}

func refuse(w http.ResponseWriter, status int, why string) {
	data(w, status, "application/json", jsonrpc.NewError(nil, jsonrpc.CodeInvalidRequest, why, nil).Append(nil, nil, nil))
}

func text(w http.ResponseWriter, status int, text string) {
	data(w, status, "text/plain; charset=utf-8", []byte(text))
}

func data(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone needs no answer
}

// recovered ends a request whose handler has panicked.
func (s *Server) recovered(w http.ResponseWriter, r *http.Request) {
	fault := recover()
	if fault == nil {
		return
	}
	s.log.Error("panic in a handler", "path", r.URL.Path, "err", fmt.Sprint(fault))
	w.WriteHeader(http.StatusInternalServerError)
}
