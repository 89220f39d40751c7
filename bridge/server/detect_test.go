package server

import (
	"log/slog"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/sse"
	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A server over HTTP+SSE is detected for clients of either era, and the detection leaves no session there
// (protocol.md C2.6).
func TestEitherEras(t *testing.T) {
	params := []byte(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		f := newFar(t, map[string]string{"/events": "sse"})
		c := remote.Config{URL: f.url + "/events", Proxy: "none"}
		newer, err := streamable.NewUpstream("a", c, conn.Options{})
		if err != nil {
			t.Fatal(err)
		}
		older, err := sse.NewUpstream("a", c, conn.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { newer.Close(); older.Close() })
		a := &remote.Adapter{Server: "a", Log: slog.New(slog.DiscardHandler), Candidates: [2]remote.Candidate{
			{Transport: remote.TransportStreamable, Title: "Streamable HTTP", Adapter: newer}, {Transport: remote.TransportSSE, Title: "HTTP+SSE", Adapter: older},
		}}
		for range 2 {
			up, err := a.Open(t.Context(), &bridge.Caller{Revision: revision, Capabilities: []byte("{}"), Params: params}, &ignorant{})
			if err != nil {
				t.Fatalf("%s: Open: %v", revision, err)
			}
			if got := up.Server().Revision; got != "2025-11-25" || a.Transport() != remote.TransportSSE {
				t.Errorf("%s: Open found revision %s over %s", revision, got, a.Transport())
			}
			if err := up.Close(t.Context()); err != nil {
				t.Errorf("%s: Close: %v", revision, err)
			}
		}
	}
}

// ignorant is a client that heeds nothing.
type ignorant struct{}

func (ignorant) Notify(*jsonrpc.Message)                                   {}
func (ignorant) Ask(*jsonrpc.Message, func(*jsonrpc.Message)) func(string) { return nil }
func (ignorant) Gone(error)                                                {}
