package streamable_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
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

// call opens a connection for a client, calls the tool, and prints the answer.
func call(a bridge.Adapter) {
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
	r := jsonrpc.NewRequest("tools/call", []byte(`{"name":"greet","arguments":{"name":"Ada"}}`))
	answer, err := up.Call(ctx, &bridge.Request{Message: r, From: from})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(up.Server().Revision, string(answer.Result))
}

// A Downstream serves the clients of a gateway at an address of your choice. Who may use the address is for your code to
// check before.
func ExampleNew() {
	g := newGateway()
	d := streamable.New(g, streamable.Options{Log: slog.New(slog.DiscardHandler)})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.Serve("greeter", w, r) }))

	greet(&mcp.StreamableClientTransport{Endpoint: site.URL})

	g.Close(context.Background()) // ends the sessions, and with them their streams
	d.Close()
	site.Close()
	// Output: Hello, Ada!
}

// An Upstream is the adapter for a remote server.
func ExampleNewUpstream() {
	site := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return newGreeter() }, nil))
	defer site.Close()
	up, err := streamable.NewUpstream("greeter", remote.Config{URL: site.URL}, conn.Options{Era: conn.EraLegacy})
	if err != nil {
		log.Fatal(err)
	}
	defer up.Close()

	call(up)
	// Output: 2025-11-25 {"content":[{"type":"text","text":"Hello, Ada!"}]}
}
