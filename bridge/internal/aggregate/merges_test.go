package aggregate

import (
	"fmt"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Merged lists belong to their pages and to a principal, have bounds, and are forgotten when the servers change.
func TestMerges(t *testing.T) {
	page := func() *jsonrpc.Message { return jsonrpc.NewResult(nil, []byte(`{"tools":[]}`)) }
	m, one, other := newMerges(), page(), page()
	pages := func(a *jsonrpc.Message) []source { return []source{{Page: list.PageOf(a)}} }
	ann, bob := mergeKey{principal: "ann"}, mergeKey{principal: "bob"}
	m.keep(ann, merge{pages(one), []byte("a")})
	if got := m.known(ann, pages(one)); string(got) != "a" {
		t.Errorf("the list is %q", got)
	}
	if m.known(ann, pages(other)) != nil || m.known(bob, pages(one)) != nil || m.known(ann, nil) != nil {
		t.Error("another page or another principal gets the list")
	}
	for i := range 3 * maxMerges {
		m.keep(mergeKey{principal: fmt.Sprint(i)}, merge{pages(one), make([]byte, maxMergedBytes/8)})
	}
	if n := m.all.Len(); n != 8 || m.bytes != maxMergedBytes {
		t.Errorf("%d lists with %d bytes are kept", n, m.bytes)
	}
	if m.forget(); m.all.Len() != 0 || m.bytes != 0 || m.known(mergeKey{principal: fmt.Sprint(3*maxMerges - 1)}, pages(one)) != nil {
		t.Errorf("%d lists with %d bytes are left", m.all.Len(), m.bytes)
	}
	for _, a := range []*jsonrpc.Message{one, other} { // the pages are in use until here
		if len(a.Result) == 0 {
			t.Error("a page is gone")
		}
	}
}
