package aggregate

import (
	"context"
	"sync"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Stateless is an Upstream that offers the servers of an Aggregate as one to stateless clients. Clients of one
// principal share one session.
type Stateless struct {
	a  *Aggregate
	wg sync.WaitGroup // awaits the sessions that drop closes

	mu     sync.Mutex // guards the rest
	each   map[string]*shared
	uses   uint64 // counts uses, for their order
	closed bool
}

// shared is the session of one principal's stateless clients.
type shared struct {
	*session
	principal string
	users     int    // requests in flight
	use       uint64 // the number of the last use
}

// Server returns nil: each client gets a greeting of its own.
func (s *Stateless) Server() *bridge.Greeting { return nil }

// Notify drops the notification: the protocol defines none from stateless clients.
func (s *Stateless) Notify(context.Context, *bridge.Request) error { return nil }

// maxShared bounds the sessions without a request in flight. Without access rules there is one session.
const maxShared = 256

// enter returns the principal's session and marks it as used until leave.
func (s *Stateless) enter(principal string) (*shared, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, bridge.ErrShutdown
	}
	m := s.each[principal]
	if m == nil {
		if len(s.each) >= maxShared {
			s.evict()
		}
		from := &bridge.Caller{
			Principal:    principal,
			Revision:     era.LatestModern,
			Capabilities: []byte("{}"),
			Params:       s.a.o.Params,
		}
		all := &listeners{all: map[*subscribe.Listener]struct{}{}}
		m = &shared{session: newSession(s.a, from, all), principal: principal}
		m.listeners = all
		s.each[principal] = m
	}
	s.uses++
	m.users, m.use = m.users+1, s.uses
	return m, nil
}

// leave ends one use of m. leave drops an unused m if there are more than maxShared sessions.
func (s *Stateless) leave(m *shared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.users--; m.users == 0 && len(s.each) > maxShared {
		s.drop(m)
	}
}

// evict drops the least recently used session that is not in use. If all are in use, evict drops none: then
// the requests in flight bound the number of sessions. The caller holds s.mu.
func (s *Stateless) evict() {
	var oldest *shared
	for _, m := range s.each {
		if m.users == 0 && (oldest == nil || m.use < oldest.use) {
			oldest = m
		}
	}
	if oldest != nil {
		s.drop(oldest)
	}
}

// drop removes and closes a session without users. The caller holds s.mu.
func (s *Stateless) drop(m *shared) {
	delete(s.each, m.principal)
	s.wg.Go(func() { _ = m.Close(s.a.o.Force) })
}

// Call makes a call in the session of the caller's principal.
func (s *Stateless) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	g, err := s.enter(r.From.Principal)
	if err != nil {
		return nil, err
	}
	defer s.leave(g)
	g.last.Store(r.From)
	switch r.Method {
	case "server/discover":
		return g.initialize(ctx)
	case era.Listen:
		return g.listen(ctx, r)
	case "tasks/get", "tasks/update", "tasks/cancel":
		return g.task(ctx, r)
	}
	return g.Call(ctx, r)
}

// Close closes all sessions.
func (s *Stateless) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	each := s.each
	s.each = nil
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range each {
		wg.Go(func() { _ = s.Close(ctx) })
	}
	wg.Wait()
	s.wg.Wait()
	return nil
}

// noClose is an Upstream whose user must not close it, because others use it.
type noClose struct{ bridge.Upstream }

func (noClose) Close(context.Context) error { return nil }
