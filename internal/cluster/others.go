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
	if was == Isolated && n.hasThawed() { // it lives, and is about to look at the store
		was = Frozen
	}
	if h.Store {
		n.thaw()
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
	return Hello{ID: n.o.Self.ID, State: was, Store: store}
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

// Others returns the members of the last good beat but this one.
func (n *Node) Others() []Member {
	return slices.DeleteFunc(n.Members(), func(m Member) bool { return m.ID == n.o.Self.ID })
}

// Living returns a member of the last good beat. It waits for the next one if the instance
// is new. The error is that nothing is known: that beat has failed.
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
	for _, m := range n.Others() {
		if !m.Draining && m.Serves() && (!ok || m.Sessions < least.Sessions) {
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
	grace := time.Now().Before(n.grace)
	n.mu.Unlock()
	if !known {
		if grace {
			return false, session.ErrUnavailable // it may be one that has not beaten yet
		}
		return true, nil
	}
	p, err := n.ask(ctx, m)
	return err == nil && (!p.answers || p.state == Isolated), err
}

// Hidden reports whether an instance whose ids begin with the tag answers, although the store
// knows nothing of it: what it has may not be in the store yet.
func (n *Node) Hidden(ctx context.Context, tag string) bool {
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

// ask asks an instance that the store does not know for its state, at most once a second.
func (n *Node) ask(ctx context.Context, m Member) (*probe, error) {
	n.mu.Lock()
	p := n.probes[m.ID]
	if p == nil || time.Since(p.at) > time.Second {
		if n.ctx.Err() != nil { // Close waits already
			n.mu.Unlock()
			return nil, session.ErrUnavailable
		}
		p = &probe{at: time.Now(), done: make(chan struct{})}
		n.probes[m.ID] = p
		n.wg.Go(func() {
			defer close(p.done)
			ctx, cancel := context.WithTimeout(n.ctx, tries)
			defer cancel()
			h, err := n.o.Peers.Hello(ctx, m, Hello{ID: n.o.Self.ID, State: n.State(), Store: true, Absent: true})
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

// greet asks each of the others once in a lease whether it can be reached: the store says
// that it lives, and requests may not come through all the same.
func (n *Node) greet() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for id, m := range n.members {
		g := n.greeted[id]
		if g == nil {
			g = &greeting{}
			n.greeted[id] = g
		}
		if id == n.o.Self.ID || now.Sub(g.asked) < n.o.Lease {
			continue
		}
		g.asked = now
		n.wg.Go(func() { n.greetOne(m, g) })
	}
}

func (n *Node) greetOne(m Member, g *greeting) {
	ctx, cancel := context.WithTimeout(n.ctx, tries)
	defer cancel()
	h, err := n.o.Peers.Hello(ctx, m, Hello{ID: n.o.Self.ID, State: n.State(), Store: n.reaches()})
	n.mu.Lock()
	again := g.fails // one failure may be that of an instance that ends
	g.fails = err != nil || h.ID != m.ID
	_, lives := n.members[m.ID]
	lost, back := g.fails && again && lives && !g.said, !g.fails && g.said
	g.said = g.said && !back || lost
	n.mu.Unlock()
	id := m.ID[:min(len(m.ID), session.TagLength)]
	switch {
	case n.ctx.Err() != nil:
	case lost:
		n.o.Log.Warn("an instance that lives cannot be reached from here: clients whose sessions it has are turned away; look for a firewall between the two", "instance", id, "address", m.Address, "err", err)
	case back:
		n.o.Log.Info("the instance can be reached again", "instance", id)
	}
}

// Unreached reports whether a living instance could not be reached when it was last asked.
func (n *Node) Unreached(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, lives := n.members[id]
	g := n.greeted[id]
	return lives && g != nil && g.fails
}

// UnreachedCount returns how many there are of these.
func (n *Node) UnreachedCount() (count int) {
	for _, m := range n.Members() {
		if n.Unreached(m.ID) {
			count++
		}
	}
	return count
}
