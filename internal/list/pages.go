package list

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// maxPages bounds the number of pages of one list.
const maxPages = 1000

// Next returns the cursor of the next page, and reports whether there is a next page. An empty cursor is valid (A4,
//
func Next(page []byte) (string, bool) {
	next := gjson.GetBytes(page, "nextCursor")
	return next.String(), next.Type == gjson.String
}

// Why a list ends before the server ends it.
var (
	// ErrRepeats means that the server sent a page again, which therefore does not count.
	ErrRepeats = errors.New("the server sends the same page again: its nextCursor leads back, or it does not read cursors")
	errEndless = errors.New("the server's list has too many pages")
)

// Mark is a position in a server's list. It has hashes of all pages so far, so that loops are noticed.
type Mark struct {
	Cursor string `json:"c"`
	Seen   []byte `json:"s,omitempty"` // hashes of the pages so far, hashed bytes each
}

// hashed is the length in bytes of a page's hash in Mark.Seen.
const hashed = 6

// Follow adds a page, and moves to the next one. A server that ignores cursors may send the same page with a new cursor
// each time. So the items identify a page, and only for a page without items the cursor does. An error is the reason
// why the list ends here.
func (m *Mark) Follow(k Kind, page []byte) (more bool, err error) {
	next, more := Next(page)
	if !more && len(m.Seen) == 0 {
		return false, nil
	}
	sum, empty := sha256.New(), true
	k.Each(page, func(_ []byte, key string) {
		sum.Write([]byte(rawjson.Quote(key)))
		empty = false
	})
	if empty {
		sum.Write([]byte(next))
	}
	h := sum.Sum(nil)[:hashed]
	for was := range slices.Chunk(m.Seen, hashed) {
		if bytes.Equal(was, h) && (more || !empty) {
			return false, ErrRepeats
		}
	}
	if more && len(m.Seen) >= maxPages*hashed {
		return false, errEndless
	}
	m.Cursor, m.Seen = next, append(slices.Clip(m.Seen), h...)
	return more, nil
}

// Pages reads a list to its end. It calls ask for each page, with the params of the request, and page with the result,
// which is valid during the call. For a page that repeats another, the result is empty. whole reports that no request
// failed. cut, if not nil, is why Pages ended the list before the server did; whole is true then.
func (k Kind) Pages(ask func(params []byte) (*jsonrpc.Message, error), page func(result []byte, first, last bool)) (whole bool, cut error) {
	params := []byte("{}")
	var at Mark
	for first := true; ; first = false {
		m, err := ask(params)
		if err != nil || m.Error != nil {
			m.Release()
			return false, nil
		}
		more, cut := at.Follow(k, m.Result)
		result := m.Result
		if errors.Is(cut, ErrRepeats) {
			result = []byte("{}")
		}
		page(result, first, !more)
		m.Release()
		if !more {
			return true, cut
		}
		params = []byte(`{"cursor":` + rawjson.Quote(at.Cursor) + `}`)
	}
}
