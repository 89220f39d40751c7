package gateway

import (
	"cmp"
	"context"
	"maps"
	"slices"
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
	Usable   bool      // the server works, or a call may try it
	State    string    // "ready", "starting", "idle" or Failing
	Reason   string    // why it fails, in short; it may name programs and files
	Err      error     // why it fails with all details, for operators only
	Since    time.Time // when it began to fail; zero while it works
	Lanes    int       // connections that are open or opening
	Sessions int       // open sessions; with a single server those of the aggregate count, too
	// Calls counts the requests in flight. It is 0 unless Options.Watch is set.
	Calls    int
	Parked   int    // calls of stateless clients that wait for an answer of the client
	Revision string // revision of the last handshake; empty before the first
	// Tools is how the server's own address offers its tools. It is empty while this depends on a document that is not
	// read yet.
	Tools ToolsMode
	// Lacking counts the clients at addresses of several servers whose last list of tools lacks this server. LackingWhy
	// is why a list lacks it, for clients.
	Lacking    int
	LackingWhy string
	// Opened counts opened connections. Failures counts failed openings, and calls that did not reach the server.
	// Losses counts connections that ended by themselves. Restarts counts openings after a failure or a loss.
	Opened, Failures, Losses, Restarts uint64
	// Last is the last failure or loss. It stays after recovery, and may name programs and files.
	Last    string
	LastErr error     // the last failure or loss with all details, for operators only
	LastAt  time.Time // zero if there was no failure and no loss
	// Status describes the calls at the server. Here Queued includes calls that wait for a connection, and Refused has
	// the additional key "rate".
	limits.Status
	// Breaker is the state of the circuit breaker: "closed"; "open", so that it refuses calls or openings until
	// RetryAt; "half-open" during a probe; or "off".
	Breaker string
	RetryAt time.Time
	Trips   uint64 // how often the breaker opened
	// Forced is an operator's order to the circuit breaker, or nil.
	Forced *breaker.Force
	// Drained is an operator's order to drain the server, or nil.
	Drained *drain.Order
	// Cache is the state of the cache of lists.
	Cache cache.Status
}

// Failing is the Status.State of a server that does not work.
const Failing = "failing"

// status returns the state of the server, but with Sessions 0.
func (s *server) status() Status {
	mode, decided := s.mode()
	if !decided {
		mode = ""
	}
	h, br, visitors := s.health.Status(), s.breaker.Status(), s.pool.Status()
	st := Status{
		Name:     s.o.Name,
		Usable:   true,
		State:    "idle",
		Lanes:    int(s.lane.Budget.Open()),
		Calls:    int(s.reports.Calls()),
		Parked:   visitors.Waiting,
		Revision: h.Revision,
		Tools:    mode,
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
	if time.Now().Before(br.Again) { // after the pause a call may test the server
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

// GroupStatus is how the address of several servers offers their tools.
type GroupStatus struct {
	Name    string   // of the Group; empty for all servers together
	Servers []string // names
	// Mode is ToolsAll or ToolsSearch. It is empty if the list has the tools of some servers only.
	Mode ToolsMode
}

func (g *gateway) Groups() (all []GroupStatus) {
	t := g.table.Load()
	for _, name := range slices.Sorted(maps.Keys(t.groups)) {
		p := t.groups[name]
		servers := *p.servers.Load()
		if name == "" && len(servers) < 2 {
			continue
		}
		st := GroupStatus{
			Name: name,
			Mode: p.now.Load().ToolsMode,
		}
		finds := 0
		for _, s := range servers {
			if st.Servers = append(st.Servers, s.o.Name); s.finds() {
				finds++
			}
		}
		switch {
		case st.Mode != "":
		case finds == 0:
			st.Mode = ToolsAll
		case finds == len(servers):
			st.Mode = ToolsSearch
		}
		all = append(all, st)
	}
	return all
}

// Totals counts over all servers.
type Totals struct {
	Sessions      int    // open sessions
	Aggregate     int    // open sessions of the aggregate
	Calls         int    // calls in flight, without subscriptions
	Stateless     int    // calls in flight of stateless clients
	Subscriptions int    // open subscriptions of stateless clients
	Bytes         int64  // memory of messages, in bytes
	MaxBytes      int64  // Options.MaxBytes
	Lanes         int64  // connections that are open or opening
	MaxLanes      int64  // Options.MaxLanes
	Admitted      uint64 // calls since the start
	Dropped       uint64 // notifications that full queues dropped
	// Refused counts refusals by the limit: "sessions", "calls", "listens" and "rate" are limits of one principal,
	// "bytes" is one of a principal or of the bridge.
	Refused map[string]uint64
}

// SessionStatus is the state of a session.
type SessionStatus struct {
	ID        string    `json:"id"`                  // short name in logs; it gives no access
	Server    string    `json:"server"`              // empty means the aggregate
	Principal string    `json:"principal,omitempty"` // empty without access rules
	Client    string    `json:"client,omitempty"`    // clientInfo in one line
	Revision  string    `json:"revision"`            // protocol revision agreed with the client
	Began     time.Time `json:"began"`               // when it began at this instance
	Used      time.Time `json:"used"`                // time of the client's last message
	Calls     int       `json:"calls"`               // in flight
	Total     uint64    `json:"calls_total"`         // calls so far, at this instance
	Transport string    `json:"transport"`           // WireStreamable, WireSSE or WireStdio
	Streams   int       `json:"streams"`             // open standing streams
	// Left says that the client closed its last stream and sent nothing since. It probably left without ending the
	// session.
	Left bool `json:"left,omitempty"`
}

// These are the transports of clients. A SessionStatus never has WireStateless: a stateless client has no session.
const (
	WireStreamable = "streamable"
	WireSSE        = "sse"
	WireStdio      = "stdio"
	WireStateless  = "stateless"
)

func (g *gateway) Status() []Status {
	sessions := map[context.Context]int{} // by server.removed, which replaced versions of a server share
	g.mu.Lock()
	for s := range g.sessions {
		var of context.Context // nil for the aggregate
		if at := s.bindings.Current().Server; at != nil {
			of = at.removed
		}
		sessions[of]++
	}
	g.mu.Unlock()
	t := g.table.Load()
	servers := t.servers
	lacking, why := map[string]int{}, map[string]string{}
	for _, p := range t.groups {
		p.aggregate.Lacking(func(server, reason string) { lacking[server], why[server] = lacking[server]+1, reason })
	}
	all := make([]Status, 0, len(servers))
	for _, s := range servers {
		st := s.status()
		st.Sessions, st.Lacking, st.LackingWhy = sessions[s.removed], lacking[s.o.Name], why[s.o.Name]
		if len(servers) == 1 {
			st.Sessions += sessions[nil]
		}
		all = append(all, st)
	}
	return all
}

// Sample is the part of a server's state that is cheap enough to read often.
type Sample struct {
	Calls   int                 // in flight
	Health  health.Status       // availability, and counts of connections
	Breaker breaker.Status      // state of the circuit breaker
	Drained *drain.Order        // an operator's drain, or nil
	Open    *health.Connections // open connections; its methods give their states
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
