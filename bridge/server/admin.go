package server

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/bridge/server/internal/accesslog"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/config/reload"
	"github.com/mcp-bridge/bridge/internal/auth"
)

// Reloads has r read the configuration again, for as long as Serve serves; operators may
// ask for it over HTTP. It is called before the first request. Only the commands of this
// module can use it: other programs have Apply.
func (s *Server) Reloads(r *reload.Reloader) {
	r.Serve(s)
	s.reloader = r
	s.metrics.Config(r.Counts)
	s.actions.Add(
		admin.Route{Method: "POST", Path: "reload", Right: admin.Act, Do: func(c *admin.Call) (any, error) {
			var asked struct {
				DryRun bool `json:"dry_run"`
			}
			if err := admin.Read(c.Body, &asked); err != nil {
				return nil, err
			}
			if asked.DryRun {
				return r.Check()
			}
			return r.Reload()
		}},
		admin.Route{Method: "GET", Path: "config", Right: admin.Act, Do: func(*admin.Call) (any, error) { return admin.ShowConfig(r) }},
		admin.Route{Method: "GET", Path: "config/values", Right: admin.Act, Do: func(c *admin.Call) (any, error) { return admin.ShowValues(c, s.c(), r.Status().Pending) }},
	)
}

// newAPI returns what operators see and do.
func (s *Server) newAPI() *admin.API {
	host := func(r *http.Request) string { return s.guard.Load().asked(r) }
	a := admin.New(admin.Options{Log: s.log, Host: host, Noted: func(principal, action, outcome string) {
		s.note(func(l *accesslog.Log) bool { return l.Action(principal, action, outcome) })
	}})
	a.Add(
		admin.Route{Method: "GET", Path: "me", Right: admin.Own, Do: func(c *admin.Call) (any, error) {
			return s.actions.Me(c, s.keys != nil, s.c().Console == config.ConsolePayloads, Version())
		}},
		admin.Route{Method: "GET", Path: "status", Right: admin.Own, Do: s.showStatus},
		admin.Route{Method: "GET", Path: "metrics", Right: admin.Own, Do: s.showMetrics},
		admin.Route{Method: "GET", Path: "servers/{name}", Right: admin.Own, Do: s.showServer},
		admin.Route{Method: "POST", Path: "drain", Right: admin.Act, Do: s.drain(true)},
		admin.Route{Method: "POST", Path: "resume", Right: admin.Act, Do: s.drain(false)},
	)
	return a
}

var (
	errElsewhere = errors.New("without access rules only programs on the bridge's own machine may do this, while it listens on loopback: set access, and admin with the names of those who may")
	errNoConsole = errors.New("the console is off, and this caller is no operator: set console: on in the configuration file, or list its name in admin or viewers")
)

// caller returns who makes a request for what operators see and do, and what that one may.
// Without access rules, that is whoever is on this machine, who may use every server too.
// A proxy on it may speak for anybody.
func (s *Server) caller(w http.ResponseWriter, r *http.Request, base string) (c admin.Caller, known bool, err error) {
	if s.keys == nil {
		if who := auth.Principal(r.Context()); who != "" { // the program around us knows its callers
			if !admin.HasConsole(s.c()) {
				return admin.Caller{Principal: who}, true, errNoConsole
			}
			return admin.Caller{Principal: who}, true, nil
		}
		if !s.near(r) {
			return admin.Caller{}, true, errElsewhere
		}
		return admin.Caller{Look: true, Act: true, Good: func() bool { return config.Loopback(s.c().OperatorsListen()) }}, true, nil
	}
	p, signed, known := s.pages.Signed(w, r, base)
	if !known {
		return admin.Caller{}, false, nil
	}
	if signed {
		shown(r.Context())
	} else {
		if r, known = s.admit(w, r, r.URL.Path, place{base, ""}); !known {
			return admin.Caller{}, false, nil
		}
		p = admin.Page{Principal: auth.Principal(r.Context())}
	}
	c = admin.Caller{Principal: p.Principal, Cookie: signed}
	c.Look, c.Act = s.rights(p.Principal)
	if !c.Look && !admin.HasConsole(s.c()) {
		return c, true, errNoConsole
	}
	was := c
	c.Good = func() bool {
		good := false
		if signed {
			good = s.pages.Good(&p)
		} else {
			now, err := s.keys.Again(r.Context(), r.Header, s.resource(r, place{base, ""}))
			good = err == nil && now.Principal == was.Principal
		}
		look, act := s.rights(was.Principal)
		return good && (look || admin.HasConsole(s.c())) && (look || !was.Look) && (act || !was.Act)
	}
	return c, true, nil
}

// rights returns whether a principal may look at what is of others, and act on it.
func (s *Server) rights(principal string) (look, act bool) {
	c, rule := s.c(), auth.RuleOf(principal)
	act = slices.Contains(c.Admin, rule)
	return act || slices.Contains(c.Viewers, rule), act
}

