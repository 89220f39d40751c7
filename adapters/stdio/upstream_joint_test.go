package stdio

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

func init() { children["sdk server that changes"] = serveChanges }

// serveChanges is a server of the official SDK whose tool changes what it offers.
func serveChanges() {
	ok := func(context.Context, *mcp.SubscribeRequest) error { return nil }
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{SubscribeHandler: ok,
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil }})
	prompt := func() {
		s.AddPrompt(&mcp.Prompt{Name: "p"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{}, nil
		})
	}
	object := json.RawMessage(`{"type":"object"}`)
	tool := func(name string, f mcp.ToolHandler) { s.AddTool(&mcp.Tool{Name: name, InputSchema: object}, f) }
	none := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{}, nil
	}
	prompt()
	s.AddResource(&mcp.Resource{Name: "r", URI: "x:a"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{}, nil
	})
	tool("tools", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		tool("another", none)
		return none(ctx, r)
	})
	tool("prompts", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		prompt()
		return none(ctx, r)
	})
	for _, uri := range []string{"x:a", "x:b"} {
		tool(uri, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if err := s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri}); err != nil {
				return nil, err
			}
			return none(ctx, r)
		})
	}
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
}

// heard is the stream of a client without a session: its events, in short.
type heard chan string

func (h heard) Send(e replay.Event) bool {
	n := gjson.ParseBytes(e.Data)
	what := n.Get("method").Str
	if uri := n.Get("params.uri").Str; uri != "" {
		what = uri
	}
	h <- what
	return true
}

// until waits until the client gets that event.
func (h heard) until(ctx context.Context, what string) error {
	for {
		select {
		case got := <-h:
			if got == what {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("it was not told %s: %w", what, ctx.Err())
		}
	}
}

// changesOf has the notification of each change, by the server's tool that makes it.
var changesOf = map[string]string{
	"tools": "notifications/tools/list_changed", "prompts": "notifications/prompts/list_changed", "x:a": "x:a", "x:b": "x:b",
}

// a server of the official SDK keeps one subscription for its child's
// connection. All subscribers of the bridge get each change
// nevertheless, also while others come and go.
func TestJointSDK(t *testing.T) {
	quiet(t)
	g := gateway.New(gateway.Options{Servers: []gateway.ServerOptions{{Name: "fake", Adapter: adapter(t, "sdk server that changes", conn.Options{})}}, Log: slog.New(slog.DiscardHandler)})
	defer g.Close(context.Background())
	call := func(ctx context.Context, back bridge.Stream, method, params string) (*jsonrpc.Message, error) {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params +
			`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`))
		if err != nil {
			return nil, err
		}
		s, no := gateway.NewStateless("fake", "", m)
		if no != nil {
			return no, nil
		}
		s.Back = back
		return g.Call(ctx, m, *s)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	all, done := context.WithCancel(t.Context())
	defer done()
	listen := func(filter string) (h heard, stop context.CancelFunc) {
		h = make(heard, 1<<12)
		ctx, stop := context.WithCancel(all)
		wg.Go(func() {
			if m, err := call(ctx, h, "subscriptions/listen", `"notifications":{`+filter+`}`); ctx.Err() == nil {
				t.Errorf("a subscription to %s has ended: %v, %v", filter, m, err)
			}
		})
		if err := h.until(all, "notifications/subscriptions/acknowledged"); err != nil {
			t.Errorf("a subscription to %s: %v", filter, err)
		}
		return h, stop
	}
	filters := []struct {
		filter string
		tells  []string
	}{
		{`"toolsListChanged":true`, []string{"tools"}},
		{`"toolsListChanged":true,"resourceSubscriptions":["x:a"]`, []string{"tools", "x:a"}},
		{`"promptsListChanged":true`, []string{"prompts"}},
		{`"resourceSubscriptions":["x:b","x:a"]`, []string{"x:a", "x:b"}},
		{`"promptsListChanged":true,"toolsListChanged":true,"resourcesListChanged":true`, []string{"prompts", "tools"}},
	}
	standing := make([]heard, len(filters))
	var begun sync.WaitGroup
	for i, f := range filters {
		begun.Go(func() {
			standing[i], _ = listen(f.filter)
		})
	}
	begun.Wait()
	change := func() {
		t.Helper()
		for what, is := range changesOf {
			for _, h := range standing {
				for len(h) > 0 {
					<-h
				}
			}
			if m, err := call(all, make(heard, 16), "tools/call", `"name":"`+what+`","arguments":{}`); err != nil || m.Error != nil {
				t.Fatalf("%s: %v, %v", what, m, err)
			}
			for i, f := range filters {
				for _, tells := range f.tells {
					if tells != what {
						continue
					}
					if err := standing[i].until(all, is); err != nil {
						t.Fatalf("%s: %v", strings.ReplaceAll(f.filter, `"`, ""), err)
					}
				}
			}
		}
	}
	var others sync.WaitGroup // they come and go
	for k := range 4 {
		others.Go(func() {
			for i := range 6 {
				_, stop := listen(fmt.Sprintf(`"toolsListChanged":true,"resourceSubscriptions":["x:a","x:%d.%d"]`, k, i))
				stop()
			}
		})
	}
	change()
	others.Wait()
	for range 3 {
		change()
	}
}
