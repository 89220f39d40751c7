package lane

import (
	"context"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// applyEdits returns an Upstream that applies the edits of requests before up gets them, because the access rules
// have checked the edited params. If raw, the connection below up, takes edits itself, applyEdits returns up.
func applyEdits(raw, up bridge.Upstream) bridge.Upstream {
	if _, takes := raw.(bridge.TakesEdits); takes || raw == nil {
		return up
	}
	return &editApplier{up}
}

// editApplier is an Upstream that applies edits.
type editApplier struct{ bridge.Upstream }

func (e *editApplier) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	return e.Upstream.Call(ctx, edited(r))
}

func (e *editApplier) Notify(ctx context.Context, r *bridge.Request) error {
	return e.Upstream.Notify(ctx, edited(r))
}

// edited returns the request with its edits applied.
func edited(r *bridge.Request) *bridge.Request {
	m := r.WithParams(r.Whole())
	if m == r.Message {
		return r
	}
	its := *r
	its.Message = m
	return &its
}
