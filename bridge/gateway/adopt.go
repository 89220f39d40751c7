package gateway

import (
	"context"
	"errors"
	"slices"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/drain"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/session"
)

func (g *gateway) Portable(r *session.Record) bool {
	t := g.table.Load()
	p := t.groups[r.Server]
	return !slices.ContainsFunc(t.servers, func(s *server) bool {
		return (s.o.Name == r.Server || p != nil && p.has(s.o.Name)) && s.ends() && r.Carry[s.o.Name] == nil
	})
}

func (g *gateway) adopt(h session.Held) (*sitting, error) {
	if err := g.Allowed(h.Server, h.Principal); err != nil {
		return nil, err
	}
	s := g.newSession(h.Key, h.Server, callerOf(&h.Record))
	s.held, s.ready, s.used, s.bindings.Current().Handover = h, true, true, newHandover()
	if stay, ok := s.caller.Handover.(*stay); ok {
		stay.Resume(&h)
	}
	if err := g.add(s); err != nil {
		s.cancel(err)
		return nil, err
	}
	if err := s.bindings.Connect(g.force, s.ctx); err != nil {
		s.End(err)
		return nil, err
	}
	return s, nil
}

// resume restores the session's state on a fresh connection before the first call. m is the call that needs the
// connection, or nil if no call does.
func (s *sitting) resume(ctx context.Context, b *binding, m *jsonrpc.Message) error {
	if b.Handover.Done() {
		return nil
	}
	if b.Server != nil { // before resume opens a connection
		if err := b.Server.drained.Refuses(m, s.caller); err != nil {
			return err
		}
		ctx = drain.Passing(ctx)
	}
	err := b.Handover.Resume(ctx, b.Chain, s.caller, s.record, s.log, s.changes.Notify)
	if errors.Is(err, bridge.ErrReplaced) && b.Current() { // otherwise the session already uses a newer binding
		s.End(err)
	}
	return err
}

// restore resumes a session whose client only listens: at once, or after a drain of the server when the operator ends
// the drain.
func (s *sitting) restore(b *binding) {
	if !b.Current() || b.Handover.Waits(true) {
		return
	}
	now := func() (stop func()) {
		_ = s.resume(s.ctx, b, nil) // the next call returns the error
		b.Handover.Waits(false)
		return nil
	}
	if b.Server == nil {
		now()
	} else if stop := b.Server.drained.Await(func() {
		b.Handover.Waits(false)
		s.Go(func() { s.restore(b) })
	}, now); stop != nil {
		s.OnEnd(stop)
	}
}

// repeat sends m, which set session state on a former binding, on the current binding too. That binding may have been
// resumed before the state was in the record. repeat waits for the answer or the end of ctx.
func (s *sitting) repeat(ctx context.Context, m *jsonrpc.Message) {
	m = m.Clone()
	awaitRun(ctx, s.Go, func() {
		b := s.bindings.Enter()
		defer b.Leave()
		if err := s.resume(s.ctx, b, nil); err == nil {
			notifyServer(drain.Passing(s.ctx), b.Chain, s.caller, m.Method, m.Params, s.log)
		}
	})
}

func (s *sitting) record() session.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held.Record
}

// keep changes the record and starts a goroutine that saves the record. Callers hold locks, so keep itself does no I/O.
// After the session's end there is no save: see forget.
func (s *sitting) keep(change func(*session.Record)) {
	s.mu.Lock()
	change(&s.held.Record)
	s.unsaved = true
	begins := !s.saving && !s.ending
	if begins {
		s.saving = true
		s.wg.Add(1)
	}
	s.mu.Unlock()
	if begins {
		if !s.g.workers.Run(s.save) {
			s.wg.Done() // the gateway is closed
		}
	}
}

// save saves the record, and saves again if the record changed meanwhile. Only one save of a session runs at a time, so
// the store gets the newest record last.
func (s *sitting) save() {
	defer s.wg.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.unsaved && !s.ending {
		s.unsaved = false
		held := s.held
		s.mu.Unlock()
		if err := s.g.store.Save(s.ctx, held); err != nil && s.ctx.Err() == nil && !errors.Is(err, session.ErrFenced) {
			s.log.Warn("session store", "err", err)
		}
		s.mu.Lock()
	}
	s.saving = false
}

// ErrMoved is the reason of a session's end here when another instance continues the session.
var ErrMoved = errors.New("the session goes on at another instance")

// forget deletes the session's record from the store. If another instance may continue the session, forget releases the
// record, with its last changes, instead.
func (s *sitting) forget() {
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	end := s.g.store.Delete
	if s.moves() {
		end = s.g.store.Release
	}
	if err := end(context.Background(), held); err != nil && !errors.Is(err, session.ErrFenced) {
		s.g.log.Warn("session store", "err", err)
	}
}

// moves reports whether another instance may continue the session after its end here.
func (s *sitting) moves() bool {
	cause, r := context.Cause(s.ctx), s.record()
	return (errors.Is(cause, ErrMoved) || errors.Is(cause, bridge.ErrShutdown)) && !r.Bound && s.g.Portable(&r)
}

func (g *gateway) Move(key string) { g.move(func(s *sitting) bool { return s.id == key }) }

func (g *gateway) MoveIdle() (left int) {
	g.move(func(s *sitting) bool {
		left++
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.callCount == 0 && !s.ending && (s.greeted.Load() || s.used) // a session that only called initialize may still lack its answer
	})
	return left
}

// move ends the selected sessions with ErrMoved.
func (g *gateway) move(which func(*sitting) bool) {
	for _, s := range g.open(which) {
		s.End(ErrMoved)
	}
}
