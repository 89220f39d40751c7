package lane

import (
	"context"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// whole returns an Upstream whose requests reach up with all their edits made, unless raw,
// which is the connection, takes edits: who reads Params reads what the access rules have
// looked at.
func whole(raw, up bridge.Upstream) bridge.Upstream {
	if _, takes := raw.(bridge.TakesEdits); takes || raw == nil {
		return up
	}
	return &reader{up}
}

// reader is an Upstream to one that reads the Params of requests.
type reader struct{ bridge.Upstream }

// Call makes a call.
func (r *reader) Call(ctx context.Context, q *bridge.Request) (*jsonrpc.Message, error) {
	return r.Upstream.Call(ctx, edited(q))
}

// Notify sends a notification.
func (r *reader) Notify(ctx context.Context, q *bridge.Request) error {
	return r.Upstream.Notify(ctx, edited(q))
}

// edited returns the request with a message of its own if that has edits.
func edited(q *bridge.Request) *bridge.Request {
	m := q.WithParams(q.Whole())
	if m == q.Message {
		return q
	}
	its := *q
	its.Message = m
	return &its
}
