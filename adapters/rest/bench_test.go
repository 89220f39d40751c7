package rest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/calls"
	"github.com/mcp-bridge/bridge/bridge"
)

// BenchmarkCall calls a tool, with the API in the same process.
func BenchmarkCall(b *testing.B) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":7,"name":"Rex"}`)
	}))
	defer api.Close()
	a, err := New("pets", Config{OpenAPI: "testdata/pets.yaml", BaseURL: api.URL}, quiet(Options{}))
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	up, err := a.Open(b.Context(), &bridge.Caller{Revision: calls.Revision}, &adaptertest.Client{})
	if err != nil {
		b.Fatal(err)
	}
	defer up.Close(context.Background())
	m := adaptertest.Parse(b, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"getPet","arguments":{"id":7}}}`)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if got, err := up.Call(b.Context(), &bridge.Request{Message: m}); err != nil || got.Result == nil {
				b.Error(got, err)
			}
		}
	})
}
