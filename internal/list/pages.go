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

// maxPages bounds a list that is read to its end.
const maxPages = 1000

// Next returns the cursor of the page that follows, and whether there is one:
// an empty one is one too (A4, R-163).
func Next(page []byte) (string, bool) {
	next := gjson.GetBytes(page, "nextCursor")
	return next.String(), next.Type == gjson.String
}

// Why a list that is read to its end is cut off.
var (
	// ErrRepeats says that a page was there before, and is not to be counted again.
	ErrRepeats = errors.New("the server sends the same page again: its nextCursor leads back, or it does not read cursors")
	errEndless = errors.New("the server's list has too many pages")
)

// Mark is where a server's list goes on. It knows each page that was there, and so
// finds out when a server leads in circles.
type Mark struct {
	Cursor string `json:"c"`
	Seen   []byte `json:"s,omitempty"` // hashes of the pages so far
}

// hashed is the length of a page's hash in Mark.Seen.
const hashed = 6

// Follow notes a page, and where the next one is. A server that does not read cursors
// may send a fresh one with the same page again: a page is known by what it lists, and
// by its cursor only if it lists nothing. An error says why the list ends here.
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

// Pages reads a list to its end: ask asks for the page of these params, and page
// takes its result, which is valid during the call. In the place of a page that was
// there before, page takes an empty result. whole says that no page is missing, and cut
// why the list was cut off, if it was.
func (k Kind) Pages(ask func(params []byte) (*jsonrpc.Message, error), page func(result []byte, first, last bool)) (whole bool, cut error) {
	params := []byte("{}")
	var at Mark
	for first := true; ; first = false {
		a, err := ask(params)
		if err != nil || a.Error != nil {
			a.Release()
			return false, nil
		}
		more, cut := at.Follow(k, a.Result)
		result := a.Result
		if errors.Is(cut, ErrRepeats) {
			result = []byte("{}")
		}
		page(result, first, !more)
		a.Release()
		if !more {
			return true, cut
		}
		params = []byte(`{"cursor":` + rawjson.Quote(at.Cursor) + `}`)
	}
}
