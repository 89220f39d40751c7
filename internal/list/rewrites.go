package list

import (
	"sync"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Rewrites caches a server's lists as era.Result translates them. The zero value is an empty cache.
type Rewrites struct {
	mu    sync.Mutex // guards the rest
	all   map[rewrite][]byte
	bytes int
}

// rewrite is the key of a translated list.
type rewrite struct {
	Page
	from, to string
}

// maxRewrites and maxRewriteBytes bound the cache.
const (
	maxRewrites     = 64
	maxRewriteBytes = 4 << 20
)

// Result is era.Result, with the cache for results that are lists.
func (r *Rewrites) Result(m *jsonrpc.Message, method, from, to string) []byte {
	if _, is := Of(method); !is || from == to {
		return era.Result(method, m.Result, from, to)
	}
	key := rewrite{PageOf(m), from, to}
	if key.Page == (Page{}) {
		return era.Result(method, m.Result, from, to)
	}
	r.mu.Lock()
	known, ok := r.all[key]
	r.mu.Unlock()
	switch {
	case ok && known == nil:
		return m.Result
	case ok:
		return known
	}
	result := era.Result(method, m.Result, from, to)
	if known = result; rawjson.Same(result, m.Result) {
		known = nil
	}
	if len(known) > maxRewriteBytes/4 {
		return result
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes += len(known); r.all == nil || len(r.all) >= maxRewrites || r.bytes > maxRewriteBytes {
		r.all, r.bytes = map[rewrite][]byte{}, len(known)
	}
	r.all[key] = known
	return result
}
