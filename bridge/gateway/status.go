package gateway

import (
	"fmt"
	"sync/atomic"
	"time"
)

// tally counts what has happened to the connections of a server.
type tally struct {
	opened, restarts, losses atomic.Uint64

	// Guarded by route.mu.
	failures uint64
	last     error // the last failure or loss
	at       time.Time
}

// failed notes a failure. The caller holds route.mu.
func (t *tally) failed(err error) {
	t.failures++
	t.last, t.at = err, time.Now()
}

// Lost notes that a connection has ended by itself.
func (r *route) Lost(err error) {
	r.tally.losses.Add(1)
	r.noted(err)
}

// Opened implements lane.Health.
func (r *route) Opened() { r.tally.opened.Add(1) }

// Restarted implements lane.Health.
func (r *route) Restarted() { r.tally.restarts.Add(1) }

// noted notes what went wrong last.
func (r *route) noted(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.last, r.tally.at = err, time.Now()
}

// show enters the tally into the status. The caller holds route.mu.
func (t *tally) show(st *Status) {
	st.Opened, st.Failures, st.Losses, st.Restarts = t.opened.Load(), t.failures, t.losses.Load(), t.restarts.Load()
	if t.last != nil {
		st.Last, st.LastAt = fmt.Sprint(t.last), t.at
	}
}

// Totals says what the bridge as a whole has to do.
type Totals struct {
	Sessions int // all
	Together int // of these, to all of several servers as one
	Calls    int // under way
	Guests   int // of these, of clients without sessions
	Listens  int // subscriptions of clients without sessions
	Bytes    int64
	MaxBytes int64 // that messages may hold together
	Lanes    int64
	MaxLanes int64  // connections to all servers
	Admitted uint64 // calls ever
	Dropped  uint64 // notifications that were dropped because too many waited
	// Refused counts what was refused, by what was reached: sessions, calls, listens
	// or rate of a principal, bytes of a principal or of all.
	Refused map[string]uint64
}

// Totals returns what the bridge as a whole has to do.
func (b *Gateway) Totals() Totals {
	t := Totals{
		Bytes: b.bytes.Used(), MaxBytes: b.bytes.Most(), Lanes: b.lanes.Open(), MaxLanes: b.lanes.Most(), Dropped: b.dropped.Load(),
	}
	t.Calls, t.Admitted = b.Activity()
	t.Guests, t.Listens = int(b.statelessInFlight.Load()), b.quota.Subscriptions()
	t.Refused = b.quota.Refused()
	t.Refused["bytes"] = b.bytes.Refused()
	b.mu.Lock()
	defer b.mu.Unlock()
	t.Sessions = len(b.sessions)
	for s := range b.sessions {
		if s.server == "" && len(b.routes) > 1 {
			t.Together++
		}
	}
	return t
}

// Dropped counts the notifications that are dropped because too many wait.
// Adapters add those that they drop.
func (b *Gateway) Dropped() *atomic.Uint64 { return &b.dropped }
