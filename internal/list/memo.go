package list

import (
	"sync"
	"weak"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A cached list is the same bytes in memory each time, so it need not be examined twice. The weak pointer
// does not keep it in memory.

// Page identifies a list in memory.
type Page = weak.Pointer[byte]

// PageOf returns the Page of the list in an answer; the zero Page if its memory will be reused.
func PageOf(m *jsonrpc.Message) Page {
	if m.Pooled() || len(m.Result) == 0 {
		return Page{}
	}
	return weak.Make(&m.Result[0])
}

// Memo stores the last list that was examined.
type Memo struct {
	mu   sync.Mutex // guards last
	last Page
}

// Once calls f to examine the list in an answer, unless f returned true for the same
// list the last time. If f returns false, Once calls f for the same list again.
func (m *Memo) Once(a *jsonrpc.Message, f func() bool) {
	p := PageOf(a)
	m.mu.Lock()
	same := p != Page{} && p == m.last
	if !same {
		m.last = Page{}
	}
	m.mu.Unlock()
	if same || !f() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = p
}

// Forget makes Once examine the next list in any case.
func (m *Memo) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = Page{}
}
