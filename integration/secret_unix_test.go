//go:build unix

package integration

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// N-84: the token that a client shows is in nothing that a whole run has written or sent: the
// log at its finest, the access log with payloads, traces, what a child process is started
// with and reads, what a server over HTTP is sent, and what operators are shown.
func TestTokenNowhere(t *testing.T) {
	t.Parallel()
	scaletest.Large(t)
	folder, issuer := t.TempDir(), idp(t)
	child := kindOf(t, references[0], "stdio")["stdio"].(map[string]any)
	read, access := filepath.Join(folder, "child"), filepath.Join(folder, "access.log")
	child["args"] = append([]string{"-c", `env >"$0"; tee -a "$0" | "$@"`, read, child["command"].(string)}, child["args"].([]string)...)
	child["command"] = "sh"

	var mu sync.Mutex // guards what follows
	var traces, far bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if plain, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, _ = io.ReadAll(plain)
		}
		mu.Lock()
		defer mu.Unlock()
		traces.Write(body)
	}))
	defer collector.Close()
	server := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	remote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		mu.Lock()
		fmt.Fprintf(&far, "%s %s\n%v\n%s\n", r.Method, r.URL, r.Header, body)
		mu.Unlock()
		inner.ServeHTTP(w, r)
	}))
	defer remote.Close()

	file := configureNamed(t, map[string]any{
		"oauth":      []map[string]any{{"issuer": issuer, "scopes": []string{"mcp:use"}}},
		"access":     []map[string]any{{"name": "staff", "claims": map[string]any{"groups": "eng"}}},
		"access_log": map[string]any{"to": access, "payloads": true},
		"log_level":  "debug",
		"servers": map[string]any{
			"files": map[string]any{"stdio": child, "identity": map[string]any{"MCP_USER": "sub"}},
			"far":   map[string]any{"http": map[string]any{"url": remote.URL}, "identity": map[string]any{"X-User": "sub"}},
		},
	})
	log := filepath.Join(folder, "log") // what the harness keeps of it is cut
	cmd := exec.Command("sh", "-c", `exec "$0" serve -c "$1" 2>"$2"`, bridgeProgram(t), file, log)
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL)
	p := start(t, cmd)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	user := newBrowser("eng-ann")
	var all []string // that a client has shown
	answers := ""
	for _, name := range []string{"files", "far"} {
		h := goSignIn(t, func(ctx context.Context, address string) (*url.URL, error) { return user.open(ctx, address) }, "authorization_code")
		s, err := mcp.NewClient(&mcp.Implementation{Name: "shows a token", Version: "1"}, nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: p.base + "/" + name + "/mcp", OAuthHandler: h}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range []string{"echo", "none"} {
			a, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"message": "hello"}})
			answers += fmt.Sprint(a, err)
		}
		s.Close()
		source, err := h.TokenSource(ctx)
		if err != nil {
			t.Fatal(err)
		}
		token, err := source.Token()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, token.AccessToken)
		for _, shown := range []string{token.AccessToken, token.AccessToken + "x"} { // the second is not valid
			for _, path := range []string{"/" + name + "/mcp", "/other/mcp", "/readyz", "/metrics", "/whoami?for=/" + name + "/mcp"} {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Authorization", "Bearer "+shown)
				a, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(a.Body)
				a.Body.Close()
				answers += fmt.Sprint(a.Header, string(text))
			}
		}
	}
	p.stop(t)

	files := map[string]string{}
	for what, name := range map[string]string{"the child": read, "the access log": access, "the log": log} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[what] = string(text)
	}
	mu.Lock()
	defer mu.Unlock()
	for what, is := range map[string]struct{ text, sign string }{
		"the child": {files["the child"], "MCP_USER=eng-ann"}, "the access log": {files["the access log"], "hello"}, "the server": {far.String(), "X-User:[eng-ann]"},
		"the log": {files["the log"], "child started"}, "the traces": {traces.String(), "tools/call"}, "a client": {answers, "eng-ann"},
	} {
		if !strings.Contains(is.text, is.sign) {
			t.Errorf("%s has no %q: it was not looked at:\n%.2000s", what, is.sign, is.text)
		}
		for _, token := range all {
			parts := strings.Split(token, ".")
			if len(parts) != 3 {
				t.Fatalf("no JSON Web Token: %d parts", len(parts))
			}
			for _, part := range parts[1:] { // others have the same header
				if strings.Contains(is.text, part) {
					t.Errorf("%s has got a part of the token", what)
				}
			}
		}
	}
}