// near reports whether a request is of a program on this machine.
func (s *Server) near(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback() && onLoopback(r) && config.Loopback(s.c().OperatorsListen()) && !proxied(r.Header)
}

// proxied reports whether a proxy says that a request came through it.
func proxied(h http.Header) bool {
	names := []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"}
	return slices.ContainsFunc(names, func(name string) bool { return h[name] != nil })
}

// ui serves what is below /ui: the API, and the page where there is one.
func (s *Server) ui(w http.ResponseWriter, r *http.Request, base, path string) {
	api, isAPI := strings.CutPrefix("ui/"+path, admin.Base)
	who := func(w http.ResponseWriter, r *http.Request) (admin.Caller, bool, error) { return s.caller(w, r, base) }
	switch {
	case isAPI && s.actions.Has(api):
		s.actions.Serve(w, r, api, who)
	case isAPI || !admin.HasConsole(s.c()):
		s.noRoute(w, r, base)
	case path == "login" && r.Method == http.MethodPost:
		s.signIn(w, r, base)
	case path == "logout" && r.Method == http.MethodPost:
		s.signOut(w, r, base)
	case path == "mcp":
		s.pageMCP(w, r, base, "")
	case strings.HasPrefix(path, "mcp/"):
		if name := strings.TrimPrefix(path, "mcp/"); s.now.Load().reached[name] != nil {
			s.pageMCP(w, r, base, name)
		} else {
			s.noRoute(w, r, base)
		}
	default:
		on := r.Clone(r.Context())
		on.URL.Path = "/" + path
		s.page.ServeHTTP(w, on)
	}
}

// pagePath returns where the cookie of the page for operators is good: see admin.Pages.
func (s *Server) pagePath(r *http.Request, base string) (path string, secure bool) {
	secure = r.TLS != nil || s.guard.Load().trusts(r.RemoteAddr) && r.Header.Get("X-Forwarded-Proto") == "https"
	return s.outside(r) + base + "/ui", secure
}

// signIn answers a key with a cookie. Tokens of identity providers do not sign in: they end
// sooner than a page does.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request, base string) {
	var asked struct {
		Key string `json:"key"`
	}
	if !s.actions.Admits(w, r, "login") {
		return
	}
	text, ok := admin.Body(w, r)
	if !ok {
		return
	}
	if err := admin.Read(text, &asked); err != nil {
		admin.Refuse(w, http.StatusBadRequest, "body", err.Error())
		return
	}
	if s.keys == nil {
		admin.Refuse(w, http.StatusConflict, "conflict", "there are no access rules: nobody has to sign in")
		return
	}
	who, sum, ok := s.keys.Key(asked.Key)
	if !ok {
		if wait := s.wrong.Take(s.guard.Load().client(r)); wait > 0 {
			tooMany(w, wait)
			return
		}
		s.complain(r, r.URL.Path, auth.ErrInvalid)
		admin.Refuse(w, http.StatusUnauthorized, "unauthorized", "the key is not valid")
		return
	}
	s.pages.Set(w, r, base, admin.In(who, sum))
	shown(r.Context())
	s.log.Info("somebody has signed in on the console", "principal", who, "from", s.guard.Load().client(r).String())
	admin.Answer(w, http.StatusOK, map[string]string{"principal": who})
}

// signOut ends a page, and takes its cookie away.
func (s *Server) signOut(w http.ResponseWriter, r *http.Request, base string) {
	if !s.actions.Admits(w, r, "logout") {
		return
	}
	s.pages.End(w, r, base)
	admin.Answer(w, http.StatusOK, struct{}{})
}

// pageMCP serves the endpoint of a server, or of all as one, to the page for operators: as
// to any other client, but also by its cookie.
func (s *Server) pageMCP(w http.ResponseWriter, r *http.Request, base, name string) {
	if !s.actions.Admits(w, r, "mcp") {
		return
	}
	endpoint := "/mcp" // of which a token is for this too
	if name != "" {
		endpoint = "/" + name + "/mcp"
	}
	if s.keys != nil {
		p, ok, known := s.pages.Signed(w, r, base)
		if !known {
			return
		}
		if ok {
			var done func()
			r, done = s.pages.Follow(r.WithContext(auth.WithPrincipal(r.Context(), p.Principal)), &p)
			defer done()
			if r.Header.Get(admin.PageHeader) != "1" { // a GET opens a stream that others' pages must not
				admin.Refuse(w, http.StatusForbidden, "header", "a page that is signed in sends the header "+admin.PageHeader+": 1 with this")
				return
			}
		} else if r, ok = s.admit(w, r, r.URL.Path, place{base, endpoint}); !ok {
			return
		}
	}
	r.Header.Del("Cookie") // whatever a configuration forwards: it is the browser's
	s.admitted(w, r, base, name, "mcp", place{base, endpoint})
}
