package gateway

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// lift is an Upstream for a client with a session, whatever revision the server
// speaks (protocol.md D2, D3, D5): it stands between the two, and is the Client
// of the connection. Between equals it does nothing. A legacy server of another
// revision gets and says what the two understand; a modern one, which has no
// sessions, is told with each request who asks, and what a session has beyond
// that is kept here: its log level, its subscriptions, and its answers to what
// the server wants to know.
type lift struct {
	bridge.Upstream
	r    *route
	from *bridge.Caller
	rest bridge.Client
	wire atomic.Pointer[mirrored]   // Upstream, for the goroutines of the connection
	said atomic.Pointer[said]       // what goes with each request to a modern server
	met  atomic.Pointer[acquainted] // what a modern server can do for this session; nil until it was asked

	mu      sync.Mutex // guards the rest
	hearing *hearing   // of a modern server's changes; nil until there is something to hear
	closed  bool
}

var _ bridge.Client = lifted{}

// newLift returns what the calls of a session go to. connect makes the
// connection, whose Client is the lift.
func newLift(r *route, from *bridge.Caller, rest bridge.Client, connect func(*bridge.Caller, bridge.Client) (bridge.Upstream, error)) (bridge.Upstream, error) {
	l := &lift{r: r, from: from, rest: rest}
	up, err := connect(from, lifted{l})
	if err != nil {
		return nil, err
	}
	m := r.checked(up, false)
	l.Upstream = m
	l.wire.Store(m)
	return l, nil
}

// Call makes a call.
func (l *lift) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	s := l.Upstream.Server()
	switch {
	case s != nil && s.Revision == l.from.Revision:
		return l.Upstream.Call(ctx, r)
	case r.Method == "initialize":
		return l.initialize(ctx, r)
	case s == nil, s.Modern() && l.met.Load() == nil:
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
		return nil, &bridge.Error{Server: l.r.o.Name, Kind: bridge.ErrUnsent, Public: "its connection has ended"}
	case s.Revision == l.from.Revision:
		return l.Upstream.Call(ctx, r)
	case s.Modern():
		return l.modern(ctx, r)
	}
	return l.grade(ctx, s, r)
}

// initialize opens the connection, if need be, and answers with what the server
// said of itself.
func (l *lift) initialize(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	a, err := l.Upstream.Call(ctx, r)
	s := l.Upstream.Server()
	switch {
	case err != nil || a.Error != nil || s == nil || s.Revision == l.from.Revision:
		return a, err
	case s.Modern():
		return l.meet(a), nil
	}
	result := era.Result(r.Method, a.Result, s.Revision, l.from.Revision)
	return jsonrpc.NewResult(a.ID, untasked(result)), nil // tasks are relayed between equals only
}

// Notify passes a notification of the client on. A modern server is told
// nothing: its requests say all there is to know, and what the client does for
// it is between the client and us (D2.1).
func (l *lift) Notify(ctx context.Context, r *bridge.Request) error {
	if l.Upstream.Server().Modern() {
		l.r.log.Debug("notification not passed on: the server has none", "method", r.Method)
		return nil
	}
	return l.Upstream.Notify(ctx, r)
}

// Close ends what the session hears, and the connection.
func (l *lift) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	h := l.hearing
	l.mu.Unlock()
	if h != nil {
		h.close()
	}
	return l.Upstream.Close(ctx)
}

// lifted is the Client that the connection of a lift speaks to.
type lifted struct{ l *lift }

// server returns what is known of the server that speaks, or nil.
func (c lifted) server() *bridge.Greeting {
	if up := c.l.wire.Load(); up != nil {
		return up.Server()
	}
	return nil // a shared connection speaks to everybody, also to who is about to join
}

// Notify passes on what the server says by itself.
func (c lifted) Notify(n *jsonrpc.Message) {
	s := c.server()
	switch {
	case s == nil || s.Revision == c.l.from.Revision:
	case s.Modern():
		// It speaks in answers and subscriptions only: this is the lane, which has
		// opened a connection again. The subscription is told of that too.
		if h := c.l.listening(); h != nil && h.lost() {
			return
		}
	default:
		n = n.WithParams(era.Notification(n.Method, n.Params, s.Revision, c.l.from.Revision))
	}
	c.l.rest.Notify(n)
}

// Ask passes on what the server asks.
func (c lifted) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	theirs := latest // of a server that asks before its handshake is noted, all that may be
	if s := c.server(); s != nil {
		theirs = s.Revision
	}
	if theirs != c.l.from.Revision {
		return (&graded{c.l.rest, c.l.from, theirs}).Ask(q, reply)
	}
	return c.l.rest.Ask(q, reply)
}

// Gone says that the connection has ended for good. What is heard over it ends
// with the session.
func (c lifted) Gone(err error) { c.l.rest.Gone(err) }
