package lane

import (
	"context"
	"fmt"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// beginning is a subscription that the server has to acknowledge in time, as it
// has to finish a handshake: until then it takes a place among the calls under
// way, and its client waits.
type beginning struct {
	bridge.Client
	timer *time.Timer
}

// listen makes the call of a subscription, by itself or as a part of one that all
// of the connection share.
func (l *Lane) listen(ctx context.Context, c *conn, r *bridge.Request) (*jsonrpc.Message, error) {
	switch {
	case r.Back == nil:
		return l.perform(ctx, c, r)
	case c.up.Server().Modern() && !c.attributes():
		return l.begins(ctx, r, c.joint.listen)
	}
	return l.subscription(ctx, c, r)
}

// subscription makes the call of a subscription at the server.
func (l *Lane) subscription(ctx context.Context, c *conn, r *bridge.Request) (*jsonrpc.Message, error) {
	return l.begins(ctx, r, func(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) { return l.perform(ctx, c, r) })
}

// begins makes a call that has to be acknowledged in time.
func (l *Lane) begins(ctx context.Context, r *bridge.Request, call func(context.Context, *bridge.Request) (*jsonrpc.Message, error)) (*jsonrpc.Message, error) {
	within := l.o.Handshake
	// It is a request that the server does not take, and no reason to leave it alone.
	silent := &bridge.Error{Server: l.o.Name, Kind: bridge.ErrTimeout, Err: bridge.ErrRejected,
		Public: fmt.Sprintf("it did not acknowledge the subscription within %v", within)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(within, func() { cancel(silent) })
	defer timer.Stop()
	inner := *r
	inner.Back = &beginning{r.Back, timer}
	m, err := call(ctx, &inner)
	if context.Cause(ctx) == error(silent) {
		m.Release() // it may answer that it was taken back
		return nil, silent
	}
	return m, err
}

// Notify passes on what the server says.
func (b *beginning) Notify(n *jsonrpc.Message) {
	if n.Method == era.Acknowledged {
		b.timer.Stop()
	}
	b.Client.Notify(n)
}
