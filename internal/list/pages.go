package list

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/jsonrpc"
)

// maxPages bounds a list that is read to its end.
const maxPages = 1000

// Next returns the cursor of the page that follows, and whether there is one:
// an empty one is one too (A4, R-163).
func Next(page []byte) (string, bool) {
	next := gjson.GetBytes(page, "nextCursor")
	return next.String(), next.Type == gjson.String
}

// Mark is where a server's list goes on. It also finds out when a server leads in
// circles (Brent's algorithm): a cursor of some pages ago is kept, of more and more
// pages ago, and a circle comes back to it.
type Mark struct {
	Cursor string `json:"c"`
	Kept   string `json:"o,omitempty"` // hash of the cursor that is kept
	Steps  int    `json:"n,omitempty"` // since then
	Limit  int    `json:"l,omitempty"` // after so many it is replaced
	Pages  int    `json:"p,omitempty"` // in all
}

// Follow notes the cursor of the next page. It reports false when that has been
// there before, or when there are more pages than any list has.
func (m *Mark) Follow(next string) bool {
	sum := sha256.Sum256([]byte(next))
	h := hex.EncodeToString(sum[:8])
	if h == m.Kept || m.Pages >= maxPages {
		return false
	}
	m.Cursor = next
	m.Pages++
	if m.Steps++; m.Steps >= m.Limit {
		m.Kept, m.Steps, m.Limit = h, 0, max(2*m.Limit, 1)
	}
	return true
}

// Pages reads a list to its end: ask asks for the page of these params, and page
// takes its result, which is valid during the call. It reports whether all pages
// came.
func Pages(ask func(params []byte) (*jsonrpc.Message, error), page func(result []byte, first, last bool)) bool {
	params := []byte("{}")
	var at Mark
	for first := true; ; first = false {
		a, err := ask(params)
		if err != nil || a.Error != nil {
			a.Release()
			return false
		}
		next, more := Next(a.Result)
		more = more && at.Follow(next)
		page(a.Result, first, !more)
		a.Release()
		if !more {
			return true
		}
		params = []byte(`{"cursor":` + rawjson.Quote(next) + `}`)
	}
}
