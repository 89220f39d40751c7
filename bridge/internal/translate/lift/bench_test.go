package lift_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// echoing is an Upstream that copies messages like a wire, and does nothing else.
type echoing struct {
	passing
	answer jsonrpc.Message
	line   []byte
}

func (e *echoing) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	e.line = r.Append(e.line[:0], []byte("2"), []byte("2"))
	if r.Method == "initialize" {
		return &jsonrpc.Message{Result: e.s.Result}, nil
	}
	m := e.answer
	return &m, nil
}

// BenchmarkLift measures the cost of a call to a server of the same revision, of another one, and of the other
// era. Arguments and result have the size in its name. It includes writing both.
func BenchmarkLift(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"100B", 100}, {"1MB", 1 << 20}} {
		payload := strings.Repeat("x", size.bytes)
		for _, server := range []struct{ name, revision, envelope string }{
			{"same", era.Rev20251125, ``}, {"other", era.Rev20250618, ``}, {"modern", era.Rev20260728, `"resultType":"complete","ttlMs":0,"cacheScope":"private",`},
		} {
			b.Run(server.name+"/"+size.name, func(b *testing.B) {
				e := &echoing{passing: passing{s: &bridge.Greeting{Revision: server.revision, Result: []byte(silent)}}}
				e.answer = *bridgetest.Parse(b, `{"jsonrpc":"2.0","id":1,"result":{`+server.envelope+`"content":[{"type":"text","text":"`+payload+`"}]}}`)
				u, from := lifting(b, era.Rev20251125, e)
				m := bridgetest.Parse(b, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":"`+payload+`","_meta":{"progressToken":1}}}`)
				var out []byte
				r := &bridge.Request{Message: m, From: from, Back: bridge.Nobody{}}
				b.ReportAllocs()
				for b.Loop() {
					m, err := u.Call(b.Context(), r)
					if err != nil || m.Error != nil {
						b.Fatal(err, m)
					}
					out = m.Append(out[:0], []byte("1"), nil)
				}
				if len(out) < size.bytes {
					b.Fatalf("the answer has %d bytes", len(out))
				}
			})
		}
	}
}
