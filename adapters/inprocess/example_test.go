package inprocess_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http/httptest"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
)

// publish serves what the adapter reaches; the examples of package
// server show more ways to do so.
func publish(name string, a bridge.Adapter) (url string, stop func()) {
	one := config.DefaultServer(name, config.ShareSession)
	one.Adapter = a
	c := config.Default()
	c.Servers = []config.Server{one}
	s := server.New(&c, slog.New(slog.DiscardHandler))
	site := httptest.NewServer(s.Handler())
	return site.URL + "/mcp", func() {
		s.Close(context.Background())
		site.Close()
	}
}

// connect opens a session, which clients of 2026-07-28 and later do not have:
// all of one principal that can do the same would be sent to one server.
func connect(url, client string) *mcp.ClientSession {
	s, err := mcp.NewClient(&mcp.Implementation{Name: client, Version: "1.0.0"}, nil).
		Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		log.Fatal(err)
	}
	return s
}

// A server for each session: what its tools remember belongs to one client.
func ExampleNew() {
	counters := inprocess.New("counter", func(*bridge.Caller) *mcp.Server {
		var n atomic.Int64
		s := mcp.NewServer(&mcp.Implementation{Name: "counter", Version: "1.0.0"}, nil)
		mcp.AddTool(s, &mcp.Tool{Name: "count"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(n.Add(1))}}}, nil, nil
		})
		return s
	}, inprocess.Options{})
	url, stop := publish("counter", counters)
	defer stop()

	for _, client := range []string{"first", "second"} {
		s := connect(url, client)
		for range 2 {
			r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "count"})
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(client, r.Content[0].(*mcp.TextContent).Text)
		}
		s.Close()
	}
	// Output:
	// first 1
	// first 2
	// second 1
	// second 2
}

// One server for all sessions. A handler that panics costs its caller an error,
// and has no effect on others.
func ExampleShared() {
	s := mcp.NewServer(&mcp.Implementation{Name: "shared", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "fail"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		panic("a slip")
	})
	mcp.AddTool(s, &mcp.Tool{Name: "work"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
	})
	url, stop := publish("shared", inprocess.Shared("shared", s, inprocess.Options{Log: slog.New(slog.DiscardHandler)}))
	defer stop()

	client := connect(url, "example")
	defer client.Close()
	for _, tool := range []string{"fail", "work"} {
		r, err := client.CallTool(context.Background(), &mcp.CallToolParams{Name: tool})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(r.Content[0].(*mcp.TextContent).Text)
	}
	// Output:
	// calling "tools/call": internal error: the handler of this request panicked
	// done
}
