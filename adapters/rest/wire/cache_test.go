package wire

import (
	"net/http"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/openapi"
)

// The answer to one body is not the answer to another.
func TestCacheBody(t *testing.T) {
	srv := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		b := make([]byte, 100)
		n, _ := r.Body.Read(b)
		_, _ = w.Write(b[:n])
	})
	s := newSource(t, Options{BaseURL: srv.URL, CacheBytes: 1 << 20})
	x := with(tool("GET", "/search"), &openapi.MediaType{Type: "application/json"})
	for _, body := range []string{`{"q":"a"}`, `{"q":"b"}`} {
		if got := said(call(t, s, &Call{Tool: x, Args: []byte(`{"body":` + body + `}`)})); got != body {
			t.Errorf("%s got %s", body, got)
		}
	}
}
