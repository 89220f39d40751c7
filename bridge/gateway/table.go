package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/aggregate"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
)

// table is an immutable snapshot of the servers. Apply replaces the table. A call or session keeps the server that it
// began with.
type table struct {
	servers  []*server
	named    map[string]*server
	groups   map[string]*group // by name; that of all servers has the empty name
	forwards []string          // client headers that at least one server gets, sorted

	forwarding bool // at least one server gets headers or claims
}

// at returns the server of that name. For an empty name it returns the only server. It returns nil for the aggregate
// and for an unknown name.
func (t *table) at(name string) *server {
	if name == "" && len(t.servers) == 1 {
		return t.servers[0]
	}
	return t.named[name]
}

func (g *gateway) Servers() []string {
	var names []string
	for _, s := range g.table.Load().servers {
		names = append(names, s.o.Name)
	}
	return names
}

func (g *gateway) StartAhead() {
	for _, s := range g.table.Load().servers {
		g.run(func() { s.lane.StartAhead(s.listening, g.force) })
	}
}

func (g *gateway) Forwards() []string { return g.table.Load().forwards }

// Change describes the state that Apply makes.
type Change struct {
	Names   []string        // names of all servers, in their order
	Servers []ServerOptions // new and changed servers
	// Tuned are existing servers with changed options that also apply to open sessions, such as the options of guards.
	// Other options change only by an entry in Servers.
	Tuned []ServerOptions
	// Drain is how long calls to removed and replaced servers may continue.
	Drain time.Duration
	// Settings are the new settings; nil keeps the current ones.
	Settings *Settings
	// Gone is called for each removed or replaced server after its connections are closed, from a goroutine of its own.
	// It must not be nil.
	Gone func(name string)
}

func (g *gateway) Apply(c Change) error {
	g.applying.Lock()
	defer g.applying.Unlock()
	if g.life.Err() != nil || g.inFlight.Draining() {
		return bridge.ErrShutdown
	}
	changed := g.applySettings(c.Settings)
	was := g.table.Load()
	for _, s := range c.Tuned {
		defer g.tune(was.named[s.Name], s)() // notifies when Apply returns, so that names and grants are new
	}
	now := &table{named: map[string]*server{}, groups: was.groups}
	if c.Settings != nil {
		now.groups = g.regroup(was.groups, c.Settings.Groups)
	}
	var renewed []*server
	for _, name := range c.Names {
		s := was.named[name]
		if i := slices.IndexFunc(c.Servers, func(s ServerOptions) bool { return s.Name == name }); i >= 0 {
			former := s
			if s = newServer(g, c.Servers[i]); former != nil {
				s.removed, s.remove = former.removed, former.remove
				if s.o.Renew {
					renewed = append(renewed, s)
				}
				s.breaker.Force(former.breaker.Forced())
			}
		}
		now.servers, now.named[name] = append(now.servers, s), s
		for _, f := range s.o.Forward {
			if now.forwarding = true; f.From != "" {
				now.forwards = append(now.forwards, f.From)
			}
		}
	}
	slices.Sort(now.forwards)
	now.forwards = slices.Compact(now.forwards)
	g.mu.Lock() // enroll holds mu from its read of the table until the session is registered
	g.table.Store(now)
	g.mu.Unlock()
	var leaves []func(context.Context, *aggregate.Server)
	for _, p := range now.groups {
		leaves = append(leaves, p.fill(now.servers))
	}
	for name, p := range was.groups {
		if now.groups[name] == nil {
			g.dissolve(p, c.Drain)
		}
	}
	leave := func(ctx context.Context, gone *aggregate.Server) {
		for _, one := range leaves {
			one(ctx, gone)
		}
	}
	looking := g.reports.Changed()
	g.regrant(now, changed, c.Drain, looking, leave)
	for _, s := range was.servers {
		next := now.named[s.o.Name]
		if next == nil {
			s.remove(&bridge.Error{
				Server: s.o.Name,
				Kind:   bridge.ErrEnded,
				Public: "the bridge no longer serves it",
			})
		}
		if next != s {
			var ways []*binding
			for _, o := range g.open(func(o *sitting) bool { return o.bindings.Current().Server == s }) {
				ways = append(ways, o.bindings.Current())
			}
			g.wg.Go(func() { g.retire(s, c, looking, leave, ways) })
		}
	}
	for _, s := range renewed {
		g.renew(s, c.Drain, looking)
	}
	return nil
}

// tune applies o to a server, and to former versions of it that have open sessions. tell notifies clients of changed
// lists.
func (g *gateway) tune(s *server, o ServerOptions) (tell func()) {
	changed := s.set(o)
	s.member.Prefix = o.Prefix
	sees := func(principal string) bool { return len(changed) > 0 && g.allowed(s, o.Name, principal) == nil }
	t := g.table.Load()
	open := g.open(func(of *sitting) bool {
		if at := of.bindings.Current().Server; at != nil {
			return at.o.Name == o.Name
		}
		p := t.groups[of.server]
		return p != nil && p.has(o.Name)
	})
	for _, of := range open {
		if at := of.bindings.Current().Server; at != nil && at != s {
			at.set(o)
		}
	}
	return func() {
		for _, of := range open {
			if sees(of.caller.Principal) {
				subscribe.NotifyChanged(of.changes, changed)
			}
		}
		g.revoked.Relist(sees, o.Name, changed...)
	}
}

// retire ends a server that was removed or replaced, at the latest after c.Drain. looking are the calls that may still
// find the server, and ways the bindings of its sessions. leave ends the calls of the aggregate at the server.
func (g *gateway) retire(s *server, c Change, looking report.Rounds, leave func(context.Context, *aggregate.Server), ways []*binding) {
	s.stopListening()
	begun := func() bool { return anyBusy(ways) } // counts calls that wait for a connection, which reports does not
	s.reports.Drain(g.life, c.Drain, looking, begun)
	leave(g.force, s.member)
	_ = s.pool.Close(g.force)
	if awaitBindings(ways, s.removed.Done()) { // calls may have begun while retire waited
		s.reports.Drain(g.life, c.Drain, looking, begun)
	}
	endBindings(g.force, ways, context.Cause(s.removed))
	s.close(g.force)
	c.Gone(s.o.Name)
}

// renew moves the open sessions at former versions of a server to next, as after a lost connection. A session that ends
// with its connection ends when the server has no calls in flight, at the latest after drain.
func (g *gateway) renew(next *server, drain time.Duration, looking report.Rounds) {
	for _, s := range g.open(func(s *sitting) bool {
		at := s.bindings.Current().Server
		return at != nil && at != next && at.o.Name == next.o.Name
	}) {
		if was := s.bindings.Current().Server; was.ends() {
			ways := []*binding{s.bindings.Current()}
			g.wg.Go(func() {
				was.reports.Drain(g.life, drain, looking, func() bool { return anyBusy(ways) })
				s.End(&bridge.Error{
					Server: next.o.Name,
					Kind:   bridge.ErrEnded,
					Public: "its settings changed, and with restart: false a session ends with its connection",
				})
			})
		} else if b := s.bindings.Replace(g.force, next); b != nil {
			record := s.record()
			announceKept(record.Greeting, s.changes.Notify)
			if len(record.Subs) > 0 {
				s.Go(func() { s.restore(b) })
			}
		}
	}
}
