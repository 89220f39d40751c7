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

// slowList is the time after which a list counts as slow: if its page is stored, the next request waits only
// slowPatience.
const slowList = 2 * time.Second

// muteAfter is the time after which the server counts as not answering requests for the list. The next request waits
// only slowPatience for such a list, even without a stored page.
const muteAfter = listPatience / 2

// slowPatience is how long a request waits for a list that was slow before: the server may have recovered.
const slowPatience = 250 * time.Millisecond

// maxSlowPage bounds the stored page of one list, in bytes.
const maxSlowPage = 1 << 20

// slow records which lists of a server are slow for one principal, and their last pages.
type slow struct {
	mu      sync.Mutex // guards all
	lists   [list.Kinds]bool
	mutes   [list.Kinds]bool // lists that have not answered for muteAfter
	lacking [list.Kinds]bool // lists of the aggregate that lacked the server last time
	pages   map[slowKey][]byte
}

// slowKey identifies a stored page. Pages depend on the client's revision.
type slowKey struct {
	k        list.Kind
	revision string
}

// took records how long a list took after the connection was open. A list that is not slow any more loses its pages.
func (s *slow) took(k list.Kind, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mutes[k] = false
	if s.lists[k] = d > slowList; !s.lists[k] {
		s.drop(k)
	}
}

// overdue records that a list has not arrived within d after the connection opened.
func (s *slow) overdue(k list.Kind, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[k] = s.lists[k] || d > slowList
	s.mutes[k] = s.mutes[k] || d > muteAfter
}

// missing records whether a list lacks the server now. news reports whether the last list of that kind differed.
func (s *slow) missing(k list.Kind, now bool) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news, s.lacking[k] = s.lacking[k] != now, now
	return news
}

// forget drops the pages of a list that has changed.
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

// mute reports whether the list has not answered for muteAfter.
func (s *slow) mute(k list.Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mutes[k]
}

// keep stores the page of a slow list, if the list has only one page, of at most maxSlowPage.
func (s *slow) keep(k list.Kind, revision string, page []byte) {
	_, more := list.Next(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.lists[k]:
	case more || len(page) > maxSlowPage: // the cursor may be valid on its own connection only
		delete(s.pages, slowKey{k, revision})
	default:
		if s.pages == nil {
			s.pages = map[slowKey][]byte{}
		}
		s.pages[slowKey{k, revision}] = slices.Clip(bytes.Clone(page))
	}
}

// page returns the stored page, or nil.
func (s *slow) page(k list.Kind, revision string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pages[slowKey{k, revision}]
}

// lastKnown returns the stored page of a slow list. lastKnown returns nil if there is none, if pages of the server
// may not be stored, or if they depend on the client's headers.
func (m *member) lastKnown(k list.Kind) []byte {
	if !m.s.Stores() {
		return nil
	}
	return m.catalog.slow.page(k, m.g.caller.Revision)
}

// resultOf returns a copy of an answer's result, on one line.
func resultOf(m *jsonrpc.Message) []byte {
	return []byte(gjson.GetBytes(m.Append(nil, nil, nil), "result").Raw)
}
