package streamable

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// What a circuit breaker makes of what servers say, and how often they are
// asked. Refused credentials are no failures of the server.
func TestUpstreamGuarded(t *testing.T) {
	drop := func(w http.ResponseWriter, _ *http.Request, _ string) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}
	hang := func(_ http.ResponseWriter, r *http.Request, _ string) { <-r.Context().Done() }
	for _, c := range []struct {
		name string
		post func(http.ResponseWriter, *http.Request, string)
		open bool
	}{
		{"an answer", func(w http.ResponseWriter, _ *http.Request, id string) { plainly(w, id, `{}`) }, false},
		{"an error", respond(200, failure("$id", -32603, "no")), false},
		{"an error with 500", respond(500, failure("$id", -32603, "no")), false},
		{"400", respond(400, ""), false},
		{"401", respond(401, ""), false},
		{"403", respond(403, "page"), false},
		{"404", respond(404, ""), false},
		{"413", respond(413, ""), false},
		{"429", respond(429, "", "Retry-After", "1"), false},
		{"500", respond(500, ""), true},
		{"502", respond(502, "<html>"), true},
		{"503", respond(503, ""), true},
		{"504", respond(504, ""), true},
		{"no answer but a page", respond(200, "<html>", "Content-Type", "text/html"), true},
		{"a stream without an answer", respond(200, "", "Content-Type", "text/event-stream"), true},
		{"the connection ends", drop, true},
		{"no answer in time", hang, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, &script{post: c.post})
			limits := conn.Timeouts{Idle: time.Hour}
			if c.name == "no answer in time" {
				limits.Idle = 300 * time.Millisecond // of a call; the handshake has none
			}
			u := adapter(t, s.URL, nil, conn.Options{Timeouts: limits})
			g := gateway.New(gateway.Options{Log: slog.New(slog.DiscardHandler), Servers: []gateway.ServerOptions{
				{Name: "fake", Adapter: u, ServerSettings: gateway.ServerSettings{Breaker: breaker.Options{Failures: 3}}},
			}})
			defer g.Close(context.Background())
			m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`))
			if err != nil {
				t.Fatal(err)
			}
			session, _, err := g.Initialize(t.Context(), m, gateway.SessionOptions{Server: "fake", ID: "id"})
			if err != nil {
				t.Fatal(err)
			}
			last := ""
			for range 5 {
				m, err := jsonrpc.Parse([]byte(ask))
				if err != nil {
					t.Fatal(err)
				}
				a, _ := session.Call(m, nil, nil)
				last = string(a.Append(nil, a.ID, nil))
				a.Release()
			}
			posts := 0
			for _, r := range s.requests() {
				if r.method == "tools/call" {
					posts++
				}
			}
			st, want := g.Status()[0], 5
			if c.open {
				want = 3
			}
			if open := st.Breaker == "open"; open != c.open || posts != want || c.open != strings.Contains(last, "circuit_open") {
				t.Errorf("%s after %d POSTs; the last call got %s", st.Breaker, posts, last)
			}
		})
	}
}
