// Package examples holds configurations for users. This test serves each of them.
package examples

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
	"github.com/mcp-bridge/bridge/internal/programtest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

func TestMain(m *testing.M) { os.Exit(programtest.Main(m)) }

// program returns the path of a program, such as ./examples/everything.
func program(t *testing.T, pkg string) string {
	t.Helper()
	return programtest.Build(t, pkg, scaletest.Raced)
}

// files are the configurations of the bridge, by path. Those in connect are a client's.
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
	return slices.DeleteFunc(all, func(path string) bool { return filepath.Dir(path) == "connect" })
}

func load(t *testing.T, path string) *config.Config {
	t.Helper()
	return loadWith(t, path, nil)
}

// loadWith loads a configuration with variables in addition to the environment.
func loadWith(t *testing.T, path string, variables map[string]string) *config.Config {
	t.Helper()
	c, err := config.Load(path, func(name string) (string, bool) {
		if value, ok := variables[name]; ok {
			return value, true
		}
		return os.LookupEnv(name)
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// far starts the remote server that some examples need, until the test ends. It returns its address and the headers
// that it received.
func far(t *testing.T) (address string, got func() []http.Header) {
	t.Helper()
	cmd := exec.Command(program(t, "./examples/everything"), "streamableHttp", "-port", "0")
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, real, ok := strings.Cut(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("the remote server says %q, want its address", line)
	}
	to, err := url.Parse(real)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards all
	var all []http.Header
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		mu.Lock()
		all = append(all, r.In.Header.Clone())
		mu.Unlock()
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, to.Host
	}})
	t.Cleanup(func() {
		proxy.CloseClientConnections() // streams have no end
		proxy.Close()
	})
	return proxy.URL + to.Path, func() []http.Header {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// serve serves the configuration on its own port until the test ends. It returns the address, without the base path. A
// server that the configuration starts with "go run" is replaced by the built program: its handshake waits for no
// compiler.
func serve(t *testing.T, c *config.Config) string {
	t.Helper()
	c.Listen = "127.0.0.1:0"
	for i := range c.Servers {
		stdio := c.Servers[i].Stdio
		if stdio == nil {
			continue
		}
		line := strings.Join(append([]string{stdio.Command}, stdio.Args...), " ")
		args, ok := strings.CutPrefix(line, "go run ./examples/everything ")
		if !ok {
			t.Fatalf("server %s is started as %q, want go run ./examples/everything", c.Servers[i].Name, line)
		}
		if _, err := os.Stat(filepath.Join(stdio.Cwd, "examples", "everything", "main.go")); err != nil {
			t.Fatalf("server %s would not be found from its folder: %v", c.Servers[i].Name, err)
		}
		stdio.Command, stdio.Args = program(t, "./examples/everything"), strings.Fields(args)
		if stdio.Env == nil {
			stdio.Env = map[string]string{}
		}
		name, value, _ := strings.Cut(scaletest.AtOnce, "=")
		stdio.Env[name] = value
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

// client is a client's session.
type client struct {
	*mcp.ClientSession
	changed chan struct{} // receives an item when the list of tools has changed
}

// open connects as a client until the test ends.
func open(t *testing.T, transport mcp.Transport) client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) // with HTTP+SSE, ctx bounds the whole session
	changed := make(chan struct{}, 1)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "examples", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
	}).Connect(ctx, transport, nil)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		session.Close()
		cancel()
	})
	return client{session, changed}
}

// list returns the tools by name.
func list(t *testing.T, session client) map[string]*mcp.Tool {
	t.Helper()
	all, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	tools := map[string]*mcp.Tool{}
	for _, tool := range all.Tools {
		tools[tool.Name] = tool
	}
	return tools
}

// tools connects as a client and returns the names of the server's tools.
func tools(t *testing.T, transport mcp.Transport) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(list(t, open(t, transport))))
}

// call calls a tool and returns its text.
func call(t *testing.T, session client, tool string, arguments map[string]any) (string, error) {
	t.Helper()
	r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return "", err
	}
	text, ok := r.Content[0].(*mcp.TextContent)
	if !ok || r.IsError {
		return "", fmt.Errorf("%s returns %v", tool, r)
	}
	return text.Text, nil
}

