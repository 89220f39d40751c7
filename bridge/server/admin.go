package server

import (
	"errors"
	"net/http"

	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/config/reload"
	"github.com/mcp-bridge/bridge/internal/auth"
)

func (s *server) Reloads(r *reload.Reloader) {
	r.Serve(s)
	s.reloader = r
	s.metrics.AddConfig(r.Counts)
	s.actions.Add(
		admin.Route{
			Method: "POST",
			Path:   "reload",
			Right:  admin.Act,
			Do: func(c *admin.Call) (any, error) {
				var asked struct {
					DryRun bool `json:"dry_run"`
				}
				if err := admin.Read(c.Body, &asked); err != nil {
					return nil, err
				}
				if c.Harmless = asked.DryRun; asked.DryRun {
					return r.Check()
				}
				return r.Reload()
			},
		},
		admin.Route{
			Method: "GET",
			Path:   "config",
			Right:  admin.Act,
			Do:     func(*admin.Call) (any, error) { return admin.ShowConfig(r) },
		},
		admin.Route{
			Method: "GET",
			Path:   "config/values",
			Right:  admin.Act,
			Do:     func(c *admin.Call) (any, error) { return admin.ShowValues(c, s.Config(), r.Status().Pending) },
		},
	)
}

func (s *server) newAPI() *admin.API {
	a := admin.New(s.log, s)
	a.Add(
		admin.Route{
			Method: "GET",
			Path:   "me",
			Right:  admin.Own,
			Do: func(c *admin.Call) (any, error) {
				return s.actions.Me(c, s.access.Keyed(), s.Config().Console == config.ConsolePayloads, Version())
			},
		},
		admin.Route{
			Method: "GET",
			Path:   "status",
			Right:  admin.Own,
			Do:     s.showStatus,
		},
		admin.Route{
			Method: "GET",
			Path:   "series",
			Right:  admin.Own,
			Do:     s.showSeries,
		},
		admin.Route{
			Method: "GET",
			Path:   "tools",
			Right:  admin.Look,
			Do:     s.showTools,
		},
		admin.Route{
			Method: "GET",
			Path:   "topology",
			Right:  admin.Own,
			Do:     s.showTopology,
		},
		admin.Route{
			Method: "GET",
			Path:   "metrics",
			Right:  admin.Own,
			Do:     s.showMetrics,
		},
		admin.Route{
			Method: "GET",
			Path:   "servers/{name}",
			Right:  admin.Own,
			Do:     s.showServer,
		},
		admin.Route{
			Method: "GET",
			Path:   "servers/{name}/tools",
			Right:  admin.Look,
			Do:     s.showToolList,
		},
		admin.Route{
			Method: "POST",
			Path:   "drain",
			Right:  admin.Act,
			Do:     s.drain(true),
		},
		admin.Route{
			Method: "POST",
			Path:   "resume",
			Right:  admin.Act,
			Do:     s.drain(false),
		},
	)
	return a
}

var (
	errElsewhere = errors.New("without access rules, only programs on the bridge's own machine may do this, while it listens on loopback: set access, and list the names of operators in admin")
	errNoConsole = errors.New("the console is off and this caller is not an operator: set console: on, or list the caller's name in admin or viewers")
)

// caller returns the caller of a request to the API of operators, and its rights. Without access rules, any program
// on this machine is an operator, because it may use every server too. A proxy is no operator: it may act for any
// client. If known is false, caller has answered the request.
func (s *server) caller(w http.ResponseWriter, r *http.Request, base string) (c admin.Caller, known bool, err error) {
	if !s.access.Keyed() {
		if who := auth.Principal(r.Context()); who != "" { // the embedding program identifies its callers
			if !admin.HasConsole(s.Config()) {
				return admin.Caller{Principal: who}, true, errNoConsole
			}
			return admin.Caller{Principal: who}, true, nil
		}
		if !s.access.Local(r) {
			return admin.Caller{}, true, errElsewhere
		}
		return admin.Caller{
			Look:  true,
			Act:   true,
			Valid: func() bool { return config.Loopback(s.Config().OperatorsListen()) },
		}, true, nil
	}
	p, signed, known := s.pages.Signed(w, r, base)
	if !known {
		return admin.Caller{}, false, nil
	}
	if signed {
		markAuthenticated(r.Context())
	} else {
		if r, known = s.access.Admit(w, r, r.URL.Path, access.Target{Base: base, Refuse: admin.Refuse}); !known {
			return admin.Caller{}, false, nil
		}
		p = admin.Page{Principal: auth.Principal(r.Context())}
	}
	c = admin.Caller{Principal: p.Principal, Cookie: signed}
	c.Look, c.Act = s.access.Rights(p.Principal)
	if !c.Look && !admin.HasConsole(s.Config()) {
		return c, true, errNoConsole
	}
	was := c
	c.Valid = func() bool {
		good := false
		if signed {
			good = s.pages.Valid(&p)
		} else {
			now, err := s.access.Recheck(r, access.Target{Base: base})
			good = err == nil && now.Principal == was.Principal
		}
		look, act := s.access.Rights(was.Principal)
		return good && (look || admin.HasConsole(s.Config())) && (look || !was.Look) && (act || !was.Act)
	}
	return c, true, nil
}

// signIn exchanges the key in a request's body for a cookie. signIn accepts no token of an identity provider, because
// such a token expires while the page is open.
func (s *server) signIn(w http.ResponseWriter, r *http.Request, base string) {
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
	if !s.access.Keyed() {
		admin.Refuse(w, http.StatusConflict, "conflict", "there are no access rules: signing in is not needed")
		return
	}
	who, sum, wait, ok := s.access.Key(r, asked.Key)
	switch {
	case wait > 0:
		access.TooMany(w, wait, admin.Refuse)
		return
	case !ok:
		admin.Refuse(w, http.StatusUnauthorized, "unauthorized", "the key is not valid")
		return
	}
	s.pages.SetCookie(w, r, base, admin.NewPage(who, sum))
	s.log.Info("an operator signed in on the console", "principal", who, "from", s.access.Client(r).String())
	admin.Answer(w, http.StatusOK, map[string]string{"principal": who})
}

// signOut ends a sign-in, and deletes its cookie.
func (s *server) signOut(w http.ResponseWriter, r *http.Request, base string) {
	if !s.actions.Admits(w, r, "logout") {
		return
	}
	s.pages.SignOut(w, r, base)
	admin.Answer(w, http.StatusOK, struct{}{})
}

// fromPage accepts the console's requests to an endpoint, with a key or its cookie. The caller calls
// done when the request has been answered.
func (s *server) fromPage(w http.ResponseWriter, r *http.Request, base string, to access.Target) (known *http.Request, done func(), ok bool) {
	done = func() {}
	if !s.actions.Admits(w, r, "mcp") {
		return r, done, false
	}
	if s.access.Keyed() {
		p, signed, known := s.pages.Signed(w, r, base)
		switch {
		case !known:
			return r, done, false
		case !signed:
			if r, ok = s.access.Admit(w, r, r.URL.Path, to); !ok {
				return r, done, false
			}
		case r.Header.Get(admin.PageHeader) != "1": // a GET opens a stream, which pages of other sites must not
			admin.Refuse(w, http.StatusForbidden, "header", "a signed-in page must send the header "+admin.PageHeader+": 1 with this request")
			return r, done, false
		default:
			r, done = s.pages.Follow(r.WithContext(auth.WithPrincipal(r.Context(), p.Principal)), &p)
		}
	}
	r.Header.Del("Cookie") // the cookies of the page are never forwarded
	return r, done, true
}
