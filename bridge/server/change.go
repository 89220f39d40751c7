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

// table has the current servers and their adapters. A table is immutable: a change makes a new one.
type table struct {
	servers  []config.Server
	backends map[string]*backend // by name
}

func (t *table) names() []string {
	names := make([]string, len(t.servers))
	for i := range t.servers {
		names[i] = t.servers[i].Name
	}
	return names
}

func (t *table) index(name string) int {
	return slices.IndexFunc(t.servers, func(s config.Server) bool { return s.Name == name })
}

// tableOf makes the table of the servers, and the options of new or changed servers. All other servers keep their
// adapters. tableOf also reads the documents of HTTP APIs that are files: see documentFaults.
func (s *server) tableOf(servers []config.Server, changed map[string]bool) (t *table, fresh []gateway.ServerOptions) {
	was := s.table.Load()
	t = &table{servers: servers, backends: map[string]*backend{}}
	for i := range servers {
		c := &servers[i]
		b := was.backends[c.Name]
		if b == nil || changed[c.Name] {
			made := s.reacher(s, c)
			b = &made
			fresh = append(fresh, options(c, made))
		}
		t.backends[c.Name] = b
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range fresh {
		b := t.backends[fresh[i].Name]
		if b.api == nil {
			continue
		}
		var before *rest.Adapter
		if old := was.backends[fresh[i].Name]; old != nil {
			before = old.api
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			b.documentFault = b.api.Begin(before)
		})
	}
	wg.Wait()
	return t, fresh
}

// documentFaults returns the faults of the servers' documents, each with its line in the file of c; nil if
// there are none.
func (t *table) documentFaults(c *config.Config, servers []gateway.ServerOptions) error {
	var all config.Faults
	for i := range servers {
		name := servers[i].Name
		if err := t.backends[name].documentFault; err != nil {
			all = append(all, c.FaultsOf(name, err)...)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all.Sorted()
}

// transport returns the transport of a server; empty if it is unknown.
func (s *server) transport(name string) string {
	if b := s.table.Load().backends[name]; b != nil {
		return b.transport()
	}
	return ""
}

func (s *server) Add(c config.Server) error {
	return s.change(c.Name, func(all []config.Server, place int) ([]config.Server, error) {
		return append(all, c), nil // Validate refuses a name that exists
	})
}

func (s *server) Remove(name string) error {
	return s.change(name, func(all []config.Server, place int) ([]config.Server, error) {
		if place < 0 {
			return nil, fmt.Errorf("there is no server %q to remove", name)
		}
		return slices.Delete(all, place, place+1), nil
	})
}

func (s *server) Replace(c config.Server) error {
	return s.change(c.Name, func(all []config.Server, place int) ([]config.Server, error) {
		if place < 0 {
			return nil, fmt.Errorf("there is no server %q to replace", c.Name)
		}
		all[place] = c
		return all, nil
	})
}

// change replaces the servers by the result of edit, which differs only in the server of that name.
// Other servers are not affected. An error changes nothing.
func (s *server) change(name string, edit func(all []config.Server, place int) ([]config.Server, error)) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	c := *s.Config()
	servers, err := edit(slices.Clone(c.Servers), s.table.Load().index(name))
	if err != nil {
		return err
	}
	c.Servers = servers
	if err := c.Validate(); err != nil {
		return err
	}
	now, fresh := s.tableOf(servers, map[string]bool{name: true})
	if err := now.documentFaults(&c, fresh); err != nil {
		closeNew(now, s.table.Load())
		return err
	}
	return s.exchange(&c, now, gateway.Change{Servers: fresh})
}

// exchange makes c the current configuration. now has its adapters, and change the options of servers
// that are new or changed. The caller holds s.changing. An error changes nothing.
func (s *server) exchange(c *config.Config, now *table, change gateway.Change) error {
	was := s.table.Load()
	before := &table{backends: map[string]*backend{}} // the servers that stay: from now on, no request finds a removed server
	gone := map[string]*backend{}
	for name, b := range was.backends {
		if now.backends[name] != nil {
			before.backends[name] = b
		}
		if now.backends[name] != b {
			gone[name] = b
			s.leaving[name]++
		}
	}
	s.setMetrics(now)
	s.table.Store(before)
	defer s.access.Prepare(c)() // nothing new is served before its scopes are enforced
	change.Names, change.Drain = now.names(), c.Drain
	change.Gone = func(name string) {
		if b := gone[name]; b.close != nil {
			b.close()
		}
		s.changing.Lock()
		defer s.changing.Unlock()
		s.released(name)
		s.setMetrics(s.table.Load())
		s.log.Info("server closed: it was removed or changed, or the bridge stops", "server", name)
	}
	err := s.g.Apply(change)
	if err != nil {
		closeNew(now, was)
		for name := range gone {
			s.released(name)
		}
		now, c = was, s.Config()
	}
	s.times.set(c.Servers)
	s.table.Store(now)
	s.conf.Store(c)
	return err
}

// released counts down the removed or replaced servers of a name that are still in use. The caller
// holds s.changing.
func (s *server) released(name string) {
	if s.leaving[name]--; s.leaving[name] == 0 {
		delete(s.leaving, name)
	}
}

// setMetrics sets the servers of the metrics: the servers of t, and removed servers that are still in use.
// The caller holds s.changing.
func (s *server) setMetrics(t *table) {
	names := t.names()
	for name := range s.leaving {
		if t.backends[name] == nil {
			names = append(names, name)
		}
	}
	s.metrics.Set(names)
}

// closeNew closes the adapters of now that was does not have.
func closeNew(now, was *table) {
	for name, b := range now.backends {
		if b != was.backends[name] && b.close != nil {
			b.close()
		}
	}
}