func TestConfigurations(t *testing.T) {
	for _, path := range files(t) {
		t.Run(filepath.ToSlash(path), func(t *testing.T) {
			address, _ := far(t)
			variables := map[string]string{"SEARCH_URL": address, "SEARCH_TOKEN": "secret", "FAR_URL": address, "PETS_URL": shelter(t), "FLOWS_URL": engine(t, ""),
				"AGENTS_TOKEN": agentsToken, "OPS_TOKEN": opsToken, "PEER_PORT": "0"}
			if dir := filepath.Base(filepath.Dir(path)); dir == "cluster" || dir == "workers" {
				variables["REDIS_URL"] = "redis://" + redistest.Start(t).Address
			}
			c := loadWith(t, path, variables)
			base := serve(t, c) + c.BasePath
			sent := http.DefaultClient
			if len(c.Access) > 0 {
				sent = &http.Client{Transport: sending{"Authorization": "Bearer " + opsToken}}
			}
			for _, s := range c.Servers {
				names := tools(t, &mcp.StreamableClientTransport{Endpoint: base + "/" + s.Name + "/mcp", HTTPClient: sent})
				want := "echo"
				if s.Rest != nil {
					want = map[string]string{"pets": "find_pets", "flows": "calculate"}[s.Name]
				}
				if !slices.Contains(names, want) {
					t.Errorf("server %s has the tools %q, want %s among them", s.Name, names, want)
				}
			}
		})
	}
}

// sending adds headers to a client's requests.
type sending map[string]string

func (s sending) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range s {
		r.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// The remote server gets the header of the configuration and the forwarded one, and no other header of clients.
func TestRemote(t *testing.T) {
	address, got := far(t)
	base := serve(t, loadWith(t, "remote/bridge.yaml", map[string]string{"SEARCH_URL": address, "SEARCH_TOKEN": "secret"}))
	sent := &http.Client{Transport: sending{"X-Tenant": "acme", "X-Other": "other", "Authorization": "Bearer of-the-client"}}
	for what, transport := range map[string]mcp.Transport{
		"Streamable HTTP": &mcp.StreamableClientTransport{Endpoint: base + "/mcp", HTTPClient: sent},
		"HTTP+SSE":        &mcp.SSEClientTransport{Endpoint: base + "/sse", HTTPClient: sent},
	} {
		text, err := call(t, open(t, transport), "echo", map[string]any{"message": "hello"})
		if err != nil || text != "Echo: hello" {
			t.Errorf("%s: echo returns %q, %v", what, text, err)
		}
	}
	headers := got()
	if len(headers) == 0 {
		t.Error("the remote server was not asked")
	}
	for _, h := range headers {
		if h.Get("Authorization") != "Bearer secret" || h.Get("X-Tenant") != "acme" || h.Get("X-Other") != "" {
			t.Errorf("the remote server got %v", h)
		}
	}
	if _, err := config.Load("remote/bridge.yaml", func(string) (string, bool) { return "", false }); err == nil || !strings.Contains(err.Error(), "SEARCH_TOKEN") {
		t.Errorf("without the token: %v, want an error that names it", err)
	}
}

// together checks a client's view of the servers of that example, over any transport.
func together(t *testing.T, session client) {
	t.Helper()
	all := list(t, session)
	for all["f_echo"] == nil || all["numbers__echo"] == nil {
		<-session.changed // a server that starts slowly is added later
		all = list(t, session)
	}
	var numbers []string
	for name := range all {
		switch {
		case strings.HasPrefix(name, "numbers__"):
			numbers = append(numbers, name)
		case !strings.HasPrefix(name, "f_"):
			t.Errorf("there is a tool %s, which has neither prefix", name)
		}
	}
	slices.Sort(numbers)
	if want := []string{"numbers__add", "numbers__echo"}; !slices.Equal(numbers, want) {
		t.Errorf("of numbers there is %q, want %q", numbers, want)
	}
	if tool := all["numbers__echo"]; tool.Title != "Say it again" || !strings.HasPrefix(tool.Description, "Repeats a message.") {
		t.Errorf("numbers__echo is %q: %q", tool.Title, tool.Description)
	}
	if text, err := call(t, session, "numbers__add", map[string]any{"a": 2, "b": 3}); err != nil || text != "The sum of 2 and 3 is 5." {
		t.Errorf("numbers__add returns %q, %v", text, err)
	}
	if text, err := call(t, session, "f_get-sum", map[string]any{"a": 2, "b": 3}); err != nil || text != "The sum of 2 and 3 is 5." {
		t.Errorf("f_get-sum returns %q, %v", text, err)
	}
	for _, hidden := range []string{"numbers__get-sum", "numbers__get-structured-content", "f_get-env", "f_toggle-logging", "far__echo", "echo"} {
		if all[hidden] != nil {
			t.Errorf("%s is listed", hidden)
		}
		if _, err := call(t, session, hidden, map[string]any{"a": 2, "b": 3}); err == nil || !strings.Contains(err.Error(), "Unknown tool") {
			t.Errorf("%s: %v, want that it is unknown", hidden, err)
		}
	}
	prompts, err := session.ListPrompts(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range prompts.Prompts {
		if !strings.HasPrefix(p.Name, "f_") {
			t.Errorf("there is a prompt %s, want none but those of far", p.Name)
		}
	}
	read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "demo://resource/static/document/features.md"})
	if err != nil || !strings.Contains(read.Contents[0].Text, "Features") {
		t.Errorf("a resource of far: %v, %v", read, err)
	}
}

