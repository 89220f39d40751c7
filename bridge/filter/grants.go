package filter

import (
	"context"
	"reflect"
	"sync/atomic"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Grants are the grants of all principals, which apply to all servers. A nil Grants means that there are no access
// rules.
type Grants struct {
	now atomic.Pointer[map[string]Grant] // by principal
}

// NewGrants returns Grants with all, or nil if all is nil.
func NewGrants(all map[string]Grant) *Grants {
	if all == nil {
		return nil
	}
	g := &Grants{}
	g.now.Store(&all)
	return g
}

// All returns the grants by principal. The caller must not change them.
func (g *Grants) All() map[string]Grant {
	if g == nil {
		return nil
	}
	return *g.now.Load()
}

// Of returns the grant of a principal: that of the access rule by which the principal was admitted. known is false if
// there is no such rule.
func (g *Grants) Of(principal string) (grant Grant, known bool) {
	grant, known = g.All()[auth.RuleOf(principal)]
	return grant, known
}

// Set replaces the grants for the calls that follow. It returns the principals whose grants changed or are gone.
// Without access rules it does nothing.
func (g *Grants) Set(all map[string]Grant) (changed map[string]bool) {
	if g == nil || all == nil {
		return nil
	}
	changed = map[string]bool{}
	was := *g.now.Swap(&all)
	for principal, grant := range was {
		if now, stays := all[principal]; !stays || !reflect.DeepEqual(grant, now) {
			changed[principal] = true
		}
	}
	return changed
}

// granted is an Upstream that lets each principal use only the items of its grant. It reads the grant at each call.
type granted struct {
	bridge.Upstream
	f *Filter
}

// Granted returns up limited to the grant of each principal. up names items by the names that clients see.
func (f *Filter) Granted(up bridge.Upstream) bridge.Upstream {
	if f.grants == nil {
		return up
	}
	return &granted{up, f}
}

// Serves reports whether a principal may use the server at all.
func (f *Filter) Serves(principal string) bool {
	g, known := f.grants.Of(principal)
	return f.grants == nil || known && g.Covers(f.server)
}

// Call makes a call if the grant of the caller covers it. With access rules, a list is private to its caller, so Call
// forbids caches between bridge and caller to store it for others (I-059).
func (g *granted) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	m, err := g.call(ctx, r)
	if _, lists := list.Of(r.Method); err == nil && lists && r.From.Modern() && m != nil && m.Result != nil {
		if whole := m.Whole(); gjson.GetBytes(whole, "cacheScope").Str == "public" {
			m = m.Replaced(rawjson.SetFirst(whole, "cacheScope", []byte(`"private"`)))
		}
	}
	return m, err
}

func (g *granted) call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	grant, known := g.f.grants.Of(r.From.Principal)
	switch {
	case !known, !grant.Covers(g.f.server): // also while the gateway ends the sessions of a principal that lost its grant
		return nil, &bridge.Error{
			Server: g.f.server,
			Kind:   bridge.ErrDenied,
			Public: "this caller may not use it",
		}
	case grant.everything(), r.Method != "tools/call" && r.Method != list.Tools.Method():
		return g.Upstream.Call(ctx, r)
	case r.Method == list.Tools.Method():
		return g.list(ctx, r, grant)
	case r.Doubtful():
		return jsonrpc.InvalidParams(bridge.NameDoubtful), nil
	case r.Name() == "", !grant.Passes(r.Name()): // some servers also accept a name that is no string: JavaScript takes ["a"] as "a"
		return list.Tools.Unknown(r.Name()), nil
	}
	return g.Upstream.Call(ctx, r)
}

func (g *granted) list(ctx context.Context, r *bridge.Request, grant Grant) (*jsonrpc.Message, error) {
	m, err := g.Upstream.Call(ctx, r)
	if err != nil || m.Error != nil {
		return m, err
	}
	return list.Tools.Edit(m, func(item []byte, name string) []byte {
		if !grant.Passes(name) {
			return nil
		}
		return item
	}), nil
}
