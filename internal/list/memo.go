package list

import (
	"sync"
	"weak"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A cached list has the same bytes in memory each time, so it need not be examined twice. The weak pointer does not
// keep the bytes in memory.

// Page identifies the bytes of a list in memory.
type Page = weak.Pointer[byte]

// PageOf returns the Page of the list in an answer. The Page is zero if the memory will be reused, or if the message has
// edits.
func PageOf(m *jsonrpc.Message) Page {
	if m.Pooled() || len(m.Result) == 0 || &m.Whole()[0] != &m.Result[0] {
		return Page{}
	}
	return weak.Make(&m.Result[0])
}

// Memo remembers the last list that was examined.
type Memo struct {
	mu   sync.Mutex // guards last
	last Page
}

// Once calls f, which examines the list in the answer a, unless f returned true for the same list in the last call.
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

// Forget makes the next Once call f for any list.
func (m *Memo) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = Page{}
}