func TestTogether(t *testing.T) {
	address, _ := far(t)
	base := serve(t, loadWith(t, "together/bridge.yaml", map[string]string{"FAR_URL": address}))
	for what, transport := range map[string]mcp.Transport{
		"Streamable HTTP": &mcp.StreamableClientTransport{Endpoint: base + "/mcp"},
		"HTTP+SSE":        &mcp.SSEClientTransport{Endpoint: base + "/sse"},
	} {
		t.Run(what, func(t *testing.T) { together(t, open(t, transport)) })
	}
}

// The programs in a desktop client's file are started like the client does.
func TestConnect(t *testing.T) {
	var file struct {
		MCPServers map[string]struct {
			Command string
			Args    []string
			Env     map[string]string
		}
	}
	if err := json.Unmarshal([]byte(read(t, "connect/claude_desktop_config.json")), &file); err != nil {
		t.Fatal(err)
	}
	address, got := far(t)
	start := func(name string) client {
		s := file.MCPServers[name]
		if s.Command != "/path/to/bin/mcp-bridge" {
			t.Fatalf("the command of %s is %q", name, s.Command)
		}
		cmd := exec.Command(program(t, "./cmd/bridge"))
		for _, arg := range s.Args {
			arg = strings.Replace(arg, "http://127.0.0.1:3001/mcp", address, 1)
			if rest, ok := strings.CutPrefix(arg, "/path/to/examples/"); ok {
				arg = built(t, rest)
			}
			cmd.Args = append(cmd.Args, arg)
		}
		cmd.Env = append(os.Environ(), "FAR_URL="+address)
		for name, value := range s.Env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		cmd.Stderr = t.Output()
		return open(t, &mcp.CommandTransport{Command: cmd})
	}
	if text, err := call(t, start("search"), "echo", map[string]any{"message": "hello"}); err != nil || text != "Echo: hello" {
		t.Errorf("search: echo returns %q, %v", text, err)
	}
	for _, h := range got() {
		if h.Get("Authorization") != "Bearer secret" {
			t.Errorf("the remote server got %v", h)
		}
	}
	together(t, start("together"))
}

// built returns a copy of a configuration that starts the compiled server: it does not get the variables that the go
// command may need.
func built(t *testing.T, path string) string {
	t.Helper()
	text := strings.Replace(read(t, path), "command: go", "command: "+strconv.Quote(program(t, "./examples/everything")), 1)
	text = strings.Replace(text, "args: [run, ./examples/everything, stdio]", "args: [stdio]", 1)
	if strings.Contains(text, "[run") {
		t.Fatalf("%s starts its server in another way", path)
	}
	copied := filepath.Join(t.TempDir(), "bridge.yaml")
	if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return copied
}

// The list of examples names every configuration, with the command to start it.
func TestList(t *testing.T) {
	readme := read(t, "README.md")
	for _, path := range files(t) {
		if want := "go run ./cmd/bridge serve -c examples/" + filepath.ToSlash(path) + "`"; !strings.Contains(readme, want) {
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

// The bridge behind a proxy that follows nginx.conf.
func TestBehindProxy(t *testing.T) {
	c := load(t, "nginx/bridge.yaml")
	upstream, err := url.Parse(serve(t, c))
	if err != nil {
		t.Fatal(err)
	}
	name := "mcp.example.com" // the name in the client's requests
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

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
