package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
)

const mountKey = "0123456789abcdef"

// newMounted makes a bridge of two servers, of which alice may use the first.
func newMounted(t *testing.T) *server.Server {
	t.Helper()
	c := config.Default()
	for _, name := range []string{"one", "two"} {
		s := config.DefaultServer(name, config.ShareSession)
		s.Adapter = inprocess.Shared(name, mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil), inprocess.Options{})
		c.Servers = append(c.Servers, s)
	}
	c.BasePath = "/elsewhere" // is not used
	c.Access = []config.Access{{Name: "alice", Token: mountKey, Servers: []string{"one"}}}
	c.AllowedOrigins = []string{"http://localhost:1"}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	s := server.New(&c, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func ask(e http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader("{}"))
	r.Host = "localhost"
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

// A bridge among the routes of an engine of somebody else's is protected, and
// answers as it does alone. The other routes, of its group too, are not its business.
func TestMount(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for _, at := range []string{"/tools", "/"} {
		s := newMounted(t)
		e := gin.New()
		e.GET("/own", func(c *gin.Context) { c.Status(http.StatusOK) })
		group := e.Group(at)
		group.GET("/mine", func(c *gin.Context) { c.Status(http.StatusOK) })
		s.Mount(group)
		base := strings.TrimSuffix(at, "/")
		alone := s.HandlerAt(base)
		bearer := "Bearer " + mountKey
		for _, tc := range []struct {
			method, path, key string
			status            int
		}{
			{"GET", "/healthz", "", 200}, {"HEAD", "/healthz", "", 200}, {"PUT", "/healthz", "", 405},
			{"GET", "/metrics", "", 401}, {"GET", "/metrics", bearer, 200},
			{"GET", "/one/mcp", "", 401}, {"GET", "/mcp", "Bearer wrong", 401}, {"GET", "/one/mcp", bearer, 400},
			{"GET", "/two/mcp", bearer, 404}, {"GET", "/three/mcp", bearer, 404}, {"PUT", "/one/messages", bearer, 405},
			{"OPTIONS", "/one/messages", bearer, 405}, {"POST", "/hooks/one", bearer, 401},
			{"GET", "/whoami", "", 401}, {"GET", "/whoami", bearer, 200}, {"GET", "/ready", "", 200}, {"GET", "/ui/api/v1/me", "", 401},
		} {
			header := []string{"Accept", "text/event-stream"}
			if tc.key != "" {
				header = append(header, "Authorization", tc.key)
			}
			mounted, own := ask(e, tc.method, base+tc.path, header...), ask(alone, tc.method, base+tc.path, header...)
			if mounted.Code != tc.status || own.Code != tc.status {
				t.Errorf("at %s, %s %s with the key %q: %d, and %d alone, want %d", at, tc.method, tc.path, tc.key, mounted.Code, own.Code, tc.status)
			}
			if tc.path != "/metrics" && (mounted.Body.String() != own.Body.String() || fmt.Sprint(mounted.Header()) != fmt.Sprint(own.Header())) {
				t.Errorf("at %s, %s %s:\n%v %s\nalone:\n%v %s", at, tc.method, tc.path, mounted.Header(), mounted.Body, own.Header(), own.Body)
			}
		}
		for _, path := range []string{"/mcp", "/sse", "/messages", "/one/mcp", "/one/sse", "/one/messages"} { // pages may ask what they may send
			for origin, want := range map[string]int{"http://localhost:1": 204, "https://evil.example.com": 403} {
				header := []string{"Origin", origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type"}
				mounted, own := ask(e, "OPTIONS", base+path, header...), ask(alone, "OPTIONS", base+path, header...)
				if mounted.Code != want || own.Code != want || want == 204 && mounted.Header().Get("Access-Control-Allow-Origin") != origin {
					t.Errorf("at %s, %s from %s: %d %v in another engine, %d alone", at, path, origin, mounted.Code, mounted.Header(), own.Code)
				}
			}
		}
		for _, path := range []string{"/own", base + "/mine"} {
			if w := ask(e, "GET", path); w.Code != http.StatusOK {
				t.Errorf("at %s, %s: %d", at, path, w.Code)
			}
		}
	}
}
