package aggregate

import (
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// merges keeps merged lists, so that lists that all come from caches are merged once.
type merges struct {
	mu    sync.Mutex // guards the rest
	all   *simplelru.LRU[mergeKey, merge]
	bytes int // of all results
}

// mergeKey identifies the first page of a merged list.
type mergeKey struct {
	k                   list.Kind
	principal, revision string
}

// merge is a merged list and the pages it consists of, in the order of the servers.
type merge struct {
	pages  []source
	result []byte
}

// source is the page of one server; the zero Page if the server has no such list.
type source struct {
	list.Page
	catalog *catalog // has learned the page
	view    *view    // decides the names of items
}

// maxMerges and maxMergedBytes bound the merged lists in memory.
const (
	maxMerges      = 64
	maxMergedBytes = 32 << 20
)

func newMerges() *merges {
	all, err := simplelru.NewLRU[mergeKey, merge](maxMerges, nil)
	if err != nil {
		panic(err) // the size is above zero
	}
	return &merges{all: all}
}

// known returns the merged list that consists of these pages, or nil.
func (m *merges) known(k mergeKey, pages []source) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one, ok := m.all.Get(k); ok && slices.Equal(one.pages, pages) {
		return one.result
	}
	return nil
}

// keep stores a merged list.
func (m *merges) keep(k mergeKey, one merge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	drop := func(old merge) { m.bytes -= len(old.result) }
	if old, ok := m.all.Peek(k); ok {
		drop(old)
	} else if m.all.Len() == maxMerges {
		if _, old, ok := m.all.RemoveOldest(); ok {
			drop(old)
		}
	}
	m.all.Add(k, one)
	m.bytes += len(one.result)
	for m.bytes > maxMergedBytes {
		_, old, _ := m.all.RemoveOldest()
		drop(old)
	}
}

// forget removes all merged lists, which would keep removed servers in memory.
func (m *merges) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all.Purge()
	m.bytes = 0
}

// pages returns the sources of a merged list, for which the names of its items depend on nothing else. Otherwise pages
// returns nil: for a list that lacks a page, or has one that is not from a cache.
func (l *listCall) pages(late map[*member]bool) []source {
	if l.from != nil || len(late) > 0 || l.k != list.Tools && l.k != list.Prompts {
		return nil
	}
	v := l.g.current.Load().view
	var all []source
	for _, m := range l.members {
		p := l.parts[m]
		one := source{catalog: m.catalog, view: v}
		switch {
		case p.known != nil || p.earlier != nil || v.conflicting[m.s] || m.leftOut() != nil:
			return nil
		case p.page != nil && p.page.Error == nil:
			if one.Page = list.PageOf(p.page); one.Page == (list.Page{}) {
				return nil
			}
		case p.page != nil || m.offers(l.k):
			return nil
		}
		all = append(all, one)
	}
	return all
}

// mergedOnce is merge, without the work if the list is known.
func (l *listCall) mergedOnce(late map[*member]bool) *jsonrpc.Message {
	pages := l.pages(late)
	if pages == nil {
		return l.merge(late)
	}
	key := mergeKey{l.k, l.g.caller.Principal, l.g.caller.Revision}
	if result := l.g.a.merges.known(key, pages); result != nil {
		for _, m := range l.members {
			if p := l.parts[m]; p.page != nil {
				m.catalog.slow.missing(l.k, false)
				p.page.Release()
			}
		}
		return jsonrpc.NewResult(nil, result)
	}
	a := l.merge(late)
	if a.Error == nil && len(l.lacking) == 0 {
		l.g.a.merges.keep(key, merge{pages, a.Result})
	}
	return a
}
