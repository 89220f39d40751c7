package breaker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mcp-bridge/bridge/bridge"
)

// probe makes the probe p on behalf of from, and records its result.
func (b *Breaker) probe(p *Probe, from *bridge.Caller) {
	done, err := b.ask(p, from)
	if done != nil {
		defer done()
	}
	j := judge(b.s.Life, err)
	if errors.Is(err, bridge.ErrRejected) || errors.Is(err, bridge.ErrNoHandshake) {
		j = works // the server answered, although with a refusal
	}
	switch j {
	case works:
		if p.Worked() {
			b.s.Log.Info("server is used again")
			b.s.Health.Works()
		}
	case fails:
		why := reason(err, from.Principal)
		if pause := p.Failed(why); pause > 0 {
			b.s.Health.RecordFailure(b.statusError(why))
			b.s.Log.Warn("circuit breaker stays open: the probe failed", "for", pause.String(), "err", err)
		}
	default:
		p.NoResult() // for example, the limit of connections was reached
	}
}

// ask tests the server. If calls failed, ask pings the server over an open connection. If there is none, or the ping
// fails, ask opens a connection: the server works if that succeeds. If all clients share the connection and it has
// calls in flight, ask opens none: the server may only be slow. If only openings failed, only an opening is a test.
// done, if not nil, closes what ask opened.
func (b *Breaker) ask(p *Probe, from *bridge.Caller) (done func(), err error) {
	dead := &bridge.Error{
		Server: b.s.Name,
		Kind:   bridge.ErrTimeout,
		Public: fmt.Sprintf("it did not answer a ping within %v", b.s.Within),
	}
	ctx, stop := context.WithTimeoutCause(b.s.Life, b.s.Within, dead)
	defer stop()
	g, silent := (*guarded)(nil), false
	if p.g.kind == calls {
		g = b.anyOpen()
	}
	if g != nil {
		err := g.ping(ctx)
		silent = errors.Is(err, bridge.ErrTimeout)
		if err == nil || silent && b.s.Shared && g.busy() {
			return nil, err
		}
	}
	done, err = b.s.Host.Open(ctx, from)
	if err == nil {
		b.opened()
	}
	if silent && (err == nil || errors.Is(err, bridge.ErrOverloaded)) {
		g.giveUp(ctx)
	}
	return done, err
}

// giveUp marks a shared connection as lost if it hangs: it did not answer a ping, has no calls in flight, and does not
// answer a second ping. Its clients have no other connection, and each of their calls would time out.
func (g *guarded) giveUp(ctx context.Context) {
	if g.own || g.busy() || !errors.Is(g.ping(ctx), bridge.ErrTimeout) || g.busy() {
		return
	}
	g.conn.Gone(&bridge.Error{
		Server: g.b.s.Name,
		Kind:   bridge.ErrLost,
		Public: "it did not answer a ping",
	})
}

func (g *guarded) ping(ctx context.Context) error {
	return g.conn.Ping(ctx, min(patience, g.b.s.Within))
}

// busy reports whether calls other than subscriptions are in flight.
func (g *guarded) busy() bool { return g.inFlight.Load() > 0 }

// anyOpen returns an open connection, or nil. It prefers a connection without calls in flight, since a server may do
// only one thing at a time.
func (b *Breaker) anyOpen() (found *guarded) {
	b.conns.mu.Lock()
	all := slices.Collect(maps.Keys(b.conns.open))
	b.conns.mu.Unlock()
	for _, g := range all {
		open, idle := g.conn.Idle()
		if open && idle {
			return g
		}
		if open {
			found = g
		}
	}
	return found
}
