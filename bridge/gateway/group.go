package gateway

import (
	"context"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/internal/aggregate"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Group offers some of the servers as one, at an address of its own.
type Group struct {
	// Name is the group's path segment in URLs. No server has it.
	Name string
	// Servers are the names of its servers. The group has them in the order of Change.Names.
	Servers []string
	// Allow and Deny choose among the tools, by the names that clients see at the address of all servers. Patterns are as
	// in filter.Rules.
	Allow, Deny []string
	Listing
}

// group is several servers that clients use as one: a Group, or all servers.
type group struct {
	name      string // empty for all servers
	aggregate *aggregate.Aggregate
	filter    *filter.Filter  // not for all servers
	stateless bridge.Upstream // the chain of stateless clients
	now       atomic.Pointer[Group]
	servers   atomic.Pointer[[]*server]
}

func (g *gateway) newGroup(name string) *group {
	p := &group{
		name:   name,
		filter: filter.New(name, filter.Lists{}, g.grants),
	}
	p.aggregate = aggregate.New(aggregate.Options{
		Info:    g.info,
		Params:  g.ownParams,
		Force:   g.force,
		Tracing: g.tracing,
		Start:   func() time.Duration { return time.Duration(g.listWait.Load()) },
		Shows: func(k list.Kind, external string) bool {
			o := p.now.Load()
			return k != list.Tools || (&filter.Rules{Allow: o.Allow, Deny: o.Deny}).Passes(external)
		},
	})
	if p.stateless = p.aggregate.Stateless(); name != "" {
		p.stateless = p.filter.Wrap(p.stateless)
	}
	p.now.Store(&Group{})
	p.servers.Store(&[]*server{})
	return p
}

// Session returns the chain of one session.
func (p *group) Session(from *bridge.Caller, rest bridge.Client) bridge.Upstream {
	if p.name == "" {
		return p.aggregate.Session(from, rest)
	}
	return p.filter.Wrap(p.aggregate.Session(from, p.filter.Client(rest)))
}

// set applies o, and reports whether the list of tools may be another one because of that.
func (p *group) set(o Group) (changed bool) {
	was := p.now.Swap(&o)
	rules := filter.Rules{Allow: o.Allow, Deny: o.Deny}
	return len(p.filter.Set(filter.Lists{Tools: rules})) > 0 || !reflect.DeepEqual(was.Listing, o.Listing)
}

// fill gives the group its servers among all. Clients are notified of changes. leave is as in aggregate.Aggregate.
func (p *group) fill(all []*server) (leave func(context.Context, *aggregate.Server)) {
	var own []*server
	var members []*aggregate.Server
	for _, s := range all {
		if p.name == "" || slices.Contains(p.now.Load().Servers, s.o.Name) {
			own, members = append(own, s), append(members, s.member)
		}
	}
	p.servers.Store(&own)
	return p.aggregate.Set(members)
}

// serves reports whether the principal may use the group, and at least one of its servers.
func (p *group) serves(principal string) bool {
	return (p.name == "" || p.filter.Serves(principal)) && slices.ContainsFunc(*p.servers.Load(), func(s *server) bool { return s.filter.Serves(principal) })
}

// has reports whether the group has a server of that name.
func (p *group) has(name string) bool {
	return slices.ContainsFunc(*p.servers.Load(), func(s *server) bool { return s.o.Name == name })
}

// regroup returns the groups of the next table. Groups that stay keep their sessions.
func (g *gateway) regroup(was map[string]*group, all []Group) map[string]*group {
	now := map[string]*group{"": g.joint}
	for _, o := range all {
		p := was[o.Name]
		if p == nil {
			p = g.newGroup(o.Name)
		}
		now[o.Name] = p
		if p.set(o) {
			g.relist(o.Name)
		}
	}
	return now
}

// relist notifies the clients at an address that its list of tools changed.
func (g *gateway) relist(name string) {
	for _, s := range g.open(func(s *sitting) bool { return s.server == name }) {
		subscribe.NotifyChanged(s.changes, []list.Kind{list.Tools})
	}
	g.revoked.Relist(func(string) bool { return true }, name, list.Tools)
}

// dissolve ends the sessions of a group that was removed: at once those without a call in flight, the others after drain.
func (g *gateway) dissolve(p *group, drain time.Duration) {
	gone := &bridge.Error{
		Server: p.name,
		Kind:   bridge.ErrEnded,
		Public: "the bridge no longer serves it",
	}
	var busy []*sitting
	for _, s := range g.open(func(s *sitting) bool { return s.server == p.name && s.bindings.Current().Server == nil }) {
		if s.bindings.Current().calls.Load() > 0 {
			busy = append(busy, s)
		} else {
			s.End(gone)
		}
	}
	g.wg.Go(func() {
		if len(busy) > 0 {
			late := time.NewTimer(drain)
			defer late.Stop()
			select {
			case <-late.C:
			case <-g.life.Done():
			}
		}
		for _, s := range busy {
			s.End(gone)
		}
		_ = p.stateless.Close(g.force)
	})
}
