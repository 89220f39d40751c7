package cluster

import (
	"context"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
)

// beatEvery keeps beats that are asked for apart.
const beatEvery = 100 * time.Millisecond

// beats beats until Close.
func (n *Node) beats() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-n.kick:
		case <-n.ctx.Done():
			return
		}
		begun := time.Now()
		n.mu.Lock()
		r := n.next
		n.next = &round{done: make(chan struct{})}
		n.mu.Unlock()
		r.err = n.beat()
		close(r.done)
		select {
		case <-time.After(beatEvery - time.Since(begun)):
		case <-n.ctx.Done():
			return
		}
		wait := n.o.Lease / 3
		if r.err != nil { // several attempts to find out who reaches the store, before this one's lease ends
			wait = n.o.Lease / 12
		}
		timer.Reset(wait - time.Since(begun))
	}
}

// Beat waits for a beat that begins after the call.
func (n *Node) Beat(ctx context.Context) error {
	n.mu.Lock()
	r := n.next
	n.mu.Unlock()
	wake(n.kick)
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return session.ErrUnavailable
	case <-n.ctx.Done():
		return session.ErrUnavailable
	}
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// beat tells the store that this instance lives.
func (n *Node) beat() error {
	n.mu.Lock()
	self := n.o.Self
	self.Sessions, self.Draining = len(n.held)-n.homes, n.drains.Load()
	n.mu.Unlock()
	if n.o.Servers != nil {
		self.Servers = n.o.Servers()
	}
	if n.o.Free != nil {
		self.Free = n.o.Free()
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(n.ctx, max(tries, n.o.Lease/6)) // a slow store is none that is away (S-065)
	seen, err := n.o.Registry.Beat(ctx, self, n.o.Lease)
	cancel()
	n.failed.Store(err != nil)
	if err != nil {
		if n.ctx.Err() == nil {
			n.alone(err)
		}
		return err
	}
	n.took.Store(int64(time.Since(sent)))
	n.heard(sent, seen)
	n.odd(&self, &seen)
	n.greet()
	if n.o.Hooked != nil {
		n.o.Hooked(seen.Hooks)
	}
	return nil
}

// Took returns how long the last good beat took.
func (n *Node) Took() time.Duration { return time.Duration(n.took.Load()) }

// odd says once what looks wrong with the store and the members. It is called by one
// goroutine.
func (n *Node) odd(self *Member, seen *Seen) {
	if seen.Evicts != "" {
		n.o.Log.Warn("the store evicts what is written when its memory is full: sessions that nobody has may be lost; set maxmemory-policy noeviction", "policy", seen.Evicts)
	}
	told := map[string]string{}
	say := func(id, what, text string, args ...any) {
		if told[id] = what; n.told[id] != what {
			n.o.Log.Warn(text, append([]any{"instance", id[:min(len(id), session.TagLength)]}, args...)...)
		}
	}
	for _, id := range seen.Sealed {
		say(id, "sealed", "an instance with the same prefix in the store has another secret: the two know nothing of each other's sessions")
	}
	for _, m := range seen.Members {
		switch {
		case minor(m.Version) != minor(self.Version):
			say(m.ID, m.Version, "an instance is of another version", "version", m.Version, "own", self.Version)
		case m.Servers != self.Servers:
			say(m.ID, m.Servers+self.Servers, "an instance has other servers: who has a session there gets 404 from one that does not have its server")
		}
	}
	n.told = told
}

// minor returns the version without its last number.
func minor(version string) string {
	if i := strings.LastIndexByte(version, '.'); i > 0 && strings.Count(version, ".") == 2 {
		return version[:i]
	}
	return version
}

// heard takes what a good beat has found.
func (n *Node) heard(sent time.Time, seen Seen) {
	n.mu.Lock()
	good := n.good.Load()
	first := good == nil
	now := time.Now()
	// A beat that nobody waited for any more may have arrived when the others had counted this
	// instance out: the key is there then, and sessions are not.
	seen.Absent = seen.Absent || !first && !n.fresh(good)
	if first || seen.Absent || seen.Run != n.run { // whoever missed beats, or writes of the store, finds out what it still has
		n.grace = now.Add(n.o.Lease)
		n.drops = true
		for _, e := range n.held {
			e.doubts++
			if seen.Absent && !first && !e.Bound {
				n.bar(e) // another may have taken it
			}
		}
		for key, d := range n.ended {
			switch {
			case now.Sub(d.at) <= endedFor:
				d.owed = true
			case !d.owed:
				delete(n.ended, key)
			}
		}
		if !first {
			n.emptied = n.grace
			if n.o.Emptied != nil {
				n.o.Emptied()
			}
			n.o.Log.Warn("the store has lost what this instance wrote, or has counted it out: its sessions are claimed again", "sessions", len(n.held))
		}
	}
	n.run = seen.Run
	var gone []string
	before := n.members
	n.members = map[string]Member{}
	for _, m := range seen.Members {
		n.members[m.ID], n.known[m.ID] = m, m
		delete(n.forgot, m.ID)
	}
	for id := range before {
		if _, there := n.members[id]; !there && id != n.o.Self.ID {
			gone, n.forgot[id] = append(gone, id), now
		}
	}
	for id, at := range n.forgot {
		if now.Sub(at) > time.Hour {
			delete(n.forgot, id)
			delete(n.known, id)
			delete(n.probes, id)
			delete(n.greeted, id)
		}
	}
	n.good.Store(&sent)
	n.frozen.Store(nil)
	n.mu.Unlock()
	if first {
		close(n.joined)
	}
	n.say(nil)
	for _, id := range gone {
		n.wg.Go(func() {
			if dead, err := n.Dead(n.ctx, id); dead && err == nil {
				n.o.Log.Warn("another instance has ended without a word: its sessions are taken over when they are asked for", "instance", id)
				n.o.Peers.Bury(id)
			}
		})
	}
	wake(n.work)
}
