package breaker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mcp-bridge/bridge/bridge"
)

// probe finds out whether the server works again.
func (b *Breaker) probe(p *Probe, from *bridge.Caller) {
	done, err := b.ask(p, from)
	if done != nil {
		defer done()
	}
	j := judge(b.s.Life, err)
	if errors.Is(err, bridge.ErrRejected) || errors.Is(err, bridge.ErrNoHandshake) {
		j = works // a refusal is an answer
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
		p.NoResult() // for example, no room for a connection
	}
}

// ask pings the server over an open connection. If there is none, or the ping fails, ask opens a
// connection: success means that the server works. ask opens none if all clients use the one
// connection and calls are in flight: that server may only be slow. If only openings failed, an
// opening is the only test.
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

// giveUp ends a shared connection that hangs: it was silent before, has no calls in flight, and is
// silent still. Its clients have no other one, and each of their calls would time out.
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

// busy reports whether calls are in flight, without subscriptions.
func (g *guarded) busy() bool { return g.inFlight.Load() > 0 }

// anyOpen returns an open connection, if possible one without calls in flight: a server may do one
// thing at a time.
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
