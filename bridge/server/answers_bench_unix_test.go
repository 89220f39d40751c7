//go:build unix

package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/config"
)

// BenchmarkAnswers measures calls with an answer of 1 MB: of an MCP server, and of an HTTP API whose answer is the same
// text. That becomes text and structured content, whole or cut to 100 KiB. The ways take turns within one run; the servers
// are in another process, and the processor time is that of this one.
func BenchmarkAnswers(b *testing.B) {
	_, out := startEcho(b, echoLarge)
	address, err := out.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	base := "http://" + strings.TrimSpace(address)
	mcp := config.DefaultServer("b", "")
	mcp.HTTP = &remote.Config{URL: base + "/mcp", Transport: remote.TransportStreamable}
	api := func(limit rest.Bytes) config.Server {
		s := config.DefaultServer("b", "")
		s.Rest = &rest.Config{BaseURL: base, Limits: rest.Limits{Answer: limit}, Tools: []rest.Tool{{Key: "text", Request: "GET /text"}, {Key: "list", Request: "GET /list"}}}
		return s
	}
	ways := []struct {
		name, tool string
		c          caller
		took       time.Duration
	}{
		{"mcp-text", "text", dialAt(b, serve(b, mcp)), 0},
		{"rest-text", "text", dialAt(b, serve(b, api(4<<20))), 0},
		{"mcp-list", "list", dialAt(b, serve(b, mcp)), 0},
		{"rest-list", "list", dialAt(b, serve(b, api(4<<20))), 0},
		{"rest-cut", "list", dialAt(b, serve(b, api(100<<10))), 0},
	}
	const turn = 20
	for range b.N {
		for i := range ways {
			w := &ways[i]
			request := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, w.tool)
			before := cpu(b)
			for range turn {
				if answer, err := w.c.call(request); err != nil || len(answer) < 90<<10 {
					b.Fatalf("%s: %.200q, %v", w.name, answer, err)
				}
			}
			w.took += cpu(b) - before
		}
	}
	for _, w := range ways {
		b.ReportMetric(float64(w.took.Microseconds())/float64(b.N*turn), w.name+"-µs")
	}
}
