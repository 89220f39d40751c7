package wire

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
)

// Requests with different bodies have different answers.
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

// An answer to one credential is for no other one.
func TestCacheCredentials(t *testing.T) {
	srv := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		_, _ = w.Write([]byte("for " + strings.ToUpper(r.Header.Get("X-Api-Key")+r.Header.Get("Authorization"))))
	})
	s := newSource(t, Options{Document: &openapi.Document{Schemes: schemes, Operations: []*openapi.Operation{secured("GET", needs("head")).Operation}}, BaseURL: srv.URL, CacheBytes: 1 << 20, Credentials: map[string]Credential{
		"head": {Key: "key-in-header"}, "bearer": {Bearer: "token-1234"}, "oidc": {Bearer: "token-5678"},
	}})
	for range 2 {
		for name, want := range map[string]string{"head": "for KEY-IN-HEADER", "bearer": "for BEARER TOKEN-1234", "oidc": "for BEARER TOKEN-5678", "": "for "} {
			x := secured("GET", needs(name))
			if name == "" {
				x = secured("GET")
			}
			if got := said(call(t, s, &Call{Tool: x})); got != want {
				t.Errorf("%q got %q", name, got)
			}
		}
	}
	if n := len(srv.requests()); n != 4 {
		t.Errorf("%d requests were sent", n)
	}
}

// Headers and addresses count for the size of the cache, too.
func TestCacheWeighs(t *testing.T) {
	c := newCache(100_000)
	now := time.Now()
	for i := range 100 {
		long := strings.Repeat("x", 3000)
		c.put(&Plan{URL: &url.URL{Scheme: "http", Host: "h", Path: "/", RawQuery: fmt.Sprint("q=", i, long)}, Header: http.Header{"X": {long}}},
			&answer{status: 200, header: http.Header{"Cache-Control": {"max-age=60"}, "Y": {long}}}, now)
	}
	if n := c.entries.Len(); n*9000 > c.limit {
		t.Errorf("%d addresses are kept, of 9000 bytes each, and %d bytes are allowed", n, c.limit)
	}
}
