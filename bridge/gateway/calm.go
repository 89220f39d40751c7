package gateway

import (
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// Listed implements retry.Tools.
func (r *route) Listed(q *bridge.Request, page []byte) {
	r.catalog(q.From.Principal).noteCalm(q, page)
}

// Idempotent implements retry.Tools.
func (r *route) Idempotent(principal, tool string) bool { return r.catalog(principal).harmless(tool) }

// noteCalm notes which tools of a page may be called twice.
func (c *catalog) noteCalm(r *bridge.Request, page []byte) {
	found := map[string]bool{}
	if rawjson.Mentions(page, "Hint") {
		list.Tools.Each(page, func(item []byte, key string) {
			if calm(gjson.GetBytes(item, "annotations")) {
				found[key] = true
			}
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !gjson.GetBytes(r.Params, "cursor").Exists() || len(c.calm)+len(found) > maxCatalog {
		c.calm = found // the list begins anew
		return
	}
	for name := range found {
		c.calm[name] = true
	}
}

// calm reports whether a tool of these annotations may be called twice. Only
// what is said counts, and of what contradicts itself the worse.
func calm(annotations gjson.Result) bool {
	if annotations.Get("idempotentHint").Type == gjson.True {
		return true
	}
	return annotations.Get("readOnlyHint").Type == gjson.True && annotations.Get("destructiveHint").Type != gjson.True
}

// harmless reports whether the server has listed the tool as one that may be
// called twice.
func (c *catalog) harmless(tool string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calm[tool]
}
