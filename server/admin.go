package server

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/accesslog"
	"github.com/mcp-bridge/bridge/internal/admin"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/reload"
)

// Reloads has r read the configuration again, for as long as Serve serves; operators may
// ask for it over HTTP. It is called before the first request. Only the commands of this
// module can use it: other programs have Apply.
func (s *Server) Reloads(r *reload.Reloader) {
	r.Serve(s)
	s.reloader = r
	s.metrics.Config(r.Counts)
	s.actions.Add("reload", func(_ context.Context, body []byte) (any, error) {
		var asked struct {
			DryRun bool `json:"dry_run"`
		}
		if err := admin.Read(body, &asked); err != nil {
			return nil, err
		}
		if asked.DryRun {
			return r.Check()
		}
		return r.Reload()
	})
}

// newAPI returns what operators do, which is nothing yet.
func (s *Server) newAPI() *admin.API {
	return admin.New(admin.Options{Log: s.log, May: s.mayAct, Noted: func(principal, action, outcome string) {
		s.note(func(l *accesslog.Log) bool { return l.Action(principal, action, outcome) })
	}})
}

// mayAct returns who makes a request, or why it may not act. Without access rules, that
// is whoever is on this machine, who may use every server too. A proxy on it may speak
// for anybody.
func (s *Server) mayAct(w http.ResponseWriter, r *http.Request) (principal string, known bool, err error) {
	c := s.c()
	if s.keys == nil {
		peer, wrong := netip.ParseAddrPort(r.RemoteAddr)
		if wrong != nil || !peer.Addr().Unmap().IsLoopback() || !onLoopback(r) || !config.Loopback(c.Listen) || proxied(r.Header) {
			return "", true, errors.New("without access rules only programs on the bridge's own machine may do this, while it listens on loopback: set access, and admin with the names of those who may")
		}
		return "", true, nil
	}
	r, known = s.admit(w, r, r.URL.Path, place{c.BasePath, ""})
	if !known {
		return "", false, nil
	}
	if principal = auth.Principal(r.Context()); !slices.Contains(c.Admin, auth.RuleOf(principal)) {
		return principal, true, errors.New("this caller may not do this: list its name in admin of the configuration file")
	}
	return principal, true, nil
}

// proxied reports whether a proxy says that a request came through it.
func proxied(h http.Header) bool {
	for _, name := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"} {
		if h[name] != nil {
			return true
		}
	}
	return false
}
