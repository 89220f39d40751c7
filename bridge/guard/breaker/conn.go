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

// Conn is what a breaker uses of an open connection beside its calls.
type Conn interface {
	// Idle reports whether the connection is open, and whether it has no calls in flight.
	Idle() (open, idle bool)
	// Ping returns nil if the server answers a ping within that time, even with a JSON-RPC error.
	Ping(ctx context.Context, within time.Duration) error
	// Asked returns how many questions the server has sent that named no call.
	Asked() int64
	// Gone marks the connection as lost because of err.
	Gone(err error)
}

// connections are the open connections of a server. A probe pings one of them.
type connections struct {
	mu   sync.Mutex // guards open
	open map[*guarded]struct{}
}

// guarded is a connection whose calls the breaker counts and may refuse. Notifications always pass, since no caller
// waits for them and calls in flight may need them.
type guarded struct {
	bridge.Upstream
	b        *Breaker
	conn     Conn
	from     *bridge.Caller               // the client for which it was opened
	own      bool                         // it serves one client only
	last     atomic.Pointer[bridge.Error] // the last counted error
	failures atomic.Int64                 // number of counted failures
	inFlight atomic.Int64                 // calls in flight, without subscriptions
}

func (g *guarded) Close(ctx context.Context) error {
	g.b.conns.mu.Lock()
	delete(g.b.conns.open, g)
	g.b.conns.mu.Unlock()
	return g.Upstream.Close(ctx)
}

// before is what a call compares its outcome with: the state when the call began.
type before struct {
	Attempt
	failures int64 // guarded.failures
	asked    int64 // Conn.Asked
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

// settle records the outcome of a call.
func (g *guarded) settle(ctx context.Context, r *bridge.Request, was before, err error) {
	j := judge(ctx, err)
	if j == works && was.Slow() {
		j, err = fails, errSlow
	}
	switch {
	case j == works, j == fails && g.conn.Asked() != was.asked: // the server asked a client during the call, so the call may have waited for a person
		was.Good()
	case j == fails && g.counts(was, err):
		g.b.failed(was.Attempt, err, g.principal(r), "circuit breaker open: the server keeps failing")
	default: // err says nothing about the server, or the same failure is counted
		was.Void()
	}
}

func (g *guarded) principal(r *bridge.Request) string {
	if r.From != nil {
		return r.From.Principal
	}
	return g.from.Principal
}

// counts reports whether a failure counts. The end of a connection is one failure, however many calls it ends. On a
// connection of one client, failures of calls that overlap count once, so a client that crashes its own server does not
// stop the others.
func (g *guarded) counts(was before, err error) bool {
	if g.own {
		return g.failures.CompareAndSwap(was.failures, was.failures+1)
	}
	if e, ok := errors.AsType[*bridge.Error](err); ok {
		return g.last.Swap(e) != e
	}
	return true
}

// guardedCall is a call with a Client, and is that Client. The first message of the server about the call counts as a
// success. After it the call may take any time, for example to wait for a person.
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

func (g *guardedCall) Notify(m *jsonrpc.Message) {
	g.alive()
	g.Client.Notify(m)
}

func (g *guardedCall) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	g.alive()
	return g.Client.Ask(m, reply)
}
