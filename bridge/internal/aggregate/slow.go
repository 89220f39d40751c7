package aggregate

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// slowList is how long a list may take before it is not waited for any more the
// next time.
const slowList = 2 * time.Second

// muteAfter is how long a list may be owed before the server counts as one that does
// not answer.
const muteAfter = listPatience / 2

// slowPatience is how long it is waited for all the same: it may be well again.
const slowPatience = 250 * time.Millisecond

// maxSlowPage bounds what is kept of one list of a slow server, in bytes.
const maxSlowPage = 1 << 20

// slow says which lists of a server one principal's sessions do not wait for,
// where several servers are offered as one, and what these were when they came
// last.
type slow struct {
	mu    sync.Mutex // guards the rest
	lists [list.Kinds]bool
	mutes [list.Kinds]bool // lists that did not come, and have not yet
	gone  [list.Kinds]bool // lists of all servers that the server was missing from last
	pages map[slowKey][]byte
}

// slowKey is what a page depends on beside the server and the principal: it is
// in the words of the client's revision.
type slowKey struct {
	k        list.Kind
	revision string
}

// took notes how long a list took, without the server's start.
func (s *slow) took(k list.Kind, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mutes[k] = false
	if s.lists[k] = d > slowList; !s.lists[k] {
		s.drop(k)
	}
}

// overdue notes that a list has not come within that time, without the server's start.
func (s *slow) overdue(k list.Kind, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[k] = s.lists[k] || d > slowList
	s.mutes[k] = s.mutes[k] || d > muteAfter
}

// missing notes whether the server is missing from a list, and reports whether that is
// news.
func (s *slow) missing(k list.Kind, now bool) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news, s.gone[k] = s.gone[k] != now, now
	return news
}

// forget drops what a list was: it has changed.
func (s *slow) forget(k list.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(k)
}

// drop drops the pages of a list. The caller holds s.mu.
func (s *slow) drop(k list.Kind) {
	for key := range s.pages {
		if key.k == k {
			delete(s.pages, key)
		}
	}
}

// mute reports whether a list is not to be waited for, because it did not come before.
func (s *slow) mute(k list.Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mutes[k]
}

// keep keeps the only page of a slow list.
func (s *slow) keep(k list.Kind, revision string, page []byte) {
	_, more := list.Next(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.lists[k]:
	case more || len(page) > maxSlowPage: // the cursor may be good for its own connection only
		delete(s.pages, slowKey{k, revision})
	default:
		if s.pages == nil {
			s.pages = map[slowKey][]byte{}
		}
		s.pages[slowKey{k, revision}] = slices.Clip(bytes.Clone(page))
	}
}

// page returns what was kept, or nil.
func (s *slow) page(k list.Kind, revision string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pages[slowKey{k, revision}]
}

// lastKnown returns what the list was when it came last, if it is slow: nil when
// nothing is to be kept of the server, or when what it lists may depend on the
// headers of the client.
func (m *member) lastKnown(k list.Kind) []byte {
	if !m.s.Remembers() {
		return nil
	}
	return m.catalog.slow.page(k, m.g.caller.Revision)
}

// resultOf returns the result of an answer, on one line and of our own.
func resultOf(a *jsonrpc.Message) []byte {
	return []byte(gjson.GetBytes(a.Append(nil, nil, nil), "result").Raw)
}
