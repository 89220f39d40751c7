package remote_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/sse"
	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// The transport of a remote server is not known. This server speaks HTTP+SSE only.
func ExampleAdapter() {
	s := mcp.NewServer(&mcp.Implementation{Name: "old", Version: "1"}, nil)
	site := httptest.NewServer(mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil))
	defer site.Close()
	c := remote.Config{URL: site.URL}
	newer, err := streamable.NewUpstream("old", c, conn.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer newer.Close()
	older, err := sse.NewUpstream("old", c, conn.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer older.Close()
	a := &remote.Adapter{Server: "old", Log: slog.New(slog.DiscardHandler), Candidates: [2]remote.Candidate{
		{Transport: remote.TransportStreamable, Title: "Streamable HTTP", Adapter: newer},
		{Transport: remote.TransportSSE, Title: "HTTP+SSE", Adapter: older},
	}}

	ctx := context.Background()
	from := &bridge.Caller{
		Revision:     "2025-11-25",
		Capabilities: []byte(`{}`),
		Params:       []byte(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"example","version":"1"}}`),
	}
	up, err := a.Open(ctx, from, bridge.Nobody{})
	if err != nil {
		log.Fatal(err)
	}
	defer up.Close(ctx)
	fmt.Println(a.Transport(), up.Server().Revision)
	// Output: sse 2025-11-25
}
