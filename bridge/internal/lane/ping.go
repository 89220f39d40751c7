package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// watch begins to ask the server of the open connection for signs of life, if
// that is wanted, and at the time that counts now. The caller holds l.mu.
func (l *Lane) watch() {
	if l.pulse != nil {
		l.pulse.Stop() // of another connection, or at another time
	}
	l.pulse, l.every = nil, l.o.Settings.Load().Ping
	if l.every > 0 {
		c := l.conn
		l.pulse = time.AfterFunc(l.every, func() { l.feel(c) })
	}
}

// feel asks for a sign of life, unless there was one lately or the server has
// work to do: one that does one thing at a time would answer late, and its
// calls have their own time-outs.
func (l *Lane) feel(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil || l.conn != c {
		return
	}
	every := l.o.Settings.Load().Ping
	if every != l.every {
		l.watch()
	}
	if l.pulse == nil {
		return
	}
	if left := every - time.Since(l.used); l.active > 0 || left > 0 {
		if l.active > 0 {
			left = every
		}
		l.pulse.Reset(left)
		return
	}
	l.wg.Go(func() { l.ping(c, every) })
}

// ping asks for a sign of life within that time, and ends the connection without one.
func (l *Lane) ping(c *conn, every time.Duration) {
	err := c.ping(l.ctx, c.up, every, bridge.ErrLost)
	if l.ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	busy := l.active > 0 || time.Since(l.used) < every // it has got work meanwhile, which may keep it from answering
	busy = busy || errors.Is(err, bridge.ErrOpen)      // or was not asked
	if (err == nil || busy) && l.closed == nil && l.conn == c && l.pulse != nil {
		l.pulse.Reset(every)
	}
	l.mu.Unlock()
	if err != nil && !busy {
		c.Gone(err)
	}
}

// ping asks for a sign of life over up. An error that is an answer is one too. The
// error is of that kind when there is none in time.
func (c *conn) ping(ctx context.Context, up bridge.Upstream, within time.Duration, kind error) error {
	l := c.l
	dead := &bridge.Error{Server: l.o.Name, Kind: kind, Public: fmt.Sprintf("it did not answer a ping within %v", within)}
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

// Ping asks the server of the open connection for a sign of life, which it has to
// give within that time: the error is an ErrTimeout if it does not. Without an open
// connection there is nobody to ask, and no error.
func (l *Lane) Ping(ctx context.Context, within time.Duration) error {
	l.mu.Lock()
	c := l.conn
	l.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.Ping(ctx, within)
}

// Idle implements Conn.
func (c *conn) Idle() (open, idle bool) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return c.l.conn == c, c.l.active == 0
}

// Load implements Conn.
func (c *conn) Load() int {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.l.conn != c {
		return 0
	}
	return c.l.active
}

// Asked implements Conn.
func (c *conn) Asked() int64 { return c.asked.Load() }

// Ping implements Conn. The gate is not asked.
func (c *conn) Ping(ctx context.Context, within time.Duration) error {
	return c.ping(ctx, c.raw, within, bridge.ErrTimeout)
}
