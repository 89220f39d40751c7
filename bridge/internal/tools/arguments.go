package tools

import (
	"context"
	"errors"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/validate"
)

const ambiguous = "params must not have name or arguments twice, or a member that differs from them in case only"

// refusal returns the answer to a call that must not reach the server, or nil. If the arguments violate the listed
// schema, the answer is a result, so that the model reads the faults. If a legacy client requested a task, or the
// params are ambiguous, the answer is an error. A call of an unknown tool, or of a tool with an unusable schema,
// passes. Before a call of a known tool is refused, the tools are listed again, because the schema may have changed.
func (c *checked) refusal(ctx context.Context, r *bridge.Request) *jsonrpc.Message {
	checks := c.t.wanted.Load().checks
	if checks == nil {
		return nil
	}
	args, ok := arguments.Of(r.Params)
	if r.Doubtful() || !ok {
		return jsonrpc.InvalidParams(ambiguous)
	}
	m, name := c.t.memory(r.From.Principal), r.Name()
	e, edition, known := m.get(name)
	if !known {
		c.relist(ctx, r, m, edition, time.Time{})
		e, _, _ = m.get(name)
	}
	faults := c.t.verify(checks, name, e.schema, args)
	if known && faults != nil {
		c.relist(ctx, r, m, edition, time.Now().Add(-relistEvery))
		e, _, _ = m.get(name)
		faults = c.t.verify(checks, name, e.schema, args)
	}
	switch {
	case faults == nil, m.planned(name).refuses(args): // overridden refuses it, with the reason
		return nil
	case !r.From.Modern() && gjson.GetBytes(r.Params, "task").Exists(): // the client expects a task, not a result
		return jsonrpc.InvalidParams(faults.Error())
	}
	return jsonrpc.NewResult(nil, []byte(`{"content":[{"type":"text","text":`+rawjson.Quote(faults.Error())+`}],"isError":true}`))
}

// verify returns the faults of the arguments; nil if there are none, or if the schema is absent or unusable. verify
// logs an unusable schema once for each tool.
func (t *Tools) verify(checks *validate.Cache, tool string, schema, args []byte) validate.Faults {
	if schema == nil {
		return nil
	}
	err := checks.Verify(schema, args)
	if faults, ok := errors.AsType[validate.Faults](err); ok {
		return faults.Of(tool)
	}
	if err != nil && t.first(tool) {
		t.log.Warn("the arguments of a tool are not checked", "tool", tool, "err", err)
	}
	return nil
}

// first records a warning about the tool, and reports whether the warning is its first. Beyond maxTools tools, first
// reports false.
func (t *Tools) first(tool string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.warned[tool] || len(t.warned) >= maxTools {
		return false
	}
	t.warned[tool] = true
	return true
}

// relistEvery is the greatest age of a list by which a call is refused. With an older list, the tools are listed
// again first.
const relistEvery = time.Second

// relist lists the tools for a call, unless another call has listed them since that edition. A cached list that is
// not older than since is good enough. If the list is incomplete, only the edition changes, so that waiting calls do
// not request the list again.
func (c *checked) relist(ctx context.Context, r *bridge.Request, m *memory, edition int, since time.Time) {
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return
	}
	if _, now, _ := m.get(r.Name()); now != edition {
		return
	}
	short, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	found, whole := c.list(short, r, since)
	switch {
	case ctx.Err() != nil: // cancelled: the next waiting call requests the list
	case whole:
		m.replace(found, r.Name())
	default:
		m.mu.Lock()
		m.edition++
		m.mu.Unlock()
	}
}
