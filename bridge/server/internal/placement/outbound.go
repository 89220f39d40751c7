package placement

import (
	"context"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

// outbound counts the uses of other instances by this one: tunnels, and requests in flight. A stopping instance asks
// each other instance to leave it, and waits for the answer. After the answer nothing is sent to the stopping
// instance, so nothing is lost when it closes its connections.
type outbound struct {
	mu sync.Mutex // guards all
	at map[string]*usage
}

// usage is the use of one other instance by this one.
type usage struct {
	n     int
	stops context.Context // ends when the other instance asks to leave it
	stop  context.CancelFunc
	none  chan struct{} // closed when stops has ended and n, the number of uses, is 0
}

func newOutbound() *outbound { return &outbound{at: map[string]*usage{}} }

// of returns the usage of an instance. The caller holds o.mu.
func (o *outbound) of(id string) *usage {
	u := o.at[id]
	if u == nil {
		u = &usage{none: make(chan struct{})}
		u.stops, u.stop = context.WithCancel(context.Background())
		o.at[id] = u
	}
	return u
}

// enter counts one use of an instance until done, which may be called more than once. stops ends when the instance
// asks to leave it. The error is peer.ErrElsewhere when the instance has already asked.
func (o *outbound) enter(id string) (stops context.Context, done func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	u := o.of(id)
	if u.stops.Err() != nil {
		return nil, nil, peer.ErrElsewhere
	}
	u.n++
	return u.stops, sync.OnceFunc(func() { o.done(id, u) }), nil
}

func (o *outbound) done(id string, u *usage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch u.n--; {
	case u.n > 0:
	case u.stops.Err() != nil:
		close(u.none)
	default:
		u.stop()
		delete(o.at, id)
	}
}

// leave ends the use of an instance that stops, and waits until no use is left, or ctx ends. leave removes instances
// that are no longer members of n.
func (o *outbound) leave(ctx context.Context, id string, n *cluster.Node) error {
	o.mu.Lock()
	for other, u := range o.at {
		if _, known := n.Member(other); u.n == 0 && !known {
			delete(o.at, other)
		}
	}
	u := o.of(id)
	if u.stops.Err() == nil && u.n == 0 {
		close(u.none)
	}
	u.stop()
	o.mu.Unlock()
	select {
	case <-u.none:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leaver asks another instance to leave this one, as peer.Peers does.
type leaver interface {
	AskLeave(ctx context.Context, m cluster.Member, what string) (left bool)
}

// unconfirmedWait is how long an instance that did not confirm may still use this one.
const unconfirmedWait = 2 * time.Second

// askLeave asks instances to leave this one, and waits until each has done so, has ended, or ctx ends.
func askLeave(ctx context.Context, l leaver, what string, others []cluster.Member) {
	var wg sync.WaitGroup
	for _, m := range others {
		wg.Go(func() {
			if !l.AskLeave(ctx, m, what) {
				_ = backoff.For(ctx, unconfirmedWait)
			}
		})
	}
	wg.Wait()
}
