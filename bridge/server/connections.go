package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/logs"
)

// connections bounds the open connections of clients: any program can open one, with or without a key.
// One address may have a quarter of them, because it is cheap to open many from one address.
type connections struct {
	log        *slog.Logger
	most, each int
	exempt     func(netip.Addr) bool // reports addresses without a limit of their own
	refusedLog logs.Limiter
	refused    atomic.Uint64
	waiting    atomic.Int64 // idle connections, which wait for a request

	mu   sync.Mutex // guards the rest
	open int
	from map[netip.Prefix]int
}

// operatorConnections bounds the connections of operators at an address of their own.
const operatorConnections = 256

// newConnections bounds connections to most, and to half of the files that the process may open: the
// other half is for servers.
func newConnections(most int, proxy func(netip.Addr) bool, log *slog.Logger) *connections {
	if files := maxOpenFiles(); files > 0 && files/2 < most {
		most = max(1, files/2)
	}
	return &connections{log: log, most: most, each: max(1, most/4), from: map[netip.Prefix]int{},
		exempt: func(a netip.Addr) bool { return a.IsLoopback() || proxy(a) }}
}

// addressOf returns the network under which a peer is counted; the zero prefix for an unknown one.
func addressOf(peer string) netip.Prefix {
	at, _ := netip.ParseAddrPort(peer)
	return address.Network(at.Addr())
}

// enter counts a connection. If there are too many, it returns the reason instead.
func (c *connections) enter(from netip.Prefix) (why string) {
	free := !from.IsValid() || c.exempt(from.Addr())
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.open >= c.most:
		return "max_connections is reached"
	case !free && c.from[from] >= c.each:
		return "this address has a quarter of max_connections: if it is a proxy, list it in trusted_proxies"
	}
	c.open++
	c.from[from]++
	return ""
}

func (c *connections) leave(from netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.from[from]--; c.from[from] == 0 {
		delete(c.from, from)
	}
}

// bounded is a listener that counts connections.
type bounded struct {
	net.Listener
	c *connections
}

// Accept returns the next connection within the limits. It closes others.
func (b bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := addressOf(conn.RemoteAddr().String())
		why := b.c.enter(from)
		if why == "" {
			return &clientConn{Conn: conn, all: b.c, leave: sync.OnceFunc(func() { b.c.leave(from) })}, nil
		}
		b.c.refused.Add(1)
		if more, ok := b.c.refusedLog.Due(access.RejectedLogEvery); ok {
			b.c.log.Warn("connection refused", "from", from.Addr().String(), "err", why, "max_connections", b.c.most, "more", more)
		}
		_ = conn.Close()
	}
}

// clientConn is a counted connection.
type clientConn struct {
	net.Conn
	all           *connections
	leave         func()
	authenticated atomic.Bool // a good key was shown on it
	isIdle        bool        // it is idle; only countIdle uses this
	idle          atomic.Pointer[time.Timer]
}

// Close closes the connection, and stops counting it.
func (c *clientConn) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}

// strangerIdle limits the idle time of a connection without a good key, if access rules exist.
const strangerIdle = time.Minute

// limitIdle closes idle connections on which no good key was shown.
func (c *clientConn) limitIdle(state http.ConnState) {
	if old := c.idle.Swap(nil); old != nil {
		old.Stop()
	}
	if state == http.StateIdle && !c.authenticated.Load() {
		c.idle.Store(time.AfterFunc(strangerIdle, func() { _ = c.Close() }))
	}
}

// countIdle counts idle connections.
func (c *clientConn) countIdle(state http.ConnState) {
	if waits := state == http.StateIdle; waits != c.isIdle {
		c.isIdle = waits
		if waits {
			c.all.waiting.Add(1)
		} else {
			c.all.waiting.Add(-1)
		}
	}
}

// awaitIdle waits until no connection is idle, none got a request within still, or ctx ends. A request that
// arrives while its connection is closed gets no answer, and a proxy does not repeat a POST. So an
// instance that stops closes each connection with an answer.
func (c *connections) awaitIdle(ctx context.Context, still time.Duration) {
	open, since := c.waiting.Load(), time.Now()
	for open > 0 && time.Since(since) < still && backoff.For(ctx, 10*time.Millisecond) == nil {
		if n := c.waiting.Load(); n != open {
			open, since = n, time.Now()
		}
	}
}

// clientOf returns the counted connection below c; nil if there is none.
func clientOf(c net.Conn) *clientConn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	client, _ := c.(*clientConn)
	return client
}

type clientKey struct{}

// withClient returns the context of the requests on a connection.
func withClient(ctx context.Context, c net.Conn) context.Context {
	if client := clientOf(c); client != nil {
		return context.WithValue(ctx, clientKey{}, client)
	}
	return ctx
}

// markAuthenticated records a good key on the connection of a request.
func markAuthenticated(ctx context.Context) {
	if client, ok := ctx.Value(clientKey{}).(*clientConn); ok {
		client.authenticated.Store(true)
	}
}
