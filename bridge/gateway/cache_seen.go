package gateway

import (
	"sync"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// grades remembers what became of lists between two revisions.
type grades struct {
	mu    sync.Mutex // guards the rest
	all   map[grade][]byte
	bytes int
}

type grade struct {
	list.Page
	from, to string
}

// Limits of what is remembered of a server's lists.
const (
	maxGrades     = 64
	maxGradeBytes = 4 << 20
)

// result is era.Result.
func (g *grades) result(a *jsonrpc.Message, method, from, to string) []byte {
	if _, is := list.Of(method); !is || from == to {
		return era.Result(method, a.Result, from, to)
	}
	key := grade{list.PageOf(a), from, to}
	if key.Page == (list.Page{}) {
		return era.Result(method, a.Result, from, to)
	}
	g.mu.Lock()
	known, ok := g.all[key]
	g.mu.Unlock()
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
	if len(known) > maxGradeBytes/4 {
		return result
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bytes += len(known); g.all == nil || len(g.all) >= maxGrades || g.bytes > maxGradeBytes {
		g.all, g.bytes = map[grade][]byte{}, len(known)
	}
	g.all[key] = known
	return result
}
