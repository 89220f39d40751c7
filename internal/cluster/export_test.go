package cluster

import (
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
)

const (
	AtOnce    = atOnce
	EndedFor  = endedFor
	OpTimeout = opTimeout
)

// Kill ends the instance without a word.
func (n *Node) Kill() {
	n.stop()
	n.wg.Wait()
}

// ID returns the id of the instance.
func (n *Node) ID() string { return n.o.Self.ID }

// Begins reports whether requests of the session may begin at the instance, now.
func (n *Node) Begins(key string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.held[key]
	return e != nil && e.blocked == nil && (n.sure() || n.isFrozen())
}

// Record returns the record of a session that the instance owns.
func (n *Node) Record(key string) session.Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.held[key].Record
}

// HeldCount returns how many shared connections the instance owns, and how many of all.
func (n *Node) HeldCount() (connections, all int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.connections, len(n.held)
}

// Remembers reports whether the instance knows that a session has ended there.
func (n *Node) Remembers(key string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ended[key] != nil
}

// EndedCount returns of how many sessions the instance knows that.
func (n *Node) EndedCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.ended)
}

// SetClock sets the wall clock of the instance, where there is no other clock.
func (n *Node) SetClock(by time.Duration) {
	at := n.lastGood.Load().Add(-by)
	n.lastGood.Store(&at)
}

// Fresh reports whether what was found out at a time still holds.
func Fresh(lease time.Duration, at *time.Time) bool {
	return (&Node{o: Options{Lease: lease}}).fresh(at)
}
