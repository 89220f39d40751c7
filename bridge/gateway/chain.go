package gateway

import (
	"context"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/lane/share"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lift"
)

// This file is the only place that builds the chains of wrappers: an Upstream around an Upstream,
// the outermost last. TestChains states each order and its reason. Messages that servers start go
// the other way. A wrapper that handles them (lift, filter, share) is the Client of the wrapper
// below.

// Session returns the chain of one session. It opens nothing. It implements aggregate.Host.
func (s *server) Session(from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	if err := s.g.allowed(s, s.o.Name, from.Principal); err != nil {
		return nil, err
	}
	from = s.caller(from)
	l := lift.New(from, s.filter.Client(rest), &s.lifts)
	up, err := s.connection(from, l.Client())
	if err != nil {
		return nil, err
	}
	up = s.checked(up)        // above the cache, which answers its own list requests
	up = l.Wrap(up)           // below it: messages in the server's era
	up = s.rates.Wrap(up)     // counts requests of clients, not those of lift; by the server's names
	up = s.tasks.Wrap(up)     // a principal sees its own tasks; stateless clients have sealed handles
	up = s.results.Wrap(up)   // by the server's names; what is cut is not cut again
	up = s.filter.Wrap(up)    // above it: the names that clients see,
	up = s.filter.Granted(up) // which grants use
	up = s.check.Wrap(up)     // sees the list that the caller gets
	up = s.drained.Wrap(up)   // its refusals are reported; requests of the bridge pass below it
	return s.g.calls.Wrap(s.o.Name, s.reports.Wrap(up)), nil
}

// stateless returns the chain of all stateless clients. The pool picks a connection for
// each call, and translates for a legacy server.
func (s *server) stateless() bridge.Upstream {
	return s.g.calls.Wrap(s.o.Name, s.reports.Wrap(s.drained.Wrap(s.check.Wrap(s.filter.Granted(s.filter.Wrap(s.results.Wrap(s.rates.Wrap(s.pool))))))))
}

// checked returns up with the checks of tool calls.
func (s *server) checked(up bridge.Upstream) bridge.Upstream {
	up = s.approvals.Wrap(up) // below tools: with the arguments that the server gets
	return s.tools.Wrap(up)
}

// connection returns the session's own connection, or its view of a shared one.
func (s *server) connection(from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	switch s.share {
	case SharePrincipal, ShareAll:
		return s.shared.Join(*from, rest, false)
	case ShareCall:
		return s.perCall(from, rest), nil
	}
	_, up := s.guarded(&s.lane, from, rest, true, nil)
	return up, nil
}

// guarded returns a lane, and the lane inside its guards. own: the lane belongs to one session. givenUp is as in
// lane.Ends.
func (s *server) guarded(o *lane.Options, from *bridge.Caller, rest bridge.Client, own bool, givenUp func()) (*lane.Lane, bridge.Upstream) {
	cache, slots := s.cache.Source(from), s.queue.Slots() // they observe the lane, so they come first
	ends := lane.Ends{
		Client:   slots.Client(rest),
		Observer: cache,
		Gate:     laneGate{s.breaker, s, own}, // below the lane
		GivenUp:  givenUp,
	}
	if own {
		ends.Handover = from.Handover
	}
	l := lane.New(o, from, ends)
	up := slots.Wrap(s.retries.Wrap(l)) // a retried call keeps its slot
	return l, cache.Wrap(up, l)         // a cached answer needs neither slot nor connection
}

// laneGate is the circuit breaker with the list of open connections.
type laneGate struct {
	*breaker.Breaker
	s   *server
	own bool // the lane belongs to one session
}

// Opening implements lane.Gate. The breaker stands between the lane and each of its connections, so it also
// refuses openings.
func (l laneGate) Opening(ctx context.Context, from *bridge.Caller) (func(lane.Conn, bridge.Upstream, error) bridge.Upstream, error) {
	opened, err := l.Breaker.Opening(ctx, from, l.own)
	return func(c lane.Conn, raw bridge.Upstream, err error) bridge.Upstream {
		up := opened(c, raw, err)
		if _, away := raw.(bridge.LivesElsewhere); away { // its own instance has the breaker
			return raw
		}
		if err != nil {
			return up
		}
		kind := l.s.share
		if kind == ShareSession && !l.own {
			kind = WireStateless
		}
		return l.s.conns.Add(c, raw, up, from, string(kind)) // operators see all open connections
	}, err
}

// perCall returns an Upstream that opens a lane for each call. The limits stand outside, so
// a queued call has no process. A retry uses the lane of its call.
func (s *server) perCall(from *bridge.Caller, rest bridge.Client) bridge.Upstream {
	slots := s.queue.Slots()
	to := slots.Client(rest)
	up := slots.Wrap(&share.PerCall{
		Name:   s.o.Name,
		Client: to,
		Budget: s.lane.Budget,
		Force:  s.g.force,
		Open: func(level []byte) (*lane.Lane, bridge.Upstream) {
			l := lane.New(&s.lane, from, lane.Ends{
				Client:   to,
				Observer: s.cache.Source(from),
				Gate:     laneGate{s.breaker, s, false},
				Level:    level,
			})
			return l, s.retries.Wrap(l)
		},
	})
	return s.cache.Wrap(up, from)
}
