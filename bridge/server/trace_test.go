package server_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/bridge/config"
)

// traced adds the header of a trace to each request.
type traced string

func (h traced) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Traceparent", string(h))
	return http.DefaultTransport.RoundTrip(r)
}

// wasTold is what a server got of a call.
type wasTold struct{ parent, body string }

// A trace goes on to servers over HTTP in headers too, whatever they speak, and
// to HTTP APIs; from clients of each era, whose own headers say of it. Without
// tracing, no header goes on that nobody has configured (protocol.md B17, D0.9).
func TestTraceHeaders(t *testing.T) {
	const client = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	calls := make(chan wasTold, 10)
	seen := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
			if bytes.Contains(body, []byte(`"tools/call"`)) || r.URL.Path == "/fail" {
				calls <- wasTold{r.Header.Get("Traceparent"), string(body)}
			}
		})
	}
	for _, on := range []bool{true, false} {
		t.Run(fmt.Sprint(on), func(t *testing.T) {
			spans := tracetest.NewSpanRecorder()
			c := config.Default()
			if on {
				c.Traces = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
			}
			for _, s := range failing(t, seen) {
				switch s.Name {
				case "child", "embedded": // without headers
					continue
				case "remote":
					s.Era = config.EraLegacy
				case "stateless":
					s.Era = config.EraModern
				}
				c.Servers = append(c.Servers, s)
			}
			address, _ := serveAs(t, &c, slog.New(slog.DiscardHandler))
			for i := range c.Servers {
				name := c.Servers[i].Name
				for _, revision := range []string{"2025-11-25", "2026-07-28"} {
					transport := &mcp.StreamableClientTransport{Endpoint: "http://" + address + "/" + name + "/mcp", HTTPClient: &http.Client{Transport: traced(client)}}
					session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
					if err != nil {
						t.Fatalf("%s, %s: %v", name, revision, err)
					}
					if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "fail"}); err != nil {
						t.Fatalf("%s, %s: %v", name, revision, err)
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
