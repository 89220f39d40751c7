package list

import (
	"sync"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Rewrites remembers what became of a server's lists between two revisions. The
// zero value remembers nothing yet.
type Rewrites struct {
	mu    sync.Mutex // guards the rest
	all   map[rewrite][]byte
	bytes int
}

// rewrite is a list on its way from a server of one revision to a client of
// another.
type rewrite struct {
	Page
	from, to string
}

// Limits of what is remembered of a server's lists.
const (
	maxRewrites     = 64
	maxRewriteBytes = 4 << 20
)

// Result is era.Result.
func (w *Rewrites) Result(a *jsonrpc.Message, method, from, to string) []byte {
	if _, is := Of(method); !is || from == to {
		return era.Result(method, a.Result, from, to)
	}
	key := rewrite{PageOf(a), from, to}
	if key.Page == (Page{}) {
		return era.Result(method, a.Result, from, to)
	}
	w.mu.Lock()
	known, ok := w.all[key]
	w.mu.Unlock()
	switch {
	case ok && known == nil:
		return a.Result
	case ok:
		return known
	}
	result := era.Result(method, a.Result, from, to)
	if known = result; rawjson.Same(result, a.Result) {
		known = nil
	}
	if len(known) > maxRewriteBytes/4 {
		return result
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bytes += len(known); w.all == nil || len(w.all) >= maxRewrites || w.bytes > maxRewriteBytes {
		w.all, w.bytes = map[rewrite][]byte{}, len(known)
	}
	w.all[key] = known
	return result
}
