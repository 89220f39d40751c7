package subscribe

import (
	"context"
	"sync"
)

// Watched counts who wants to hear of which resource, so that a server is told of
// the first of them and of the last. Those who tell it about the same resource
// take turns. The zero value is of none.
type Watched[W comparable] struct {
	mu  sync.Mutex // guards the rest, and what is said of the fields of others
	all map[string]*watched[W]
}

type watched[W comparable] struct {
	turn  chan struct{} // held while the server is told
	by    map[W]struct{}
	users int // that hold or wait for turn, or are in by
}

// Add enters who, and has the server told if it is the first. It reports whether
// who is in: not when the server was told in vain, or ctx has ended before. What
// changes while the server is told, who hears of.
func (w *Watched[W]) Add(ctx context.Context, uri string, who W, tell func() bool) bool {
	one := w.enter(ctx, uri)
	if one == nil {
		return false
	}
	defer w.leave(uri, one, true)
	w.mu.Lock()
	known := len(one.by) > 0
	one.by[who] = struct{}{}
	w.mu.Unlock()
	if known || tell() {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(one.by, who)
	return false
}

// Remove takes who out, and has the server told if nobody is left. It does nothing,
// and reports false, once ctx has ended.
func (w *Watched[W]) Remove(ctx context.Context, uri string, who W, tell func()) bool {
	one := w.enter(ctx, uri)
	if one == nil {
		return false
	}
	defer w.leave(uri, one, true)
	w.mu.Lock()
	delete(one.by, who)
	last := len(one.by) == 0
	w.mu.Unlock()
	if last {
		tell()
	}
	return true
}

// Of calls f with all who want to hear of a resource, or of one that it is a part
// of: more than once when they want to hear of several. f must not block.
func (w *Watched[W]) Of(uri string, f func(W)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for whole, one := range w.all {
		if Within(uri, whole) {
			for who := range one.by {
				f(who)
			}
		}
	}
}

// Leave takes who out of all resources that others want to hear of too. It returns
// those of who alone, from which Remove takes it out.
func (w *Watched[W]) Leave(who W) (alone []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uri, one := range w.all {
		if _, in := one.by[who]; in && len(one.by) == 1 {
			alone = append(alone, uri)
		} else {
			delete(one.by, who)
		}
	}
	return alone
}

// Len returns how many resources there are.
func (w *Watched[W]) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// enter waits for the right to tell the server about a resource; nil when ctx ends
// first.
func (w *Watched[W]) enter(ctx context.Context, uri string) *watched[W] {
	w.mu.Lock()
	one := w.all[uri]
	if one == nil {
		one = &watched[W]{turn: make(chan struct{}, 1), by: map[W]struct{}{}}
		if w.all == nil {
			w.all = map[string]*watched[W]{}
		}
		w.all[uri] = one
	}
	one.users++
	w.mu.Unlock()
	select {
	case one.turn <- struct{}{}:
		return one
	case <-ctx.Done():
		w.leave(uri, one, false)
		return nil
	}
}

// leave forgets the resource when nobody is in it.
func (w *Watched[W]) leave(uri string, one *watched[W], hadTurn bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if hadTurn {
		<-one.turn
	}
	if one.users--; one.users == 0 && len(one.by) == 0 && w.all[uri] == one {
		delete(w.all, uri)
	}
}
