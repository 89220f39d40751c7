package cluster

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
)

// Answer answers the hello of another instance.
func (n *Node) Answer(h Hello) Hello {
	was := n.State()
	if was == Isolated && n.hasThawed() { // an instance that has thawed is about to ask the store
		was = Frozen
	}
	if h.Store {
		n.thaw()
	}
	if h.Absent {
		wake(n.beatNow)
	}
	store := n.reaches()
	if store && !h.Store { // the store may have become unreachable for this instance, too
		wake(n.beatNow)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.Leaving {
		delete(n.members, h.ID)
	}
	if !store { // the other instance may rely on this one not to take sessions
		n.noTakesUntil = time.Now().Add(n.o.Lease)
	}
	return Hello{
		ID:    n.o.Self.ID,
		State: was,
		Store: store,
	}
}

// Members returns the members of the last successful beat, in the order of their ids.
func (n *Node) Members() []Member {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.SortedFunc(maps.Values(n.members), func(m, b Member) int {
		if m.ID < b.ID {
			return -1
		}
		return 1
	})
}

// Member returns the instance with that id, if it was a member within the last hour.
func (n *Node) Member(id string) (Member, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, ok := n.known[id]
	return m, ok
}

// Others returns the members of the last successful beat other than this instance.
func (n *Node) Others() []Member {
	return slices.DeleteFunc(n.Members(), func(m Member) bool { return m.ID == n.o.Self.ID })
}

// Living returns the member with that id. If the last successful beat did not have it, Living waits for the next beat.
// err is the error of that beat.
func (n *Node) Living(ctx context.Context, id string) (m Member, lives bool, err error) {
	n.mu.Lock()
	m, lives = n.members[id]
	n.mu.Unlock()
	if !lives {
		err = n.Beat(ctx)
	}
	if !lives && err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		m, lives = n.members[id]
	}
	return m, lives, err
}

// Tagged returns the other member whose id begins with the tag, unless it has left.
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

// LeastLoaded returns the other member with the fewest sessions, among those that take sessions.
func (n *Node) LeastLoaded() (least Member, ok bool) {
	for _, m := range n.Others() {
		if !m.Draining && m.Serves() && (!ok || m.Sessions < least.Sessions) {
			least, ok = m, true
		}
	}
	return least, ok
}

// Dead reports whether an instance is dead: the store does not have its key, and it does not answer or is isolated.
// Dead asks the instance at most once a second.
func (n *Node) Dead(ctx context.Context, id string) (bool, error) {
	one, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	there, err := n.o.Registry.Present(one, id)
	if there || err != nil {
		return false, err
	}
	n.mu.Lock()
	m, known := n.known[id]
	grace := time.Now().Before(n.graceUntil)
	n.mu.Unlock()
	if !known {
		if grace {
			return false, session.ErrUnavailable // the store may just have lost the instance's key
		}
		return true, nil
	}
	p, err := n.ask(ctx, m)
	return err == nil && (!p.answers || p.state == Isolated), err
}

// AnswersUnlisted reports whether an instance whose id begins with the tag answers, although the store does not list
// it. Then the store may also lack its sessions.
func (n *Node) AnswersUnlisted(ctx context.Context, tag string) bool {
	n.mu.Lock()
	var hidden *Member
	for id, m := range n.known {
		if _, lives := n.members[id]; !lives && tag != "" && id[:min(len(id), session.TagLength)] == tag && id != n.o.Self.ID && !m.Left() {
			hidden = &m
		}
	}
	n.mu.Unlock()
	if hidden == nil {
		return false
	}
	p, err := n.ask(ctx, *hidden)
	return err == nil && p.answers
}

// ask asks an instance for its state, at most once a second. The store does not list the instance.
func (n *Node) ask(ctx context.Context, m Member) (*probe, error) {
	n.mu.Lock()
	p := n.probes[m.ID]
	if p == nil || time.Since(p.at) > time.Second {
		if n.ctx.Err() != nil { // Close has begun
			n.mu.Unlock()
			return nil, session.ErrUnavailable
		}
		p = &probe{at: time.Now(), done: make(chan struct{})}
		n.probes[m.ID] = p
		n.wg.Go(func() {
			defer close(p.done)
			ctx, cancel := context.WithTimeout(n.ctx, opTimeout)
			defer cancel()
			h, err := n.o.Peers.Hello(ctx, m, Hello{
				ID:     n.o.Self.ID,
				State:  n.State(),
				Store:  true,
				Absent: true,
			})
			p.answers, p.state = err == nil && h.ID == m.ID, h.State
		})
	}
	n.mu.Unlock()
	select {
	case <-p.done:
		return p, nil
	case <-ctx.Done():
		return nil, session.ErrUnavailable
	}
}

// checkReach checks, once in a lease, whether this instance reaches each other member. A member that beats may be
// unreachable nevertheless.
func (n *Node) checkReach() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for id, m := range n.members {
		r := n.reach[id]
		if r == nil {
			r = &reachCheck{}
			n.reach[id] = r
		}
		if id == n.o.Self.ID || now.Sub(r.asked) < n.o.Lease {
			continue
		}
		r.asked = now
		n.wg.Go(func() { n.checkOne(m, r) })
	}
}

func (n *Node) checkOne(m Member, r *reachCheck) {
	ctx, cancel := context.WithTimeout(n.ctx, opTimeout)
	defer cancel()
	h, err := n.o.Peers.Hello(ctx, m, Hello{
		ID:    n.o.Self.ID,
		State: n.State(),
		Store: n.reaches(),
	})
	n.mu.Lock()
	again := r.fails // one failure may mean that the instance has just stopped
	r.fails = err != nil || h.ID != m.ID
	_, lives := n.members[m.ID]
	lost, back := r.fails && again && lives && !r.logged, !r.fails && r.logged
	r.logged = r.logged && !back || lost
	n.mu.Unlock()
	id := m.ID[:min(len(m.ID), session.TagLength)]
	switch {
	case n.ctx.Err() != nil:
	case lost:
		n.o.Log.Warn("this instance cannot reach another running instance, and refuses clients with sessions there: check the firewall between the two", "instance", id, "address", m.Address, "err", err)
	case back:
		n.o.Log.Info("this instance reaches the other one again", "instance", id)
	}
}

// Unreached reports whether the last check failed to reach an instance that is alive.
func (n *Node) Unreached(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, lives := n.members[id]
	r := n.reach[id]
	return lives && r != nil && r.fails
}

// UnreachedCount returns the number of members for which Unreached is true.
func (n *Node) UnreachedCount() (count int) {
	for _, m := range n.Members() {
		if n.Unreached(m.ID) {
			count++
		}
	}
	return count
}
