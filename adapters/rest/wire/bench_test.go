package wire

import (
	"context"
	"net/http"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/openapi"
)

// answerer is a server without a network.
type answerer string

func (a answerer) Do(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: body(string(a)), ContentLength: int64(len(a))}, nil
}

func benchTool() *openapi.Tool {
	x := tool("GET", "/pets/{c}", param("path", "simple", false), &openapi.Parameter{Name: "limit", In: "query", Style: "form"}, &openapi.Parameter{Name: "tags", In: "query", Style: "form", Explode: true})
	x.InputSchema = []byte(`{"type":"object","properties":{"c":{"type":"string"},"limit":{"type":"integer","minimum":1},"tags":{"type":"array","items":{"enum":["a","b"]}}},"required":["c"],"additionalProperties":false}`)
	x.OutputSchema = []byte(`{"type":"object","properties":{"id":{"type":["integer","null"]},"name":{"type":["string","null"]}}}`)
	return x
}

// BenchmarkCall is all of a call but the network.
func BenchmarkCall(b *testing.B) {
	s := newSource(b, Options{BaseURL: "http://api.example.com", Default: &Credential{Bearer: "the-secret-token"}})
	s.http = answerer(`{"id":7,"name":"Rex","tags":["a","b"],"owner":{"name":"Ann","address":{"street":"Main","no":12}}}`)
	c := &Call{Tool: benchTool(), Args: []byte(`{"c":"a b","limit":5,"tags":["a","b"]}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Call(context.Background(), c); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCallHTTP is a call to a server on this machine, the server included.
func BenchmarkCallHTTP(b *testing.B) {
	srv := newRecorder(b, nil)
	srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id":7,"name":"Rex"}`))
	})
	s := newSource(b, Options{BaseURL: srv.URL})
	c := &Call{Tool: benchTool(), Args: []byte(`{"c":"a b","limit":5,"tags":["a","b"]}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Call(context.Background(), c); err != nil {
			b.Fatal(err)
		}
	}
}
