package cluster

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/internal/session"
)

// Answer answers the hello of another instance.
func (n *Node) Answer(h Hello) Hello {
	if h.Store {
		n.frozen.Store(nil)
	}
	if h.Absent {
		wake(n.kick)
	}
	store := n.reaches()
	if store && !h.Store { // then perhaps it is gone for this one, too
		wake(n.kick)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.Leaving {
		delete(n.members, h.ID)
	}
	if !store { // the other may go on in the belief that nobody takes anything over
		n.noTakes = time.Now().Add(n.o.Lease)
	}
	return Hello{ID: n.o.Self.ID, State: n.State(), Store: store}
}

// Members returns the members of the last good beat, by id.
func (n *Node) Members() []Member {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.SortedFunc(maps.Values(n.members), func(a, b Member) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
}

// Member returns an instance that was there within the last hour.
func (n *Node) Member(id string) (Member, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, ok := n.known[id]
	return m, ok
}

// Tagged returns the other living instance whose ids begin with the tag.
func (n *Node) Tagged(tag string) (Member, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, m := range n.members {
		if tag != "" && id != n.o.Self.ID && id[:min(len(id), session.TagLength)] == tag && !m.Left() {
			return m, true
		}
	}
	return Member{}, false
}

// Least returns the other member with the fewest sessions that takes some.
func (n *Node) Least() (least Member, ok bool) {
	for _, m := range n.Members() {
		if m.ID != n.o.Self.ID && !m.Draining && (!ok || m.Sessions < least.Sessions) {
			least, ok = m, true
		}
	}
	return least, ok
}

// Dead reports whether an instance has ended: its key is absent, and it does not answer
// either, or says that it is isolated. It asks at most once a second.
func (n *Node) Dead(ctx context.Context, id string) (bool, error) {
	one, cancel := context.WithTimeout(ctx, tries)
	defer cancel()
	there, err := n.o.Registry.Present(one, id)
	if there || err != nil {
		return false, err
	}
	n.mu.Lock()
	m, known := n.known[id]
	if !known {
		defer n.mu.Unlock()
		if time.Now().Before(n.grace) {
			return false, session.ErrUnavailable // it may be one that has not beaten yet
		}
		return true, nil
	}
	p := n.probes[id]
	if p == nil || time.Since(p.at) > time.Second {
		p = &probe{at: time.Now(), done: make(chan struct{})}
		n.probes[id] = p
		n.wg.Go(func() {
			defer close(p.done)
			ctx, cancel := context.WithTimeout(n.ctx, tries)
			defer cancel()
			h, err := n.o.Peers.Hello(ctx, m, Hello{ID: n.o.Self.ID, State: n.State(), Store: true, Absent: true})
			p.alive = err == nil && h.ID == id && h.State != Isolated
		})
	}
	n.mu.Unlock()
	select {
	case <-p.done:
		return !p.alive, nil
	case <-ctx.Done():
		return false, session.ErrUnavailable
	}
}
