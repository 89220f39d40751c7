// Package examples has the configurations of its folders as they are shown to
// users; this test serves each of them.
package examples

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
)

// deadline bounds what waits for a server, which the go command may have to
// compile first.
const deadline = 3 * time.Minute

// compile has the go command do the long part of "go run" before a server's
// handshake has to be in time.
var compile = sync.OnceValue(func() error {
	out, err := exec.Command("go", "build", "-o", os.DevNull, "./everything").CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build ./everything: %w\n%s", err, out)
	}
	return nil
})

// files are the configurations, by their paths.
func files(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*/*.yaml", "*/*.json"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

func load(t *testing.T, path string) *config.Config {
	t.Helper()
	c, err := config.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serve serves the configuration on a port of its own until the test ends. It
// returns the address, without the base path.
func serve(t *testing.T, c *config.Config) string {
	t.Helper()
	if err := compile(); err != nil {
		t.Fatal(err)
	}
	c.Listen = "127.0.0.1:0"
	for i := range c.Servers {
		// The go command may be set up by variables, which a server does not get.
		own := c.Servers[i].Stdio.Env
		if own == nil {
			own = map[string]string{}
		}
		for _, line := range os.Environ() {
			if name, value, _ := strings.Cut(line, "="); strings.HasPrefix(name, "GO") || name == "XDG_CACHE_HOME" {
				own[name] = value
			}
		}
		c.Servers[i].Stdio.Env = own
	}
	s := server.New(c, slog.New(slog.NewTextHandler(t.Output(), nil)))
	l, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// tools connects as a client and returns the names of the server's tools.
func tools(t *testing.T, transport mcp.Transport) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "examples", Version: "1"}, nil).Connect(ctx, transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names
}

func TestConfigurations(t *testing.T) {
	for _, path := range files(t) {
		t.Run(filepath.ToSlash(path), func(t *testing.T) {
			c := load(t, path)
			base := serve(t, c) + c.BasePath
			for _, s := range c.Servers {
				names := tools(t, &mcp.StreamableClientTransport{Endpoint: base + "/" + s.Name + "/mcp"})
				if !slices.Contains(names, "echo") {
					t.Errorf("server %s has the tools %q, want echo among them", s.Name, names)
				}
			}
		})
	}
}

// The list of examples names every configuration, with the command to start it.
func TestList(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files(t) {
		if want := "`go run ./cmd/bridge serve -c examples/" + filepath.ToSlash(path) + "`"; !strings.Contains(string(readme), want) {
			t.Errorf("README.md does not have %s", want)
		}
	}
}

// A server that cannot be served is left out, with a warning that says so.
func TestDesktopWarnings(t *testing.T) {
	c := load(t, "desktop/claude_desktop_config.json")
	all := strings.Join(c.Warnings, "\n")
	if len(c.Servers) != 1 || !strings.Contains(all, `"elsewhere": not served`) {
		t.Errorf("%d servers and the warnings %q, want one server and a warning about elsewhere", len(c.Servers), all)
	}
}

// The bridge behind a proxy that does what nginx.conf tells nginx.
func TestBehindProxy(t *testing.T) {
	c := load(t, "nginx/bridge.yaml")
	upstream, err := url.Parse(serve(t, c))
	if err != nil {
		t.Fatal(err)
	}
	name := "mcp.example.com" // by which the client calls
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(upstream)
		r.Out.Header.Set("X-Forwarded-Host", name)
	}})
	t.Cleanup(proxy.Close)

	for what, transport := range map[string]mcp.Transport{
		"Streamable HTTP": &mcp.StreamableClientTransport{Endpoint: proxy.URL + "/tools/mcp"},
		"HTTP+SSE":        &mcp.SSEClientTransport{Endpoint: proxy.URL + "/tools/sse"},
	} {
		if names := tools(t, transport); !slices.Contains(names, "echo") {
			t.Errorf("%s through the proxy: the tools are %q, want echo among them", what, names)
		}
	}

	name = "wrong.example.com"
	resp, err := http.Get(proxy.URL + "/tools/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a request under another name: status %d, want 403", resp.StatusCode)
	}
}

// What README.md has readers paste into a shell does what it says there.
func TestReadme(t *testing.T) {
	for _, name := range []string{"sh", "curl", "awk", "tr"} {
		if _, err := exec.LookPath(name); err != nil {
			missing(t, name, err.Error())
		}
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	snippet := regexp.MustCompile("(?s)```sh\n(url=.+?)```").FindSubmatch(readme)
	result := regexp.MustCompile("(?s)```json\n({\"jsonrpc\":.+?)\n```").FindSubmatch(readme)
	if snippet == nil || result == nil {
		t.Fatal("README.md has no snippet that begins with url=, or no result")
	}
	base := serve(t, load(t, "one-server/bridge.yaml"))
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	out, err := exec.CommandContext(ctx, "sh", "-c", strings.Replace(string(snippet[1]), "http://127.0.0.1:8808", base, 1)).CombinedOutput()
	if err != nil {
		t.Errorf("the snippet: %v", err)
	}
	if got, want := strings.TrimSpace(string(out)), string(result[1]); got != want {
		t.Errorf("the snippet prints\n%s\nwant\n%s", got, want)
	}
}

// missing ends the test because name is not there: as a failure if
// BRIDGE_TEST_REQUIRE names it.
func missing(t *testing.T, name, why string) {
	t.Helper()
	required := strings.Split(os.Getenv("BRIDGE_TEST_REQUIRE"), ",")
	if slices.Contains(required, name) || slices.Contains(required, "all") {
		t.Fatalf("%s is required by BRIDGE_TEST_REQUIRE: %s", name, why)
	}
	t.Skipf("needs %s: %s", name, why)
}
