package examples

import (
	"bufio"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// engine starts the workflow engine until the test ends, and returns its address. It announces changes at announce.
func engine(t *testing.T, announce string) string {
	t.Helper()
	cmd := exec.Command(program(t, "./examples/workflow-tools"), "-listen", "127.0.0.1:0", "-announce", announce)
	said, err := cmd.StdoutPipe()
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
	address := strings.TrimPrefix(strings.TrimSpace(line), "the workflows are at ")
	if !strings.HasPrefix(address, "http://") {
		t.Fatalf("the engine says %q, want its address", line)
	}
	return address
}

// Workflows are tools, and clients are notified when one is switched off or on, also before the bridge next polls.
func TestWorkflowTools(t *testing.T) {
	var base *url.URL // address of the bridge, which starts later
	door := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(base) }})
	t.Cleanup(door.Close)
	flows := engine(t, door.URL+"/hooks/flows")
	c := loadWith(t, "workflow-tools/bridge.yaml", map[string]string{"FLOWS_URL": flows})
	c.Servers[0].Rest.Refresh = 24 * time.Hour
	address := serve(t, c)
	var err error
	if base, err = url.Parse(address); err != nil {
		t.Fatal(err)
	}
	session := open(t, &mcp.StreamableClientTransport{Endpoint: address + "/flows/mcp"})
	names := func() []string { return slices.Sorted(maps.Keys(list(t, session))) }
	both := []string{"calculate", "web_search"}
	if got := names(); !slices.Equal(got, both) {
		t.Fatalf("tools %q, want %q", got, both)
	}
	for _, step := range []struct {
		tool string
		args map[string]any
		want string // in the text
	}{
		{"calculate", map[string]any{"expression": "(1 + 2) * -3.5 / 2"}, `{"value":-5.25}`},
		{"calculate", map[string]any{"expression": "1 / 0"}, "a division by zero"},
		{"calculate", map[string]any{}, "expression: is missing"},
		{"web_search", map[string]any{"query": "tools", "limit": "2"}, `"url":"https://en.wikipedia.org/wiki/Workflow"`},
		{"web_search", map[string]any{"query": "tools", "limit": 99}, "limit: must be at most 10"},
	} {
		r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: step.tool, Arguments: step.args})
		if err != nil {
			t.Fatalf("%s: %v", step.tool, err)
		}
		if text := r.Content[0].(*mcp.TextContent).Text; !strings.Contains(text, step.want) || strings.Contains(text, "took_ms") {
			t.Errorf("%s %v returns %q, want %q in it", step.tool, step.args, text, step.want)
		}
	}
	for _, step := range []struct {
		body string
		want []string
	}{{`{"active": false}`, []string{"calculate"}}, {`{"active": true}`, both}} {
		res, err := http.Post(flows+"/workflows/web_search", "application/json", strings.NewReader(step.body))
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s", step.body, res.Status, said)
		}
		<-session.changed
		if got := names(); !slices.Equal(got, step.want) {
			t.Errorf("%s: tools %q, want %q", step.body, got, step.want)
		}
	}
}
