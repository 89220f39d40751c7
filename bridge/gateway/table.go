package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/aggregate"

	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
)

// table is the servers of a moment. It is not changed: another takes its place, and
// who has begun under this one ends under it.
type table struct {
	servers  []*server
	named    map[string]*server
	forwards []string // headers of clients that some server gets

	forwarding bool // some server gets something of its clients
}

// at returns the server of that name; of the empty name, the only one. It is nil
// where several are offered as one, and when there is none of that name.
func (t *table) at(name string) *server {
	if name == "" && len(t.servers) == 1 {
		return t.servers[0]
	}
	return t.named[name]
}

// Servers returns the names of the servers, in the order of Options.
func (b *Gateway) Servers() []string {
	var names []string
	for _, s := range b.table.Load().servers {
		names = append(names, s.o.Name)
	}
	return names
}

// StartAhead starts the servers that may be started before anybody connects.
func (b *Gateway) StartAhead() {
	for _, s := range b.table.Load().servers {
		b.goes(func() { s.lane.StartAhead(s.listening, b.force) })
	}
}

// Forwards returns the headers of clients that some server gets.
func (b *Gateway) Forwards() []string { return b.table.Load().forwards }

// Change is what Apply is to do.
type Change struct {
	Names   []string        // of all servers from now on, in their order
	Servers []ServerOptions // those that are new, or have changed
	// Tuned are servers that are there, with options that count for open sessions too: of
	// guards, and what else set has. All other options of them change by Servers only.
	Tuned []ServerOptions
	// Drain is how long calls to servers that leave may go on.
	Drain time.Duration
	// Settings count from now on for all servers; nil for those that do.
	Settings *Settings
	// Gone is called for each server that has left, or has changed, when nothing of
	// how it was is in use any more.
	Gone func(name string)
}

// Apply serves other servers from now on. Those that c does not name leave: they get
// no new calls, those under way may end, and then their sessions do. Sessions at a
// server that has changed go on with its former Adapter and settings, until they end
// or the server leaves; the new ones are for new sessions. All others notice nothing.
// Sessions at all servers as one have, and hear of, what comes and goes.
//
// Calls under way are known if there is an Options.Watch. A gateway that stops
// changes nothing: the error is ErrShutdown.
func (b *Gateway) Apply(c Change) error {
	b.applying.Lock()
	defer b.applying.Unlock()
	if b.life.Err() != nil || b.flight.Draining() {
		return bridge.ErrShutdown
	}
	changed := b.take(c.Settings)
	was := b.table.Load()
	for _, o := range c.Tuned {
		defer b.tune(was.named[o.Name], o)() // told when all is set: names and grants fit each other
	}
	now := &table{named: map[string]*server{}}
	var members []*aggregate.Server
	var renewed []*server
	for _, name := range c.Names {
		s := was.named[name]
		if i := slices.IndexFunc(c.Servers, func(o ServerOptions) bool { return o.Name == name }); i >= 0 {
			former := s
			if s = newServer(b, c.Servers[i]); former != nil {
				s.left, s.leave = former.left, former.leave
				if s.o.Renew {
					renewed = append(renewed, s)
				}
				s.breaker.Force(former.breaker.Forced())
			}
		}
		now.servers, now.named[name], members = append(now.servers, s), s, append(members, s.member)
		for _, f := range s.o.Forward {
			if now.forwarding = true; f.From != "" {
				now.forwards = append(now.forwards, f.From)
			}
		}
	}
	slices.Sort(now.forwards)
	now.forwards = slices.Compact(now.forwards)
	b.mu.Lock() // enroll looks at it
	b.table.Store(now)
	b.mu.Unlock()
	leave := b.aggregate.Set(members)
	b.regrant(now, changed, c.Drain, leave)
	for _, s := range was.servers {
		next := now.named[s.o.Name]
		if next == nil {
			s.leave(&bridge.Error{Server: s.o.Name, Kind: bridge.ErrEnded, Public: "it is not served any more"})
		}
		if next != s {
			var ways []*binding[*server]
			for _, o := range b.open(func(o *Session) bool { return o.ways.Now().At == s }) {
				ways = append(ways, o.ways.Now())
			}
			b.wg.Go(func() { b.retire(s, c, leave, ways) })
		}
	}
	for _, s := range renewed {
		b.renew(s, c.Drain)
	}
	return nil
}

// tune has options count for a server, and for those of its name that have left and have
// sessions still. tell tells clients which lists have changed.
func (b *Gateway) tune(s *server, o ServerOptions) (tell func()) {
	changed := s.set(o)
	sees := func(principal string) bool { return len(changed) > 0 && b.allowed(s, o.Name, principal) == nil }
	open := b.open(func(of *Session) bool { at := of.ways.Now().At; return at == nil || at.o.Name == o.Name })
	for _, of := range open {
		if at := of.ways.Now().At; at != nil && at != s {
			at.set(o)
		}
	}
	return func() {
		for _, of := range open {
			if sees(of.caller.Principal) {
				subscribe.Tell(of.changes, changed)
			}
		}
		b.revoked.Relist(sees, o.Name, changed...)
	}
}

// retire ends a server that has left, or whose place another has taken. leave ends
// what sessions at all servers as one have of it, and ways are those of its sessions.
func (b *Gateway) retire(s *server, c Change, leave func(context.Context, *aggregate.Server), ways []*binding[*server]) {
	s.stopListening()
	begun := func() bool { return anyBusy(ways) } // they may wait for a connection, and are none of its calls before
	s.reports.Drain(b.life, c.Drain, begun)
	leave(b.force, s.member)
	_ = s.pool.Close(b.force)
	if awaitBindings(ways, s.left.Done()) { // and calls have begun since
		s.reports.Drain(b.life, c.Drain, begun)
	}
	endBindings(b.force, ways, context.Cause(s.left))
	s.close(b.force)
	c.Gone(s.o.Name)
}

// renew has the open sessions at servers of that name go on at next, as after the loss of
// their connection. Where that is the end of a session, it ends as soon as the server has no
// calls, at the latest after drain.
func (b *Gateway) renew(next *server, drain time.Duration) {
	for _, s := range b.open(func(s *Session) bool {
		at := s.ways.Now().At
		return at != nil && at != next && at.o.Name == next.o.Name
	}) {
		if was := s.ways.Now().At; was.ends() {
			b.wg.Go(func() {
				was.reports.Drain(b.life, drain, nil)
				s.End(&bridge.Error{Server: next.o.Name, Kind: bridge.ErrEnded, Public: "its settings have changed, and with restart: false a session ends with its connection"})
			})
		} else if w := s.ways.Renew(b.force, next); w != nil {
			record := s.record()
			announceKept(record.Greeting, s.changes.Tell)
			if len(record.Subs) > 0 {
				s.Go(func() { s.restore(w) })
			}
		}
	}
}
