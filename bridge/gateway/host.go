package gateway

import (
	"cmp"
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// This file holds the methods of a server that its parts call. For them a server is a health.Host, breaker.Host,
// lane.Spare, share.Lanes, stateless.Server and aggregate.Host.

func (s *server) Go(f func()) bool { return s.g.run(f) }

// Try opens a connection to test the server, and closes it. It does nothing while the bridge opens another connection
// to the server. While the circuit is open, the breaker's own probe tests the server.
func (s *server) Try(from *bridge.Caller) {
	if s.lane.Budget.Opening() {
		return
	}
	if s.breaker.Shut() {
		_ = s.breaker.Pass(s.g.life, from)
		return
	}
	done, _ := s.open(s.g.life, from, laneGate{s.breaker, s, false})
	done()
}

func (s *server) MaxPause() time.Duration { return s.lane.Settings.Load().MaxPause }

func (s *server) Left() time.Duration { return s.breaker.Left() }

func (s *server) Open(ctx context.Context, from *bridge.Caller) (done func(), err error) {
	return s.open(ctx, from, nil)
}

// open opens a connection if g admits it. A nil g admits every connection. done closes the connection; it is never nil.
func (s *server) open(ctx context.Context, from *bridge.Caller, g lane.Gate) (done func(), err error) {
	l := lane.New(&s.sharing, from, lane.Ends{
		Client:   bridge.Nobody{},
		Observer: s.cache.Source(from),
		Gate:     g,
	})
	_, _, err = l.Known(ctx)
	return func() { _ = l.Close(s.g.force) }, err
}

func (s *server) Yield(principal string, own bool) bool { return s.pool.Yield(principal, own) }

func (s *server) SharedLane(from *bridge.Caller, to bridge.Client, givenUp func()) (*lane.Lane, bridge.Upstream) {
	return s.guarded(&s.sharing, from, to, false, givenUp)
}

func (s *server) Line(from *bridge.Caller, rest bridge.Client) stateless.Line {
	if from = s.caller(from); s.share == ShareAll {
		from = &bridge.Caller{
			Revision:     from.Revision,
			Capabilities: from.Capabilities,
			Params:       s.g.ownParams,
		}
		if v, err := s.shared.Join(*from, rest, true); err == nil {
			return newGuardedLine(v, v.Guarded(), v.Lane(), s.checked(v))
		}
	}
	l, up := s.guarded(&s.lane, from, rest, false, func() { rest.Gone(nil) })
	return newGuardedLine(up, up, l, s.checked(up))
}

func (s *server) Misheaded(r *bridge.Request) *jsonrpc.Message { return s.tools.Misheaded(r) }

func (s *server) Heard(m *jsonrpc.Message) { s.cache.Heard(m) }

func (s *server) Stores() bool { return s.cache.On() && len(s.o.Forward) == 0 }

func (s *server) Serves(principal string) bool { return s.filter.Serves(principal) }

func (s *server) Shows(k list.Kind, name, principal string) bool {
	return s.filter.Shows(k, name, principal)
}

func (s *server) Greeting(principal string) *bridge.Greeting { return s.health.Greeting(principal) }

func (s *server) Failing() error { return cmp.Or(s.drained.Err(), s.health.Failing()) }

func (s *server) Since() time.Time { return s.health.Status().Since }

func (s *server) Await(from *bridge.Caller, told func()) (stop func()) {
	return s.drained.Await(told, func() func() { return s.health.Await(s.caller(from), told) })
}
