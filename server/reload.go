package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/accesslog"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/gateway"
)

// Plan returns what Apply would change, and when that would count. It changes nothing.
func (s *Server) Plan(c *config.Config) ([]config.Change, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return config.Diff(s.c(), c), nil
}

// Apply has another configuration count from now on, and returns what has changed by
// that; docs/operations.md says which settings count when. Servers that are the same in
// both notice nothing: no session, connection or call of theirs ends. What takes a
// restart stays as it was, and all else counts. An error changes nothing.
//
// The configuration is compared with what counts now, with what Add, Remove and Replace
// have made of it. Traces stay as they are.
func (s *Server) Apply(c *config.Config) ([]config.Change, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	was := s.c()
	changes := config.Diff(was, c)
	if len(changes) == 0 {
		return nil, nil
	}
	next := config.Running(was, c, changes)
	next.Servers = slices.Clone(next.Servers)
	made, err := s.make(was, next, changes)
	if err != nil {
		return nil, err
	}
	if s.keys != nil { // who leaves does so before there are other rules, and who comes when there are
		s.keys.Set(slices.DeleteFunc(keysOf(next), func(k auth.Key) bool {
			return !slices.ContainsFunc(was.Access, func(a config.Access) bool { return a.Name == k.Principal })
		}))
	}
	if err := s.exchange(next, made.table, gateway.Change{Servers: made.fresh, Tuned: made.tuned, Settings: &gateway.Settings{
		SessionIdle: next.SessionIdle, Grants: next.Grants(), PerPrincipal: next.PerPrincipal,
	}}); err != nil {
		made.close()
		if s.keys != nil {
			s.keys.Set(keysOf(was))
		}
		return nil, err
	}
	if s.keys != nil {
		s.grants.Set(next.Grants())
		s.keys.Set(keysOf(next))
	}
	s.guard.Store(newGuard(next, s.log))
	s.sse.Limit(next.PerPrincipal.Sessions)
	if made.pair != nil {
		s.cert.use(next.TLS, made.pair)
	}
	if was.AccessLog != next.AccessLog {
		if old := s.access.Swap(made.access); old != nil {
			s.end(old)
			s.lost.Add(old.Lost())
		}
	}
	return changes, nil
}

// made is what another configuration needs, and can fail to be made.
type made struct {
	table  *table
	fresh  []gateway.ServerOptions
	tuned  []gateway.ServerOptions // of servers of which something counts at once
	pair   *tls.Certificate        // nil if it is the same
	access *accesslog.Log          // likewise, or if there is none
}

// make makes what next needs beside what there is. An error leaves nothing behind.
func (s *Server) make(was, next *config.Config, changes []config.Change) (*made, error) {
	m := &made{}
	if err := m.fill(s, was, next, changes); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *made) fill(s *Server, was, next *config.Config, changes []config.Change) (err error) {
	if next.TLS != was.TLS && s.cert != nil {
		if m.pair, err = next.TLS.Pair(); err != nil {
			return fmt.Errorf("tls: %w", err)
		}
	}
	if next.AccessLog != was.AccessLog {
		if m.access, err = accesslog.Open(next.AccessLog, s.instance.tag(), s.log); err != nil {
			return err
		}
	}
	changed, renewed, tuned := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, change := range changes {
		if of, ok := strings.CutPrefix(change.Path, "servers."); ok {
			name, _, key := strings.Cut(of, ".")
			changed[name] = changed[name] || !key || change.Effect != config.EffectLive
			renewed[name] = renewed[name] || change.Effect == config.EffectRenew
			tuned[name] = tuned[name] || key && change.Effect == config.EffectLive
		}
	}
	m.table, m.fresh = s.tableOf(next.Servers, changed)
	for i := range next.Servers {
		if c := &next.Servers[i]; tuned[c.Name] {
			m.tuned = append(m.tuned, options(c, *m.table.reached[c.Name]))
		}
	}
	for i := range m.fresh {
		m.fresh[i].Renew = renewed[m.fresh[i].Name]
	}
	var faults []error
	for i := range next.Servers {
		name := next.Servers[i].Name
		if r := m.table.reached[name]; r.fault != nil && changed[name] {
			faults = append(faults, fmt.Errorf("server %q: its settings cannot be used: %w", name, r.fault))
		}
	}
	if err = errors.Join(faults...); err != nil {
		drop(m.table, s.now.Load())
	}
	return err
}

// close closes what nobody will use.
func (m *made) close() {
	if m.access != nil {
		m.access.Close(nil)
	}
}
