package gateway

import (
	"cmp"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/aggregate"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/lane/share"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lift"
)

// This page is the only place where the wrappers of a server are put together: an
// Upstream around an Upstream, the outermost last. Each order is relied on, and
// TestChains says why. What servers say by themselves goes the other way: a
// wrapper that also hears (lift, filter, share) is the Client of what is below.

// session returns what the calls of one session go to. Nothing is opened yet.
func (s *server) session(from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	if err := s.b.allowed(s, s.o.Name, from.Principal); err != nil {
		return nil, err
	}
	from = s.caller(from)
	l := lift.New(from, s.filter.Client(rest), &s.lifts)
	up, err := s.connection(from, l.Client())
	if err != nil {
		return nil, err
	}
	up = s.tools.Wrap(up)     // above what is kept, which it asks for lists as they are now
	up = l.Wrap(up)           // below it are the server's words, and its era
	up = s.rates.Wrap(up)     // what clients ask, not what lift asks for them; by the server's own names
	up = s.tasks.Wrap(up)     // a principal's own tasks; stateless clients have sealed handles
	up = s.filter.Wrap(up)    // from here on the names that clients see,
	up = s.filter.Granted(up) // which grants are about
	up = s.drained.Wrap(up)   // what it refuses is reported, and what the bridge asks for passes below it
	return s.b.calls.Wrap(s.o.Name, s.reports.Wrap(up)), nil
}

// stateless returns what the calls of all stateless clients go to. The pool finds
// a connection for each, and translates for a legacy server.
func (s *server) stateless() bridge.Upstream {
	return s.b.calls.Wrap(s.o.Name, s.reports.Wrap(s.drained.Wrap(s.filter.Granted(s.filter.Wrap(s.rates.Wrap(s.pool))))))
}

// connection returns a connection of the session's own, or its part of one
// that it shares.
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

// guarded returns a lane, and the same with its guards. The breaker stands between
// the lane and its connections, which it keeps from being opened too. own says that
// the lane is one session's; givenUp is as in lane.Ends.
func (s *server) guarded(o *lane.Options, from *bridge.Caller, rest bridge.Client, own bool, givenUp func()) (*lane.Lane, bridge.Upstream) {
	kept, places := s.cache.Source(from), s.gate.Places() // they hear the lane, so they come before it
	ends := lane.Ends{Client: places.Client(rest), Observer: kept, Gate: s.door(own), GivenUp: givenUp}
	if own {
		ends.Stay = from.Stay
	}
	l := lane.New(o, from, ends)
	up := places.Wrap(s.retries.Wrap(l)) // made again, a call keeps its place
	return l, kept.Wrap(up, l)           // what is kept needs neither place nor connection
}

// perCall returns what opens a lane for each call. The guards stand around that,
// so a call that waits has no process; it is made again within its own lane.
func (s *server) perCall(from *bridge.Caller, rest bridge.Client) bridge.Upstream {
	places := s.gate.Places()
	to := places.Client(rest)
	up := places.Wrap(&share.PerCall{Name: s.o.Name, Client: to, Budget: s.lane.Budget, Force: s.b.force, Open: func(level []byte) (*lane.Lane, bridge.Upstream) {
		l := lane.New(&s.lane, from, lane.Ends{Client: to, Observer: s.cache.Source(from), Gate: s.door(false), Level: level})
		return l, s.retries.Wrap(l)
	}})
	return s.cache.Wrap(up, from)
}

// asMember returns the server as the aggregate has it: a chain of those above for
// each session, and one for all stateless clients.
func (s *server) asMember() *aggregate.Server {
	return &aggregate.Server{
		Name: s.o.Name, Prefix: s.o.Prefix, Log: s.log, Remembers: func() bool { return s.cache.On() && len(s.o.Forward) == 0 },
		Stateless: s.statelessCalls, Session: s.session, Serves: s.filter.Serves, Shows: s.filter.Shows, Greeting: s.health.Greeting,
		Failing: func() error { return cmp.Or(s.drained.Err(), s.health.Failing()) },
		Await: func(from *bridge.Caller, told func()) (stop func()) {
			return s.drained.Await(told, func() func() { return s.health.Await(s.caller(from), told) })
		},
		Missed: s.cache.Heard,
	}
}
