package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// probe is the one attempt to find out whether a server works again.
type probe struct {
	began time.Time
	calls bool          // it is about calls too, and not only about openings
	done  chan struct{} // closed when it is known
}

// begin returns the probe under way, which it begins when the pause is over.
// Without one it returns the error that it is not, or what pass returns when the
// server is not left alone any more.
func (b *breaker) begin(from *bridge.Caller, what *atomic.Pointer[score]) (*probe, *score, error) {
	b.mu.Lock()
	t := what.Load()
	switch {
	case t != nil:
		b.mu.Unlock()
		return nil, t, nil
	case b.probe != nil:
		defer b.mu.Unlock()
		return b.probe, nil, nil
	case time.Now().Before(b.again):
		defer b.mu.Unlock()
		return nil, nil, b.refusal()
	}
	p := &probe{began: time.Now(), calls: b.calls.Load() == nil, done: make(chan struct{})}
	b.probe = p
	b.mu.Unlock()
	if !b.r.b.goes(func() { b.try(p, from) }) {
		b.mu.Lock()
		b.probe = nil
		b.mu.Unlock()
		close(p.done)
		return nil, nil, bridge.ErrShutdown
	}
	return p, nil, nil
}

// try makes the probe.
func (b *breaker) try(p *probe, from *bridge.Caller) {
	l := newLane(b.r, from, bridge.Nobody{}, b.r.cache.source(from))
	l.probes = true
	err := b.ask(l, p)
	j := judge(b.r.b.life, err)
	if errors.Is(err, bridge.ErrDeclined) || errors.Is(err, bridge.ErrRefused) {
		j = works // it is there, and says so
	}
	b.mu.Lock()
	b.probe = nil
	if j == works && !p.calls && b.calls.Load() == nil {
		j = nothing // the calls have begun to fail meanwhile
	}
	switch j {
	case works:
		if p.calls {
			b.calls.Store(b.fresh())
		}
		b.opens.Store(b.fresh())
	case fails:
		b.pause = min(2*b.pause, max(maxPause, b.o.Pause))
		b.why = reason(err, from.Principal)
	}
	pause, note := b.pause, b.note()
	b.again = time.Now().Add(pause) // also when there was no room for a connection
	b.mu.Unlock()
	close(p.done)
	switch j {
	case works:
		b.r.log.Info("server is used again")
		b.r.works()
	case fails:
		b.r.noted(note)
		b.r.log.Warn("server is left alone for longer", "for", pause.String(), "err", err)
	}
	_ = l.Close(b.r.b.force)
}

// ask asks the server for a sign of life over an open connection. If there is
// none, or it gives none, opening one over l is the sign. That is none where all
// use the one connection, and it has work to do: it may only be slow. Where the
// openings alone have failed, there is no other sign.
func (b *breaker) ask(l *lane, p *probe) error {
	dead := &bridge.Error{Server: b.r.o.Name, Kind: bridge.ErrTimeout, Public: fmt.Sprintf("it gave no sign of life within %v", b.r.handshake)}
	ctx, stop := context.WithTimeoutCause(b.r.b.life, b.r.handshake, dead)
	defer stop()
	w, silent := (*wire)(nil), false
	if p.calls {
		w = b.wire()
	}
	if w != nil {
		err := w.ping(ctx, min(probePatient, b.r.handshake))
		silent = errors.Is(err, bridge.ErrTimeout)
		if err == nil || silent && b.r.share == ShareAll && w.busy() {
			return err
		}
	}
	_, err := l.enter(ctx)
	if err == nil {
		l.leave()
	}
	if silent && (err == nil || errors.Is(err, bridge.ErrOverloaded)) {
		w.giveUp(ctx)
	}
	return err
}

// giveUp ends a connection that several share and that has hung: it was silent
// before, has nothing to do, and is silent still. Those who share it have no
// other, and each of their calls would have to time out.
func (w *wire) giveUp(ctx context.Context) {
	if w.l.own || w.busy() || !errors.Is(w.ping(ctx, min(probePatient, w.l.route.handshake)), bridge.ErrTimeout) || w.busy() {
		return
	}
	w.Gone(&bridge.Error{Server: w.l.route.o.Name, Kind: bridge.ErrLost, Public: "it gave no sign of life"})
}

// busy reports whether there are calls under way, but for those that last.
func (w *wire) busy() bool { return w.under.Load() > 0 }

// wire returns an open connection, if possible one without calls under way: it
// may do one thing at a time.
func (b *breaker) wire() (found *wire) {
	b.mu.Lock()
	all := make([]*wire, 0, len(b.wires))
	for w := range b.wires {
		all = append(all, w)
	}
	b.mu.Unlock()
	for _, w := range all {
		w.l.mu.Lock()
		open, idle := w.l.wire == w, w.l.active == 0
		w.l.mu.Unlock()
		if open && idle {
			return w
		}
		if open {
			found = w
		}
	}
	return found
}

// ping asks for a sign of life. An error that is an answer is one too.
func (w *wire) ping(ctx context.Context, most time.Duration) error {
	l := w.l
	dead := &bridge.Error{Server: l.route.o.Name, Kind: bridge.ErrTimeout, Public: fmt.Sprintf("it gave no sign of life within %v", most)}
	ctx, stop := context.WithTimeoutCause(ctx, most, dead)
	defer stop()
	ask := jsonrpc.NewRequest("ping", nil)
	if w.raw.Server().Modern() {
		ask = l.caller.Request("server/discover", nil) // it has no ping
	}
	a, err := w.raw.Call(ctx, &bridge.Request{Message: ask, From: l.caller})
	a.Release()
	return err
}
