package stdio

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

func init() { children["returns params"] = returnsParams }

// returnsParams answers every request with its params, as fast as it can, and
// initialize as a server must.
func returnsParams() {
	l := newLineReader(os.Stdin, 64<<20, nil)
	for {
		buf, _, err := l.next()
		if err != nil {
			return
		}
		m, err := jsonrpc.Parse(buf.B)
		if err != nil {
			panic(err)
		}
		if m.IsRequest() {
			a := jsonrpc.NewResult(m.ID, m.Params)
			if m.Method == "initialize" {
				a.Result = []byte(`{"protocolVersion":"2025-11-25","capabilities":{}}`)
			}
			out := jsonrpc.NewBuffer(a.Len())
			out.B = append(a.Append(out.B, a.ID, nil), '\n')
			if _, err := os.Stdout.Write(out.B); err != nil {
				return
			}
			out.Free()
		}
		m.Own(buf).Release()
	}
}

var benchSizes = []struct {
	name string
	size int
}{{"100B", 100}, {"64KB", 64 << 10}, {"1MB", 1 << 20}}

// BenchmarkCall is one call through a child, there and back. Allocations are
// those of the bridge.
func BenchmarkCall(b *testing.B) {
	for _, c := range benchSizes {
		b.Run(c.name, func(b *testing.B) {
			up := adaptertest.Open(b, adapter(b, "returns params", conn.Options{}), &adaptertest.Client{})
			m := adaptertest.Parse(b, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"text":"`+strings.Repeat("x", c.size)+`"}}`)
			r := &bridge.Request{Message: m}
			ctx := context.Background()
			b.SetBytes(int64(2 * c.size))
			b.ReportAllocs()
			for b.Loop() {
				m, err := up.Call(ctx, r)
				if err != nil {
					b.Fatal(err)
				}
				m.Release()
			}
		})
	}
}

// BenchmarkDirect is the same child without the bridge: a line to its stdin, a
// line from its stdout.
func BenchmarkDirect(b *testing.B) {
	for _, c := range benchSizes {
		b.Run(c.name, func(b *testing.B) {
			p := mustStart(b, self(b, "returns params"))
			in := bufio.NewReaderSize(p.stdout, 2<<20)
			line := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"text":"%s"}}`+"\n", strings.Repeat("x", c.size))
			b.SetBytes(int64(2 * c.size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.stdin.Write(line); err != nil {
					b.Fatal(err)
				}
				if _, err := in.ReadSlice('\n'); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
