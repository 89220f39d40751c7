//lint:file-ignore SA1019 logging is deprecated in 2026-07-28 and still part of everything.

package streamable

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/bridge/gateway"
)

// A client of the official SDK talks in the stateless era: it discovers the server, subscribes, calls, gets progress, and
// breaks calls off.
func TestModernSDK(t *testing.T) {
	m := newModernRig(t, gateway.Options{}, Options{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.d.Serve("fake", w, r) }))
	defer site.Close()
	progress, changed := make(chan float64, 10), make(chan struct{}, 10)
	c := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Progress },
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
	})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: site.URL, HTTPClient: client}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := s.InitializeResult(); r.ProtocolVersion != "2026-07-28" || r.ServerInfo.Name != "fake" {
		t.Errorf("discovered %+v", r)
	}
	if tools, err := s.ListTools(t.Context(), nil); err != nil || len(tools.Tools) != 1 {
		t.Errorf("ListTools = %v, %v", tools, err)
	}
	call := func(ctx context.Context, name string, args any) (*mcp.CallToolResult, error) {
		p := &mcp.CallToolParams{Name: name, Arguments: args}
		p.SetProgressToken("t-" + name)
		return s.CallTool(ctx, p)
	}
	if r, err := call(t.Context(), "echo", map[string]any{"x": "é"}); err != nil || r.StructuredContent.(map[string]any)["x"] != "é" {
		t.Errorf("echo = %+v, %v", r, err)
	}
	if _, err := call(t.Context(), "steps", map[string]any{"n": 3}); err != nil {
		t.Errorf("steps: %v", err)
	}
	if got := []float64{<-progress, <-progress, <-progress}; !slices.Equal(got, []float64{1, 2, 3}) {
		t.Errorf("progress %v", got)
	}
	if _, err := call(t.Context(), "none", nil); err == nil {
		t.Error("no error for a tool that is not there")
	}
	if _, err := call(t.Context(), "fail", map[string]any{"code": -32601, "message": "gone"}); err == nil { // 404
		t.Error("no error for a method that is not there")
	}
	<-m.m.Subscribed()
	m.m.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	<-changed
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() { _, err := call(ctx, "linger", nil); waited <- err }()
	<-progress // it has begun
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("linger = %v", err)
	}
	if r, err := call(t.Context(), "echo", map[string]any{"again": true}); err != nil { // the connection lives on
		t.Errorf("echo = %+v, %v", r, err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
}

// A client that can speak both eras falls back to a session when the server cannot be discovered, and not before it has
// failed in a way that does not look like that (C4).
func TestModernSDKFallsBack(t *testing.T) {
	m := newModernRig(t, gateway.Options{}, Options{})
	m.m.Faulty("lost", 0)
	var status []int
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o := &once{ResponseRecorder: httptest.NewRecorder()}
		m.d.Serve("fake", o, r)
		for name, values := range o.Header() {
			w.Header()[name] = values
		}
		status = append(status, o.Code)
		w.WriteHeader(o.Code)
		_, _ = w.Write(o.Body.Bytes())
	}))
	defer site.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	c := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: site.URL, HTTPClient: client, DisableStandaloneSSE: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := s.InitializeResult().ProtocolVersion; v != "2025-11-25" || status[0] != http.StatusBadGateway {
		t.Errorf("revision %s after %v", v, status)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
}
