//lint:file-ignore SA1019 sampling is deprecated in 2026-07-28 and still part of everything.

package inprocess_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/adapters/sse"
	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge/gateway"
)

// newInterviewer makes a server whose tool reports progress, asks the client's
// model and then its user.
func newInterviewer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "interviewer", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "interview"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1}); err != nil {
			return nil, nil, err
		}
		m, err := r.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 7, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "a question, please"}}}})
		if err != nil {
			return nil, nil, err
		}
		e, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: m.Content.(*mcp.TextContent).Text,
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{"answer":{"type":"string"}}}`)})
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(e.Content["answer"])}}}, nil, nil
	})
	return s
}

// A tool in Go and a real client: everything between the two works over each
// transport.
func TestThroughBridge(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	g := gateway.New(gateway.Options{Log: quiet, Servers: []gateway.ServerOptions{
		{Name: "interviewer", Adapter: inprocess.Shared("interviewer", newInterviewer(), inprocess.Options{Log: quiet})},
	}})
	newer := streamable.New(g, streamable.Options{Log: quiet})
	older := sse.New(g, sse.Options{Log: quiet})
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) { newer.Serve("interviewer", w, r) })
	mux.HandleFunc("GET /sse", func(w http.ResponseWriter, r *http.Request) { older.Stream("interviewer", "/messages", w, r) })
	mux.HandleFunc("POST /messages", func(w http.ResponseWriter, r *http.Request) { older.Message("interviewer", w, r) })
	site := httptest.NewServer(mux)
	t.Cleanup(func() {
		g.Close(context.Background())
		older.Close()
		site.Close()
	})
	for name, transport := range map[string]mcp.Transport{
		"streamable": &mcp.StreamableClientTransport{Endpoint: site.URL + "/mcp", HTTPClient: site.Client()},
		"sse":        &mcp.SSEClientTransport{Endpoint: site.URL + "/sse", HTTPClient: site.Client()},
	} {
		t.Run(name, func(t *testing.T) {
			progress := make(chan any, 1)
			c := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
				CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
					return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: &mcp.TextContent{Text: "window or aisle?"}}, nil
				},
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": r.Params.Message + " aisle"}}, nil
				},
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					progress <- r.Params.ProgressToken
				},
			})
			session, err := c.Connect(t.Context(), transport, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			p := &mcp.CallToolParams{Name: "interview"}
			p.SetProgressToken("mine")
			r, err := session.CallTool(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Content[0].(*mcp.TextContent).Text; r.IsError || got != "window or aisle? aisle" {
				t.Errorf("the tool said %q", got)
			}
			if token := <-progress; token != "mine" {
				t.Errorf("progress under token %v", token)
			}
		})
	}
}
