package subscribe

import (
	"context"
	"sync"
)

// Watched counts the subscribers of each resource, so that the server gets one request when the first subscriber
// comes, and one when the last leaves. Requests for the same resource are serialized. The zero value is empty.
type Watched[W comparable] struct {
	mu  sync.Mutex // guards the rest, and the fields by and users of watched
	all map[string]*watched[W]
}

type watched[W comparable] struct {
	turn  chan struct{} // a lock, held during a request to the server
	by    map[W]struct{}
	users int // subscribers that hold or wait for turn, or are in the map by
}

// Add adds a subscriber, and calls request for the first one. Add reports false if request reports false, or if ctx
// ends before the request. who gets notifications already during the request.
func (w *Watched[W]) Add(ctx context.Context, uri string, who W, request func() bool) bool {
	one := w.enter(ctx, uri)
	if one == nil {
		return false
	}
	defer w.leave(uri, one, true)
	w.mu.Lock()
	known := len(one.by) > 0
	one.by[who] = struct{}{}
	w.mu.Unlock()
	if known || request() {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(one.by, who)
	return false
}

// Remove removes a subscriber, and calls request after the last one. If ctx ends before, Remove does nothing and
// reports false.
func (w *Watched[W]) Remove(ctx context.Context, uri string, who W, request func()) bool {
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
		request()
	}
	return true
}

// Of calls f with each subscriber of a resource, or of resources that contain it, perhaps several times. f must not
// block.
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

// Drop removes the subscriber who from all resources that have others too. Drop returns the resources without another
// subscriber, for Remove.
func (w *Watched[W]) Drop(who W) (alone []string) {
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

// Len returns the number of resources.
func (w *Watched[W]) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// enter waits for the turn to send requests about a resource. enter returns nil if ctx ends first.
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

// leave ends a use that enter began. leave removes the resource if no subscriber uses it.
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
