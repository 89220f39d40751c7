package gateway

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
)

// A binding is the chain of wrappers that a session's calls use, until a reload replaces it.
type binding struct {
	Server   *server         // nil for the aggregate
	Chain    bridge.Upstream // nil until Connect
	Handover *handover       // nil unless the state of an earlier connection must be restored
	all      *bindings
	calls    atomic.Int64 // calls that entered
	closed   sync.Once
	replaced chan struct{}
}

// bindings holds a session's current binding; former ones close with their last call.
type bindings struct {
	s   *sitting
	now atomic.Pointer[binding]

	mu    sync.Mutex // guards ended, and Chain of each binding until it is set
	ended bool
}

// Init sets the first binding, to the aggregate; Connect makes its chain.
func (b *bindings) Init(s *sitting) {
	b.s = s
	b.now.Store(b.binding(nil))
}

func (b *bindings) binding(at *server) *binding {
	return &binding{
		Server:   at,
		all:      b,
		replaced: make(chan struct{}),
	}
}

// Current returns the current binding.
func (b *bindings) Current() *binding { return b.now.Load() }

// Current reports whether the binding is the current one.
func (b *binding) Current() bool { return b.all.Current() == b }

// Enter returns the current binding for a call. Until Leave, only End closes it.
func (b *bindings) Enter() *binding {
	for {
		w := b.Current()
		w.calls.Add(1)
		if w.Current() {
			return w
		}
		w.Leave() // Replace may have seen no calls and closed it
	}
}

// Leave ends a call that Enter began. If the binding was replaced, its last call closes it.
func (b *binding) Leave() {
	if b.calls.Add(-1) == 0 && !b.Current() {
		b.all.shutLater(b)
	}
}

// shutLater closes a former binding in the background. After the gateway's end, End closes it.
func (b *bindings) shutLater(was *binding) {
	g := b.s.g
	g.run(func() { was.shut(g.force) })
}

// shut closes the chain once. It returns when the chain is closed.
func (b *binding) shut(ctx context.Context) {
	b.all.mu.Lock()
	up := b.Chain
	b.all.mu.Unlock()
	if up != nil {
		b.closed.Do(func() { _ = up.Close(ctx) })
	}
}

// anyBusy reports whether one of the bindings has calls in flight.
func anyBusy(ways []*binding) bool {
	return slices.ContainsFunc(ways, func(b *binding) bool { return b.calls.Load() > 0 })
}

// Connect makes the chain of the current binding. life is the session's context; its cause is
// the error when the session ended.
func (b *bindings) Connect(ctx, life context.Context) error {
	for {
		w := b.Current()
		up, err := b.s.chain(w)
		if err != nil {
			return err
		}
		b.mu.Lock()
		ended, counts := b.ended, w.Current()
		if counts && !ended {
			w.Chain = up
		}
		b.mu.Unlock()
		if counts && !ended {
			return nil
		}
		_ = up.Close(ctx) // it has no other user yet
		if ended {
			return context.Cause(life)
		}
	}
}

// Replace replaces the current binding with a binding to the server at. Replace returns the
// new binding if session state must be restored at that server. It returns nil for a session
// that did not begin or has ended. Calls in flight keep the former binding until the last
// one leaves: see End.
func (b *bindings) Replace(ctx context.Context, at *server) *binding {
	was, w := b.Current(), b.binding(at)
	up, err := b.s.chain(w)
	if err != nil {
		b.s.End(err)
		return nil
	}
	b.mu.Lock()
	begun := was.Chain != nil && !b.ended
	if begun {
		w.Chain, w.Handover = up, resumedHandover()
	} else {
		w.Handover = was.Handover
	}
	if !b.ended {
		b.now.Store(w)
		close(was.replaced)
	}
	b.mu.Unlock()
	if !begun { // Connect makes it
		_ = up.Close(ctx)
		return nil
	}
	if was.calls.Load() == 0 {
		b.shutLater(was)
	}
	return w
}

// Close closes the current chain. Afterwards Connect and Replace change nothing.
func (b *bindings) Close(ctx context.Context) {
	b.mu.Lock()
	b.ended = true
	up := b.Current().Chain
	b.mu.Unlock()
	if up != nil {
		_ = up.Close(ctx) // the wrappers log their errors
	}
}

// Released marks the session as released. The session calls it after Close.
func (b *bindings) Released() { close(b.Current().replaced) }

// End ends the session with err if the binding is still current, and waits for its release.
// Otherwise it closes the binding's chain, calls in flight included.
func (b *binding) End(ctx context.Context, err error) {
	if b.Current() {
		b.all.s.End(err)
		<-b.replaced
		return
	}
	b.shut(ctx)
}

// awaitBindings waits until none of the bindings is current, or left is closed. It reports
// whether it waited.
func awaitBindings(ways []*binding, left <-chan struct{}) (waited bool) {
	for _, b := range ways {
		select {
		case <-b.replaced:
			continue
		case <-left:
			return waited
		default:
		}
		waited = true
		select {
		case <-b.replaced:
		case <-left:
			return waited
		}
	}
	return waited
}

// endBindings calls End of all bindings, and waits for them.
func endBindings(ctx context.Context, ways []*binding, err error) {
	var wg sync.WaitGroup
	for _, b := range ways {
		wg.Go(func() { b.End(ctx, err) })
	}
	wg.Wait()
}
