package gateway

import (
	"sync"
	"weak"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
)

// A kept list is given out again and again, and is the same bytes in memory each
// time: what was found out about it once need not be found out again. To know
// that does not keep it there.

// page tells one list from others.
type page = weak.Pointer[byte]

// pageOf returns what tells the list in an answer from others; the zero page when
// its memory will be used for something else.
func pageOf(a *jsonrpc.Message) page {
	if a.Pooled() || len(a.Result) == 0 {
		return page{}
	}
	return weak.Make(&a.Result[0])
}

// looked remembers which list was the last that was looked at.
type looked struct {
	mu   sync.Mutex // guards last
	last page
}

// at has f look at the list in an answer, unless it was the last to be looked at.
// f reports whether there is nothing in it that it would have to see each time.
func (l *looked) at(a *jsonrpc.Message, f func() bool) {
	p := pageOf(a)
	l.mu.Lock()
	same := p != page{} && p == l.last
	if !same {
		l.last = page{}
	}
	l.mu.Unlock()
	if same || !f() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = p
}

// forget has the next list looked at in any case.
func (l *looked) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = page{}
}

// grades remembers what became of lists between two revisions.
type grades struct {
	mu    sync.Mutex // guards the rest
	all   map[grade][]byte
	bytes int
}

type grade struct {
	page
	from, to string
}

// Limits of what is remembered of a server's lists.
const (
	maxGrades     = 64
	maxGradeBytes = 4 << 20
)

// result is era.Result.
func (g *grades) result(a *jsonrpc.Message, method, from, to string) []byte {
	if _, is := listed(method); !is || from == to {
		return era.Result(method, a.Result, from, to)
	}
	key := grade{pageOf(a), from, to}
	if key.page == (page{}) {
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
