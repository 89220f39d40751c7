package gateway

import (
	"bytes"
	"context"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// mirrored is an Upstream that repeats arguments of calls in headers, for
// servers that want it so (2026-07-28, B8).
type mirrored struct {
	bridge.Upstream
	r *route
}

// Call makes a call with the headers that its tool's schema asks for. When the
// server finds fault with them the schema may have changed: the tools are listed
// again, and the call, which was not executed, is repeated once.
func (u *mirrored) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	s := u.Upstream.Server()
	if !s.Modern() || r.Method != list.Tools.Method() && (r.Method != "tools/call" || !s.Mirrors) {
		return u.Upstream.Call(ctx, r)
	}
	c := u.r.catalog(r.From.Principal)
	if r.Method == list.Tools.Method() {
		a, err := u.Upstream.Call(ctx, r)
		switch {
		case err != nil || a.Error != nil:
		case s.Mirrors:
			a = u.r.weeded(c, a)
		default:
			c.reflectAll(a)
		}
		return a, err
	}
	inner := *r // below, the headers of what it is given are replaced
	args := []byte(gjson.GetBytes(r.Params, "arguments").Raw)
	m, known := c.mirror(r.Name())
	if known {
		inner.Mirror = m.Headers(args)
	}
	again := inner
	a, err := u.Upstream.Call(ctx, &inner)
	if err != nil || a.Error == nil || gjson.GetBytes(a.Error, "code").Int() != jsonrpc.CodeHeaderMismatch {
		return a, err
	}
	if !u.refresh(ctx, r, c) {
		return a, nil
	}
	a.Release()
	m, _ = c.mirror(r.Name())
	again.Mirror = m.Headers(args)
	a, err = u.Upstream.Call(ctx, &again)
	if err == nil && a.Error != nil && gjson.GetBytes(a.Error, "code").Int() == jsonrpc.CodeHeaderMismatch { // our fault, not the client's (D7)
		no := jsonrpc.NewError(nil, jsonrpc.CodeInternal, "server "+u.r.o.Name+": it does not accept the headers that its list of tools asks for: "+gjson.GetBytes(a.Error, "message").Str, nil)
		a.Release()
		return no, nil
	}
	return a, err
}

// refresh lists the tools anew for a call. It reports whether all of them could be listed.
func (u *mirrored) refresh(ctx context.Context, r *bridge.Request, c *catalog) bool {
	params := []byte("{}")
	var at mark
	now := time.Now() // what was kept before was wrong
	for {
		a, err := u.Upstream.Call(ctx, &bridge.Request{Message: r.From.Request(list.Tools.Method(), params), From: r.From, Header: r.Header, NotBefore: now})
		if err != nil || a.Error != nil {
			a.Release()
			return false
		}
		next, more := more(a.Result)
		u.r.weeded(c, a).Release()
		if !more || !at.follow(next) {
			return true
		}
		params = []byte(`{"cursor":` + rawjson.Quote(next) + `}`)
	}
}

// reflectAll notes what headers the tools of a list ask for. Their server has
// none, but clients that reach it over HTTP send them (protocol.md D4).
func (c *catalog) reflectAll(a *jsonrpc.Message) {
	c.reflected.At(a, func() bool {
		list.Tools.Each(a.Result, func(item []byte, key string) {
			m, err := era.NewMirror([]byte(gjson.GetBytes(item, "inputSchema").Raw))
			if err != nil {
				m = nil // whether the tool is of use is for the clients to judge
			}
			c.reflect(key, m)
		})
		return true
	})
}

// weeded returns a list of tools without those whose annotations ask for headers
// that cannot be, and notes what the others ask for.
func (r *route) weeded(c *catalog, a *jsonrpc.Message) *jsonrpc.Message {
	bad := map[string]error{}
	c.reflected.At(a, func() bool {
		list.Tools.Each(a.Result, func(item []byte, key string) {
			m, err := era.NewMirror([]byte(gjson.GetBytes(item, "inputSchema").Raw))
			if err != nil {
				bad[key] = err
			}
			c.reflect(key, m)
		})
		return len(bad) == 0
	})
	if len(bad) == 0 {
		return a
	}
	for name, err := range bad {
		r.log.Warn("tool left out: its annotation asks for a header that cannot be", "tool", name, "err", err)
	}
	return list.Tools.Edit(a, func(item []byte, key string) []byte {
		if bad[key] != nil {
			return nil
		}
		return item
	})
}

// pruned returns a list of tools of a legacy server, which has never meant an
// annotation that cannot be: that is removed, not the tool (protocol.md D1.8).
func (r *route) pruned(c *catalog, a *jsonrpc.Message) *jsonrpc.Message {
	if !bytes.Contains(a.Result, []byte("x-mcp-header")) {
		if c.mirrored() {
			list.Tools.Each(a.Result, func(_ []byte, key string) { c.reflect(key, nil) }) // they may have had one before
		}
		return a
	}
	return list.Tools.Edit(a, func(item []byte, key string) []byte {
		schema := []byte(gjson.GetBytes(item, "inputSchema").Raw)
		m, err := era.NewMirror(schema)
		c.reflect(key, m)
		if err != nil {
			return rawjson.SetFirst(item, "inputSchema", era.StripMirror(schema))
		}
		return item
	})
}

// reflect notes what headers the calls of a tool carry; nil means none.
func (c *catalog) reflect(tool string, m *era.Mirror) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mirrors == nil || len(c.mirrors) >= maxCatalog {
		c.mirrors = map[string]*era.Mirror{}
	}
	c.mirrors[tool] = m
}

// mirrored reports whether it was ever noted what headers the calls of a tool
// carry.
func (c *catalog) mirrored() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mirrors) > 0
}

// mirror returns what headers the calls of a tool carry, and whether the tool
// was ever listed.
func (c *catalog) mirror(tool string) (m *era.Mirror, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, known = c.mirrors[tool]
	return m, known
}
