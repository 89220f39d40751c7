package gateway

import (
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/internal/aggregate"
	"github.com/mcp-bridge/bridge/bridge/internal/lane/share"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Settings are the fields of Options that Apply can change. Apply sets each value unchanged: here, 0 does not mean a
// default. Apply changes existing access rules. It neither adds rules to a gateway without rules, nor removes them all.
type Settings struct {
	Common
	// Grants and Groups are as in Options.
	Grants map[string]filter.Grant
	Groups []Group
}

// applySettings applies s, which may be nil, and returns the principals whose grants changed.
func (g *gateway) applySettings(s *Settings) (changed map[string]bool) {
	if s == nil {
		return nil
	}
	g.idle.Store(int64(s.SessionIdle))
	g.left.Store(int64(s.SessionLeft))
	g.listWait.Store(int64(s.ListWait))
	g.quota.Set(s.PerPrincipal)
	changed = g.grants.Set(s.Grants)
	if g.joint.set(Group{Listing: s.Listing}) {
		g.relist("")
	}
	g.results.SetUsual(s.Results)
	g.results.Set(int64(s.ResultsMemory))
	g.laneShares.Set(len(s.Grants))
	g.bytes.Set(len(s.Grants))
	return changed
}

// regrant applies changed grants. If a principal may no longer use a server, its sessions and calls there end. Other
// clients of these principals are notified of changed lists. Calls of the aggregate may continue for drain. For looking
// and leave see retire.
func (g *gateway) regrant(now *table, changed map[string]bool, drain time.Duration, looking report.Rounds, leave func(context.Context, *aggregate.Server)) {
	for _, s := range now.servers {
		s.laneShares.Set(s.users()) // also without changed grants: there may be a new principal
		for principal := range changed {
			if err := g.allowed(s, s.o.Name, principal); err != nil {
				s.pool.Revoke(principal, err)
			}
		}
	}
	if len(changed) == 0 {
		return
	}
	g.revoked.Relist(func(principal string) bool { return changed[principal] }, "", list.Tools)
	for _, s := range g.open(func(s *sitting) bool { return changed[s.caller.Principal] }) {
		at := s.bindings.Current().Server
		single := at != nil || s.server != "" // of all servers, some may be left
		if err := g.allowed(at, s.server, s.caller.Principal); single && err != nil {
			s.End(err)
		} else {
			subscribe.NotifyChanged(s.changes, []list.Kind{list.Tools})
		}
	}
	g.wg.Go(func() {
		end := time.Now().Add(drain)
		for _, s := range now.servers {
			s.reports.Drain(g.life, time.Until(end), looking, nil)
			leave(g.force, s.member)
		}
	})
}

// users counts the principals that may use the server.
func (s *server) users() (n int) {
	for principal := range s.g.grants.All() {
		if s.filter.Serves(principal) {
			n++
		}
	}
	return n
}

func (g *gateway) Revoke(principal string) {
	calls := g.revoked.Revoke(principal)
	ended := g.open(func(s *sitting) bool { return s.caller.Principal == principal })
	for _, s := range ended {
		s.End(errRevoked)
	}
	for _, s := range g.table.Load().servers {
		s.pool.Revoke(principal, errRevoked)
	}
	g.log.Info("sessions and calls of a caller ended: its key was removed", "principal", principal, "sessions", len(ended), "calls", calls)
}

func (g *gateway) Restore(principal string) { g.revoked.Restore(principal) }

func (g *gateway) Allowed(server, principal string) error {
	return g.allowed(g.table.Load().at(server), server, principal)
}

// allowed is Allowed for the server s of that name. s is nil for the aggregate and for an unknown name.
func (g *gateway) allowed(s *server, name, principal string) error {
	if err := g.revoked.Check(principal); err != nil {
		return err
	}
	switch {
	case s != nil && s.filter.Serves(principal):
		return nil
	case s != nil:
		return &bridge.Error{
			Server: s.o.Name,
			Kind:   bridge.ErrDenied,
			Public: "this caller may not use it",
		}
	}
	switch p := g.table.Load().groups[name]; {
	case p == nil:
		return bridge.ErrUnknownServer
	case p.serves(principal):
		return nil
	case name != "":
		return &bridge.Error{
			Server: name,
			Kind:   bridge.ErrDenied,
			Public: "this caller may not use it, or none of its servers",
		}
	}
	return &bridge.Error{Kind: bridge.ErrDenied, Public: "this caller may use no server"}
}

// joined is a Joined. A server that was removed or replaced closes only after the calls through joined.
type joined struct {
	*share.View
	s *server
}

func (j *joined) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	defer j.s.reports.CountOther()()
	return j.View.Call(ctx, r)
}

func (g *gateway) Join(name string, from bridge.Caller, rest bridge.Client) (Joined, []bridge.Forward, error) {
	s := g.table.Load().named[name]
	if s == nil || s.share != SharePrincipal && s.share != ShareAll {
		return nil, nil, bridge.ErrUnknownServer
	}
	v, err := s.shared.Join(from, rest, false)
	if err != nil {
		return nil, nil, err
	}
	return &joined{v, s}, s.o.Forward, nil
}

func (g *gateway) CallPool(ctx context.Context, name string, r *bridge.Request) (*jsonrpc.Message, error) {
	var arrival report.Arrival
	g.reports.Look(&arrival)
	defer arrival.Found()
	s := g.table.Load().named[name]
	if s == nil {
		return nil, bridge.ErrUnknownServer
	}
	if r.Method != era.Listen {
		defer s.reports.CountOther()()
	}
	arrival.Found()
	return s.pool.Here(ctx, r)
}

func (g *gateway) ReleaseShared(name, key string) {
	if s := g.table.Load().named[name]; s != nil && (s.share == SharePrincipal || s.share == ShareAll) {
		s.shared.Release(bridge.ConnectionKey(key))
	}
}

func (g *gateway) CloseUnused() {
	for _, s := range g.table.Load().named {
		s.pool.CloseUnused()
	}
}

func (g *gateway) ReleasePool(name, key string) {
	if s := g.table.Load().named[name]; s != nil {
		s.pool.ReleaseOwner(key)
	}
}
