package filter

import (
	"context"

	"github.com/mcp-bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/jsonrpc"
)

// granted is an Upstream of which each principal uses the tools that its grant is
// for. Grants are looked up when a call comes.
type granted struct {
	bridge.Upstream
	f *Filter
}

// Granted returns up, which has what any client sees, with what each principal may
// use of it.
func (f *Filter) Granted(up bridge.Upstream) bridge.Upstream {
	if f.grants == nil {
		return up
	}
	return &granted{up, f}
}

// Serves reports whether a principal may use the server at all. Otherwise it does
// not exist where several servers are offered as one.
func (f *Filter) Serves(principal string) bool {
	g, known := f.grants[principal]
	return f.grants == nil || known && g.Covers(f.server)
}

// Call makes a call, unless it is of a tool that the caller may not use.
func (u *granted) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method != "tools/call" && r.Method != list.Tools.Method() {
		return u.Upstream.Call(ctx, r)
	}
	g, known := u.f.grants[r.From.Principal]
	switch {
	case !known:
		return nil, &bridge.Error{Server: u.f.server, Kind: bridge.ErrDenied, Public: "this caller may not use it"}
	case g.everything():
		return u.Upstream.Call(ctx, r)
	case r.Method == list.Tools.Method():
		return u.list(ctx, r, g)
	case r.Doubtful():
		return jsonrpc.InvalidParams(bridge.NameDoubtful), nil
	case r.Name() == "", !g.Passes(r.Name()): // what is no text may still be a name to the server, as ["a"] is to JavaScript
		return list.Tools.Unknown(r.Name()), nil
	}
	return u.Upstream.Call(ctx, r)
}

func (u *granted) list(ctx context.Context, r *bridge.Request, g Grant) (*jsonrpc.Message, error) {
	a, err := u.Upstream.Call(ctx, r)
	if err != nil || a.Error != nil {
		return a, err
	}
	return list.Tools.Edit(a, func(item []byte, name string) []byte {
		if !g.Passes(name) {
			return nil
		}
		return item
	}), nil
}
