package bridge

import (
	"context"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// lift is an Upstream for a client with a session, whatever revision the server
// speaks (protocol.md D2, D3, D5): it stands between the two, and is the Client
// of the connection.
type lift struct {
	Upstream
	r    *route
	from *Caller
	rest Client
}

// newLift returns what the calls of a session go to. connect makes the
// connection, whose Client is the lift.
func newLift(r *route, from *Caller, rest Client, connect func(*Caller, Client) (Upstream, error)) (Upstream, error) {
	l := &lift{r: r, from: from, rest: rest}
	up, err := connect(from, lifted{l})
	if err != nil {
		return nil, err
	}
	l.Upstream = &mirrored{up, r}
	return l, nil
}

// Call makes a call.
func (l *lift) Call(ctx context.Context, r *Request) (*jsonrpc.Message, error) {
	return l.Upstream.Call(ctx, r)
}

// lifted is the Client that the connection of a lift speaks to.
type lifted struct{ l *lift }

// Notify passes on what the server says by itself.
func (c lifted) Notify(n *jsonrpc.Message) { c.l.rest.Notify(n) }

// Ask passes on what the server asks.
func (c lifted) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func() {
	return c.l.rest.Ask(q, reply)
}

// Gone says that the connection has ended.
func (c lifted) Gone(err error) { c.l.rest.Gone(err) }
