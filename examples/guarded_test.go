package examples

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	agentsToken = "agents-may-only-echo"
	opsToken    = "ops-may-use-it-all"
)

// Each caller sees the tools that it may use, callers without a key see nothing, and calls are counted.
func TestGuarded(t *testing.T) {
	base := serve(t, loadWith(t, "guarded/bridge.yaml", map[string]string{"AGENTS_TOKEN": agentsToken, "OPS_TOKEN": opsToken}))
	session := func(token string) client {
		return open(t, &mcp.StreamableClientTransport{Endpoint: base + "/mcp", HTTPClient: &http.Client{Transport: sending{"Authorization": "Bearer " + token}}})
	}
	agents, ops := session(agentsToken), session(opsToken)
	if text, err := call(t, agents, "echo", map[string]any{"message": "hello"}); err != nil || text != "Echo: hello" {
		t.Errorf("echo returns %q, %v", text, err)
	}
	if _, err := call(t, agents, "get-env", nil); err == nil {
		t.Error("agents may call get-env")
	}
	seen, all := slices.Collect(maps.Keys(list(t, agents))), slices.Collect(maps.Keys(list(t, ops)))
	for _, name := range seen {
		if name != "echo" && (name == "get-env" || !strings.HasPrefix(name, "get-")) {
			t.Errorf("agents see %s", name)
		}
	}
	if !slices.Contains(seen, "echo") || !slices.Contains(all, "get-env") || len(all) <= len(seen) {
		t.Errorf("agents see %q, and ops %q", seen, all)
	}
	for token, want := range map[string]int{"": http.StatusUnauthorized, "someone-else-entirely": http.StatusUnauthorized, opsToken: http.StatusOK} {
		status, body := get(t, base+"/metrics", token)
		if status != want {
			t.Errorf("/metrics with the key %q = %d, want %d", token, status, want)
		}
		if line := `,method="tools/call",outcome="ok",server="everything"} 1`; want == http.StatusOK && !strings.Contains(body, line) {
			t.Errorf("/metrics has nothing that ends in %s:\n%s", line, body)
		}
	}
}

func get(t *testing.T, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}
