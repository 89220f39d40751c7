package server

import (
	"maps"
	"reflect"
	"runtime"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/bridge/server/status"
	"github.com/mcp-bridge/bridge/config"
)

// AdminPath is the path of the API for operators, below the base path.
const AdminPath = admin.Base

// HasConsole reports whether a configuration enables the page for operators.
func HasConsole(c *config.Config) bool { return admin.HasConsole(c) }

// overview is the content of /readyz, and the load of the process.
type overview struct{ status.Overview }

// showStatus returns the state of the bridge, with the resources of child processes if requested.
func (s *server) showStatus(c *admin.Call) (any, error) {
	out := s.overview(&c.Caller)
	if c.Look && c.Query.Get("memory") == "true" {
		used := health.Usage()
		for i := range out.Servers {
			if _, _, of, _ := s.g.Operated(out.Servers[i].Name); of != nil {
				use := of.Use(used)
				out.Servers[i].RSS, out.Servers[i].CPU = use.RSS, use.CPU.Milliseconds()
			}
		}
	}
	return out, nil
}

// overview returns the state of the bridge that the caller may see.
func (s *server) overview(c *admin.Caller) *overview {
	out := &overview{status.Overview{Bridge: *s.readiness()}}
	if c.Act {
		out.AddStderr()
	}
	sees := s.view(c)
	s.figure(out.Servers, c.Look)
	if !sees.All {
		out.Limit(sees.Of)
		return out
	}
	s.queues(&out.Bridge)
	t := s.g.Totals()
	out.Process = &status.Process{
		Started:        s.began,
		Memory:         admin.Memory(),
		Goroutines:     runtime.NumGoroutine(),
		Calls:          t.Admitted,
		MaxBytes:       t.MaxBytes,
		MaxConnections: t.MaxLanes,
		Approvals:      len(s.g.Approvals().Waiting()),
	}
	return out
}

// bytesPerToken is the approximate size of a token of a model in a list of tools.
const bytesPerToken = 4

// figure adds the figures of the console to the states of servers. lists adds the sizes of their lists of tools: only
// for callers with Look, because the last list may be that of a caller with other rights.
func (s *server) figure(servers []status.Server, lists bool) {
	recent := s.timeline.history.Recent()
	for i := range servers {
		one := &servers[i]
		if r := recent[one.Name]; r != nil {
			one.ErrorShare, one.ToolErrorShare, one.P50, one.P95, one.P99 = &r.Errors, &r.ToolErrors, r.P50, r.P95, r.P99
		}
		if of, ok := s.metrics.ToolList(one.Name); ok && lists {
			tokens := of.Bytes / bytesPerToken
			one.Tools, one.ListTokens = &of.Tools, &tokens
		}
	}
}

// changes is the state of the bridge with only the servers that changed.
type changes struct {
	status.Overview
	Removed []string `json:"removed,omitempty"` // servers
}

// Since implements admin.Overview. The result has only the servers that changed.
func (o *overview) Since(before admin.Overview, whole bool) any {
	old := before.(*overview)
	was := map[string]*status.Server{}
	for i := range old.Servers {
		was[old.Servers[i].Name] = &old.Servers[i]
	}
	part := o.Bridge
	part.Servers = []status.Server{}
	for i := range o.Servers {
		one := &o.Servers[i]
		if before := was[one.Name]; before == nil || !reflect.DeepEqual(before, one) {
			part.Servers = append(part.Servers, *one)
		}
		delete(was, one.Name)
	}
	removed := slices.Sorted(maps.Keys(was))
	same := old.Bridge
	same.Servers = part.Servers
	if len(removed) == 0 && len(part.Servers) == 0 && reflect.DeepEqual(&same, &part) && !whole {
		return nil
	}
	return changes{status.Overview{Bridge: part, Process: o.Process}, removed}
}

func (s *server) showMetrics(c *admin.Call) (any, error) {
	sees := s.view(&c.Caller)
	of := sees.Of
	if sees.All {
		of = nil
	}
	if one := c.Query.Get("server"); one != "" {
		if !sees.Of(one) || s.table.Load().backends[one] == nil {
			return nil, admin.NotFound("server of that name")
		}
		of = func(server string) bool { return server == one }
	}
	all, err := s.metrics.Values(c.Query.Get("name"), of, sees.All)
	return map[string]any{"metrics": all}, err
}

// view returns the servers whose state the caller may see.
func (s *server) view(c *admin.Caller) access.View {
	if c.Look {
		return access.View{All: true, Of: func(string) bool { return true }}
	}
	if !s.access.Keyed() { // the embedding program identifies its callers
		return access.View{Of: func(server string) bool { return s.g.Allowed(server, c.Principal) == nil }}
	}
	return s.access.View(c.Principal)
}

type detail struct {
	Server *status.Server `json:"server"`
	// Settings are the settings of the file, without possible secrets: see admin.Masked. They are empty for a caller
	// that may not act.
	Settings string `json:"settings,omitempty"`
	// Connections are the open connections; nil for a caller without the right to see them.
	Connections []health.ConnectionStatus `json:"connections,omitempty"`
}

func (s *server) showServer(c *admin.Call) (any, error) {
	name := c.Var("name")
	st, err := s.stateOf(name)
	if err != nil || !s.view(&c.Caller).Of(name) {
		return nil, admin.NotFound("server of that name")
	}
	if c.Act {
		st.AddStderr()
	}
	one := []status.Server{*st}
	s.figure(one, c.Look)
	out := detail{Server: &one[0]}
	if !c.Look {
		return out, nil
	}
	if _, _, of, _ := s.g.Operated(name); of != nil {
		out.Connections = of.List(health.Usage(), c.Act)
	}
	if s.reloader != nil && c.Act { // not for others: masking may miss a secret
		if text, err := admin.FileText(s.reloader); err == nil {
			out.Settings, _ = admin.Masked(text, name) // a broken file has no settings
		}
	}
	return out, nil
}

func (s *server) stateOf(name string) (*status.Server, error) {
	all := s.g.Status()
	i := slices.IndexFunc(all, func(st Status) bool { return st.Name == name })
	if i < 0 {
		return nil, admin.NotFound("server of that name")
	}
	row := s.state(&all[i])
	return &row, nil
}

// drain returns the action that drains or resumes the bridge. While the bridge is drained, /readyz reports that it is
// not ready, so that a load balancer sends no new clients. Current clients are still served.
func (s *server) drain(on bool) func(c *admin.Call) (any, error) {
	return func(c *admin.Call) (any, error) {
		if err := admin.Empty(c); err != nil {
			return nil, err
		}
		if !on {
			s.drained.Store(nil)
		} else {
			s.drained.CompareAndSwap(nil, &status.Drain{By: c.Principal, Since: time.Now()})
		}
		return s.overview(&c.Caller), nil
	}
}
