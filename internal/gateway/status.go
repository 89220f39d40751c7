package gateway

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/gateway/status"
)

// Status says how a server fares.
type Status = status.Server

// Status returns how each server fares, in the order of Options.
func (b *Gateway) Status() []Status {
	sessions := map[context.Context]int{} // of a name, whatever settings they began with
	b.mu.Lock()
	for s := range b.sessions {
		var of context.Context // none: all servers as one
		if s.at != nil {
			of = s.at.left
		}
		sessions[of]++
	}
	b.mu.Unlock()
	servers := b.table.Load().servers
	all := make([]Status, 0, len(servers))
	for _, r := range servers {
		st := r.status()
		st.Status = r.gate.Status()
		of := r.pool.Status()
		st.Queued, st.Parked = st.Queued+of.Queued, of.Waiting
		st.Refused["rate"] = r.rates.Refused()
		st.Sessions = sessions[r.left]
		if len(servers) == 1 {
			st.Sessions += sessions[nil]
		}
		all = append(all, st)
	}
	return all
}

func (s *server) status() Status {
	st := Status{Name: s.o.Name, Usable: true, State: "idle", Lanes: int(s.lane.Budget.Open()), Calls: int(s.reports.Calls()), Cache: s.cache.Status()}
	h := s.health.Status()
	st.Revision, st.Opened, st.Failures, st.Losses, st.Restarts = h.Revision, h.Opened, h.Failures, h.Losses, h.Restarts
	if h.Last != nil {
		st.Last, st.LastAt = bridge.Brief(h.Last), h.LastAt
	}
	switch {
	case st.Lanes > 0 && h.Served:
		st.State = "ready"
	case st.Lanes > 0:
		st.State = "starting"
	}
	failure, usable := h.Failure, h.Usable
	if failure == nil && !h.Served && s.o.Check != nil {
		failure, usable = s.o.Check(), false
	}
	if failure != nil {
		st.Usable, st.State, st.Reason, st.Since = usable, "failing", bridge.Brief(failure), h.Since
		st.Err = failure
	}
	br := s.breaker.Status()
	if st.Breaker, st.Trips = br.State, br.Trips; br.Why == nil {
		return st
	}
	if br.State == "open" {
		st.RetryAt = br.Again
	}
	if time.Now().Before(br.Again) { // from then on somebody has to try it
		st.Usable = false
	}
	if st.State != "failing" {
		st.State, st.Reason, st.Err = "failing", br.Why.Error(), br.Why
	}
	if st.Since.IsZero() || br.Since.Before(st.Since) {
		st.Since = br.Since
	}
	return st
}

// Totals says what the bridge as a whole has to do.
type Totals struct {
	Sessions  int // all
	Together  int // of these, to all of several servers as one
	Calls     int // under way
	Stateless int // of these, of clients without sessions
	Listens   int // subscriptions of clients without sessions
	Bytes     int64
	MaxBytes  int64 // that messages may hold together
	Lanes     int64
	MaxLanes  int64  // connections to all servers
	Admitted  uint64 // calls ever
	Dropped   uint64 // notifications that were dropped because too many waited
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
	t.Stateless, t.Listens = int(b.statelessInFlight.Load()), b.quota.Subscriptions()
	t.Refused = b.quota.Refused()
	t.Refused["bytes"] = b.bytes.Refused()
	b.mu.Lock()
	defer b.mu.Unlock()
	t.Sessions = len(b.sessions)
	for s := range b.sessions {
		if s.at == nil {
			t.Together++
		}
	}
	return t
}

// Dropped counts the notifications that are dropped because too many wait.
// Adapters add those that they drop.
func (b *Gateway) Dropped() *atomic.Uint64 { return &b.dropped }
