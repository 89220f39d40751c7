package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/config"
)

// wasTold is what a server got of a call.
type wasTold struct{ parent, body string }

// A trace goes on to servers over HTTP in headers too, whatever they speak, and
// to HTTP APIs; from clients of each era, whose own headers say of it. Without
// tracing, no header goes on that nobody has configured (protocol.md B17, D0.9).
func TestTraceHeaders(t *testing.T) {
	const client = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	calls := make(chan wasTold, 10)
	seen := func(next http.Handler) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
			if bytes.Contains(body, []byte(`"tools/call"`)) || r.URL.Path == "/words/hello" {
				calls <- wasTold{r.Header.Get("Traceparent"), string(body)}
			}
		}))
	}
	tools := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	mcp.AddTool(tools, &mcp.Tool{Name: "getWord"}, func(context.Context, *mcp.CallToolRequest, map[string]any) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	})
	get := func(*http.Request) *mcp.Server { return tools }
	streamable, events := seen(mcp.NewStreamableHTTPHandler(get, nil)), seen(mcp.NewSSEHandler(get, nil))
	stateless := seen(mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true}))
	api := seen(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `["hello"]`)
	}))
	defer streamable.Close()
	defer stateless.Close()
	defer events.Close()
	defer api.Close()
	document := filepath.Join(t.TempDir(), "words.yaml")
	if err := os.WriteFile(document, fmt.Appendf(nil, wordsAPI, "getWord"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for _, on := range []bool{true, false} {
		t.Run(fmt.Sprint(on), func(t *testing.T) {
			spans := tracetest.NewSpanRecorder()
			c := config.Default()
			if on {
				c.Traces = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
			}
			for _, name := range []string{"old", "new", "sse", "api"} {
				s := config.DefaultServer(name, config.ShareSession)
				switch name {
				case "old":
					s.HTTP, s.Era = &remote.Config{URL: streamable.URL}, config.EraLegacy
				case "new":
					s.HTTP, s.Era = &remote.Config{URL: stateless.URL}, config.EraModern
				case "sse":
					s.SSE = &remote.Config{URL: events.URL}
				case "api":
					s.Rest = &rest.Config{OpenAPI: document, BaseURL: api.URL}
				}
				c.Servers = append(c.Servers, s)
			}
			own := build(&c, slog.New(slog.DiscardHandler), (*server).reach)
			site := httptest.NewServer(own.Handler())
			defer site.Close()
			defer own.Close(context.Background())
			for _, name := range []string{"old", "new", "sse", "api"} {
				for _, revision := range []string{"2025-11-25", "2026-07-28"} {
					transport := &mcp.StreamableClientTransport{Endpoint: site.URL + "/" + name + "/mcp", HTTPClient: &http.Client{Transport: withHeader{"Traceparent", client}}}
					session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
					if err != nil {
						t.Fatalf("%s, %s: %v", name, revision, err)
					}
					result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "getWord", Arguments: map[string]any{"word": "hello"}})
					if err != nil || result.IsError {
						t.Fatalf("%s, %s: %v, %v", name, revision, result, err)
					}
					got := <-calls
					_ = session.Close()
					if !on {
						if got.parent != "" || strings.Contains(got.body, "traceparent") {
							t.Errorf("%s, %s: without tracing the server got %+v", name, revision, got)
						}
						continue
					}
					if !strings.HasPrefix(got.parent, client[:36]) || strings.Contains(got.parent, client[36:52]) || !called(t, spans, name, got.parent) {
						t.Errorf("%s, %s: the server got the header %q", name, revision, got.parent)
					}
					if name != "api" && !strings.Contains(got.body, `"traceparent":"`+got.parent+`"`) {
						t.Errorf("%s, %s: the header is %q, and the request %s", name, revision, got.parent, got.body)
					}
				}
			}
		})
	}
}

// called reports whether a parent is a span of a call to that server. It checks that the span says where the server is,
// and that the span of the client's request says the same of the client.
func called(t *testing.T, spans *tracetest.SpanRecorder, server, parent string) bool {
	t.Helper()
	has := func(s sdktrace.ReadOnlySpan, keys ...attribute.Key) {
		t.Helper()
		for _, key := range keys {
			if !slices.ContainsFunc(s.Attributes(), func(a attribute.KeyValue) bool { return a.Key == key }) {
				t.Errorf("the span %s of %s has no %s: %v", s.Name(), server, key, s.Attributes())
			}
		}
	}
	for _, s := range spans.Ended() {
		if s.SpanKind() != trace.SpanKindClient || !strings.Contains(parent, s.SpanContext().SpanID().String()) {
			continue
		}
		for _, a := range s.Attributes() {
			if a.Key == "mcp_bridge.server" && a.Value.AsString() == server {
				has(s, "network.transport", "network.protocol.name", "server.address", "server.port")
				if server != "api" {
					has(s, "jsonrpc.request.id")
				}
				for _, door := range spans.Ended() {
					if door.SpanContext().SpanID() == s.Parent().SpanID() {
						has(door, "network.transport", "network.protocol.name", "client.address", "client.port", "jsonrpc.request.id", "mcp.protocol.version")
					}
				}
				return true
			}
		}
	}
	return false
}
