package gateway

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/drain"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
)

// Status is the state of a server.
type Status struct {
	Name     string    // of the server
	Usable   bool      // it works, or it may be tried
	State    string    // "ready", "starting", "idle" or Failing
	Reason   string    // why it fails; it may name programs and files
	Err      error     // the same with all details, for the operator only
	Since    time.Time // when it began to fail
	Lanes    int       // connections that are open or opening
	Sessions int       // open; sessions of the aggregate count if there is one server
	// Calls counts the requests in flight, if Options.Watch is set.
	Calls    int
	Parked   int    // parked calls
	Revision string // of the last handshake; empty before the first
	// Opened counts opened connections. Failures counts failed openings and calls to an
	// unreachable server. Losses counts connections that ended by themselves. Restarts counts
	// openings after a failure or a loss.
	Opened, Failures, Losses, Restarts uint64
	// Last is the last failure or loss, also after recovery. It may name programs and
	// files.
	Last    string
	LastErr error     // the same with all details, for the operator only
	LastAt  time.Time // zero if there was none
	// Status counts calls as Limits do. Queued includes calls that wait for their own
	// connection. Refused includes "rate".
	limits.Status
	// Breaker is the state of the circuit breaker: "closed"; "open" while it refuses
	// calls or openings until RetryAt; "half-open" during a probe; or "off".
	Breaker string
	RetryAt time.Time
	Trips   uint64 // how often the breaker opened
	// Forced is an operator's order to the breaker, or nil.
	Forced *breaker.Force
	// Drained is an operator's drain, or nil.
	Drained *drain.Order
	// Cache is the state of the list cache.
	Cache cache.Status
}

// Failing is the Status.State of a server that does not work.
const Failing = "failing"

// status returns the state of the server without its sessions.
func (s *server) status() Status {
	h, br, visitors := s.health.Status(), s.breaker.Status(), s.pool.Status()
	st := Status{
		Name:     s.o.Name,
		Usable:   true,
		State:    "idle",
		Lanes:    int(s.lane.Budget.Open()),
		Calls:    int(s.reports.Calls()),
		Parked:   visitors.Waiting,
		Revision: h.Revision,
		Opened:   h.Opened,
		Failures: h.Failures,
		Losses:   h.Losses,
		Restarts: h.Restarts,
		Status:   s.queue.Status(),
		Forced:   s.breaker.Forced(),
		Drained:  s.drained.Now(),
		Cache:    s.cache.Status(),
	}
	st.Queued += visitors.Queued
	st.Refused["rate"] = s.rates.Refused()
	if h.Last != nil {
		st.Last, st.LastErr, st.LastAt = bridge.Brief(h.Last), h.Last, h.LastAt
	}
	switch {
	case st.Lanes > 0 && h.Served:
		st.State = "ready"
	case st.Lanes > 0:
		st.State = "starting"
	}
	failure, usable := h.Failure, h.Usable
	if !h.Served && s.o.Check != nil {
		if why := s.o.Check(); why != nil {
			failure, usable = cmp.Or(failure, why), false
		}
	}
	if failure != nil {
		st.Usable, st.State, st.Reason, st.Since = usable, Failing, bridge.Brief(failure), h.Since
		st.Err = failure
	}
	if st.Breaker, st.Trips = br.State, br.Trips; br.Why == nil {
		return st
	}
	if br.State == "open" {
		st.RetryAt = br.Again
	}
	if time.Now().Before(br.Again) { // from then on a call may try it
		st.Usable = false
	}
	if st.State != Failing {
		st.State, st.Reason, st.Err = Failing, br.Why.Error(), br.Why
	}
	if st.Since.IsZero() || br.Since.Before(st.Since) {
		st.Since = br.Since
	}
	return st
}

// Totals counts what all servers have together.
type Totals struct {
	Sessions      int    // all
	Aggregate     int    // of these, sessions of the aggregate
	Calls         int    // in flight
	Stateless     int    // of these, calls of stateless clients
	Subscriptions int    // subscriptions of stateless clients
	Bytes         int64  // memory of messages
	MaxBytes      int64  // Options.MaxBytes
	Lanes         int64  // connections that are open or opening
	MaxLanes      int64  // Options.MaxLanes
	Admitted      uint64 // calls so far
	Dropped       uint64 // notifications that full queues dropped
	// Refused counts refusals by limit: "sessions", "calls", "listens" and "rate" of a
	// principal, "bytes" of a principal or of all.
	Refused map[string]uint64
}

// SessionStatus is the state of a session.
type SessionStatus struct {
	ID        string    `json:"id"`                  // the short name in logs; it gives no access
	Server    string    `json:"server"`              // empty means the aggregate
	Principal string    `json:"principal,omitempty"` // empty without access rules
	Client    string    `json:"client,omitempty"`    // clientInfo
	Revision  string    `json:"revision"`            // of the protocol
	Began     time.Time `json:"began"`               // at this instance
	Used      time.Time `json:"used"`                // last message of the client
	Calls     int       `json:"calls"`               // in flight
	Total     uint64    `json:"calls_total"`         // calls so far, at this instance
	Transport string    `json:"transport"`           // of the client: streamable, sse or stdio
	Streams   int       `json:"streams"`             // open standing streams
	// Left says that the client closed its last stream and sent nothing since: it probably left without an end.
	Left bool `json:"left,omitempty"`
}

