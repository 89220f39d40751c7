package tools

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// refusal returns the answer to a call of a tool whose arguments are wrong by the
// schema that was last listed, or nil: a result that says so, which models read. What
// is not known of a tool, or cannot be used, is no reason to refuse a call. Nor is a
// schema that has changed in the meantime: before a call is refused, the tools are
// listed again.
func (u *checked) refusal(ctx context.Context, r *bridge.Request) *jsonrpc.Message {
	checks := u.t.wanted.Load().checks
	if checks == nil {
		return nil
	}
	args, ok := arguments(r.Params)
	if r.Doubtful() || !ok {
		return jsonrpc.InvalidParams("params must not have name or arguments twice, or a member that differs from them in case only")
	}
	m, name := u.t.memory(r.From.Principal), r.Name()
	e, edition, known := m.get(name)
	if !known {
		u.relist(ctx, r, m, edition, time.Time{})
		e, _, _ = m.get(name)
	}
	faults := u.t.verify(checks, name, e.schema, args)
	if known && faults != nil {
		u.relist(ctx, r, m, edition, time.Now().Add(-relistEvery))
		e, _, _ = m.get(name)
		faults = u.t.verify(checks, name, e.schema, args)
	}
	switch {
	case faults == nil:
		return nil
	case !r.From.Modern() && gjson.GetBytes(r.Params, "task").Exists(): // the client waits for a task, not a result
		return jsonrpc.InvalidParams(faults.Error())
	}
	return jsonrpc.NewResult(nil, []byte(`{"content":[{"type":"text","text":`+rawjson.Quote(faults.Error())+`}],"isError":true}`))
}

// verify returns what is wrong with arguments; nil if it is nothing, or nothing
// can be said.
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

// first reports whether a tool has not been warned of yet.
func (t *Tools) first(tool string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.warned[tool] || len(t.warned) >= maxTools {
		return false
	}
	t.warned[tool] = true
	return true
}

// arguments returns those of a call, raw; nil when there are none. It reports
// false when it cannot be told which ones the server would take.
func arguments(params []byte) (args []byte, ok bool) {
	found := 0
	gjson.ParseBytes(params).ForEach(func(name, value gjson.Result) bool {
		switch {
		case name.Str == "arguments" && value.Type == gjson.Null:
			found++ // some clients write it for none
		case name.Str == "arguments":
			found++
			args = []byte(value.Raw)
		case strings.EqualFold(name.Str, "arguments"):
			found = 2
		}
		return found < 2
	})
	return args, found < 2
}

// relistEvery is how often wrong arguments are a reason to ask the server anew
// what its tools want.
const relistEvery = time.Second

// relist lists the tools for a call, unless that has happened since edition. What
// is kept of a list will do if it is not older than since.
func (u *checked) relist(ctx context.Context, r *bridge.Request, m *memory, edition int, since time.Time) {
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
	found, whole := u.list(short, r, since)
	switch {
	case ctx.Err() != nil: // it was given up: whoever waits tries it
	case whole:
		m.replace(found, r.Name())
	default:
		m.mu.Lock()
		m.edition++
		m.mu.Unlock()
	}
}
