package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
)

// alone is for a beat that has failed: the others say whether they reach the store.
func (n *Node) alone(err error) {
	good := n.good.Load()
	if good == nil || time.Since(*good) < n.o.Lease/2 || n.o.Stop {
		n.say(err)
		return
	}
	n.mu.Lock()
	others := slices.Collect(maps.Values(n.members))
	n.mu.Unlock()
	asked := time.Now()
	ctx, cancel := context.WithTimeout(n.ctx, tries)
	defer cancel()
	var reached, store atomic.Int64
	var wg sync.WaitGroup
	for _, m := range others {
		if m.ID == n.o.Self.ID {
			reached.Add(1)
			continue
		}
		wg.Go(func() {
			if h, err := n.o.Peers.Hello(ctx, m, Hello{ID: n.o.Self.ID, State: n.State()}); err == nil && h.ID == m.ID {
				if reached.Add(1); h.Store {
					store.Add(1)
				}
			}
		})
	}
	wg.Wait()
	// Whoever was isolated for a moment may have lost sessions: only a beat tells.
	if may := n.sure() || n.isFrozen(); may && store.Load() == 0 && 2*reached.Load() > int64(len(others)) {
		n.frozen.Store(&asked)
	} else if n.thaw() {
		wake(n.kick)
	}
	n.say(err)
}

// thaw ends the time in which nobody reached the store, and reports whether there was one.
func (n *Node) thaw() bool {
	if n.frozen.Load() == nil {
		return false
	}
	now := time.Now()
	n.thawed.Store(&now) // first: whoever finds frozen empty looks here
	n.frozen.Store(nil)
	return true
}

// hasThawed reports whether the instance was frozen a moment ago: what it has must not be
// taken from it before it has had the time to reach the store itself.
func (n *Node) hasThawed() bool {
	at := n.thawed.Load()
	return at != nil && time.Since(*at) < n.o.Lease/3
}

// say logs when the state has changed.
func (n *Node) say(err error) {
	now := n.State()
	n.mu.Lock()
	before := n.said
	n.said = now
	n.mu.Unlock()
	switch {
	case before == now || before == "" && now == Sure:
	case now == Sure:
		n.o.Log.Info("the store is in reach")
	case now == Frozen:
		n.o.Log.Warn("no instance reaches the store: each goes on with the sessions that it has", "err", err)
	default:
		n.o.Log.Error("this instance does not reach the store: clients are turned away", "err", err)
	}
}

// State returns the state.
func (n *Node) State() State {
	switch {
	case n.sure():
		return Sure
	case n.isFrozen():
		return Frozen
	}
	return Isolated
}

// sure reports whether nobody can have taken anything over.
func (n *Node) sure() bool { return n.fresh(n.good.Load()) }

// isFrozen reports whether nobody reaches the store.
func (n *Node) isFrozen() bool { return n.fresh(n.frozen.Load()) }

// fresh reports whether what was found out at that time holds still: by both clocks,
// since one of them may stand still while the process does not run.
func (n *Node) fresh(at *time.Time) bool {
	if at == nil {
		return false
	}
	now, most := time.Now(), n.o.Lease*5/6
	wall := now.Round(0).Sub(at.Round(0))
	return now.Sub(*at) < most && wall < most && wall > -most
}

// Ready reports whether requests of a session that this instance has may begin. It is
// asked for each, so it looks at two words.
func (n *Node) Ready() bool { return (n.sure() || n.isFrozen()) && n.barred.Load() == 0 }

// Await waits until requests of the session may begin, for half a second at most. The
// error is ErrUnavailable. An empty key is that of no session in particular.
func (n *Node) Await(ctx context.Context, key string) error {
	if n.Ready() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tries)
	defer cancel()
	if !n.sure() && !n.isFrozen() {
		if err := n.Beat(ctx); err != nil && !n.isFrozen() {
			return session.ErrUnavailable
		}
	}
	n.mu.Lock()
	var barred chan struct{}
	if e := n.held[key]; e != nil {
		barred = e.barred
	}
	n.mu.Unlock()
	if barred == nil {
		return nil
	}
	select {
	case <-barred:
		return nil
	case <-ctx.Done():
		return session.ErrUnavailable
	}
}

// Grace reports whether what is missing in the store may be there soon: instances put
// again what it has lost.
func (n *Node) Grace() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Now().Before(n.grace)
}

// reaches reports whether this instance reaches the store.
func (n *Node) reaches() bool {
	good := n.good.Load()
	return good != nil && !n.failed.Load() && time.Since(*good) < n.o.Lease/2
}
