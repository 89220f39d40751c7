package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// watch begins to ask the server of the open connection for signs of life, if
// that is wanted. The caller holds l.mu.
func (l *lane) watch() {
	if every := l.route.o.Ping; every > 0 {
		w := l.wire
		l.pulse = time.AfterFunc(every, func() { l.feel(w) })
	}
}

// feel asks for a sign of life, unless there was one lately or the server has
// work to do: one that does one thing at a time would answer late, and its
// calls have their own time-outs.
func (l *lane) feel(w *wire) {
	every := l.route.o.Ping
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil || l.wire != w {
		return
	}
	if left := every - time.Since(l.used); l.active > 0 || left > 0 {
		if l.active > 0 {
			left = every
		}
		l.pulse.Reset(left)
		return
	}
	l.wg.Go(func() { l.ping(w) })
}

// ping asks for a sign of life, and ends the connection without one.
func (l *lane) ping(w *wire) {
	every := l.route.o.Ping
	err := w.ping(l.ctx, w.up, every, bridge.ErrLost)
	if l.ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	busy := l.active > 0 || time.Since(l.used) < every // it has got work meanwhile, which may keep it from answering
	busy = busy || errors.Is(err, bridge.ErrOpen)      // or was not asked
	if (err == nil || busy) && l.closed == nil && l.wire == w {
		l.pulse.Reset(every)
	}
	l.mu.Unlock()
	if err != nil && !busy {
		w.Gone(err)
	}
}

// ping asks for a sign of life over up. An error that is an answer is one too. The
// error is of that kind when there is none in time.
func (w *wire) ping(ctx context.Context, up bridge.Upstream, within time.Duration, kind error) error {
	l := w.l
	dead := &bridge.Error{Server: l.route.o.Name, Kind: kind, Public: fmt.Sprintf("it gave no sign of life within %v", within)}
	ctx, stop := context.WithTimeoutCause(ctx, within, dead)
	defer stop()
	ask := jsonrpc.NewRequest("ping", nil)
	if up.Server().Modern() {
		ask = l.caller.Request("server/discover", nil) // it has no ping
	}
	a, err := up.Call(ctx, &bridge.Request{Message: ask, From: l.caller})
	a.Release()
	return err
}

var _ breaker.Conn = (*wire)(nil)

// Idle implements breaker.Conn.
func (w *wire) Idle() (open, idle bool) {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	return w.l.wire == w, w.l.active == 0
}

// Asked implements breaker.Conn.
func (w *wire) Asked() int64 { return w.asks.Load() }

// Ping implements breaker.Conn, which it does not ask.
func (w *wire) Ping(ctx context.Context, within time.Duration) error {
	return w.ping(ctx, w.raw, within, bridge.ErrTimeout)
}
