// Package lift lets clients with sessions use any server, whatever revision it
// speaks (protocol.md D2, D3, D5). A Lift stands between a session and its
// connection, and is the Client of that. Between equals it does nothing. A legacy
// server of another revision gets and says what the two understand; a modern one,
// which has no sessions, is told with each request who asks, and what a session has
// beyond that is kept here: its log level, its subscriptions, and its answers to
// what the server wants to know.
//
// A subscription at a modern server has goroutines, which end with Close. Lift opens
// no connection: it uses the one that it is put around.
package lift

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Options are what the lifts of all sessions have in common that use a server.
type Options struct {
	Server    string        // its name
	Handshake time.Duration // how long it may take to open a connection
	Log       *slog.Logger
	Rewrites  *list.Rewrites
	// Missed is told of what may have changed while nobody listened, before the
	// session is.
	Missed func(n *jsonrpc.Message)
}

// Lift is an Upstream for one session.
type Lift struct {
	bridge.Upstream
	o    *Options
	from *bridge.Caller
	to   bridge.Client
	wire atomic.Pointer[bridge.Upstream] // Upstream, for the goroutines of the connection
	meta atomic.Pointer[metadata]        // what goes with each request to a modern server
	caps atomic.Pointer[capabilities]    // what a modern server can do for this session; nil until it was asked

	mu           sync.Mutex    // guards the rest
	subscription *subscription // to a modern server's changes; nil until there is something to hear
	closed       bool
}

// New makes what translates for the session of from, which is told at to. Its
// connection is to be opened with its Client, and then wrapped.
func New(from *bridge.Caller, to bridge.Client, o *Options) *Lift {
	return &Lift{o: o, from: from, to: to}
}

// Client returns what the connection speaks to.
func (l *Lift) Client() bridge.Client { return client{l} }

// Wrap returns up as the session uses it. It is called once, before the first call.
func (l *Lift) Wrap(up bridge.Upstream) bridge.Upstream {
	l.Upstream = up
	l.wire.Store(&up)
	return l
}

// Call makes a call.
func (l *Lift) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	s := l.Upstream.Server()
	switch {
	case s != nil && s.Revision == l.from.Revision:
		return l.Upstream.Call(ctx, r)
	case r.Method == "initialize":
		return l.initialize(ctx, r)
	case s == nil, s.Modern() && l.caps.Load() == nil:
		// What to say depends on what the server is. One of several that are
		// offered as one need not have been asked before.
		a, err := l.initialize(ctx, &bridge.Request{Message: jsonrpc.NewRequest("initialize", l.from.Params), From: r.From})
		if err != nil || a.Error != nil {
			return a, err
		}
		s = l.Upstream.Server()
	}
	switch {
	case s == nil: // it has ended already, and would come back another
		return nil, &bridge.Error{Server: l.o.Server, Kind: bridge.ErrUnsent, Public: "its connection has ended"}
	case s.Revision == l.from.Revision:
		return l.Upstream.Call(ctx, r)
	case s.Modern():
		return l.modern(ctx, r)
	}
	return l.grade(ctx, s, r)
}

// initialize opens the connection, if need be, and answers with what the server
// said of itself.
func (l *Lift) initialize(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	a, err := l.Upstream.Call(ctx, r)
	s := l.Upstream.Server()
	switch {
	case err != nil || a.Error != nil || s == nil || s.Revision == l.from.Revision:
		return a, err
	case s.Modern():
		return l.meet(a), nil
	}
	result := era.Result(r.Method, a.Result, s.Revision, l.from.Revision)
	return jsonrpc.NewResult(a.ID, rawjson.SetFirst(result, "capabilities", era.WithoutTasks(rawjson.Get(result, "capabilities")))), nil
}

// Notify passes a notification of the client on. A modern server is told
// nothing: its requests say all there is to know, and what the client does for
// it is between the client and us (D2.1).
func (l *Lift) Notify(ctx context.Context, r *bridge.Request) error {
	if l.Upstream.Server().Modern() {
		l.o.Log.Debug("notification not passed on: the server has none", "method", r.Method)
		return nil
	}
	return l.Upstream.Notify(ctx, r)
}

// Close ends what the session hears, and the connection.
func (l *Lift) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	s := l.subscription
	l.mu.Unlock()
	if s != nil {
		s.stop()
		s.wg.Wait()
	}
	return l.Upstream.Close(ctx)
}

// client is the Client that the connection speaks to.
type client struct{ l *Lift }

// server returns what is known of the server that speaks, or nil.
func (c client) server() *bridge.Greeting {
	if up := c.l.wire.Load(); up != nil {
		return (*up).Server()
	}
	return nil // a shared connection speaks to everybody, also to who is about to join
}

// Notify passes on what the server says by itself.
func (c client) Notify(n *jsonrpc.Message) {
	s := c.server()
	switch {
	case s == nil || s.Revision == c.l.from.Revision:
	case s.Modern():
		// It speaks in answers and subscriptions only: this is the lane, which has
		// opened a connection again. The subscription is told of that too.
		if sub := c.l.listening(); sub != nil && sub.lost() {
			return
		}
	default:
		n = n.WithParams(era.Notification(n.Method, n.Params, s.Revision, c.l.from.Revision))
	}
	c.l.to.Notify(n)
}

// Ask passes on what the server asks.
func (c client) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	theirs := era.LatestLegacy // of a server that asks before its handshake is noted, all that may be
	if s := c.server(); s != nil {
		theirs = s.Revision
	}
	if theirs != c.l.from.Revision {
		return (&graded{c.l.to, c.l.from, theirs}).Ask(q, reply)
	}
	return c.l.to.Ask(q, reply)
}

// Gone says that the connection has ended for good. What is heard over it ends
// with the session.
func (c client) Gone(err error) { c.l.to.Gone(err) }
