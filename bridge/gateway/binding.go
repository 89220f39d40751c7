package gateway

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
)

// binding is the connection that the calls of a session use until a reload replaces it.
type binding[S any] struct {
	At      S               // the server
	Up      bridge.Upstream // nil until Reach
	Adopted *handover       // nil unless the server has to be told what one before it was
	of      *bindings[S]
	calls   atomic.Int64 // that have entered
	closed  sync.Once
	over    chan struct{}
}

// bindings are those of a session: the current one, and former ones until their calls end.
type bindings[S any] struct {
	make  func(*binding[S]) (bridge.Upstream, error)
	end   func(error)
	later func(shut func(ctx context.Context))
	now   atomic.Pointer[binding[S]]

	mu    sync.Mutex // guards the rest, and Up until it is there
	ended bool
}

// Begin has the calls of a session go to at, which is not reached yet. make makes what calls
// go to and opens nothing, end ends the session and returns at once, and so does later, which
// has a connection shut that nobody uses any more; if it does not, End does.
func (s *bindings[S]) Begin(at S, make func(*binding[S]) (bridge.Upstream, error), end func(error), later func(shut func(ctx context.Context))) {
	s.make, s.end, s.later = make, end, later
	s.now.Store(s.way(at))
}

func (s *bindings[S]) way(at S) *binding[S] {
	return &binding[S]{At: at, of: s, over: make(chan struct{})}
}

// Now returns the one that counts.
func (s *bindings[S]) Now() *binding[S] { return s.now.Load() }

// Counts reports whether new calls go this way.
func (w *binding[S]) Counts() bool { return w.of.Now() == w }

// Enter returns the one that counts, for a call that goes there: until Leave it is closed by
// End only.
func (s *bindings[S]) Enter() *binding[S] {
	for {
		w := s.Now()
		w.calls.Add(1)
		if w.Counts() {
			return w
		}
		w.Leave() // Renew may have seen that it has no calls
	}
}

// Leave says that a call that has entered is over. With the last one a former connection is
// closed.
func (w *binding[S]) Leave() {
	if w.calls.Add(-1) == 0 && !w.Counts() {
		w.of.later(w.shut)
	}
}

// shut closes what calls went to, once. It returns when that is done.
func (w *binding[S]) shut(ctx context.Context) {
	w.of.mu.Lock()
	up := w.Up
	w.of.mu.Unlock()
	if up != nil {
		w.closed.Do(func() { _ = up.Close(ctx) })
	}
}

// anyBusy reports whether calls are under way that have entered one of those ways.
func anyBusy[S any](ways []*binding[S]) bool {
	return slices.ContainsFunc(ways, func(w *binding[S]) bool { return w.calls.Load() > 0 })
}

// Reach makes what calls go to. The error may be why life, the session's, has ended.
func (s *bindings[S]) Reach(ctx, life context.Context) error {
	for {
		w := s.Now()
		up, err := s.make(w)
		if err != nil {
			return err
		}
		s.mu.Lock()
		ended, counts := s.ended, w.Counts()
		if counts && !ended {
			w.Up = up
		}
		s.mu.Unlock()
		if counts && !ended {
			return nil
		}
		_ = up.Close(ctx) // nobody else has seen it
		if ended {
			return context.Cause(life)
		}
	}
}

// Renew has calls go to at from now on. It returns the way there, which knows nothing yet
// of what the server was told, or nil if there is nothing to tell: the session has not
// begun, or has ended. Those under way go on, until the last of them leaves: see End.
func (s *bindings[S]) Renew(ctx context.Context, at S) *binding[S] {
	was, w := s.Now(), s.way(at)
	up, err := s.make(w)
	if err != nil {
		s.end(err)
		return nil
	}
	s.mu.Lock()
	begun := was.Up != nil && !s.ended
	if begun {
		w.Up, w.Adopted = up, resumedHandover()
	} else {
		w.Adopted = was.Adopted
	}
	if !s.ended {
		s.now.Store(w)
		close(was.over)
	}
	s.mu.Unlock()
	if !begun { // Reach makes it
		_ = up.Close(ctx)
		return nil
	}
	if was.calls.Load() == 0 {
		s.later(was.shut)
	}
	return w
}

// Close closes what calls go to, and has Reach and Renew change nothing any more.
func (s *bindings[S]) Close(ctx context.Context) {
	s.mu.Lock()
	s.ended = true
	up := s.Now().Up
	s.mu.Unlock()
	if up != nil {
		_ = up.Close(ctx) // what matters is logged where it happens
	}
}

// Over says that nothing is left of the session. It comes after Close.
func (s *bindings[S]) Over() { close(s.Now().over) }

// End ends the session if its calls go this way still, and waits for that; err says why.
// Otherwise it closes what they went to, whether they are over or not.
func (w *binding[S]) End(ctx context.Context, err error) {
	if w.Counts() {
		w.of.end(err)
		<-w.over
		return
	}
	w.shut(ctx)
}

// awaitBindings waits until new calls go none of those ways, or left is closed. It reports whether
// it had to wait.
func awaitBindings[S any](ways []*binding[S], left <-chan struct{}) (waited bool) {
	for _, w := range ways {
		select {
		case <-w.over:
			continue
		case <-left:
			return waited
		default:
		}
		waited = true
		select {
		case <-w.over:
		case <-left:
			return waited
		}
	}
	return waited
}

// endBindings ends all of them.
func endBindings[S any](ctx context.Context, ways []*binding[S], err error) {
	var wg sync.WaitGroup
	for _, w := range ways {
		wg.Go(func() { w.End(ctx, err) })
	}
	wg.Wait()
}
