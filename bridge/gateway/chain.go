package gateway

import (
	"cmp"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/aggregate"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/lane/share"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lift"
)

// This file is the only place that builds the chains of wrappers: an Upstream around an Upstream,
// the outermost last. TestChains states each order and its reason. Messages that servers start go
// the other way. A wrapper that handles them (lift, filter, share) is the Client of the wrapper
// below.

// session returns the chain of one session. It opens nothing.
func (s *server) session(from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	if err := s.g.allowed(s, s.o.Name, from.Principal); err != nil {
		return nil, err
	}
	from = s.caller(from)
	l := lift.New(from, s.filter.Client(rest), &s.lifts)
	up, err := s.connection(from, l.Client())
	if err != nil {
		return nil, err
	}
	up = s.tools.Wrap(up)     // above the cache, which answers its own list requests
	up = l.Wrap(up)           // below it: messages in the server's era
	up = s.rates.Wrap(up)     // counts requests of clients, not those of lift; by the server's names
	up = s.tasks.Wrap(up)     // a principal sees its own tasks; stateless clients have sealed handles
	up = s.filter.Wrap(up)    // above it: the names that clients see,
	up = s.filter.Granted(up) // which grants use
	up = s.drained.Wrap(up)   // its refusals are reported; requests of the bridge pass below it
	return s.g.calls.Wrap(s.o.Name, s.reports.Wrap(up)), nil
}

// stateless returns the chain of all stateless clients. The pool picks a connection for
// each call, and translates for a legacy server.
func (s *server) stateless() bridge.Upstream {
	return s.g.calls.Wrap(s.o.Name, s.reports.Wrap(s.drained.Wrap(s.filter.Granted(s.filter.Wrap(s.rates.Wrap(s.pool))))))
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

// guarded returns a lane, and the lane inside its guards. The breaker stands between
// the lane and its connections, so it also refuses openings. own: the lane belongs to one
// session. givenUp is as in lane.Ends.
func (s *server) guarded(o *lane.Options, from *bridge.Caller, rest bridge.Client, own bool, givenUp func()) (*lane.Lane, bridge.Upstream) {
	kept, places := s.cache.Source(from), s.queue.Slots() // they observe the lane, so they come first
	ends := lane.Ends{
		Client:   places.Client(rest),
		Observer: kept,
		Gate:     s.opener(own),
		GivenUp:  givenUp,
	}
	if own {
		ends.Handover = from.Handover
	}
	l := lane.New(o, from, ends)
	up := places.Wrap(s.retries.Wrap(l)) // a retried call keeps its slot
	return l, kept.Wrap(up, l)           // a cached answer needs neither slot nor connection
}

// perCall returns an Upstream that opens a lane for each call. The limits stand outside, so
// a queued call has no process. A retry uses the lane of its call.
func (s *server) perCall(from *bridge.Caller, rest bridge.Client) bridge.Upstream {
	places := s.queue.Slots()
	to := places.Client(rest)
	up := places.Wrap(&share.PerCall{
		Name:   s.o.Name,
		Client: to,
		Budget: s.lane.Budget,
		Force:  s.g.force,
		Open: func(level []byte) (*lane.Lane, bridge.Upstream) {
			l := lane.New(&s.lane, from, lane.Ends{
				Client:   to,
				Observer: s.cache.Source(from),
				Gate:     s.opener(false),
				Level:    level,
			})
			return l, s.retries.Wrap(l)
		},
	})
	return s.cache.Wrap(up, from)
}

// asMember returns the server as a member of the aggregate: one chain for each session, and
// one for all stateless clients.
func (s *server) asMember() *aggregate.Server {
	return &aggregate.Server{
		Name:      s.o.Name,
		Prefix:    s.o.Prefix,
		Log:       s.log,
		Stores:    func() bool { return s.cache.On() && len(s.o.Forward) == 0 },
		Stateless: s.statelessCalls,
		Session:   s.session,
		Serves:    s.filter.Serves,
		Shows:     s.filter.Shows,
		Greeting:  s.health.Greeting,
		Failing:   func() error { return cmp.Or(s.drained.Err(), s.health.Failing()) },
		Await: func(from *bridge.Caller, told func()) (stop func()) {
			return s.drained.Await(told, func() func() { return s.health.Await(s.caller(from), told) })
		},
		Missed: s.cache.Heard,
	}
}
