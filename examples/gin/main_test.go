package main

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestEngine(t *testing.T) {
	b, err := newBridge(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(newEngine(b))
	t.Cleanup(site.Close)
	t.Cleanup(func() { b.Close(t.Context()) })

	for name, transport := range map[string]mcp.Transport{
		"Streamable HTTP": &mcp.StreamableClientTransport{Endpoint: site.URL + "/tools/mcp"},
		"HTTP+SSE":        &mcp.SSEClientTransport{Endpoint: site.URL + "/tools/sse"},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			r, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "greet", Arguments: map[string]string{"name": "Ada"}})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Content[0].(*mcp.TextContent).Text; got != "Hello, Ada!" {
				t.Errorf("greet says %q", got)
			}
		})
	}
	r, err := http.Get(site.URL + "/about")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if page, err := io.ReadAll(r.Body); err != nil || string(page) != "my own page" {
		t.Errorf("/about is %q, %v", page, err)
	}
}
