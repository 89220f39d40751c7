package cluster

import (
	"context"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
)

// beatEvery is the minimum time between two beats.
const beatEvery = 100 * time.Millisecond

// beats writes beats to the store until Close.
func (n *Node) beats() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-n.beatNow:
		case <-n.ctx.Done():
			return
		}
		begun := time.Now()
		n.mu.Lock()
		b := n.nextBeat
		n.nextBeat = &beatRound{done: make(chan struct{})}
		n.mu.Unlock()
		b.err = n.beat()
		close(b.done)
		select {
		case <-time.After(beatEvery - time.Since(begun)):
		case <-n.ctx.Done():
			return
		}
		wait := n.o.Lease / 3
		if b.err != nil { // the lease must have time for several attempts
			wait = n.o.Lease / 12
		}
		timer.Reset(wait - time.Since(begun))
	}
}

// Beat waits for the result of a beat that begins after the call.
func (n *Node) Beat(ctx context.Context) error {
	n.mu.Lock()
	b := n.nextBeat
	n.mu.Unlock()
	wake(n.beatNow)
	select {
	case <-b.done:
		return b.err
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

// beat records in the store that this instance is alive, and applies the answer.
func (n *Node) beat() error {
	n.mu.Lock()
	self := n.o.Self
	self.Sessions, self.Draining = len(n.held)-n.connections, n.draining.Load()
	n.mu.Unlock()
	if n.o.Servers != nil {
		self.Servers = n.o.Servers()
	}
	if n.o.Room != nil {
		self.Free, self.Running = n.o.Room()
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(n.ctx, max(opTimeout, n.o.Lease/6)) // a slow store counts as reachable (S-065)
	seen, err := n.o.Registry.Beat(ctx, self, n.o.Lease)
	cancel()
	n.beatFailed.Store(err != nil)
	if err != nil {
		if n.ctx.Err() == nil {
			n.probeOthers(err)
		}
		return err
	}
	n.beatTook.Store(int64(time.Since(sent)))
	n.apply(sent, seen)
	n.warnMembers(&self, &seen)
	n.checkReach()
	if n.o.Hooked != nil {
		n.o.Hooked(seen.Hooks)
	}
	return nil
}

// BeatTook returns the duration of the last successful beat.
func (n *Node) BeatTook() time.Duration { return time.Duration(n.beatTook.Load()) }

// warnMembers logs faults of the store and of members, each of them once. Only one goroutine calls it.
func (n *Node) warnMembers(self *Member, seen *Seen) {
	if seen.Evicts != "" {
		n.o.Log.Warn("the store evicts keys when its memory is full, and sessions may be lost: set maxmemory-policy noeviction", "policy", seen.Evicts)
	}
	warned := map[string]string{}
	warn := func(id, what, text string, args ...any) {
		if warned[id] = what; n.warned[id] != what {
			n.o.Log.Warn(text, append([]any{"instance", id[:min(len(id), session.TagLength)]}, args...)...)
		}
	}
	for _, id := range seen.Sealed {
		warn(id, "sealed", "an instance with the same prefix in the store has another secret: they do not see each other's sessions; use the same secret, or another prefix")
	}
	for _, m := range seen.Members {
		switch {
		case minor(m.Version) != minor(self.Version):
			warn(m.ID, m.Version, "an instance is of another version", "version", m.Version, "own", self.Version)
		case m.Servers != self.Servers:
			warn(m.ID, m.Servers+self.Servers, "an instance has other servers: a session gets 404 from an instance that does not have its server; use the same servers")
		}
	}
	n.warned = warned
}

// minor returns a version without its third number.
func minor(version string) string {
	if i := strings.LastIndexByte(version, '.'); i > 0 && strings.Count(version, ".") == 2 {
		return version[:i]
	}
	return version
}

// apply applies the answer to a successful beat that was sent at sent.
func (n *Node) apply(sent time.Time, seen Seen) {
	n.mu.Lock()
	good := n.lastGood.Load()
	first := good == nil
	now := time.Now()
	// If a beat arrives late, the others may have declared this instance dead. Then its key exists, but they may own
	// its sessions.
	seen.Absent = seen.Absent || !first && !n.fresh(good)
	if first || seen.Absent || seen.Run != n.storeRun { // beats or writes may be lost: settle asks the store which entries this instance still owns
		n.graceUntil = now.Add(n.o.Lease)
		n.hasPending = true
		for _, e := range n.held {
			e.doubts++
			if seen.Absent && !first && !e.Bound {
				n.block(e) // another instance may own the session
			}
		}
		for key, e := range n.ended {
			switch {
			case now.Sub(e.at) <= endedFor:
				e.pending = true
			case !e.pending:
				delete(n.ended, key)
			}
		}
		if !first {
			n.emptiedUntil = n.graceUntil
			if n.o.StoreEmptied != nil {
				n.o.StoreEmptied()
			}
			n.o.Log.Warn("the store lost the data of this instance, or its lease ended: its sessions are claimed again", "sessions", len(n.held))
		}
	}
	n.storeRun = seen.Run
	var gone []string
	before := n.members
	n.members = map[string]Member{}
	for _, m := range seen.Members {
		n.members[m.ID], n.known[m.ID] = m, m
		delete(n.goneAt, m.ID)
	}
	for id := range before {
		if _, there := n.members[id]; !there && id != n.o.Self.ID {
			gone, n.goneAt[id] = append(gone, id), now
		}
	}
	for id, at := range n.goneAt {
		if now.Sub(at) > time.Hour {
			delete(n.goneAt, id)
			delete(n.known, id)
			delete(n.probes, id)
			delete(n.reach, id)
		}
	}
	n.lastGood.Store(&sent)
	n.frozenAt.Store(nil)
	n.mu.Unlock()
	if first {
		close(n.joined)
	}
	n.logState(nil)
	for _, id := range gone {
		n.wg.Go(func() {
			if dead, err := n.Dead(n.ctx, id); dead && err == nil {
				n.o.Log.Warn("another instance has failed: each of its sessions is taken over at its next request", "instance", id)
				n.o.Peers.Disconnect(id)
			}
		})
	}
	wake(n.writeNow)
}
