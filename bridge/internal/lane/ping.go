package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// startPings starts to ping the open connection at the current interval, if any. The caller holds l.mu.
func (l *Lane) startPings() {
	if l.pingTimer != nil {
		l.pingTimer.Stop() // the timer belongs to another connection, or has another interval
	}
	l.pingTimer, l.pingEvery = nil, l.o.Settings.Load().Ping
	if l.pingEvery > 0 {
		c := l.conn
		l.pingTimer = time.AfterFunc(l.pingEvery, func() { l.checkAlive(c) })
	}
}

// checkAlive pings the server, unless a call is in flight or has ended recently. A server that does one thing at a
// time would answer the ping late, and calls have their own timeouts.
func (l *Lane) checkAlive(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil || l.conn != c {
		return
	}
	every := l.o.Settings.Load().Ping
	if every != l.pingEvery {
		l.startPings()
	}
	if l.pingTimer == nil {
		return
	}
	if left := every - time.Since(l.lastUsed); l.active > 0 || left > 0 {
		if l.active > 0 {
			left = every
		}
		l.pingTimer.Reset(left)
		return
	}
	l.wg.Go(func() { l.ping(c, every) })
}

// ping pings the server. If no answer comes within the time every, ping drops the connection.
func (l *Lane) ping(c *conn, every time.Duration) {
	err := c.ping(l.ctx, c.up, every, bridge.ErrLost)
	if l.ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	busy := l.active > 0 || time.Since(l.lastUsed) < every // a call came since, which may delay the answer
	busy = busy || errors.Is(err, bridge.ErrOpen)          // or the circuit breaker blocked the ping
	if (err == nil || busy) && l.closed == nil && l.conn == c && l.pingTimer != nil {
		l.pingTimer.Reset(every)
	}
	l.mu.Unlock()
	if err != nil && !busy {
		c.Gone(err)
	}
}

// ping pings the server over up. A JSON-RPC error counts as an answer. If no answer comes within the time within,
// ping returns an error of the given kind.
func (c *conn) ping(ctx context.Context, up bridge.Upstream, within time.Duration, kind error) error {
	l := c.l
	dead := &bridge.Error{
		Server: l.o.Name,
		Kind:   kind,
		Public: fmt.Sprintf("it did not answer a ping within %v", within),
	}
	ctx, stop := context.WithTimeoutCause(ctx, within, dead)
	defer stop()
	ask := jsonrpc.NewRequest("ping", nil)
	if up.Server().Modern() {
		ask = l.caller.Request("server/discover", nil) // modern servers have no ping
	}
	m, err := up.Call(ctx, &bridge.Request{Message: ask, From: l.caller})
	m.Release()
	return err
}

// Ping pings the server of the open connection. If no answer comes within the time within, Ping returns an
// ErrTimeout; without an open connection, nil.
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

// Ping implements Conn. Ping bypasses the gate.
func (c *conn) Ping(ctx context.Context, within time.Duration) error {
	return c.ping(ctx, c.raw, within, bridge.ErrTimeout)
}
