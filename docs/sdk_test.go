package docs

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sum calls a tool at an address, as docs/clients.md shows it.
func sum(ctx context.Context, address string) (*mcp.CallToolResult, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "my-agent", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: address}, nil)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	return session.CallTool(ctx, &mcp.CallToolParams{Name: "get-sum", Arguments: map[string]any{"a": 2, "b": 3}})
}

func TestSDK(t *testing.T) {
	w := newWorld(t)
	got, err := sum(t.Context(), w.start(t, "mcp-bridge run --listen 127.0.0.1:0 -- everything stdio")+"/mcp")
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := got.Content[0].(*mcp.TextContent); !ok || text.Text != "The sum of 2 and 3 is 5." {
		t.Errorf("the result is %v", got.Content)
	}
}
