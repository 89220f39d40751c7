package server

import (
	"container/list"
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
	"github.com/mcp-bridge/bridge/internal/logs"
)

// connections bounds the open connections of clients: any program can open a connection, with or without a key. One
// address may have a quarter of them, because it is cheap to open many from one address. With access rules, a new
// connection beyond a bound replaces the oldest connection without a good key.
type connections struct {
	log        *slog.Logger
	most, each int
	exempt     func(netip.Addr) bool // reports whether the limit for one address does not apply
	keyed      bool                  // there are access rules
	refusedLog logs.Limiter
	refused    atomic.Uint64
	waiting    atomic.Int64  // idle connections, which wait for a request
	waits      chan struct{} // has a value when waiting has changed

	mu        sync.Mutex // guards the rest
	open      int
	from      map[netip.Prefix]int
	strangers list.List // of *clientConn: connections without a good key, the oldest first; empty without access rules
}

// operatorConnections bounds the connections of operators at an address of their own.
const operatorConnections = 256

// newConnections bounds connections to most, but to at most half of the files that the process may
// open: the other half is for servers.
func newConnections(most int, keyed bool, proxy func(netip.Addr) bool, log *slog.Logger) *connections {
	if files := maxOpenFiles(); files > 0 && files/2 < most {
		most = max(1, files/2)
	}
	return &connections{
		log:    log,
		most:   most,
		each:   max(1, most/4),
		keyed:  keyed,
		waits:  make(chan struct{}, 1),
		from:   map[netip.Prefix]int{},
		exempt: func(a netip.Addr) bool { return a.IsLoopback() || proxy(a) },
	}
}

// addressOf returns the network under which a peer is counted; the zero prefix for an unknown network.
func addressOf(peer string) netip.Prefix {
	at, _ := netip.ParseAddrPort(peer)
	return address.Network(at.Addr())
}

// enter counts a connection. If there are too many, enter returns the reason, and the stranger that the connection
// replaces. If there is no stranger to replace, the connection is not counted.
func (c *connections) enter(client *clientConn) (why string, stranger *clientConn) {
	from := client.from
	free := !from.IsValid() || c.exempt(from.Addr())
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !free && c.from[from] >= c.each: // first: the connection must replace one of the same address
		why = "this address has a quarter of max_connections: if it is a proxy, list it in trusted_proxies"
		stranger = c.oldest(func(c *clientConn) bool { return c.from == from })
	case c.open >= c.most:
		why = "max_connections is reached"
		stranger = c.oldest(func(*clientConn) bool { return true })
	}
	if stranger != nil {
		c.remove(stranger)
	} else if why != "" {
		return why, nil
	}
	c.open++
	c.from[from]++
	client.counted = true
	if c.keyed {
		client.stranger = c.strangers.PushBack(client)
	}
	return why, stranger
}

// oldest returns the oldest connection without a good key that is accepts; nil if there is none. The caller holds
// c.mu.
func (c *connections) oldest(is func(*clientConn) bool) *clientConn {
	for e := c.strangers.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*clientConn); is(c) {
			return c
		}
	}
	return nil
}

func (c *connections) leave(client *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(client)
}

// remove is leave for callers that hold c.mu.
func (c *connections) remove(client *clientConn) {
	if !client.counted {
		return
	}
	client.counted = false
	c.forget(client)
	c.open--
	if c.from[client.from]--; c.from[client.from] == 0 {
		delete(c.from, client.from)
	}
}

// forget removes a connection from c.strangers. The caller holds c.mu.
func (c *connections) forget(client *clientConn) {
	if client.stranger != nil {
		c.strangers.Remove(client.stranger)
		client.stranger = nil
	}
}

// bounded is a listener that counts connections.
type bounded struct {
	net.Listener
	c *connections
}

// Accept returns the next counted connection. Accept closes connections beyond a bound, or the strangers that they
// replace.
func (b bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := &clientConn{
			Conn: conn,
			all:  b.c,
			from: addressOf(conn.RemoteAddr().String()),
		}
		why, stranger := b.c.enter(client)
		if why == "" {
			return client, nil
		}
		b.c.refused.Add(1)
		if stranger == nil {
			b.warn("connection refused", client.from, why)
			_ = conn.Close()
			continue
		}
		b.warn("connection without a good key closed, to make room", stranger.from, why)
		_ = stranger.Close()
		return client, nil
	}
}

// warn logs that a connection ends because there are too many.
func (b bounded) warn(what string, from netip.Prefix, why string) {
	if more, ok := b.c.refusedLog.Due(access.RejectedLogEvery); ok {
		b.c.log.Warn(what, "from", from.Addr().String(), "err", why, "max_connections", b.c.most, "more", more)
	}
}

// clientConn is a counted connection.
type clientConn struct {
	net.Conn
	all           *connections
	from          netip.Prefix
	counted       bool          // guarded by all.mu, as stranger is
	stranger      *list.Element // its place in all.strangers
	authenticated atomic.Bool   // a good key was shown on the connection
	isIdle        bool          // counted in all.waiting; only countIdle uses this
	idle          atomic.Pointer[time.Timer]
}

func (c *clientConn) Close() error {
	err := c.Conn.Close()
	c.all.leave(c)
	return err
}

// strangerIdle limits the idle time of a connection without a good key, if access rules exist.
const strangerIdle = time.Minute

// limitIdle closes a connection that is idle for strangerIdle, if no good key was shown on it.
func (c *clientConn) limitIdle(state http.ConnState) {
	if old := c.idle.Swap(nil); old != nil {
		old.Stop()
	}
	if state == http.StateIdle && !c.authenticated.Load() {
		c.idle.Store(time.AfterFunc(strangerIdle, func() { _ = c.Close() }))
	}
}

// countIdle counts the connection as waiting while it is idle, and signals each change on waits.
func (c *clientConn) countIdle(state http.ConnState) {
	if waits := state == http.StateIdle; waits != c.isIdle {
		c.isIdle = waits
		if waits {
			c.all.waiting.Add(1)
		} else {
			c.all.waiting.Add(-1)
		}
		select {
		case c.all.waits <- struct{}{}:
		default:
		}
	}
}

// awaitIdle waits until no connection is idle, none has become idle or busy for the time still, or ctx ends. If a
// request arrives while the bridge closes its connection, the request gets no answer, and a proxy does not repeat a
// POST. Therefore an instance that stops closes each connection with an answer.
func (c *connections) awaitIdle(ctx context.Context, still time.Duration) {
	over := time.NewTimer(still)
	defer over.Stop()
	for c.waiting.Load() > 0 {
		select {
		case <-c.waits:
			over.Reset(still)
		case <-over.C:
			return
		case <-ctx.Done():
			return
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
		if !client.authenticated.Swap(true) {
			client.all.mu.Lock()
			defer client.all.mu.Unlock()
			client.all.forget(client)
		}
	}
}
