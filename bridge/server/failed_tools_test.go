package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/config"
)

// failingVariable makes this test binary a server of newFailing, when it is told to run
// TestFailingServer.
const failingVariable = "BRIDGE_TEST_FAILING"

// TestFailingServer is no test: it is a server that another test starts, and does nothing
// otherwise. It starts no process.
func TestFailingServer(t *testing.T) {
	if os.Getenv(failingVariable) == "" {
		return
	}
	_ = newFailing().Run(context.Background(), &mcp.StdioTransport{}) // until its input ends
	os.Exit(0)                                                        // before the test's own report gets onto stdout
}

// newFailing makes a server whose tool fails.
func newFailing() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "failing", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "fail"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "no such file"}}}, nil, nil
	})
	return s
}

// failing are servers with a tool that fails, each reached in another way. Those over HTTP are behind seen.
func failing(t *testing.T, seen func(http.Handler) http.Handler) []config.Server {
	t.Helper()
	serves := func(h http.Handler) string {
		site := httptest.NewServer(seen(h))
		t.Cleanup(site.Close)
		return site.URL
	}
	always := func(*http.Request) *mcp.Server { return newFailing() }
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	document := filepath.Join(t.TempDir(), "api.yaml")
	if err := os.WriteFile(document, []byte("openapi: 3.1.0\ninfo: { title: Fails, version: '1' }\npaths: { /fail: { get: { operationId: fail, responses: { '200': { description: OK } } } } }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	api := serves(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no such file", http.StatusInternalServerError)
	}))
	var all []config.Server
	add := func(name string, reach func(*config.Server)) {
		s := config.DefaultServer(name, "")
		reach(&s)
		all = append(all, s)
	}
	add("child", func(s *config.Server) {
		s.Stdio = &stdio.Config{Command: self, Args: []string{"-test.run=^TestFailingServer$"}, Env: map[string]string{failingVariable: "1"}}
	})
	add("remote", func(s *config.Server) {
		s.HTTP = &remote.Config{URL: serves(mcp.NewStreamableHTTPHandler(always, nil))}
	})
	add("stateless", func(s *config.Server) {
		s.HTTP = &remote.Config{URL: serves(mcp.NewStreamableHTTPHandler(always, &mcp.StreamableHTTPOptions{Stateless: true}))}
	})
	add("older", func(s *config.Server) {
		s.SSE = &remote.Config{URL: serves(mcp.NewSSEHandler(always, nil))}
	})
	add("api", func(s *config.Server) { s.Rest = &rest.Config{OpenAPI: document, BaseURL: api} })
	add("embedded", func(s *config.Server) { s.Adapter = inprocess.Shared(s.Name, newFailing(), inprocess.Options{}) })
	return all
}

// A tool that fails is counted and logged as that, however its server is reached, for
// clients of each era, by itself and among others. An operator sees the tools of a server after a client listed them;
// to look opens no connection and starts no process.
func TestFailedTools(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Servers = failing(t, func(h http.Handler) http.Handler { return h })
	c.AccessLog.To = filepath.Join(t.TempDir(), "calls.jsonl")
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	address, stop := serveAs(t, &c, slog.New(slog.DiscardHandler))
	get := func(path string) string {
		t.Helper()
		res, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if res.StatusCode != 200 || err != nil {
			t.Fatalf("%s: %d, %v", path, res.StatusCode, err)
		}
		return string(text)
	}
	const api = "/ui/api/v1/servers/"
	for i := range c.Servers {
		name := c.Servers[i].Name
		if list := gjson.Get(get(api+name+"/tools"), "tools").Raw; list != "null" {
			t.Errorf("%s, before a client lists: %s", name, list)
		}
		if n := gjson.Get(get(api+name), "server.connections"); n.Int() != 0 || !n.Exists() {
			t.Errorf("%s has %s connections when an operator has looked", name, n.Raw)
		}
	}
	call := func(path, revision string, tools ...string) {
		t.Helper()
		var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: "http://" + address + path + "/mcp", DisableStandaloneSSE: true}
		if revision == "2024-11-05" {
			transport = &mcp.SSEClientTransport{Endpoint: "http://" + address + path + "/sse"}
		}
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
		if err != nil {
			t.Fatalf("%s, %s: %v", path, revision, err)
		}
		defer session.Close()
		if _, err := session.ListTools(t.Context(), nil); err != nil {
			t.Errorf("%s, %s: %v", path, revision, err)
		}
		for _, tool := range tools {
			if result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool}); err != nil || !result.IsError {
				t.Fatalf("%s, %s: %s = %+v, %v, want a result with isError", path, revision, tool, result, err)
			}
		}
	}
	want := map[string]int{}
	for _, revision := range []string{"2024-11-05", "2025-11-25", "2026-07-28"} {
		var together []string
		for i := range c.Servers {
			name := c.Servers[i].Name
			call("/"+name, revision, "fail")
			if list := get(api + name + "/tools"); gjson.Get(list, "total").Int() != 1 || gjson.Get(list, "tools.#.name").Raw != `["fail"]` {
				t.Errorf("%s: %s", name, list)
			}
			together = append(together, name+"__fail")
			era := "legacy"
			if revision == "2026-07-28" {
				era = "modern"
			}
			want[fmt.Sprintf("%s %s tool_error", name, era)] += 2
		}
		call("", revision, together...)
	}

	scraped, counted := get("/metrics"), 0
	for line := range strings.Lines(scraped) {
		if strings.HasPrefix(line, "mcp_bridge_calls_total{") && strings.Contains(line, `method="tools/call"`) {
			counted++
		}
	}
	for key, n := range want {
		var name, era, outcome string
		_, _ = fmt.Sscan(key, &name, &era, &outcome)
		if line := fmt.Sprintf("mcp_bridge_calls_total{era=%q,method=\"tools/call\",outcome=%q,server=%q} %d\n", era, outcome, name, n); !strings.Contains(scraped, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if counted != len(want) {
		t.Errorf("%d kinds of calls of tools are counted, want %d", counted, len(want))
	}

	stop() // and the access log is written
	text, err := os.ReadFile(c.AccessLog.To)
	if err != nil {
		t.Fatal(err)
	}
	logged := map[string]int{}
	for line := range bytes.Lines(text) {
		if !json.Valid(line) {
			t.Fatalf("the access log has %q", line)
		}
		if m := gjson.ParseBytes(line); m.Get("method").Str == "tools/call" {
			logged[fmt.Sprint(m.Get("server"), " ", m.Get("era"), " ", m.Get("outcome"))]++
		}
	}
	if fmt.Sprint(logged) != fmt.Sprint(want) {
		t.Errorf("the access log has %v, want %v", logged, want)
	}
}
