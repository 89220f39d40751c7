package gateway

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// counted is a connection whose calls the breaker lets pass, and counts.
// Notifications pass in any case: nobody waits for them, and what is under way
// needs them.
type counted struct {
	bridge.Upstream
	b    *breaker
	w    *wire
	last atomic.Pointer[bridge.Error] // that was counted
	bads atomic.Int64                 // failures that were counted
}

// joined returns the connection with its calls counted.
func (b *breaker) joined(w *wire) bridge.Upstream {
	if b == nil {
		return w.raw
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wires[w] = struct{}{}
	return &counted{Upstream: w.raw, b: b, w: w}
}

// parted notes that the connection is closed.
func (b *breaker) parted(w *wire) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.wires, w)
}

// before is how things were when a call began.
type before struct {
	score *score
	turn  int64 // of score
	goods int64 // of score
	bads  int64 // of the connection
	asks  int64 // of the server
	began time.Time
}

// Call makes a call.
func (u *counted) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	t, err := u.b.pass(ctx, u.w.l.caller)
	if err != nil {
		return nil, err
	}
	if r.Method != era.Listen {
		u.w.under.Add(1)
		defer u.w.under.Add(-1)
	}
	was := before{score: t, turn: t.turns.Load(), goods: t.goods.Load(), bads: u.bads.Load(), asks: u.w.asks.Load(), began: time.Now()}
	if r.Back == nil {
		m, err := u.Upstream.Call(ctx, r)
		u.settle(ctx, r, was, err)
		return m, err
	}
	c := &trial{Client: r.Back, u: u, r: *r, t: t}
	c.r.Back = c
	m, err := u.Upstream.Call(ctx, &c.r)
	if !c.settled.Swap(true) {
		u.settle(ctx, r, was, err)
	}
	return m, err
}

// settle counts the outcome of a call.
func (u *counted) settle(ctx context.Context, r *bridge.Request, was before, err error) {
	j := judge(ctx, err)
	switch {
	case j == nothing:
		return
	case u.w.asks.Load() != was.asks: // it has spoken meanwhile, and whoever was asked takes his time
		j = works
	case j == works && u.b.o.Slow > 0 && time.Since(was.began) > u.b.o.Slow:
		j, err = fails, errSlow
	}
	if j == works {
		u.b.good(was.score)
		return
	}
	if u.news(was, err) {
		u.b.bad(was, err, principal(r, u.w.l))
	}
}

// principal returns whose a request is.
func principal(r *bridge.Request, l *lane) string {
	if r.From != nil {
		return r.From.Principal
	}
	return l.caller.Principal
}

// news reports whether a failure says more than was counted: the end of a
// connection is one, however many calls it ends. Of a connection that is one
// session's so is what its calls meet at the same time: a client that makes a
// server of its own fail is no reason to leave those of others alone.
func (u *counted) news(was before, err error) bool {
	if u.w.l.own {
		return u.bads.CompareAndSwap(was.bads, was.bads+1)
	}
	if e, ok := errors.AsType[*bridge.Error](err); ok {
		return u.last.Swap(e) != e
	}
	return true
}

// trial is a call that has somebody to speak to. Its first sign of life settles
// it: from then on it may wait for as long as it needs, perhaps for a person.
type trial struct {
	bridge.Client
	u       *counted
	r       bridge.Request
	t       *score
	settled atomic.Bool
}

var _ bridge.Client = (*trial)(nil)

func (c *trial) alive() {
	if !c.settled.Swap(true) {
		c.u.b.good(c.t)
	}
}

// Notify passes on what the server says about the call.
func (c *trial) Notify(n *jsonrpc.Message) {
	c.alive()
	c.Client.Notify(n)
}

// Ask passes on what the server asks about the call.
func (c *trial) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	c.alive()
	return c.Client.Ask(q, reply)
}
