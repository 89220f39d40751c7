package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
)

// manyTools is the list of one of many servers, with 250 tools of usual size.
func manyTools(server int) string {
	verbs := []string{"list", "get", "create", "update", "delete", "search", "send", "export", "merge", "archive"}
	var all []string
	for i := range 250 {
		thing := fmt.Sprintf("thing%c%c%c", 'a'+server%26, 'a'+i%26, 'a'+i/26)
		all = append(all, fmt.Sprintf(`{"name":"%s_%s","title":"T %d","description":"%s a %s of the workspace %d. %s",`+
			`"inputSchema":{"type":"object","properties":{"path":{"type":"string","description":"What is meant"},"%s_id":{"type":"integer","minimum":0}},"required":["path"]},"annotations":{"readOnlyHint":%t}}`,
			verbs[i%10], thing, i, verbs[i%10], thing, server, strings.Repeat("does something useful ", 8), thing, i%10 < 2))
	}
	return `{"tools":[` + strings.Join(all, ",") + `]}`
}

// BenchmarkManyTools measures the joint address of 40 servers with 10,000 tools: a search, a call through CallTool, and
// the same call by the tool's own name.
func BenchmarkManyTools(b *testing.B) {
	o := Options{
		Common: Common{
			Listing: Listing{ToolsMode: ToolsSearch},
		},
		Log: slog.New(slog.DiscardHandler),
	}
	for i := range 40 {
		name := fmt.Sprint("s", i)
		o.Servers = append(o.Servers, ServerOptions{
			Name: name,
			ServerSettings: ServerSettings{
				Prefix: name + "__",
				Cache:  cache.Options{Lists: maxFresh},
			},
			Adapter: shop(name, map[string]string{"tools/list": manyTools(i)}),
		})
	}
	g := newGateway(o)
	defer g.Close(context.Background())
	s := sessionAt(b, g, "", "", "")
	for _, call := range []struct{ name, params, want string }{
		{"search", `{"name":"search_tools","arguments":{"query":"merge the thingcab of a workspace"}}`, "thingcab"},
		{"call_tool", `{"name":"call_tool","arguments":{"name":"s7__get_thinghba","arguments":{"path":"x"}}}`, `"by":"s7"`},
		{"its own name", `{"name":"s7__get_thinghba","arguments":{"path":"x"}}`, `"by":"s7"`},
	} {
		b.Run(call.name, func(b *testing.B) {
			m := bridgetest.Parse(b, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":`+call.params+`}`)
			b.ReportAllocs()
			for b.Loop() {
				a, err := s.Call(m, nil, nil)
				if text := bridgetest.Text(a); err != nil || !strings.Contains(text, call.want) {
					b.Fatalf("%.300s, %v", text, err)
				}
			}
		})
	}
}
