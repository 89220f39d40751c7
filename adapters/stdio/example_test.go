package stdio_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge/conn"
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

// New makes the adapter for a server that is a program. Check looks for the program, and starts nothing: each Open starts
// a child.
func ExampleNew() {
	c := stdio.Config{
		Command: "no-such-server",
		Args:    []string{"--stdio"},
		Env:     map[string]string{"LANG": "C"},
	}
	if err := c.Validate(); err != nil {
		log.Fatal(err)
	}
	err := stdio.New("files", c, conn.Options{}).Check()
	fmt.Println("missing:", errors.Is(err, exec.ErrNotFound))
	// Output: missing: true
}

// Serve serves one client. A program passes os.Stdin and os.Stdout.
func ExampleServe() {
	g := newGateway()
	stdin, toServer := io.Pipe()
	fromServer, stdout := io.Pipe()
	served := make(chan error)
	go func() {
		served <- stdio.Serve(context.Background(), g, "greeter", stdin, stdout, stdio.DownstreamOptions{Log: slog.New(slog.DiscardHandler)})
	}()

	greet(&mcp.IOTransport{Reader: fromServer, Writer: toServer}) // closes the pipes when it is done

	fmt.Println("served:", <-served)
	g.Close(context.Background())
	// Output:
	// Hello, Ada!
	// served: <nil>
}
