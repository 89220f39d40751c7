package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
)

// An HTTP API is told who calls by the token alone, even if its operations take that
// header as a parameter: no argument sets it, and clients are not asked for it (I-057).
func TestIdentityOfOperations(t *testing.T) {
	var mu sync.Mutex
	var seen http.Header
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = r.Header.Clone()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{}`))
	}))
	t.Cleanup(api.Close)
	path := filepath.Join(t.TempDir(), "api.yaml")
	const document = `openapi: 3.1.0
info: { title: Pets, version: "1" }
paths:
  /pets:
    get:
      operationId: pets
      parameters:
        - { name: x-user, in: header, required: true, schema: { type: string } }
        - { name: X_User, in: header, schema: { type: string } }
        - { name: X-Email, in: header, schema: { type: string } }
        - { name: X-Page, in: header, schema: { type: string } }
      responses: { "200": { description: OK, content: { application/json: { schema: { type: object } } } } }
`
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	r, i := issued(t, config.ShareSession, func(s *config.Server) {
		s.Rest = &rest.Config{OpenAPI: path, BaseURL: api.URL, Refresh: time.Hour}
		s.Identity = map[string]string{"x-user": "sub", "X-Email": "email"}
	})
	const honest = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pets","arguments":{"X-Page":"2"}}}`
	for _, tc := range []struct {
		who         []string
		user, email string
	}{
		{as(i.Token(here, authtest.Claims{"sub": "ann", "groups": "eng", "email": "ann@example.com"})), "ann", "ann@example.com"},
		{as(i.Token(here, authtest.Claims{"sub": "bob", "groups": "eng"})), "bob", ""},
		{as(aliceKey), "", ""},
	} {
		id := r.Do("POST", "/one/mcp", initialize, tc.who...).Wait().Header("Mcp-Session-Id")
		in := append(tc.who, "Mcp-Session-Id", id)
		if r := r.Do("POST", "/one/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, in...).Wait(); strings.Contains(strings.ToLower(r.Body()), "x-user") || !strings.Contains(r.Body(), "X-Page") {
			t.Errorf("%s: clients are told of %s", tc.user, r.Body())
		}
		for _, body := range []string{honest, strings.Replace(honest, `"X-Page"`, `"X_User":"root","X-Page"`, 1), strings.Replace(honest, `"X-Page"`, `"x-user":"root","X-Email":"root","X-Page"`, 1)} {
			mu.Lock()
			seen = nil
			mu.Unlock()
			r := r.Do("POST", "/one/mcp", body, in...).Wait()
			mu.Lock()
			if seen != nil && (seen.Get("X-User") != tc.user || seen.Get("X-Email") != tc.email || seen.Get("X_User") != "" || seen.Get("X-Page") != "2") || seen == nil && body == honest {
				t.Errorf("%s: the API has got %v; %s", tc.user, seen, r.Body())
			}
			mu.Unlock()
		}
	}
}
