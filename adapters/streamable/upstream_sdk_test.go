//lint:file-ignore SA1019 sampling is deprecated from 2026-07-28 on; the bridge serves the revisions before it.

package streamable

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// sdkServer is a server made with the official SDK that uses what a session
// offers.
func sdkServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	object := json.RawMessage(`{"type":"object"}`)
	tool := func(name string, h mcp.ToolHandler) { s.AddTool(&mcp.Tool{Name: name, InputSchema: object}, h) }
	text := func(t string) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: t}}}, nil
	}
	tool("echo", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(string(r.Params.Arguments))
	})
	tool("progress", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 3 {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i)}); err != nil {
				return nil, err
			}
		}
		return text("done")
	})
	tool("sample", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		m, err := r.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 5, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "say"}}}})
		if err != nil {
			return nil, err
		}
		return text("model " + m.Model)
	})
	tool("elicit", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		e, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "seat?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"seat":{"type":"string"}}}`)})
		if err != nil {
			return nil, err
		}
		return text(fmt.Sprint(e.Action, " ", e.Content["seat"]))
	})
	tool("poll", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 3 {
			r.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i)}); err != nil {
				return nil, err
			}
		}
		return text("polled")
	})
	return s
}

// sdkCaller can be asked.
func sdkCaller() *bridge.Caller {
	c := `{"sampling":{},"elicitation":{}}`
	return &bridge.Caller{Revision: "2025-11-25", Capabilities: []byte(c),
		Params: []byte(`{"protocolVersion":"2025-11-25","capabilities":` + c + `,"clientInfo":{"name":"test","version":"1"}}`)}
}

func useTool(name, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":"tok"}}}`, name, args)
}

// Servers of the official Go SDK in each of their modes.
func TestUpstreamSDK(t *testing.T) {
	for _, c := range []struct {
		name string
		o    mcp.StreamableHTTPOptions
	}{
		{"stateful", mcp.StreamableHTTPOptions{}},
		{"json", mcp.StreamableHTTPOptions{JSONResponse: true}},
		{"stateless", mcp.StreamableHTTPOptions{Stateless: true}},
		{"stateless json", mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}},
		{"resumable", mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			handler := mcp.NewStreamableHTTPHandler(func() func(*http.Request) *mcp.Server {
				s := sdkServer()
				return func(*http.Request) *mcp.Server { return s }
			}(), &c.o)
			site := httptest.NewServer(handler)
			t.Cleanup(site.Close)
			rest := &adaptertest.Client{}
			u := adapter(t, site.URL, nil, conn.Options{})
			up, err := u.Open(t.Context(), sdkCaller(), rest)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = up.Close(context.Background()) })
			got := adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).Result(t)
			if !strings.Contains(got, `"elicit"`) {
				t.Errorf("tools/list = %s", got)
			}
			if got := adaptertest.Call(t.Context(), t, up, nil, useTool("echo", `{"n":12345678901234567890}`)).Result(t); !strings.Contains(got, "12345678901234567890") {
				t.Errorf("echo = %s", got)
			}
			if c.o.Stateless && c.o.JSONResponse {
				return // it refuses to report
			}
			back := &adaptertest.Client{}
			o := adaptertest.Call(t.Context(), t, up, back, useTool("progress", "{}"))
			for c.o.JSONResponse && strings.Contains(o.Answer, "stream not connected") { // it reports on the standalone stream only
				o = adaptertest.Call(t.Context(), t, up, back, useTool("progress", "{}"))
			}
			if got := o.Result(t); !strings.Contains(got, "done") {
				t.Errorf("progress = %s", got)
			}
			if said := back.Said(); !c.o.JSONResponse && len(said) != 3 {
				t.Errorf("progress = %q, want 3", said)
			}
			if c.o.Stateless {
				return // no client can answer
			}
			ask := func(tool, answer, want string, n int) {
				call := adaptertest.Go(t.Context(), t, up, nil, useTool(tool, "{}"))
				rest.WaitQuestion(t, n).Reply(adaptertest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":`+answer+`}`))
				if got := (<-call).Result(t); !strings.Contains(got, want) {
					t.Errorf("%s = %s, want %q", tool, got, want)
				}
			}
			ask("sample", `{"role":"assistant","model":"parrot","content":{"type":"text","text":"x"}}`, "model parrot", 0)
			ask("elicit", `{"action":"accept","content":{"seat":"12A"}}`, "accept 12A", 1)
			if c.o.EventStore == nil {
				return
			}
			back = &adaptertest.Client{}
			if got := adaptertest.Call(t.Context(), t, up, back, useTool("poll", "{}")).Result(t); !strings.Contains(got, "polled") {
				t.Errorf("poll = %s", got)
			}
			if said := back.Said(); len(said) != 3 {
				t.Errorf("progress over several connections = %q, want 3", said)
			}
		})
	}
}
