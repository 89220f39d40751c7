// Package lift lets clients with sessions use a server of any revision (protocol.md D2, D3, D5). A Lift stands
// between a session and its connection, and is the connection's Client. Between equal revisions it changes
// nothing. For a legacy server of another revision it translates both ways. A modern server has no sessions. So
// each request carries the client's data. The Lift holds the session's log level, its subscriptions and its
// answers to the server's questions.
//
// A subscription at a modern server has goroutines, which end with Close. A Lift opens no connection; it wraps one.
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

// Options holds the data that the lifts of all sessions at a server share.
type Options struct {
	Server    string
	Handshake time.Duration // time limit for opening a connection
	Log       *slog.Logger
	Rewrites  *list.Rewrites
	Cache     Cache
}

// Cache stores the server's lists.
type Cache interface {
	// Heard drops the answers that m makes stale, before the session gets m.
	Heard(m *jsonrpc.Message)
}

// Lift is an Upstream for one session.
type Lift struct {
	bridge.Upstream
	o    *Options
	from *bridge.Caller
	to   bridge.Client
	wire atomic.Pointer[bridge.Upstream] // Upstream, for the goroutines of the connection
	meta atomic.Pointer[metadata]        // sent with each request to a modern server
	caps atomic.Pointer[capabilities]    // of a modern server for this session; nil before its greeting

	mu           sync.Mutex    // guards the rest
	subscription *subscription // to a modern server's changes; nil before the first one
	closed       bool
}

// New returns a Lift for the session of from, whose Client is to. Open the connection with its Client, and then
// call Wrap.
func New(from *bridge.Caller, to bridge.Client, o *Options) *Lift {
	return &Lift{
		o:    o,
		from: from,
		to:   to,
	}
}

// Client returns the Client of the connection.
func (l *Lift) Client() bridge.Client { return client{l} }

// Wrap sets the connection and returns the session's Upstream. Call it once, before the first call.
func (l *Lift) Wrap(up bridge.Upstream) bridge.Upstream {
	l.Upstream = up
	l.wire.Store(&up)
	return l
}

func (l *Lift) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	g := l.Upstream.Server()
	switch {
	case g != nil && g.Revision == l.from.Revision:
		return l.Upstream.Call(ctx, r)
	case r.Method == "initialize":
		return l.initialize(ctx, r)
	case g == nil, g.Modern() && l.caps.Load() == nil:
		// The translation depends on the server. A server of the aggregate may not have its greeting yet.
		m, err := l.initialize(ctx, &bridge.Request{Message: jsonrpc.NewRequest("initialize", l.from.Params), From: r.From})
		if err != nil || m.Error != nil {
			return m, err
		}
		g = l.Upstream.Server()
	}
	switch {
	case g == nil: // the connection has ended, and the next server may have another revision
		return nil, &bridge.Error{
			Server: l.o.Server,
			Kind:   bridge.ErrUnsent,
			Public: "its connection has ended",
		}
	case g.Revision == l.from.Revision:
		return l.Upstream.Call(ctx, r)
	case g.Modern():
		return l.modern(ctx, r)
	}
	return l.grade(ctx, g, r)
}

// initialize opens the connection if necessary, and answers from its greeting.
func (l *Lift) initialize(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	m, err := l.Upstream.Call(ctx, r)
	g := l.Upstream.Server()
	switch {
	case err != nil || m.Error != nil || g == nil || g.Revision == l.from.Revision:
		return m, err
	case g.Modern():
		return l.meet(m), nil
	}
	result := era.Result(r.Method, m.Result, g.Revision, l.from.Revision)
	return jsonrpc.NewResult(m.ID, rawjson.SetFirst(result, "capabilities", era.WithoutTasks(rawjson.Get(result, "capabilities")))), nil
}

// Notify passes on a notification of the client. A modern server gets no notifications. Requests to such a server are
// complete, and the bridge handles the client's answers (D2.1).
func (l *Lift) Notify(ctx context.Context, r *bridge.Request) error {
	if l.Upstream.Server().Modern() {
		l.o.Log.Debug("notification dropped: the server's revision does not define it", "method", r.Method)
		return nil
	}
	return l.Upstream.Notify(ctx, r)
}

// Close ends the session's subscription and the connection.
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

// client is the Client of the connection.
type client struct{ l *Lift }

// server returns the server's greeting, or nil.
func (c client) server() *bridge.Greeting {
	if up := c.l.wire.Load(); up != nil {
		return (*up).Server()
	}
	return nil // a shared connection notifies all views, even before Wrap
}

// Notify passes on a notification that belongs to no call.
func (c client) Notify(m *jsonrpc.Message) {
	g := c.server()
	switch {
	case g == nil || g.Revision == c.l.from.Revision:
	case g.Modern():
		// A modern server notifies only in calls and subscriptions. So m is from the lane after a reconnect, which
		// interrupts the subscription.
		if sub := c.l.listening(); sub != nil && sub.lost() {
			return
		}
	default:
		m = m.WithParams(era.Notification(m.Method, m.Params, g.Revision, c.l.from.Revision))
	}
	c.l.to.Notify(m)
}

// Ask passes on a question that belongs to no call.
func (c client) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	theirs := era.LatestLegacy // a server that asks before its greeting is stored may ask anything
	if g := c.server(); g != nil {
		theirs = g.Revision
	}
	if theirs != c.l.from.Revision {
		return (&graded{c.l.to, c.l.from, theirs}).Ask(m, reply)
	}
	return c.l.to.Ask(m, reply)
}

// Gone passes on that the connection has ended for good.
func (c client) Gone(err error) { c.l.to.Gone(err) }
