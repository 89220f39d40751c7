package gateway_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
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

// printer is the stream of a client: it gets what the server sends before the answer.
type printer struct{}

func (printer) Send(e replay.Event) bool {
	fmt.Println("event", string(e.Data))
	return true
}

// message parses a message of a client.
func message(text string) *jsonrpc.Message {
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		log.Fatal(err)
	}
	return m
}

// An adapter that serves clients begins a session for each, and passes on the messages of the client. The answer has the
// id of the client.
func Example() {
	ctx := context.Background()
	g := gateway.New(gateway.Options{
		Log:     slog.New(slog.DiscardHandler),
		Servers: []gateway.ServerOptions{{Name: "greeter", Adapter: inprocess.Shared("greeter", newGreeter(), inprocess.Options{})}},
	})
	defer g.Close(ctx)

	session, answer, err := g.Initialize(ctx, message(`{"jsonrpc":"2.0","id":"a","method":"initialize","params":{
		"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"example","version":"1"}}}`),
		gateway.SessionOptions{Server: "greeter", ID: "an id that nobody can guess"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(answer.ID), session.Server(), session.Revision())
	session.Notify(message(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
	answer, err = session.Call(message(`{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"}}}`), nil, printer{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(answer.ID), string(answer.Result))
	// Output:
	// "a" greeter 2025-11-25
	// "b" {"content":[{"type":"text","text":"Hello, Ada!"}]}
}
