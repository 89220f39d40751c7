package gateway

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
)

// A binding ties a session to the chain of wrappers that its calls use. A reload may replace the binding.
type binding struct {
	Server   *server         // nil for the aggregate
	Chain    bridge.Upstream // nil until Connect or Replace sets it
	Handover *handover       // nil if no state of an earlier connection must be restored
	all      *bindings
	calls    atomic.Int64 // calls between Enter and Leave
	closed   sync.Once
	replaced chan struct{} // closed when another binding replaced this one, or the session was released
}

// bindings holds a session's current binding. A former binding closes when its last call leaves.
type bindings struct {
	s   *sitting
	now atomic.Pointer[binding]

	mu    sync.Mutex // guards ended, and Chain of each binding until it is set
	ended bool
}

// Init sets the first binding, which is to the aggregate until enroll sets its server. Connect makes its chain.
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

// Enter returns the current binding for a call. Until Leave, nothing but End and Close closes the binding.
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

// shutLater closes a former binding in the background. Once the gateway is closed, shutLater does nothing: retire
// closes the binding by End.
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

// Connect makes the chain of the current binding. ctx bounds only the closing of a chain that a concurrent Replace made
// obsolete. If the session has ended, Connect returns the cause of life, which is the session's context.
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
		_ = up.Close(ctx) // no call has used this chain
		if ended {
			return context.Cause(life)
		}
	}
}

// Replace replaces the current binding with a binding to the server at. It returns the new binding if the session has
// begun, because its state must be restored at that server. For a session that has not begun or has ended it returns
// nil. Calls in flight keep the former binding until they leave it: see End.
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
	if !begun { // Connect makes the chain instead
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

// Released closes replaced of the current binding. The session calls it once, after Close.
func (b *bindings) Released() { close(b.Current().replaced) }

// End ends the session with err if the binding is still current, and waits until the session is released. Otherwise End
// closes the binding's chain at once, which fails calls in flight.
func (b *binding) End(ctx context.Context, err error) {
	if b.Current() {
		b.all.s.End(err)
		<-b.replaced
		return
	}
	b.shut(ctx)
}

// awaitBindings waits until each binding was replaced or its session released, or until left is closed. It reports
// whether it had to wait.
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

// endBindings calls End of all bindings at once, and returns when all have returned.
func endBindings(ctx context.Context, ways []*binding, err error) {
	var wg sync.WaitGroup
	for _, b := range ways {
		wg.Go(func() { b.End(ctx, err) })
	}
	wg.Wait()
}
