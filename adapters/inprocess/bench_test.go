package inprocess

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

var sizes = []int{100, 64 << 10, 1 << 20}

// echoServer returns the arguments of its tool as text.
func echoServer() *mcp.Server {
	return newServer(nil, map[string]handler{"echo": func(_ context.Context, r *mcp.CallToolRequest) (string, error) {
		return string(r.Params.Arguments), nil
	}})
}

// BenchmarkCall is a call of a tool by way of the adapter, and beside it one by
// the SDK's own client over its transport in memory.
func BenchmarkCall(b *testing.B) {
	for _, size := range sizes {
		arguments := `{"text":"` + strings.Repeat("x", size) + `"}`
		b.Run(fmt.Sprintf("adapter/%d", size), func(b *testing.B) {
			up := open(b, Shared("echo", echoServer(), quiet(Options{})), &adaptertest.Client{})
			m := adaptertest.Parse(b, tool("echo", `"arguments":`+arguments))
			b.ReportAllocs()
			for b.Loop() {
				a, err := up.Call(b.Context(), &bridge.Request{Message: m})
				if err != nil || len(a.Result) < size {
					b.Fatal(adaptertest.Text(a), err)
				}
				a.Release()
			}
		})
		b.Run(fmt.Sprintf("sdk/%d", size), func(b *testing.B) {
			near, far := mcp.NewInMemoryTransports()
			s, err := echoServer().Connect(b.Context(), near, nil)
			if err != nil {
				b.Fatal(err)
			}
			c, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).Connect(b.Context(), far, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = c.Close(); _ = s.Wait() })
			b.ReportAllocs()
			for b.Loop() {
				r, err := c.CallTool(b.Context(), &mcp.CallToolParams{Name: "echo", Arguments: json.RawMessage(arguments)})
				if err != nil || len(r.Content) != 1 {
					b.Fatal(r, err)
				}
			}
		})
	}
}

// BenchmarkIncoming is what it costs to make the SDK's message of a line.
func BenchmarkIncoming(b *testing.B) {
	for _, size := range sizes {
		line := []byte(tool("echo", `"arguments":{"text":"`+strings.Repeat("x", size)+`"}`))
		line = []byte(strings.Replace(string(line), `"x"`, `1`, 1)) // the id
		b.Run(fmt.Sprintf("adapter/%d", size), func(b *testing.B) {
			for b.Loop() {
				if _, err := incoming(conn.Outgoing{Line: &jsonrpc.Buffer{B: line}}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("sdk/%d", size), func(b *testing.B) {
			for b.Loop() {
				if _, err := sdk.DecodeMessage(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
