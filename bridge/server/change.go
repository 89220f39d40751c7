package server

import (
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/config"
)

// table is the servers of a moment, and how they are reached. It is not changed:
// another takes its place.
type table struct {
	servers []config.Server
	reached map[string]*reached // by name
}

func (t *table) names() []string {
	names := make([]string, len(t.servers))
	for i := range t.servers {
		names[i] = t.servers[i].Name
	}
	return names
}

func (t *table) place(name string) int {
	return slices.IndexFunc(t.servers, func(c config.Server) bool { return c.Name == name })
}

// tableOf makes the table of those servers, and the options of those that are new
// or have changed. All others are reached as they are. Documents of HTTP APIs that are
// files have been read when it returns: see mistakes.
func (s *Server) tableOf(servers []config.Server, changed map[string]bool) (t *table, fresh []gateway.ServerOptions) {
	was := s.now.Load()
	t = &table{servers: servers, reached: map[string]*reached{}}
	for i := range servers {
		c := &servers[i]
		r := was.reached[c.Name]
		if r == nil || changed[c.Name] {
			made := s.reacher(s, c)
			r = &made
			fresh = append(fresh, options(c, made))
		}
		t.reached[c.Name] = r
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range fresh {
		r := t.reached[fresh[i].Name]
		if r.api == nil {
			continue
		}
		var before *rest.Adapter
		if old := was.reached[fresh[i].Name]; old != nil {
			before = old.api
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			r.mistake = r.api.Begin(before)
		})
	}
	wg.Wait()
	return t, fresh
}

// mistakes returns what is wrong with documents of those servers, each with its line of
// the file that c was read from; nil if nothing is.
func (t *table) mistakes(c *config.Config, servers []gateway.ServerOptions) error {
	var all config.Faults
	for i := range servers {
		name := servers[i].Name
		if err := t.reached[name].mistake; err != nil {
			all = append(all, c.FaultsOf(name, err)...)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all.Sorted()
}

// transport returns how the server of that name is reached; nothing when that is
// not known.
func (s *Server) transport(name string) string {
	if r := s.now.Load().reached[name]; r != nil {
		return r.transport()
	}
	return ""
}

// Add serves one more server. Its addresses are there at once, and clients that have
// all servers as one are told. Nothing is started until it is needed.
func (s *Server) Add(c config.Server) error {
	return s.change(c.Name, func(all []config.Server, place int) ([]config.Server, error) {
		return append(all, c), nil // two of a name are refused with all else that is wrong
	})
}

// Remove ends the server of that name: there are no new calls, those under way may
// end within the configuration's Drain, then its sessions and connections end.
// Remove does not wait for that. One server has to be left.
func (s *Server) Remove(name string) error {
	return s.change(name, func(all []config.Server, place int) ([]config.Server, error) {
		if place < 0 {
			return nil, fmt.Errorf("there is no server %q to remove", name)
		}
		return slices.Delete(all, place, place+1), nil
	})
}

// Replace gives the server of c's name other settings. Its sessions go on with the
// former ones until they end, also when a connection of theirs is opened again, but for
// Timeout and MaxTimeout; Remove ends them too. New sessions, clients without sessions, and those that have all
// servers as one have the new settings at once.
func (s *Server) Replace(c config.Server) error {
	return s.change(c.Name, func(all []config.Server, place int) ([]config.Server, error) {
		if place < 0 {
			return nil, fmt.Errorf("there is no server %q to replace", c.Name)
		}
		all[place] = c
		return all, nil
	})
}

// change serves what edit makes of the servers, of which only the one of that name
// is another. Servers that stay as they are notice nothing. An error changes nothing.
func (s *Server) change(name string, edit func(all []config.Server, place int) ([]config.Server, error)) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	c := *s.c()
	servers, err := edit(slices.Clone(c.Servers), s.now.Load().place(name))
	if err != nil {
		return err
	}
	c.Servers = servers
	if err := c.Validate(); err != nil {
		return err
	}
	now, fresh := s.tableOf(servers, map[string]bool{name: true})
	if err := now.mistakes(&c, fresh); err != nil {
		drop(now, s.now.Load())
		return err
	}
	return s.exchange(&c, now, gateway.Change{Servers: fresh})
}

// exchange serves the servers of c from now on, as change says of those that are new or have
// changed; they are reached as now says. The caller holds s.changing. An error changes
// nothing.
func (s *Server) exchange(c *config.Config, now *table, change gateway.Change) error {
	was := s.now.Load()
	before := &table{reached: map[string]*reached{}} // of those that were there and stay: nobody finds the others
	gone := map[string]*reached{}
	for name, r := range was.reached {
		if now.reached[name] != nil {
			before.reached[name] = r
		}
		if now.reached[name] != r {
			gone[name] = r
			s.leaving[name]++
		}
	}
	s.count(now)
	s.now.Store(before)
	defer s.access.Coming(c)() // nothing new is served before its scopes count
	change.Names, change.Drain = now.names(), c.Drain
	change.Gone = func(name string) {
		if r := gone[name]; r.close != nil {
			r.close()
		}
		s.changing.Lock()
		defer s.changing.Unlock()
		s.left(name)
		s.count(s.now.Load())
		s.log.Info("server closed: it was removed or changed, or the bridge stops", "server", name)
	}
	err := s.b.Apply(change)
	if err != nil {
		drop(now, was)
		for name := range gone {
			s.left(name)
		}
		now, c = was, s.c()
	}
	s.times.set(c.Servers)
	s.now.Store(now)
	s.conf.Store(c)
	return err
}

// left notes that one more of that name is not in use any more. The caller holds
// s.changing.
func (s *Server) left(name string) {
	if s.leaving[name]--; s.leaving[name] == 0 {
		delete(s.leaving, name)
	}
}

// count has the metrics count for the servers of t, and for those that are in use
// although they have left. The caller holds s.changing.
func (s *Server) count(t *table) {
	names := t.names()
	for name := range s.leaving {
		if t.reached[name] == nil {
			names = append(names, name)
		}
	}
	s.metrics.Set(names)
}

// drop closes what was made for now, and is not in was.
func drop(now, was *table) {
	for name, r := range now.reached {
		if r != was.reached[name] && r.close != nil {
			r.close()
		}
	}
}
