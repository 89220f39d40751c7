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

// probeOthers asks the other members after a failed beat whether they reach the store.
func (n *Node) probeOthers(err error) {
	good := n.lastGood.Load()
	if good == nil || time.Since(*good) < n.o.Lease/2 || n.o.Stop {
		n.logState(err)
		return
	}
	n.mu.Lock()
	others := slices.Collect(maps.Values(n.members))
	n.mu.Unlock()
	asked := time.Now()
	ctx, cancel := context.WithTimeout(n.ctx, opTimeout)
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
	// An isolated instance may have lost sessions, so only a successful beat ends that state. A frozen instance that
	// reaches too few others for a moment stays frozen: those that answered before take no session for a lease.
	switch may := n.sure() || n.isFrozen(); {
	case may && store.Load() == 0 && 2*reached.Load() > int64(len(others)):
		n.frozenAt.Store(&asked)
	case store.Load() == 0 && n.isFrozen():
	case n.thaw():
		wake(n.beatNow)
	}
	n.logState(err)
}

// thaw ends the frozen state, and reports whether the node was frozen.
func (n *Node) thaw() bool {
	if n.frozenAt.Load() == nil {
		return false
	}
	now := time.Now()
	n.thawedAt.Store(&now) // first, since a reader that finds frozenAt nil reads thawedAt
	n.frozenAt.Store(nil)
	return true
}

// hasThawed reports whether the node stopped being frozen a moment ago.
func (n *Node) hasThawed() bool { return n.thawLeft() > 0 }

// thawLeft returns how much time a node that was frozen still has to reach the store. Until then no instance takes over
// its sessions.
func (n *Node) thawLeft() time.Duration {
	at := n.thawedAt.Load()
	if at == nil {
		return 0
	}
	return n.o.Lease/3 - time.Since(*at)
}

// logState logs the state if it differs from the last log line.
func (n *Node) logState(err error) {
	now := n.State()
	n.mu.Lock()
	before := n.loggedState
	n.loggedState = now
	n.mu.Unlock()
	switch {
	case before == now || before == "" && now == Sure:
	case now == Sure:
		n.o.Log.Info("the store is reachable")
	case now == Frozen:
		n.o.Log.Warn("no instance reaches the store: each continues its own sessions", "err", err)
	default:
		n.o.Log.Error("this instance does not reach the store: it refuses clients", "err", err)
	}
}

func (n *Node) State() State {
	switch {
	case n.sure():
		return Sure
	case n.isFrozen():
		return Frozen
	}
	return Isolated
}

// sure reports whether no other instance can have taken over a session of this one.
func (n *Node) sure() bool { return n.fresh(n.lastGood.Load()) }

// isFrozen reports whether it is still certain that no instance reaches the store.
func (n *Node) isFrozen() bool { return n.fresh(n.frozenAt.Load()) }

// fresh reports whether a result from the time at is still valid. It compares the monotonic and the wall clock, since
// either may stop while the process is stopped.
func (n *Node) fresh(at *time.Time) bool {
	if at == nil {
		return false
	}
	now, most := time.Now(), n.o.Lease*5/6
	wall := now.Round(0).Sub(at.Round(0))
	return now.Sub(*at) < most && wall < most && wall > -most
}

// Ready reports whether requests of this instance's sessions may begin. Each request calls it, so it reads only
// atomics.
func (n *Node) Ready() bool { return (n.sure() || n.isFrozen()) && n.blocked.Load() == 0 }

// Await waits until requests of the session with that key may begin. It waits for half a second at most, or as long as
// a node that was frozen has to reach the store. The error is ErrUnavailable. An empty key means no particular session.
func (n *Node) Await(ctx context.Context, key string) error {
	if n.Ready() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, max(opTimeout, n.thawLeft()))
	defer cancel()
	for !n.sure() && !n.isFrozen() {
		if err := n.Beat(ctx); err != nil && !n.isFrozen() && (!n.hasThawed() || ctx.Err() != nil || n.ctx.Err() != nil) {
			return session.ErrUnavailable
		}
	}
	n.mu.Lock()
	var barred chan struct{}
	if e := n.held[key]; e != nil {
		barred = e.blocked
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

// Grace reports whether a record that is missing may come soon, because instances put the records again that the store
// lost.
func (n *Node) Grace() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Now().Before(n.graceUntil)
}

// reaches reports whether this instance reaches the store, by its last beat.
func (n *Node) reaches() bool {
	good := n.lastGood.Load()
	return good != nil && !n.beatFailed.Load() && time.Since(*good) < n.o.Lease/2
}
