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

// Conn is an open connection as a breaker sees it beside its calls.
type Conn interface {
	// Idle reports whether the connection can be used still, and then whether no
	// call is under way.
	Idle() (open, idle bool)
	// Ping asks the server for a sign of life, which it has to give within that
	// time. An error that is an answer is one, too.
	Ping(ctx context.Context, within time.Duration) error
	// Asked returns how many questions the server has asked that name no call.
	Asked() int64
	// Gone says that the connection is of no use any more.
	Gone(err error)
}

// connections are those that a probe can ask for a sign of life.
type connections struct {
	mu   sync.Mutex // guards open
	open map[*guarded]struct{}
}

// guarded is a connection whose calls the breaker lets pass, and counts.
// Notifications pass in any case: nobody waits for them, and what is under way
// needs them.
type guarded struct {
	bridge.Upstream
	b     *Breaker
	conn  Conn
	from  *bridge.Caller               // on whose behalf it was opened
	own   bool                         // it is one client's alone
	last  atomic.Pointer[bridge.Error] // that was counted
	bads  atomic.Int64                 // failures that were counted
	under atomic.Int64                 // calls under way, but for those that last
}

// Close closes the connection.
func (g *guarded) Close(ctx context.Context) error {
	g.b.conns.mu.Lock()
	delete(g.b.conns.open, g)
	g.b.conns.mu.Unlock()
	return g.Upstream.Close(ctx)
}

// before is how things were when a call began.
type before struct {
	Attempt
	bads  int64 // of the connection
	asked int64
}

// Call makes a call.
func (g *guarded) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	a, err := g.b.pass(ctx, g.from, calls)
	if err != nil {
		return nil, err
	}
	if r.Method != era.Listen {
		g.under.Add(1)
		defer g.under.Add(-1)
	}
	was := before{Attempt: a, bads: g.bads.Load(), asked: g.conn.Asked()}
	if r.Back == nil {
		m, err := g.Upstream.Call(ctx, r)
		g.settle(ctx, r, was, err)
		return m, err
	}
	c := &guardedCall{Client: r.Back, r: *r, a: a}
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
	case j == works, j == fails && g.conn.Asked() != was.asked: // it has spoken meanwhile, and whoever was asked takes his time
		was.Good()
	case j == fails && g.counts(was, err):
		g.b.bad(was.Attempt, err, g.principal(r), "circuit breaker open: the server keeps failing")
	default: // it says nothing, or was counted
		was.Void()
	}
}

func (g *guarded) principal(r *bridge.Request) string {
	if r.From != nil {
		return r.From.Principal
	}
	return g.from.Principal
}

// counts reports whether a failure says more than was counted: the end of a
// connection is one, however many calls it ends. Of a connection that is one
// client's so is what its calls meet at the same time: a client that makes a
// server of its own fail is no reason to leave those of others alone.
func (g *guarded) counts(was before, err error) bool {
	if g.own {
		return g.bads.CompareAndSwap(was.bads, was.bads+1)
	}
	if e, ok := errors.AsType[*bridge.Error](err); ok {
		return g.last.Swap(e) != e
	}
	return true
}

// guardedCall is a call that has somebody to speak to, and the Client of it. Its
// first sign of life settles it: from then on it may wait for as long as it needs,
// perhaps for a person.
type guardedCall struct {
	bridge.Client
	r       bridge.Request
	a       Attempt
	settled atomic.Bool
}

var _ bridge.Client = (*guardedCall)(nil)

func (c *guardedCall) alive() {
	if !c.settled.Swap(true) {
		c.a.Good()
	}
}

// Notify passes on what the server says about the call.
func (c *guardedCall) Notify(n *jsonrpc.Message) {
	c.alive()
	c.Client.Notify(n)
}

// Ask passes on what the server asks about the call.
func (c *guardedCall) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	c.alive()
	return c.Client.Ask(q, reply)
}
