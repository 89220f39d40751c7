package tools

import (
	"context"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// headed makes a call with the headers that the tool's schema requires (2026-07-28, B8). If the server rejects the
// headers, it has not executed the call, and the schema may have changed: headed lists the tools and repeats the call
// once. If the list is incomplete, headed returns the rejection.
func (c *checked) headed(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	inner := *r // copied: the Upstream below changes the headers of its request
	args := []byte(gjson.GetBytes(r.Params, "arguments").Raw)
	m := c.t.memory(r.From.Principal)
	if e, _, _ := m.get(r.Name()); e.listed {
		inner.Mirror = e.mirror.Headers(args)
	}
	again := inner
	a, err := c.Upstream.Call(ctx, &inner)
	if !mismatched(a, err) {
		return a, err
	}
	found, whole := c.list(ctx, r, time.Now()) // the cached list was wrong
	if !whole {
		return a, nil
	}
	m.replace(found, r.Name())
	a.Release()
	if no := c.refusal(ctx, r); no != nil {
		return no, nil
	}
	e, _, _ := m.get(r.Name())
	again.Mirror = e.mirror.Headers(args)
	a, err = c.Upstream.Call(ctx, &again)
	if mismatched(a, err) { // the bridge's fault, not the client's (D7)
		no := jsonrpc.NewError(nil, jsonrpc.CodeInternal, "server "+c.t.server+": it does not accept the headers that its list of tools asks for: "+gjson.GetBytes(a.Error, "message").Str, nil)
		a.Release()
		return no, nil
	}
	return a, err
}

func mismatched(m *jsonrpc.Message, err error) bool {
	return err == nil && m.Error != nil && gjson.GetBytes(m.Error, "code").Int() == jsonrpc.CodeHeaderMismatch
}

// Misheaded returns an error if the client's headers of a call contradict its arguments; otherwise, and for
// an unknown tool, nil. Misheaded works for legacy servers too, which have no headers of their own (protocol.md D4).
func (t *Tools) Misheaded(r *bridge.Request) *jsonrpc.Message {
	if r.Mirror == nil || r.Method != "tools/call" {
		return nil
	}
	e, _, _ := t.memory(r.From.Principal).get(r.Name())
	if e.mirror == nil {
		return nil
	}
	if what := e.mirror.Check(r.Mirror, []byte(gjson.GetBytes(r.Params, "arguments").Raw)); what != "" {
		return jsonrpc.NewError(nil, jsonrpc.CodeHeaderMismatch, what, nil)
	}
	return nil
}
