package lane

import (
	"context"
	"fmt"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// ackClient is the Client of a subscription. It stops the timer when the server acknowledges the subscription.
type ackClient struct {
	bridge.Client
	timer *time.Timer
}

// listen serves a subscription, alone or as a part of the connection's shared subscription.
func (l *Lane) listen(ctx context.Context, c *conn, r *bridge.Request) (*jsonrpc.Message, error) {
	switch {
	case r.Back == nil:
		return l.perform(ctx, c, r)
	case c.up.Server().Modern() && !c.attributes():
		return l.callForAck(ctx, r, c.shared.listen)
	}
	return l.subscription(ctx, c, r)
}

// subscription makes the call of a subscription at the server.
func (l *Lane) subscription(ctx context.Context, c *conn, r *bridge.Request) (*jsonrpc.Message, error) {
	return l.callForAck(ctx, r, func(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) { return l.perform(ctx, c, r) })
}

// callForAck makes a call that the server must acknowledge within the time limit of a handshake.
func (l *Lane) callForAck(ctx context.Context, r *bridge.Request, call func(context.Context, *bridge.Request) (*jsonrpc.Message, error)) (*jsonrpc.Message, error) {
	within := l.o.Handshake
	// The error counts as a rejected request, which is no reason to avoid the server.
	silent := &bridge.Error{
		Server: l.o.Name,
		Kind:   bridge.ErrTimeout,
		Err:    bridge.ErrRejected,
		Public: fmt.Sprintf("it did not acknowledge the subscription within %v", within),
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(within, func() { cancel(silent) })
	defer timer.Stop()
	inner := *r
	inner.Back = &ackClient{r.Back, timer}
	m, err := call(ctx, &inner)
	if context.Cause(ctx) == error(silent) {
		m.Release() // the server may still have answered
		return nil, silent
	}
	return m, err
}

func (a *ackClient) Notify(m *jsonrpc.Message) {
	if m.Method == era.Acknowledged {
		a.timer.Stop()
	}
	a.Client.Notify(m)
}
