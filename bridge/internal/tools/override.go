package tools

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// overridden is an Upstream whose tools have the arguments that the operator shows to clients. It stands below checked, so
// that checked compares what clients send with the schema that they see.
type overridden struct {
	bridge.Upstream
	t *Tools
}

// plan is what becomes of the arguments of one tool.
type plan struct {
	changes arguments.Changes
	mirror  *era.Mirror // the headers that repeat the server's arguments; nil for none
	broken  bool        // the tool cannot get a value that the operator promised: clients neither see nor call it
}

// refuses reports whether clients must not send these arguments. It is false for a nil plan.
func (p *plan) refuses(args []byte) bool {
	if p == nil {
		return false
	}
	_, why := p.changes.Fill(args, nil)
	return why != ""
}

// Call makes a call with the arguments that the operator sets, and lists tools without them.
func (o *overridden) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if o.t.wanted.Load().overrides == nil {
		return o.Upstream.Call(ctx, r)
	}
	m := o.t.memory(r.From.Principal) // first: Set replaces the memory after the overrides, so it never gets older plans
	overrides := o.t.wanted.Load().overrides
	switch r.Method {
	case list.Tools.Method():
		a, err := o.Upstream.Call(ctx, r)
		if err == nil && a.Error == nil {
			a = list.Tools.Edit(a, func(item []byte, name string) []byte {
				if changes := overrides.Of(name); changes != nil {
					return o.t.edited(m, item, name, changes)
				}
				return item
			})
		}
		return a, err
	case "tools/call":
		if overrides.Of(r.Name()) != nil {
			return o.call(ctx, r, m)
		}
	}
	return o.Upstream.Call(ctx, r)
}

// edited returns a listed tool as clients see it, or nil if they do not see it. It stores the plan for calls.
func (t *Tools) edited(m *memory, item []byte, name string, changes arguments.Changes) []byte {
	schema := []byte(gjson.GetBytes(item, "inputSchema").Raw)
	fit, faults := changes.Fit(schema)
	p := &plan{changes: fit}
	p.mirror, _ = era.NewMirror(schema) // checked hides a tool with an invalid annotation
	for _, f := range faults {
		if p.broken = p.broken || f.Broken; t.first(name + "\x00" + f.Name) {
			t.log.Warn("the override of an argument does not apply", "tool", name, "argument", f.Name, "why", f.Text, "tool_hidden", f.Broken)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.plans == nil || len(m.plans) >= maxTools {
		m.plans, m.tools = map[string]*plan{}, table{} // both are filled again on demand
	}
	m.plans[name] = p
	switch {
	case p.broken:
		return nil
	case len(schema) == 0:
		return item
	}
	return rawjson.SetFirst(item, "inputSchema", fit.Edit(schema))
}

// planned returns the plan for a tool; nil if none is stored.
func (m *memory) planned(tool string) *plan {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.plans[tool]
}

// call calls a tool whose arguments the operator changes. If the tool is unknown, the tools are listed first.
func (o *overridden) call(ctx context.Context, r *bridge.Request, m *memory) (*jsonrpc.Message, error) {
	name, inner := r.Name(), *r
	if _, edition, known := m.get(name); !known && m.planned(name) == nil {
		(&checked{o, o.t}).relist(ctx, r, m, edition, time.Time{})
		if _, _, known = m.get(name); !known {
			return nil, &bridge.Error{
				Server: o.t.server,
				Kind:   bridge.ErrUnavailable,
				Public: "its list of tools could not be read, and the operator sets arguments by it",
			}
		}
	}
	p := m.planned(name)
	args, ok := arguments.Of(r.Params)
	switch {
	case !ok:
		return jsonrpc.InvalidParams(ambiguous), nil
	case p == nil, p.broken: // the server does not list the tool, or not as promised
		return list.Tools.Unknown(name), nil
	case args == nil:
		inner.Message = r.WithParams(rawjson.Set(r.Whole(), "arguments", []byte("{}")))
		args, _ = arguments.Of(inner.Params)
	case !rawjson.IsObject(args):
		return jsonrpc.InvalidParams("arguments must be an object"), nil
	}
	edits, why := p.changes.Fill(args, func(reference string) (string, bool) { return referred(r, reference) })
	if why != "" {
		return jsonrpc.InvalidParams(why), nil
	}
	if g := o.Upstream.Server(); p.mirror != nil && g.Modern() && g.Mirrors {
		inner.Mirror = p.mirror.Headers(jsonrpc.Apply(args, edits))
	}
	at := cap(inner.Params) - cap(args)
	for i := range edits {
		edits[i].From, edits[i].To = edits[i].From+at, edits[i].To+at
	}
	inner.Message = inner.Edited(edits...)
	return o.Upstream.Call(ctx, &inner)
}

// referred returns the text of a reference in a value: a part of what is known of the caller, or a header of its request.
// ok is false if there is none. Of several headers with one name, the server could take another one than the bridge.
func referred(r *bridge.Request, reference string) (text string, ok bool) {
	texts := []string{r.From.Principal}
	if name, is := strings.CutPrefix(reference, arguments.Header); is {
		texts = r.Header[http.CanonicalHeaderKey(name)]
	} else if name, is := strings.CutPrefix(reference, arguments.Claim); is {
		texts = identity.Claim(r.Identity, name)
	} else if reference != arguments.Caller {
		texts = nil
	}
	if len(texts) != 1 {
		return "", false
	}
	return texts[0], texts[0] != ""
}
