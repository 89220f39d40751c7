package gateway

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"

	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/drain"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
)

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
