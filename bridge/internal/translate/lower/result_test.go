package lower

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
)

// A large answer is upgraded without a copy.
func TestUpgradeCopiesNothing(t *testing.T) {
	large := `{"content":[{"type":"text","text":"` + strings.Repeat("x", 1<<20) + `"}],"structuredContent":{"a":1},"_meta":{"k":1}}`
	a := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":`+large+`}`)
	before := &a.Result[0]
	l := newLegacy(&bridge.Greeting{Revision: "2025-11-25", Capabilities: []byte("{}"), Result: []byte(`{"serverInfo":{"name":"fake","version":"1"}}`)}, true)
	r := &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)}
	if copied := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m := *a
			l.upgrade(r, &m)
		}
	}).AllocedBytesPerOp(); copied > 8<<10 {
		t.Errorf("%d bytes are allocated", copied)
	}
	out := l.upgrade(r, a)
	if &out.Result[0] != before || !bytes.Contains(out.Whole(), []byte(`"resultType":"complete"`)) {
		t.Error("the answer was copied")
	}
}
