package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/guard/approve"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/bridge/server/internal/accesslog"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/bridge/server/internal/metrics"
	"github.com/mcp-bridge/bridge/bridge/server/internal/placement"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth"
)

// These are the interfaces through which the parts of the bridge see it. They say what the methods here do.
var (
	_ access.Bridge           = (*server)(nil)
	_ admin.Bridge            = (*server)(nil)
	_ admin.PagesBridge       = (*server)(nil)
	_ admin.States            = (*server)(nil)
	_ approve.Recorder        = (*server)(nil)
	_ metrics.Counts          = (*server)(nil)
	_ placement.PlacedServers = (*server)(nil)
)

func (s *server) Config() *config.Config { return s.conf.Load() }

func (s *server) Servers() []string { return s.g.Servers() }

func (s *server) HasAddress(name string) bool {
	_, group := s.Config().Groups[name]
	return group || s.table.Load().backends[name] != nil
}

func (s *server) Allowed(server, principal string) error { return s.g.Allowed(server, principal) }

func (s *server) Resolve(server, principal string, mode gateway.ToolsMode, m *jsonrpc.Message) *jsonrpc.Message {
	return s.g.Resolve(server, principal, mode, m)
}

func (s *server) KeysChanged(principal string, good bool) {
	if good {
		s.g.Restore(principal)
		return
	}
	s.g.Revoke(principal)
	s.sse.Revoke(principal)
}

func (s *server) Accepted(ctx context.Context) { markAuthenticated(ctx) }

func (s *server) Keyed() bool { return s.access.Keyed() }

func (s *server) RequestedHost(r *http.Request) string { return s.access.RequestedHost(r) }

func (s *server) Acted(principal, action, outcome string) {
	s.note(func(l *accesslog.Log) bool { return l.Action(principal, action, outcome) })
}

// Decided implements approve.Recorder.
func (s *server) Decided(d approve.Decision) {
	s.note(func(l *accesslog.Log) bool { return l.Decision(d) })
}

func (s *server) Overview(c *admin.Caller) admin.Overview { return s.overview(c) }

func (s *server) State(name string) (any, error) { return s.stateOf(name) }

func (s *server) Holder(sum auth.Sum) (principal string, ok bool) { return s.access.Door().Holder(sum) }

func (s *server) PagePath(r *http.Request, base string) (path string, secure bool) {
	secure = r.TLS != nil || s.access.Trusts(r.RemoteAddr) && r.Header.Get("X-Forwarded-Proto") == "https"
	return s.outside(r) + base + "/ui", secure
}

func (s *server) Totals() gateway.Totals { return s.g.Totals() }

func (s *server) Status() []Status { return s.g.Status() }

func (s *server) ReadyWith(all []Status) bool {
	why, _ := s.unready(all)
	return why == ""
}

func (s *server) OnStdio(server string) bool { return s.transport(server) == transportStdio }

func (s *server) Refused() uint64 { return s.clients.refused.Load() }

func (s *server) LogLost() uint64 {
	n := s.lostLines.Load()
	if l := s.accessLog.Load(); l != nil {
		n += l.Lost()
	}
	return n
}

func (s *server) Placed() (names []string) {
	for name, b := range s.table.Load().backends {
		if b.local != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (s *server) Local(name string) (placement.Local, bool) {
	if b := s.table.Load().backends[name]; b != nil && b.local != nil {
		return *b.local, true
	}
	return placement.Local{}, false
}