// These are the transports of clients. WireStateless is none of SessionStatus.Transport: its clients have no session.
const (
	WireStreamable = "streamable"
	WireSSE        = "sse"
	WireStdio      = "stdio"
	WireStateless  = "stateless"
)

func (g *gateway) Status() []Status {
	sessions := map[context.Context]int{} // by server.removed, which all versions of a server share
	g.mu.Lock()
	for s := range g.sessions {
		var of context.Context // nil for the aggregate
		if at := s.bindings.Current().Server; at != nil {
			of = at.removed
		}
		sessions[of]++
	}
	g.mu.Unlock()
	servers := g.table.Load().servers
	all := make([]Status, 0, len(servers))
	for _, s := range servers {
		st := s.status()
		st.Sessions = sessions[s.removed]
		if len(servers) == 1 {
			st.Sessions += sessions[nil]
		}
		all = append(all, st)
	}
	return all
}

// Sample is the part of a server's state that is cheap to read again and again.
type Sample struct {
	Calls   int                 // in flight
	Health  health.Status       // availability, and counts of connections
	Breaker breaker.Status      // state of the circuit breaker
	Drained *drain.Order        // an operator's drain, or nil
	Open    *health.Connections // open connections
}

func (g *gateway) Sample(server string) (sample Sample, ok bool) {
	s := g.table.Load().named[server]
	if s == nil {
		return Sample{}, false
	}
	return Sample{int(s.reports.Calls()), s.health.Status(), s.breaker.Status(), s.drained.Now(), s.conns}, true
}

func (g *gateway) Totals() Totals {
	t := Totals{
		Bytes:    g.bytes.Used(),
		MaxBytes: g.bytes.Most(),
		Lanes:    g.lanes.Open(),
		MaxLanes: g.lanes.Most(),
		Dropped:  g.dropped.Load(),
	}
	t.Calls, t.Admitted = g.Activity()
	t.Stateless, t.Subscriptions = int(g.statelessInFlight.Load()), g.quota.Subscriptions()
	t.Refused = g.quota.Refused()
	t.Refused["bytes"] = g.bytes.Refused()
	g.mu.Lock()
	defer g.mu.Unlock()
	t.Sessions = len(g.sessions)
	for s := range g.sessions {
		if s.bindings.Current().Server == nil {
			t.Aggregate++
		}
	}
	return t
}

func (g *gateway) Dropped() *atomic.Uint64 { return &g.dropped }

func (g *gateway) Sessions(whose func(principal string) bool) []SessionStatus {
	var rows []SessionStatus
	for _, s := range g.open(func(s *sitting) bool { return whose(s.caller.Principal) }) {
		rows = append(rows, s.status())
	}
	return rows
}

func (s *sitting) status() SessionStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SessionStatus{
		ID:        s.shortID(),
		Server:    s.server,
		Principal: s.caller.Principal,
		Client:    health.Client(s.caller),
		Revision:  s.caller.Revision,
		Began:     s.began,
		Used:      time.Unix(0, s.seen.Load()),
		Calls:     s.callCount,
		Total:     s.callTotal,
		Transport: s.wire,
		Streams:   len(s.streams),
		Left:      s.left.Load() && s.callCount == 0 && len(s.streams) == 0,
	}
}

func (g *gateway) EndSession(id, principal string) bool {
	all := g.open(func(s *sitting) bool { return s.shortID() == id && s.caller.Principal == principal })
	for _, s := range all {
		s.End(&bridge.Error{Kind: bridge.ErrEnded, Public: "an operator ended the session"})
	}
	return len(all) > 0
}

func (g *gateway) Operated(server string) (*breaker.Breaker, *cache.Cache, *health.Connections, *drain.Server) {
	if s := g.table.Load().named[server]; s != nil {
		return s.breaker, s.cache, s.conns, s.drained
	}
	return nil, nil, nil, nil
}

func (g *gateway) Try(server string) bool {
	s := g.table.Load().named[server]
	if s == nil || len(s.o.Forward) > 0 {
		return false
	}
	if s.trying.CompareAndSwap(false, true) {
		g.run(func() {
			defer s.trying.Store(false)
			s.Try(&bridge.Caller{
				Revision:     era.LatestLegacy,
				Capabilities: []byte("{}"),
				Params:       g.ownParams,
			})
		})
	}
	return true
}

func (g *gateway) Probe(ctx context.Context, server, principal string) error {
	s := g.table.Load().named[server]
	if s == nil {
		return bridge.ErrUnknownServer
	}
	done, err := s.Open(ctx, &bridge.Caller{
		Principal:    principal,
		Revision:     era.LatestLegacy,
		Capabilities: []byte("{}"),
		Params:       g.ownParams,
	})
	defer done()
	return err
}
