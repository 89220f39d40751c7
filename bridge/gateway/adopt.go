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

// Portable reports whether another process can go on with a session: not where the end
// of its connection is to be the session's (restart: false), unless it takes that over.
func (b *Gateway) Portable(r *session.Record) bool {
	return !slices.ContainsFunc(b.table.Load().servers, func(s *server) bool {
		return (r.Server == "" || s.o.Name == r.Server) && s.ends() && r.Carry[s.o.Name] == nil
	})
}

// Adopt goes on with a session that another instance has begun: h is its record, which
// was taken over. Nothing is opened before its first call needs it.
func (b *Gateway) Adopt(h session.Held) (*Session, error) {
	if err := b.Allowed(h.Server, h.Principal); err != nil {
		return nil, err
	}
	s := b.newSession(h.Key, h.Server, callerOf(&h.Record))
	s.held, s.ready, s.used, s.ways.Now().Adopted = h, true, true, newHandover()
	if stay, ok := s.caller.Stay.(*stay); ok {
		stay.Resume(&h)
	}
	if err := b.add(s); err != nil {
		s.cancel(err)
		return nil, err
	}
	if err := s.ways.Reach(b.force, s.ctx); err != nil {
		s.End(err)
		return nil, err
	}
	return s, nil
}

// resume readies a session for its first call that goes that way, which is m; nil if the
// bridge does so by itself.
func (s *Session) resume(ctx context.Context, w *binding[*server], m *jsonrpc.Message) error {
	if w.Adopted.Done() {
		return nil
	}
	if w.At != nil { // nothing is opened for a call that is refused
		if err := w.At.drained.Refuses(m, s.caller); err != nil {
			return err
		}
		ctx = drain.Passing(ctx)
	}
	err := w.Adopted.Resume(ctx, w.Up, s.caller, s.record, s.log, s.changes.Notify)
	if errors.Is(err, bridge.ErrReplaced) && w.Counts() { // calls may go elsewhere by now
		s.End(err)
	}
	return err
}

// restore resumes a session though its client calls nothing, which may only listen: at once,
// or when an operator has its server take calls again.
func (s *Session) restore(w *binding[*server]) {
	if !w.Counts() || w.Adopted.Waits(true) {
		return
	}
	now := func() (stop func()) {
		_ = s.resume(s.ctx, w, nil) // the next call says what is wrong
		w.Adopted.Waits(false)
		return nil
	}
	if w.At == nil {
		now()
	} else if stop := w.At.drained.Await(func() {
		w.Adopted.Waits(false)
		s.Go(func() { s.restore(w) })
	}, now); stop != nil {
		s.OnEnd(stop)
	}
}

// repeat makes a call that has set something for the session where calls go now: what is
// there may have been told before what was set. It waits for that, unless ctx ends.
func (s *Session) repeat(ctx context.Context, m *jsonrpc.Message) {
	m = m.Clone()
	awaitRun(ctx, s.Go, func() {
		w := s.ways.Enter()
		defer w.Leave()
		if err := s.resume(s.ctx, w, nil); err == nil {
			notifyServer(drain.Passing(s.ctx), w.Up, s.caller, m.Method, m.Params, s.log)
		}
	})
}

// record returns what is kept of the session.
func (s *Session) record() session.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held.Record
}

// keep changes what is kept of the session.
func (s *Session) keep(change func(*session.Record)) {
	s.mu.Lock()
	change(&s.held.Record)
	held := s.held
	s.mu.Unlock()
	if err := s.b.store.Save(s.ctx, held); err != nil && !errors.Is(err, session.ErrFenced) {
		s.log.Warn("session store", "err", err)
	}
}

// ErrMoved: the session goes on at another instance.
var ErrMoved = errors.New("the session goes on at another instance")

// unkeep ends what is kept of the session, unless another instance may go on with it.
func (s *Session) unkeep() {
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	end := s.b.store.Delete
	if s.moves() {
		end = s.b.store.Release
	}
	if err := end(context.Background(), held); err != nil && !errors.Is(err, session.ErrFenced) {
		s.b.log.Warn("session store", "err", err)
	}
}

// moves reports whether another instance may go on with the session, which has ended here.
func (s *Session) moves() bool {
	cause, r := context.Cause(s.ctx), s.record()
	return (errors.Is(cause, ErrMoved) || errors.Is(cause, bridge.ErrShutdown)) && !r.Bound && s.b.Portable(&r)
}

// Move ends the session of that key here: another instance has it.
func (b *Gateway) Move(key string) { b.move(func(s *Session) bool { return s.id == key }) }

// MoveIdle ends the sessions here that have no calls under way, so that other instances
// go on with them. It returns how many are here still.
func (b *Gateway) MoveIdle() (left int) {
	b.move(func(s *Session) bool {
		left++
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.callCount == 0 && !s.ending && (s.greeted.Load() || s.used) // initialize is no entered call
	})
	return left
}

// move ends sessions here.
func (b *Gateway) move(which func(*Session) bool) {
	for _, s := range b.open(which) {
		s.End(ErrMoved)
	}
}
