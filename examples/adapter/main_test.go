package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// newGreeter returns a server whose tool reports progress and asks the user for a name.
func newGreeter() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "greeter", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "greet"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1}); err != nil {
			return nil, nil, err
		}
		e, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Who is there?", RequestedSchema: map[string]any{
			"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}},
		}})
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("Hello, %v!", e.Content["name"])}}}, nil, nil
	})
	return s
}

// listen serves a server on a socket until the test ends, and returns its address.
func listen(t *testing.T, s *mcp.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { _ = s.Run(ctx, &mcp.IOTransport{Reader: c, Writer: c}) })
		}
	})
	t.Cleanup(func() {
		cancel()
		l.Close()
		all.Wait()
	})
	return "tcp://" + l.Addr().String()
}

// An HTTP client uses a server behind the socket: its call reports progress, asks the user, and is answered. The client
// may be of either era.
func TestBridge(t *testing.T) {
	b, err := newBridge(listen(t, newGreeter()), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(b.Handler())
	t.Cleanup(func() {
		b.Close(context.Background())
		site.Close()
	})
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			progress := make(chan any, 1)
			c := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1.0.0"}, &mcp.ClientOptions{
				ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
				},
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					progress <- r.Params.ProgressToken
				},
			})
			session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: site.URL + "/mcp"}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			p := &mcp.CallToolParams{Name: "greet"}
			p.SetProgressToken("mine")
			r, err := session.CallTool(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if text := r.Content[0].(*mcp.TextContent).Text; r.IsError || text != "Hello, Ada!" {
				t.Errorf("the tool said %q", text)
			}
			if token := <-progress; token != "mine" {
				t.Errorf("progress has the token %v, want the client's", token)
			}
		})
	}
}
