package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/server/internal/accesslog"
	"github.com/mcp-bridge/bridge/config"
)

func (s *server) Plan(c *config.Config) ([]config.Change, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	changes := config.Diff(s.Config(), c)
	changed := effects(changes).changed
	if err := lost(s.Config(), c); err != nil {
		return nil, err
	}
	var faults config.Faults
	for i := range c.Servers {
		one := &c.Servers[i]
		if one.Rest == nil || !changed[one.Name] || one.Unusable != "" {
			continue
		}
		if _, err := one.Rest.Inspect(context.Background(), one.Name, RestOptions(one, int(c.MaxMessage), nil)); err != nil {
			faults = append(faults, c.FaultsOf(one.Name, err)...)
		}
	}
	if len(faults) > 0 {
		return nil, faults.Sorted()
	}
	return changes, nil
}

// lost returns why servers are unusable with now that are served with was. A reload takes no server out of service
// because of a variable or a file.
func lost(was, now *config.Config) error {
	var all []error
	for _, s := range now.Servers {
		if s.Unusable != "" && slices.ContainsFunc(was.Servers, func(b config.Server) bool { return b.Name == s.Name && b.Unusable == "" }) {
			all = append(all, fmt.Errorf("server %q works now, and this file would put the server out of service: %s", s.Name, s.Unusable))
		}
	}
	return errors.Join(all...)
}

func (s *server) Apply(c *config.Config) ([]config.Change, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	was := s.Config()
	changes := config.Diff(was, c)
	if len(changes) == 0 {
		return nil, nil
	}
	if err := lost(was, c); err != nil {
		return nil, err
	}
	next := config.Running(was, c, changes)
	next.Servers = slices.Clone(next.Servers)
	made, err := s.prepare(was, next, changes)
	if err != nil {
		return nil, err
	}
	s.access.RevokeKeys(was, next)
	if err := s.exchange(next, made.table, gateway.Change{
		Servers: made.fresh,
		Tuned:   made.tuned,
		Settings: &gateway.Settings{
			Common: next.Common,
			Grants: next.Grants(),
			Groups: next.GatewayGroups(),
		},
	}); err != nil {
		made.close()
		s.access.RestoreKeys(was)
		return nil, err
	}
	s.access.ApplyRules(next)
	s.sse.Limit(next.PerPrincipal.Sessions)
	if made.pair != nil {
		s.cert.replace(next.TLS, made.pair)
	}
	if was.AccessLog != next.AccessLog {
		if old := s.accessLog.Swap(made.accessLog); old != nil {
			s.end(old)
			s.lostLines.Add(old.Lost())
		}
	}
	return changes, nil
}

// prepared holds the new parts for another configuration: their preparation can fail.
type prepared struct {
	table     *table
	fresh     []gateway.ServerOptions
	tuned     []gateway.ServerOptions // of servers with changes that take effect at once
	pair      *tls.Certificate        // nil if the certificate does not change
	accessLog *accesslog.Log          // nil if the log does not change, or if there is none
}

// prepare makes the new parts that next needs. An error leaves nothing open.
func (s *server) prepare(was, next *config.Config, changes []config.Change) (*prepared, error) {
	p := &prepared{}
	if err := p.fill(s, was, next, changes); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *prepared) fill(s *server, was, next *config.Config, changes []config.Change) (err error) {
	if next.TLS != was.TLS && s.cert != nil {
		if p.pair, err = next.TLS.Pair(); err != nil {
			return fmt.Errorf("tls: %w", err)
		}
	}
	if next.AccessLog != was.AccessLog {
		if p.accessLog, err = accesslog.Open(next.AccessLog, s.instance.tag(), s.log); err != nil {
			return err
		}
	}
	of := effects(changes)
	p.table, p.fresh = s.tableOf(next.Servers, of.changed)
	for i := range next.Servers {
		if s := &next.Servers[i]; of.tuned[s.Name] {
			p.tuned = append(p.tuned, options(s, *p.table.backends[s.Name]))
		}
	}
	for i := range p.fresh {
		p.fresh[i].Renew = of.renewed[p.fresh[i].Name]
	}
	faults := []error{p.table.documentFaults(next, p.fresh)}
	for i := range next.Servers {
		name := next.Servers[i].Name
		if b := p.table.backends[name]; b.fault != nil && of.changed[name] && next.Servers[i].Unusable == "" {
			faults = append(faults, fmt.Errorf("server %q: its settings cannot be used: %w", name, b.fault))
		}
	}
	if err = errors.Join(faults...); err != nil {
		closeNew(p.table, s.table.Load())
	}
	return err
}

// affected has the servers that changes affect, by name.
type affected struct {
	changed map[string]bool // servers that get a new adapter
	renewed map[string]bool // of these, servers whose open sessions get the new adapter too
	tuned   map[string]bool // servers with changed settings that take effect at once
}

func effects(changes []config.Change) affected {
	of := affected{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, change := range changes {
		if at, ok := strings.CutPrefix(change.Path, "servers."); ok {
			name, _, key := strings.Cut(at, ".")
			of.changed[name] = of.changed[name] || !key || change.Effect != config.EffectLive
			of.renewed[name] = of.renewed[name] || change.Effect == config.EffectRenew
			of.tuned[name] = of.tuned[name] || key && change.Effect == config.EffectLive
		}
	}
	return of
}

func (p *prepared) close() {
	if p.accessLog != nil {
		p.accessLog.Close(nil)
	}
}
