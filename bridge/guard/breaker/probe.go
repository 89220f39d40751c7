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
		j = works // it is there, and says so
	}
	switch j {
	case works:
		if p.Worked() {
			b.s.Log.Info("server is used again")
			b.s.Works()
		}
	case fails:
		why := reason(err, from.Principal)
		if pause := p.Failed(why); pause > 0 {
			b.s.Noted(b.note(why))
			b.s.Log.Warn("circuit breaker stays open: the probe failed", "for", pause.String(), "err", err)
		}
	default:
		p.Missed() // perhaps there was no room for a connection
	}
}

// ask asks the server for a sign of life over an open connection. If there is
// none, or it gives none, opening one is the sign. That is none where all
// use the one connection, and it has work to do: it may only be slow. Where the
// openings alone have failed, there is no other sign.
func (b *Breaker) ask(p *Probe, from *bridge.Caller) (done func(), err error) {
	dead := &bridge.Error{Server: b.s.Name, Kind: bridge.ErrTimeout, Public: fmt.Sprintf("it did not answer a ping within %v", b.s.Within)}
	ctx, stop := context.WithTimeoutCause(b.s.Life, b.s.Within, dead)
	defer stop()
	g, silent := (*guarded)(nil), false
	if p.g.kind == calls {
		g = b.present()
	}
	if g != nil {
		err := g.ping(ctx)
		silent = errors.Is(err, bridge.ErrTimeout)
		if err == nil || silent && b.s.Shared && g.busy() {
			return nil, err
		}
	}
	done, err = b.s.Open(ctx, from)
	if err == nil {
		b.served()
	}
	if silent && (err == nil || errors.Is(err, bridge.ErrOverloaded)) {
		g.giveUp(ctx)
	}
	return done, err
}

// giveUp ends a connection that several share and that has hung: it was silent
// before, has nothing to do, and is silent still. Those who share it have no
// other, and each of their calls would have to time out.
func (g *guarded) giveUp(ctx context.Context) {
	if g.own || g.busy() || !errors.Is(g.ping(ctx), bridge.ErrTimeout) || g.busy() {
		return
	}
	g.conn.Gone(&bridge.Error{Server: g.b.s.Name, Kind: bridge.ErrLost, Public: "it did not answer a ping"})
}

func (g *guarded) ping(ctx context.Context) error {
	return g.conn.Ping(ctx, min(patience, g.b.s.Within))
}

// busy reports whether there are calls under way, but for those that last.
func (g *guarded) busy() bool { return g.under.Load() > 0 }

// present returns an open connection, if possible one without calls under way: it
// may do one thing at a time.
func (b *Breaker) present() (found *guarded) {
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
