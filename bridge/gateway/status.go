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

// Status says the state of a server.
type Status struct {
	Name     string    // of the server
	Usable   bool      // it works, or nothing speaks against trying it
	State    string    // "ready", "starting", "idle" or "failing"
	Reason   string    // of failing, for people; it may name programs and files
	Err      error     // the same with all that is known, for whoever runs the bridge alone
	Since    time.Time // it is failing
	Lanes    int       // connections open or being opened
	Sessions int       // open; those of all servers as one count where there is one server
	// Calls are the requests of clients under way, when somebody watches them.
	Calls    int
	Parked   int    // calls that wait for clients without sessions to come back
	Revision string // what the last handshake agreed on; empty before the first
	// Opened counts the connections that were opened, Failures those that could not
	// be, or whose server was out of reach, Losses those that ended by themselves,
	// and Restarts the openings after that.
	Opened, Failures, Losses, Restarts uint64
	// Last is the last failure or loss, also after the server has recovered from
	// it. It may name programs and files.
	Last    string
	LastErr error     // the same with all that is known, for whoever runs the bridge alone
	LastAt  time.Time // zero when there was none
	// Status is what is under way, as Limits count it. Queued has also those that
	// wait for a connection of their own, and Refused what came too often, as rate.
	limits.Status
	// Breaker is the state of the circuit breaker: "closed", "open" when the server
	// gets no calls, or no new connection, until RetryAt, "half-open" while one call
	// tries it, and "off".
	Breaker string
	RetryAt time.Time
	Trips   uint64 // how often the breaker has opened
	// Forced is what an operator has decided about the breaker; nil for nothing.
	Forced *breaker.Force
	// Drained is what an operator has decided about new calls; nil for nothing.
	Drained *drain.Order
	// Cache says what is kept of what it lists.
	Cache cache.Status
}

// statusOf returns the state of a server that has so many connections and calls. check says why it
// cannot work as things are, as long as it was not started; it may be nil.
func statusOf(name string, lanes, calls int, kept cache.Status, h health.Status, br breaker.Status, check func() error) Status {
	st := Status{Name: name, Usable: true, State: "idle", Lanes: lanes, Calls: calls, Cache: kept}
	st.Revision, st.Opened, st.Failures, st.Losses, st.Restarts = h.Revision, h.Opened, h.Failures, h.Losses, h.Restarts
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
	if !h.Served && check != nil {
		if why := check(); why != nil {
			failure, usable = cmp.Or(failure, why), false
		}
	}
	if failure != nil {
		st.Usable, st.State, st.Reason, st.Since = usable, "failing", bridge.Brief(failure), h.Since
		st.Err = failure
	}
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
	Sessions  int    // all
	Together  int    // of these, to all of several servers as one
	Calls     int    // under way
	Stateless int    // of these, of clients without sessions
	Listens   int    // subscriptions of clients without sessions
	Bytes     int64  // that messages hold
	MaxBytes  int64  // that messages may hold together
	Lanes     int64  // connections that are open or being opened
	MaxLanes  int64  // connections to all servers
	Admitted  uint64 // calls ever
	Dropped   uint64 // notifications that were dropped because too many waited
	// Refused counts what was refused, by what was reached: sessions, calls, listens
	// or rate of a principal, bytes of a principal or of all.
	Refused map[string]uint64
}

// SessionStatus says what a session of a client does.
type SessionStatus struct {
	ID        string    `json:"id"`                  // the beginning of its key, as in logs: nobody can use it by that
	Server    string    `json:"server"`              // empty means all as one
	Principal string    `json:"principal,omitempty"` // empty without access rules
	Client    string    `json:"client,omitempty"`    // what the client calls itself
	Revision  string    `json:"revision"`            // of the protocol
	Began     time.Time `json:"began"`               // at this instance
	Used      time.Time `json:"used"`                // when the client was last heard of
	Calls     int       `json:"calls"`               // under way
	Streams   int       `json:"streams"`             // open for what belongs to no call
}

// Status returns the state of each server, in the order of Options.
func (b *Gateway) Status() []Status {
	sessions := map[context.Context]int{} // of a name, whatever settings they began with
	b.mu.Lock()
	for s := range b.sessions {
		var of context.Context // none: all servers as one
		if at := s.ways.Now().At; at != nil {
			of = at.left
		}
		sessions[of]++
	}
	b.mu.Unlock()
	servers := b.table.Load().servers
	all := make([]Status, 0, len(servers))
	for _, r := range servers {
		st := statusOf(r.o.Name, int(r.lane.Budget.Open()), int(r.reports.Calls()), r.cache.Status(), r.health.Status(), r.breaker.Status(), r.o.Check)
		st.Status = r.gate.Status()
		of := r.pool.Status()
		st.Queued, st.Parked = st.Queued+of.Queued, of.Waiting
		st.Refused["rate"] = r.rates.Refused()
		st.Sessions, st.Forced, st.Drained = sessions[r.left], r.breaker.Forced(), r.drained.Now()
		if len(servers) == 1 {
			st.Sessions += sessions[nil]
		}
		all = append(all, st)
	}
	return all
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
		if s.ways.Now().At == nil {
			t.Together++
		}
	}
	return t
}

// Dropped counts the notifications that are dropped because too many wait.
// Adapters add those that they drop.
func (b *Gateway) Dropped() *atomic.Uint64 { return &b.dropped }

// Sessions returns what the sessions of those principals do.
func (b *Gateway) Sessions(whose func(principal string) bool) []SessionStatus {
	var rows []SessionStatus
	for _, s := range b.open(func(s *Session) bool { return whose(s.caller.Principal) }) {
		rows = append(rows, s.status())
	}
	return rows
}

func (s *Session) status() SessionStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SessionStatus{
		ID: s.shown(), Server: s.server, Principal: s.caller.Principal, Client: health.Client(s.caller), Revision: s.caller.Revision,
		Began: s.began, Used: time.Unix(0, s.seen.Load()), Calls: s.callCount, Streams: len(s.streams),
	}
}

// EndSession ends the session that is shown by that id, if it is that principal's. It
// reports whether there is one.
func (b *Gateway) EndSession(id, principal string) bool {
	all := b.open(func(s *Session) bool { return s.shown() == id && s.caller.Principal == principal })
	for _, s := range all {
		s.End(&bridge.Error{Kind: bridge.ErrEnded, Public: "an operator has ended the session"})
	}
	return len(all) > 0
}

// Operated returns what operators act on of the server of that name. All are nil when there
// is none, and the breaker and the cache when they are off.
func (b *Gateway) Operated(server string) (*breaker.Breaker, *cache.Cache, *health.Connections, *drain.Server) {
	if s := b.table.Load().named[server]; s != nil {
		return s.breaker, s.cache, s.conns, s.drained
	}
	return nil, nil, nil, nil
}

// Probe opens a connection to the server of that name on behalf of a principal, whatever its
// circuit breaker says, and closes it.
func (b *Gateway) Probe(ctx context.Context, server, principal string) error {
	s := b.table.Load().named[server]
	if s == nil {
		return bridge.ErrUnknownServer
	}
	done, err := s.try(ctx, &bridge.Caller{Principal: principal, Revision: era.LatestLegacy, Capabilities: []byte("{}"), Params: b.ownParams}, nil)
	defer done()
	return err
}
