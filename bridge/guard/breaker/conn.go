package breaker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Conn is an open connection as a breaker uses it beside its calls.
type Conn interface {
	// Idle reports whether the connection can still be used, and whether it has no calls in flight.
	Idle() (open, idle bool)
	// Ping pings the server, which must answer within that time. A JSON-RPC error is an answer.
	Ping(ctx context.Context, within time.Duration) error
	// Asked returns how many questions of the server named no call.
	Asked() int64
	// Gone marks the connection as lost.
	Gone(err error)
}

// connections are the open connections, which a probe may ping.
type connections struct {
	mu   sync.Mutex // guards open
	open map[*guarded]struct{}
}

// guarded is a connection whose calls the breaker guards and counts. Notifications always pass: no
// caller waits for them, and calls in flight need them.
type guarded struct {
	bridge.Upstream
	b        *Breaker
	conn     Conn
	from     *bridge.Caller               // on whose behalf it was opened
	own      bool                         // it serves one client only
	last     atomic.Pointer[bridge.Error] // the last counted error
	failures atomic.Int64                 // counted failures
	inFlight atomic.Int64                 // calls in flight, without subscriptions
}

func (g *guarded) Close(ctx context.Context) error {
	g.b.conns.mu.Lock()
	delete(g.b.conns.open, g)
	g.b.conns.mu.Unlock()
	return g.Upstream.Close(ctx)
}

// before is the state when a call began.
type before struct {
	Attempt
	failures int64 // of the connection
	asked    int64
}

func (g *guarded) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	a, err := g.b.pass(ctx, g.from, calls)
	if err != nil {
		return nil, err
	}
	if r.Method != era.Listen {
		g.inFlight.Add(1)
		defer g.inFlight.Add(-1)
	}
	was := before{
		Attempt:  a,
		failures: g.failures.Load(),
		asked:    g.conn.Asked(),
	}
	if r.Back == nil {
		m, err := g.Upstream.Call(ctx, r)
		g.settle(ctx, r, was, err)
		return m, err
	}
	c := &guardedCall{
		Client: r.Back,
		r:      *r,
		a:      a,
	}
	c.r.Back = c
	m, err := g.Upstream.Call(ctx, &c.r)
	if !c.settled.Swap(true) {
		g.settle(ctx, r, was, err)
	}
	return m, err
}

// settle counts the outcome of a call.
func (g *guarded) settle(ctx context.Context, r *bridge.Request, was before, err error) {
	j := judge(ctx, err)
	if j == works && was.Slow() {
		j, err = fails, errSlow
	}
	switch {
	case j == works, j == fails && g.conn.Asked() != was.asked: // the server asked meanwhile, and a person may take time
		was.Good()
	case j == fails && g.counts(was, err):
		g.b.failed(was.Attempt, err, g.principal(r), "circuit breaker open: the server keeps failing")
	default: // no statement about the server, or already counted
		was.Void()
	}
}

func (g *guarded) principal(r *bridge.Request) string {
	if r.From != nil {
		return r.From.Principal
	}
	return g.from.Principal
}

// counts reports whether a failure is not counted yet. The end of a connection is one failure,
// however many calls it ends. On a connection of one client, all failures at the same time count as
// one. A client that crashes its own server must not stop the others.
func (g *guarded) counts(was before, err error) bool {
	if g.own {
		return g.failures.CompareAndSwap(was.failures, was.failures+1)
	}
	if e, ok := errors.AsType[*bridge.Error](err); ok {
		return g.last.Swap(e) != e
	}
	return true
}

// guardedCall is a call with a Client, and that Client itself. Its first message of the server
// settles the call: from then on it may take any time, perhaps for a person.
type guardedCall struct {
	bridge.Client
	r       bridge.Request
	a       Attempt
	settled atomic.Bool
}

var _ bridge.Client = (*guardedCall)(nil)

func (g *guardedCall) alive() {
	if !g.settled.Swap(true) {
		g.a.Good()
	}
}

// Notify passes a notification about the call on.
func (g *guardedCall) Notify(m *jsonrpc.Message) {
	g.alive()
	g.Client.Notify(m)
}

// Ask passes a question about the call on.
func (g *guardedCall) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	g.alive()
	return g.Client.Ask(m, reply)
}
