package sse_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/adapters/sse"
	"github.com/mcp-bridge/bridge/bridge/gateway"
)

// newGreeter makes a server of the official SDK with one tool.
func newGreeter() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "greeter", Version: "1"}, nil)
	type who struct {
		Name string `json:"name"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "greet"}, func(_ context.Context, _ *mcp.CallToolRequest, in who) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Hello, " + in.Name + "!"}}}, nil, nil
	})
	return s
}

// newGateway makes a gateway to that server, in this process.
func newGateway() gateway.Gateway {
	return gateway.New(gateway.Options{
		Log:     slog.New(slog.DiscardHandler),
		Servers: []gateway.ServerOptions{{Name: "greeter", Adapter: inprocess.Shared("greeter", newGreeter(), inprocess.Options{})}},
	})
}

// greet calls the tool as any client does, and prints what the tool says.
func greet(t mcp.Transport) {
	ctx := context.Background()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "example", Version: "1"}, nil).Connect(ctx, t, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "greet", Arguments: map[string]string{"name": "Ada"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Content[0].(*mcp.TextContent).Text)
}

// A Downstream serves the clients of a gateway at two addresses of your choice. Who may use them is for your code to
// check before.
func ExampleNew() {
	g := newGateway()
	d := sse.New(g, sse.Options{Log: slog.New(slog.DiscardHandler)})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sse", func(w http.ResponseWriter, r *http.Request) { d.Stream("greeter", "/messages", w, r) })
	mux.HandleFunc("POST /messages", func(w http.ResponseWriter, r *http.Request) { d.Message("greeter", w, r) })
	site := httptest.NewServer(mux)

	greet(&mcp.SSEClientTransport{Endpoint: site.URL + "/sse"})

	g.Close(context.Background()) // ends the sessions, and with them their streams
	d.Close()
	site.Close()
	// Output: Hello, Ada!
}
