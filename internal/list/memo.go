package list

import (
	"sync"
	"weak"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A kept list is given out again and again, and is the same bytes in memory each
// time: what was found out about it once need not be found out again. To know
// that does not keep it there.

// Page tells one list from others.
type Page = weak.Pointer[byte]

// PageOf returns what tells the list in an answer from others; the zero Page when
// its memory will be used for something else.
func PageOf(a *jsonrpc.Message) Page {
	if a.Pooled() || len(a.Result) == 0 {
		return Page{}
	}
	return weak.Make(&a.Result[0])
}

// Memo remembers which list was the last that was looked at.
type Memo struct {
	mu   sync.Mutex // guards last
	last Page
}

// At has f look at the list in an answer, unless it was the last to be looked at.
// f reports whether there is nothing in it that it would have to see each time.
func (l *Memo) At(a *jsonrpc.Message, f func() bool) {
	p := PageOf(a)
	l.mu.Lock()
	same := p != Page{} && p == l.last
	if !same {
		l.last = Page{}
	}
	l.mu.Unlock()
	if same || !f() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = p
}

// Forget has the next list looked at in any case.
func (l *Memo) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = Page{}
}
