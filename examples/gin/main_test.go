package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The page and the tool answer on one port, and serve ends with its context although the client's stream is open.
func TestServe(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l) }()
	site := "http://" + l.Addr().String()

	r, err := http.Get(site + "/about")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if page, err := io.ReadAll(r.Body); err != nil || string(page) != "my own page" {
		t.Errorf("the page is %q, error %v", page, err)
	}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: site + "/tools/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	got, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "greet", Arguments: map[string]any{"name": "Ada"}})
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := got.Content[0].(*mcp.TextContent); !ok || text.Text != "Hello, Ada!" {
		t.Errorf("the result is %v", got.Content)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
